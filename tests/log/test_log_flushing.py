"""Durability: who waits for which sync, what survives a power cut, and what a failed sync means."""

from __future__ import annotations

import errno

import pytest
from log_helpers import World, read_all

from moldau.log.errors import LogDirFailure
from moldau.protocol.errors import ErrorCode

Outcome = OSError | None


def lose_power(world: World) -> int:
    point = world.log.recovery_point
    world.disk.crash()
    return world.open(clean=False, recovery_point=point).log_end_offset


def test_only_what_was_synced_survives() -> None:
    world = World()
    world.append(3)
    world.log.flush()
    assert world.log.recovery_point == 3
    world.append(2)
    assert lose_power(world) == 3
    assert world.append(1) == 3


def test_a_clean_close_syncs_everything() -> None:
    world = World(segment_bytes=300)
    for _ in range(10):
        world.append(2)
    world.log.close()
    world.disk.crash()
    assert world.open(clean=True).log_end_offset == 20
    assert len(read_all(world.log)) == 20


def test_one_sync_serves_all_who_wait() -> None:
    world = World(flush_messages=1)
    world.disk.hold_syncs = True
    assert world.log.needs_sync_to_commit
    done: list[tuple[str, int, Outcome]] = []

    def waiting(name: str) -> None:
        world.log.flush(lambda error: done.append((name, world.log.recovery_point, error)))

    world.append(1)
    waiting("a")
    for name in "bcd":
        world.append(1)
        waiting(name)
    assert world.disk.syncs_held == 1
    world.disk.finish_syncs()
    # What was appended after the sync began is not covered by it.
    assert done == [("a", 1, None)]
    assert world.disk.syncs_held == 1
    world.disk.finish_syncs()
    assert done[1:] == [("b", 4, None), ("c", 4, None), ("d", 4, None)]
    assert world.disk.operations["sync"] == 2
    world.append(1)
    assert lose_power(world) == 4


def test_a_failed_sync_is_final() -> None:
    world = World(flush_messages=1)
    world.disk.hold_syncs = True
    told: list[Outcome] = []
    world.append(1)
    world.log.flush(told.append)
    world.append(1)
    world.log.flush(told.append)
    world.disk.fail("sync", errno.EIO)
    world.disk.finish_syncs()
    assert len(told) == 2
    assert all(error is not None and error.errno == errno.EIO for error in told)
    assert world.log.recovery_point == 0
    assert len(world.failures) == 1
    with pytest.raises(LogDirFailure) as refused:
        world.append(1)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    world.log.flush(told.append)
    assert told[-1] is not None
    with pytest.raises(LogDirFailure):
        world.log.flush()


def test_flush_messages_syncs_every_so_many() -> None:
    world = World(flush_messages=5)
    for _ in range(4):
        world.append(1)
    assert world.log.recovery_point == 0
    world.append(1)
    assert world.log.recovery_point == 5
    world.append(4)
    assert world.log.recovery_point == 5
    world.append(3)
    assert world.log.recovery_point == 12


def test_flush_ms_syncs_after_that_time() -> None:
    world = World(flush_ms=100)
    world.append(1)
    world.clock.advance(99)
    world.append(1)
    assert world.log.recovery_point == 0
    world.clock.advance(1)
    assert world.log.recovery_point == 2
    world.clock.advance(1000)
    before = world.disk.operations["sync"]
    world.clock.advance(1000)
    assert world.disk.operations["sync"] == before
    world.append(1)
    world.clock.advance(100)
    assert world.log.recovery_point == 3
    world.append(1)
    world.log.close()
    world.clock.advance(1000)


def test_a_rolled_segment_is_synced_in_the_background() -> None:
    world = World(segment_bytes=200)
    world.disk.hold_syncs = True
    for _ in range(3):
        world.append(1)
    assert len(world.log.segments) > 1
    assert world.log.recovery_point == 0
    while world.disk.finish_syncs():
        pass
    assert world.log.recovery_point >= world.log.active_segment.base_offset


def test_truncation_moves_the_recovery_point_back() -> None:
    world = World()
    for _ in range(5):
        world.append(1)
    world.log.flush()
    world.log.truncate_to(2)
    assert world.log.recovery_point == 2
    world.append(1)
    world.append(1)
    assert lose_power(world) == 2


def test_a_sync_that_ends_after_a_truncation_promises_no_more_than_there_is() -> None:
    world = World()
    world.append(5)
    world.append(5)
    world.disk.hold_syncs = True
    world.log.flush(lambda error: None)
    world.log.truncate_to(5)
    world.append(1)
    world.disk.finish_syncs()
    assert world.log.recovery_point <= 5


def test_checkpoint_writes_the_indexes_of_the_active_segment() -> None:
    world = World(index_interval_bytes=100)
    for _ in range(10):
        world.append(2)
    world.log.begin_leader_epoch(4)
    path = world.path("00000000000000000000.index")
    assert world.disk.file_size(path) == 0
    world.log.checkpoint()
    written = world.disk.file_size(path)
    assert written > 0
    assert b"4 20" in world.disk.read_bytes(world.path("leader-epoch-checkpoint"))
    for _ in range(10):
        world.append(2)
    world.log.checkpoint()
    assert world.disk.file_size(path) > written
