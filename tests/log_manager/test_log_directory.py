"""Names of partition directories, and the checkpoint that renders only what changed."""

from __future__ import annotations

from random import Random

import pytest

from moldau.log.checkpoints import read_offsets
from moldau.log.log_directory import (
    DirectoryKind,
    OffsetCheckpoint,
    PartitionDirectory,
    marked_directory,
    parse_partition_directory,
)
from moldau.testing.disk import SimulatedDisk


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("orders-0", PartitionDirectory("orders", 0, DirectoryKind.CURRENT)),
        ("a-b.c_d-12", PartitionDirectory("a-b.c_d", 12, DirectoryKind.CURRENT)),
        ("x-1.b-delete-0", PartitionDirectory("x-1.b-delete", 0, DirectoryKind.CURRENT)),
        ("orders-0.0123456789abcdef-delete", PartitionDirectory("orders", 0, DirectoryKind.DELETED)),
        ("a.b-3.0123456789abcdef-future", PartitionDirectory("a.b", 3, DirectoryKind.FUTURE)),
        ("orders-7.0123456789abcdef-stray", PartitionDirectory("orders", 7, DirectoryKind.STRAY)),
        ("meta.properties", None),
        ("recovery-point-offset-checkpoint", None),
        ("lost+found", None),
        ("-0", None),
        ("orders-", None),
        ("orders-x", None),
        ("bad name-0", None),
        ("orders-99999999999", None),
        ("..", None),
    ],
)
def test_names_of_directories(name: str, parsed: PartitionDirectory | None) -> None:
    assert parse_partition_directory(name) == parsed


@pytest.mark.parametrize("kind", [DirectoryKind.DELETED, DirectoryKind.FUTURE, DirectoryKind.STRAY])
def test_marked_names_are_read_back_and_differ(kind: DirectoryKind) -> None:
    random = Random(3)
    first, second = (marked_directory("some.topic-1", 4, kind, random) for _ in range(2))
    assert first != second
    assert parse_partition_directory(first) == PartitionDirectory("some.topic-1", 4, kind)


def test_a_checkpoint_is_what_kafka_reads() -> None:
    disk = SimulatedDisk()
    disk.make_dirs("/d")
    checkpoint = OffsetCheckpoint(disk, "/d/c")
    checkpoint.set(("t", 0), 5)
    checkpoint.set(("u", 1), 6)
    checkpoint.set(("t", 0), 7)
    checkpoint.write(sync=True)
    assert disk.read_bytes("/d/c") == b"0\n2\nt 0 7\nu 1 6\n"
    checkpoint.remove(("t", 0))
    checkpoint.remove(("never", 0))
    checkpoint.write(sync=True)
    assert read_offsets(disk, "/d/c") == {("u", 1): 6}


def test_a_checkpoint_is_written_only_when_it_changed() -> None:
    disk = SimulatedDisk()
    disk.make_dirs("/d")
    checkpoint = OffsetCheckpoint(disk, "/d/c")
    checkpoint.write(sync=True)
    checkpoint.set(("t", 0), 5)
    checkpoint.write(sync=True)
    checkpoint.set(("t", 0), 5)
    checkpoint.write(sync=True)
    again = OffsetCheckpoint(disk, "/d/c")
    again.load()
    again.write(sync=True)
    assert disk.operations["atomic"] == 1
    assert again.get(("t", 0)) == 5
