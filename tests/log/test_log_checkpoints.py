"""The small files beside the segments: text checkpoints, partition.metadata, the mark of a clean shutdown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.log.checkpoints import (
    CheckpointError,
    read_clean_shutdown,
    read_offsets,
    write_clean_shutdown,
    write_offsets,
)
from moldau.log.names import file_name, offset_in_name
from moldau.log.partition_metadata import read_partition_metadata, write_partition_metadata
from moldau.testing.disk import SimulatedDisk


def disk_with(path: str = "", content: bytes = b"") -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_dirs("/d")
    if path:
        disk.write_atomically(path, content)
    return disk


def test_offsets_look_as_kafkas() -> None:
    disk = disk_with()
    write_offsets(disk, "/d/recovery-point-offset-checkpoint", {("orders", 0): 12, ("a.b_c-d", 17): 2**40})
    written = disk.read_bytes("/d/recovery-point-offset-checkpoint")
    assert written == b"0\n2\norders 0 12\na.b_c-d 17 1099511627776\n"


@given(
    st.dictionaries(
        st.tuples(st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 10**6)),
        st.integers(0, 2**62),
    )
)
def test_offsets_come_back(offsets: dict[tuple[str, int], int]) -> None:
    disk = disk_with()
    write_offsets(disk, "/d/c", offsets)
    assert read_offsets(disk, "/d/c") == offsets


def test_no_checkpoint_has_no_offsets() -> None:
    assert read_offsets(disk_with(), "/d/c") == {}
    assert read_offsets(disk_with("/d/c", b""), "/d/c") == {}


@pytest.mark.parametrize(
    "content", [b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na x 1\n", b"0\n", b"x", b"\xff\xfe"]
)
def test_malformed_checkpoints_are_refused(content: bytes) -> None:
    with pytest.raises(CheckpointError):
        read_offsets(disk_with("/d/c", content), "/d/c")


def test_partition_metadata() -> None:
    disk = disk_with()
    topic_id = bytes(range(16))
    write_partition_metadata(disk, "/d/partition.metadata", topic_id)
    assert disk.read_bytes("/d/partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert read_partition_metadata(disk, "/d/partition.metadata") == topic_id
    assert read_partition_metadata(disk, "/d/none") is None


@pytest.mark.parametrize("content", [b"", b"version: 0\n", b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", b"\xff"])
def test_malformed_partition_metadata_is_refused(content: bytes) -> None:
    with pytest.raises(CheckpointError):
        read_partition_metadata(disk_with("/d/p", content), "/d/p")


def test_the_mark_of_a_clean_shutdown() -> None:
    disk = disk_with()
    assert read_clean_shutdown(disk, "/d/m") is None
    write_clean_shutdown(disk, "/d/m", 42)
    assert disk.read_bytes("/d/m") == b'{"version":0,"brokerEpoch":42}'
    assert read_clean_shutdown(disk, "/d/m") == 42
    # Older brokers left an empty file.
    assert read_clean_shutdown(disk_with("/d/m", b""), "/d/m") == -1


def test_names() -> None:
    assert file_name(42, ".log") == "00000000000000000042.log"
    assert offset_in_name("00000000000000000042.timeindex.deleted") == 42
    for name in ("partition.metadata", "42.log", "0000000000000000004x.log", "leader-epoch-checkpoint", ""):
        assert offset_in_name(name) is None
