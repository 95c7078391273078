"""What the simulated disk loses, tears and breaks."""

from __future__ import annotations

import errno
from random import Random

import pytest

from moldau.testing.disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_dirs("/d")
    return disk


def test_a_crash_loses_what_was_not_synced(disk: SimulatedDisk) -> None:
    file = disk.open("/d/a")
    file.append([b"one"])
    file.sync()
    file.append([b"two"])
    other = disk.open("/d/b")
    other.append([b"never synced"])
    disk.crash()
    assert disk.read_bytes("/d/a") == b"one"
    assert not disk.exists("/d/b")
    with pytest.raises(ValueError, match="not open"):
        file.append([b"x"])


def test_a_dead_process_loses_nothing(disk: SimulatedDisk) -> None:
    disk.open("/d/a").append([b"one"])
    disk.crash(keep_unsynced=True)
    assert disk.read_bytes("/d/a") == b"one"


def test_a_crash_may_tear_the_last_write_anywhere() -> None:
    found = set()
    for seed in range(400):
        disk = SimulatedDisk()
        disk.make_dirs("/d")
        file = disk.open("/d/a")
        file.append([b"durable."])
        file.sync()
        file.append([b"abc"])
        file.append([b"de"])
        disk.crash(Random(seed))
        found.add(disk.read_bytes("/d/a"))
    assert found == {b"durable." + b"abcde"[:i] for i in range(6)}


def test_names_survive_in_order() -> None:
    found = set()
    for seed in range(100):
        disk = SimulatedDisk()
        disk.make_dirs("/d")
        for name in "abc":
            disk.write_atomically(f"/d/{name}", b"x")
        for name in "abc":
            disk.rename(f"/d/{name}", f"/d/{name}.deleted")
        disk.crash(Random(seed))
        found.add(tuple(disk.list_dir("/d")))
    assert found == {
        ("a", "b", "c"),
        ("a.deleted", "b", "c"),
        ("a.deleted", "b.deleted", "c"),
        ("a.deleted", "b.deleted", "c.deleted"),
    }


def test_an_unsynced_replacement_may_come_out_empty(disk: SimulatedDisk) -> None:
    disk.write_atomically("/d/a", b"old")
    disk.write_atomically("/d/a", b"new", sync=False)
    disk.sync_dir("/d")
    disk.crash()
    assert disk.read_bytes("/d/a") == b""


def test_a_sync_covers_what_was_written_when_it_began(disk: SimulatedDisk) -> None:
    disk.hold_syncs = True
    file = disk.open("/d/a")
    file.append([b"before"])
    ended: list[OSError | None] = []
    file.sync(ended.append)
    file.append([b"after"])
    assert ended == []
    assert disk.finish_syncs() == 1
    assert ended == [None]
    disk.crash()
    assert disk.read_bytes("/d/a") == b"before"


def test_faults_come_when_told(disk: SimulatedDisk) -> None:
    disk.fail("write", errno.EIO, ending=".log", after=1)
    index, log = disk.open("/d/a.index"), disk.open("/d/a.log")
    index.append([b"x"])
    log.append([b"x"])
    with pytest.raises(OSError, match="rror") as failed:
        log.append([b"x"])
    assert failed.value.errno == errno.EIO
    log.append([b"x"])
    disk.capacity = 5
    with pytest.raises(OSError, match="pace") as full:
        log.append([b"12345"])
    assert full.value.errno == errno.ENOSPC
    # As on a real disk, what fitted was written.
    assert disk.read_bytes("/d/a.log") == b"xx12"
    disk.heal()
    log.append([b"12345"])


def test_the_same_seed_gives_the_same_crash() -> None:
    def run(seed: int) -> list[bytes]:
        disk = SimulatedDisk()
        disk.make_dirs("/d")
        files = [disk.open(f"/d/{i}") for i in range(5)]
        for file in files:
            file.append([b"a"])
            file.sync()
            file.append([b"bcdefgh"])
        disk.crash(Random(seed))
        return [disk.read_bytes(f"/d/{i}") for i in range(5)]

    assert run(7) == run(7)
    assert run(7) != run(8)


def test_a_directory_whose_renaming_is_lost_is_there_again() -> None:
    disk = SimulatedDisk()
    disk.make_dirs("/data/old")
    with_file = disk.open("/data/old/file")
    with_file.append([b"x"])
    with_file.sync()
    disk.rename("/data/old", "/data/new")
    disk.crash()
    assert disk.list_dir("/data/old") == ["file"]
    disk.rename("/data/old", "/data/newer")
    assert disk.read_bytes("/data/newer/file") == b"x"


def test_syncs_that_overlap_cover_only_what_each_began_with(disk: SimulatedDisk) -> None:
    disk.hold_syncs = True
    file = disk.open("/d/a")
    file.append([b"1"])
    file.sync(lambda error: None)
    file.append([b"2"])
    file.sync(lambda error: None)
    file.append([b"3"])
    file.append([b"4"])
    disk.finish_syncs()
    disk.crash()
    assert disk.read_bytes("/d/a") == b"12"
