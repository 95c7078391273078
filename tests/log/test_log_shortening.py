"""Truncation, retention, deletion of records, replacement of segments: what goes, what stays, in which order."""

from __future__ import annotations

import pytest
from log_helpers import START_MS, World, client_batch, produced, read_all

from moldau.log.names import LOG_SUFFIX
from moldau.log.segment import Segment
from moldau.protocol.errors import ApiError, ErrorCode

SIZE = len(client_batch(1))


def filled(count: int = 20, **settings: object) -> World:
    """Two records of one byte timestamps apart per segment."""
    settings.setdefault("segment_bytes", 2 * SIZE)
    world = World(**settings)
    for i in range(count):
        world.append(1, timestamp=START_MS + i)
    world.log.high_watermark = world.log.log_end_offset
    return world


def bases(world: World) -> list[int]:
    return [segment.base_offset for segment in world.log.segments]


# ---- truncation


@pytest.mark.parametrize("target", [0, 1, 2, 7, 18, 19, 20, 25])
def test_truncation_cuts_at_the_offset(target: int) -> None:
    world = filled()
    expected = read_all(world.log)[:target]
    assert world.log.truncate_to(target) is (target < 20)
    end = min(target, 20)
    assert world.log.log_end_offset == end
    assert world.log.high_watermark == end
    assert world.log.recovery_point <= end
    assert read_all(world.log) == expected
    assert world.append(1, timestamp=START_MS) == end
    world.log.close(clean=False)
    assert world.open(clean=False).log_end_offset == end + 1


def test_a_batch_that_reaches_the_offset_goes_as_a_whole() -> None:
    world = World()
    world.append(5)
    world.append(5)
    world.log.truncate_to(7)
    assert world.log.log_end_offset == 7
    assert [record.offset for record in read_all(world.log)] == [0, 1, 2, 3, 4]
    assert world.append(1) == 7


def test_truncated_records_do_not_come_back() -> None:
    world = filled()
    world.log.flush()
    world.log.truncate_to(5)
    world.disk.crash()
    log = world.open(clean=False, recovery_point=5)
    assert log.log_end_offset == 5


def test_truncation_before_the_first_segment_begins_again() -> None:
    world = World()
    world.log.truncate_fully_and_start_at(100)
    world.append(1)
    world.log.truncate_to(50)
    assert (world.log.log_start_offset, world.log.log_end_offset, bases(world)) == (50, 50, [50])
    assert world.append(1) == 50


def test_beginning_again_somewhere_else() -> None:
    world = filled()
    world.log.append_as_leader(produced(1, 0), 3)
    world.log.truncate_fully_and_start_at(1000)
    log = world.log
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (1000, 1000, 1000)
    assert bases(world) == [1000]
    assert log.epochs.entries() == []
    assert log.active_producers() == []
    assert world.names(".snapshot") == []
    assert world.append(1, epoch=4) == 1000
    world.disk.crash(keep_unsynced=True)
    assert world.open(clean=False, log_start_offset=1000).log_end_offset == 1001


# ---- retention


def test_retention_by_size_keeps_at_least_that_much() -> None:
    world = filled(20, retention_bytes=7 * SIZE)
    assert world.log.delete_old_segments(START_MS) == 6
    assert bases(world)[0] == 12
    assert world.log.log_start_offset == 12
    assert world.log.size == 8 * SIZE
    with pytest.raises(ApiError) as refused:
        world.log.read(11, 100)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_retention_by_time_goes_by_the_youngest_record_of_a_segment() -> None:
    world = filled(20, retention_ms=1000)
    assert world.log.delete_old_segments(START_MS + 1001) == 0
    assert world.log.delete_old_segments(START_MS + 1002) == 1
    assert world.log.delete_old_segments(START_MS + 1010) == 4
    assert bases(world)[0] == 10


def test_everything_may_be_too_old_but_a_segment_is_left() -> None:
    world = filled(20, retention_ms=1000)
    assert world.log.delete_old_segments(START_MS + 10_000) == 10
    assert bases(world) == [20]
    assert (world.log.log_start_offset, world.log.log_end_offset) == (20, 20)
    assert world.log.delete_old_segments(START_MS + 10_000) == 0
    assert world.append(1) == 20


def test_records_without_timestamps_are_as_old_as_their_file() -> None:
    world = World(segment_bytes=2 * SIZE, retention_ms=1000)
    for _ in range(4):
        world.append(1, timestamp=-1)
    world.log.high_watermark = 4
    assert world.log.delete_old_segments(START_MS + 1000) == 0
    assert world.log.delete_old_segments(START_MS + 1001) > 0


def test_what_is_not_committed_stays() -> None:
    world = filled(20, retention_ms=0)
    world.log.high_watermark = 5
    assert world.log.delete_old_segments(START_MS + 10_000) == 2
    assert bases(world)[0] == 4


def test_a_compacted_topic_loses_only_what_is_before_its_start() -> None:
    world = filled(20, retention_ms=0, retention_bytes=0, cleanup_delete=False, cleanup_compact=True)
    assert world.log.delete_old_segments(START_MS + 10_000) == 0
    world.log.delete_records(7)
    assert world.log.delete_old_segments(START_MS + 10_000) == 3
    assert bases(world)[0] == 6


def test_deleting_records_moves_the_start_at_once_and_files_later() -> None:
    world = filled(20)
    assert world.log.delete_records(7) == 7
    assert world.log.delete_records(3) == 7
    assert bases(world)[0] == 0
    assert [record.offset for record in read_all(world.log)] == list(range(7, 20))
    with pytest.raises(ApiError) as refused:
        world.log.delete_records(21)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert world.log.delete_old_segments(START_MS) == 3
    world.reopen()
    assert world.log.log_start_offset == 7


def test_files_are_marked_first_and_removed_after_a_while() -> None:
    world = filled(6, retention_bytes=0, file_delete_delay_ms=60_000)
    world.log.delete_old_segments(START_MS)
    assert len(world.names(".log.deleted")) == 3
    world.clock.advance(59_999)
    assert len(world.names(".log.deleted")) == 3
    world.clock.advance(1)
    assert [name for name in world.names() if ".deleted" in name] == []
    assert world.log.leaving == []


def test_snapshots_go_with_their_segments() -> None:
    world = filled(20, retention_bytes=4 * SIZE)
    world.log.delete_old_segments(START_MS)
    assert all(int(name[:20]) >= bases(world)[0] for name in world.names(".snapshot"))


def test_a_disk_that_fails_while_removing_files_is_noticed() -> None:
    world = filled(6, retention_bytes=0)
    world.log.delete_old_segments(START_MS)
    world.disk.fail("remove")
    world.clock.advance(60_000)
    assert len(world.failures) == 1


# ---- replacing


def compacted(world: World, old: list[Segment], keep: list[int]) -> Segment:
    """A segment with some of the records of others, as the cleaner leaves it."""
    new = Segment.create(world.disk, world.log.directory, old[0].base_offset, now_ms=START_MS, suffix=".cleaned")
    for offset in keep:
        batch = client_batch(1, base_offset=offset, timestamp=START_MS + offset)
        position = new.file.append([batch])
        new.index_batch(batch, position, 0)
        new.size = position + len(batch)
    new.write_indexes()
    new.file.sync()
    return new


def test_compacted_segments_take_the_place_of_others() -> None:
    world = filled(20, cleanup_compact=True, cleanup_delete=False)
    world.log.read(3, 100)
    old = world.log.segments[:3]
    world.log.replace_segments([compacted(world, old, [1, 4])], old)
    assert bases(world) == [0, 6, 8, 10, 12, 14, 16, 18]
    expected = [1, 4, *range(6, 20)]
    assert [record.offset for record in read_all(world.log)] == expected
    assert [name for name in world.names() if name.endswith((".cleaned", ".swap"))] == []
    world.clock.advance(60_000)
    for clean in (True, False):
        world.log.close()
        assert [record.offset for record in read_all(world.open(clean=clean))] == expected


@pytest.mark.parametrize("operations", range(1, 30))
def test_a_crash_in_the_midst_of_a_replacement_leaves_one_or_the_other(operations: int) -> None:
    world = filled(8, cleanup_compact=True, cleanup_delete=False)
    world.log.flush()
    old = world.log.segments[:2]
    new = compacted(world, old, [1, 3])
    world.disk.fail("rename", after=operations - 1)
    try:
        world.log.replace_segments([new], old)
    except ApiError:
        pass
    world.disk.crash(keep_unsynced=True)
    found = [record.offset for record in read_all(world.open(clean=False, recovery_point=8))]
    assert found in ([1, 3, 4, 5, 6, 7], list(range(8)))


# ---- moving


def test_a_log_can_be_moved_while_it_is_used() -> None:
    world = filled(6, retention_bytes=0)
    world.log.delete_old_segments(START_MS)
    world.log.rename_directory("/data/orders-0.0123-future")
    assert world.append(1) == 6
    assert len(read_all(world.log)) == 1
    world.clock.advance(60_000)
    names = world.disk.list_dir("/data/orders-0.0123-future")
    assert not [name for name in names if ".deleted" in name]
    assert not world.disk.exists("/data/orders-0")
    world.log.rename_directory("/data/orders-0")
    assert world.names(LOG_SUFFIX) == ["00000000000000000006.log"]
