"""Opening: what a crash, a torn write, damage or another broker left behind, and how little a clean open costs."""

from __future__ import annotations

import pytest
from log_helpers import DIRECTORY, START_MS, World, batches, client_batch, produced, read_all

from moldau.log.names import LOG_SUFFIX
from moldau.log.partition_log import PartitionLog
from moldau.records.builder import build_end_transaction_marker


def filled(batches_of_three: int, **settings: object) -> World:
    world = World(**settings)
    for i in range(batches_of_three):
        world.append(3, timestamp=START_MS + i)
    return world


def last_log(world: World) -> str:
    return world.path(world.names(LOG_SUFFIX)[-1])


def test_a_log_cut_at_every_byte_keeps_every_whole_batch() -> None:
    size = len(client_batch(3))
    template = filled(6)
    whole = template.disk.read_bytes(last_log(template))
    for length in range(3 * size, 6 * size + 1):
        world = World()
        world.log.close()
        world.disk.open(last_log(world)).append([whole[:length]])
        log = world.open(clean=False)
        assert log.log_end_offset == length // size * 3
        assert world.disk.file_size(last_log(world)) == length // size * size
        assert world.append(1) == length // size * 3


@pytest.mark.parametrize("at", [0, 9, 12, 16, 17, 22, 24, 40, 60, 70])
def test_damage_in_the_middle_ends_the_log_before_it(at: int) -> None:
    size = len(client_batch(3))
    world = filled(6)
    before = read_all(world.log)
    world.log.close(clean=False)
    byte = world.disk.read_bytes(last_log(world))[2 * size + at]
    world.disk.corrupt(last_log(world), 2 * size + at, bytes([byte ^ 0x81]))
    log = world.open(clean=False)
    if at == 12:
        # The leader epoch is not covered by the checksum.
        assert log.log_end_offset == 18
    else:
        assert log.log_end_offset == 6
        assert read_all(log) == before[:6]


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("bit", range(64))
def test_a_batch_whose_offset_was_damaged_ends_the_log(bit: int, compact: bool) -> None:
    """No checksum covers an offset: one that became too large is told by the batch that follows."""
    size = len(client_batch(3))
    world = filled(6, cleanup_compact=compact)
    before = read_all(world.log)
    world.log.close(clean=False)
    at = 2 * size + 7 - bit // 8
    byte = world.disk.read_bytes(last_log(world))[at]
    world.disk.corrupt(last_log(world), at, bytes([byte ^ 1 << bit % 8]))
    log = world.open(clean=False)
    assert log.log_end_offset == 6
    assert read_all(log) == before[:6]


def test_damage_in_an_older_segment_takes_the_later_ones_with_it() -> None:
    world = filled(12, segment_bytes=400)
    segments = world.names(LOG_SUFFIX)
    world.log.close(clean=False)
    world.disk.corrupt(world.path(segments[1]), 70, b"\xff")
    log = world.open(clean=False)
    assert log.log_end_offset == int(segments[1][:20])
    assert world.names(LOG_SUFFIX) == segments[:2]
    world.append(1)
    assert len(read_all(log)) == log.log_end_offset


def test_what_is_below_the_recovery_point_is_not_read_again() -> None:
    world = filled(40, segment_bytes=400)
    world.log.close(clean=False)
    first = world.names(LOG_SUFFIX)[0]
    world.disk.corrupt(world.path(first), 70, b"\xff")
    assert world.open(clean=False, recovery_point=100).log_end_offset == 120


def test_a_segment_that_lost_its_end_without_a_trace_ends_the_log() -> None:
    """Unsynced bytes of one file may be lost while those of the next survive."""
    world = filled(8, segment_bytes=400)
    size = len(client_batch(3))
    names = world.names(LOG_SUFFIX)
    world.log.close(clean=False)
    world.disk.open(world.path(names[0])).truncate(size)
    assert world.open(clean=False).log_end_offset == 3
    assert world.names(LOG_SUFFIX) == names[:1]


def test_a_compacted_topic_may_have_such_gaps() -> None:
    world = filled(8, segment_bytes=400, cleanup_compact=True)
    size = len(client_batch(3))
    names = world.names(LOG_SUFFIX)
    world.log.close(clean=False)
    world.disk.open(world.path(names[0])).truncate(size)
    assert world.open(clean=False).log_end_offset == 24


# ---- indexes


@pytest.mark.parametrize("ending", [".index", ".timeindex"])
@pytest.mark.parametrize("which", [0, -1])
@pytest.mark.parametrize("how", ["missing", "cut", "nonsense", "empty"])
def test_lost_and_damaged_indexes_are_made_again(ending: str, which: int, how: str) -> None:
    world = filled(60, segment_bytes=4000, index_interval_bytes=200)
    expected = read_all(world.log)
    world.log.close()
    path = world.path(world.names(ending)[which])
    whole = world.disk.read_bytes(path)
    world.disk.remove(path)
    if how == "cut":
        world.disk.open(path).append([whole[:-3]])
    elif how == "nonsense":
        world.disk.open(path).append([whole[:-12], b"\x80" + b"\xff" * 11])
    elif how == "empty":
        world.disk.open(path)
    log = world.open(clean=True)
    assert log.log_end_offset == 180
    assert read_all(log) == expected
    for offset in range(0, 180, 3):
        assert batches(log.read(offset, 1).records)[0][0].base_offset == offset
    for i in range(60):
        found = log.offset_for_timestamp(START_MS + i)
        assert found is not None
        assert found.offset == 3 * i


@pytest.mark.parametrize("ending", [".index", ".timeindex"])
def test_indexes_that_are_lost_while_the_log_is_open_are_made_again(ending: str) -> None:
    world = filled(60, segment_bytes=4000, index_interval_bytes=200)
    log = world.log

    def look_everywhere() -> None:
        for i in range(60):
            assert batches(log.read(3 * i, 1).records)[0][0].base_offset == 3 * i
            found = log.offset_for_timestamp(START_MS + i)
            assert found is not None
            assert found.offset == 3 * i

    look_everywhere()
    for name in world.names(ending)[:-2]:
        world.disk.remove(world.path(name))
    look_everywhere()


def test_preallocated_indexes_with_blank_tails_are_read() -> None:
    """Apache's broker leaves them so when it is killed."""
    world = filled(40, segment_bytes=4000, index_interval_bytes=200)
    expected = read_all(world.log)
    world.log.close()
    for name in [*world.names(".index"), *world.names(".timeindex")]:
        file = world.disk.open(world.path(name))
        file.append([bytes(12 * 8 * 1000)])
    for clean in (True, False):
        log = world.open(clean=clean)
        assert read_all(log) == expected
        assert log.max_timestamp_offset() == (START_MS + 39, 117, 0)
        log.append_as_leader(client_batch(1), 0)
        log.truncate_to(120)
        log.close()


def test_a_preallocated_segment_with_a_blank_tail_ends_at_the_last_batch() -> None:
    world = filled(5)
    world.log.close()
    world.disk.open(last_log(world)).append([bytes(5000)])
    log = world.open(clean=True)
    assert log.log_end_offset == 15
    assert world.append(1) == 15
    assert len(read_all(log)) == 16


# ---- leftovers


def test_files_on_their_way_out_are_removed() -> None:
    world = filled(3)
    world.log.close()
    for name in ("00000000000000000000.log.deleted", "00000000000000000005.index.cleaned"):
        world.disk.open(world.path(name)).append([b"x"])
    log = world.open(clean=True)
    assert not [name for name in world.names() if name.endswith((".deleted", ".cleaned"))]
    assert log.log_end_offset == 9


def test_a_finished_compaction_is_swapped_in() -> None:
    world = filled(12, segment_bytes=400)
    names = world.names(LOG_SUFFIX)
    world.log.close()
    compacted = bytearray()
    for base in (1, 4):
        compacted += client_batch(1, base_offset=base)
    base, following = int(names[0][:20]), int(names[1][:20])
    assert base == 0
    world.disk.open(world.path("00000000000000000000.log.swap")).append([bytes(compacted)])
    world.disk.open(world.path("00000000000000000000.index.swap"))
    world.disk.open(world.path("00000000000000000000.timeindex.swap"))
    world.reconfigure(cleanup_compact=True)
    log = world.open(clean=False)
    assert not world.names(".swap")
    assert [record.offset for record in read_all(log)][:3] == [1, 4, following]


def test_an_unfinished_compaction_is_forgotten() -> None:
    world = filled(12, segment_bytes=400)
    expected = read_all(world.log)
    world.log.close()
    world.disk.open(world.path("00000000000000000000.log.cleaned")).append([b"half"])
    world.disk.open(world.path("00000000000000000004.log.swap")).append([b"half"])
    log = world.open(clean=True)
    assert read_all(log) == expected
    assert not [name for name in world.names() if name.endswith((".cleaned", ".swap"))]


def test_indexes_and_snapshots_without_a_segment_are_removed() -> None:
    world = filled(12, segment_bytes=400)
    world.log.close()
    before = set(world.names())
    for name in ("00000000000000000001.index", "00000000000000000002.snapshot"):
        world.disk.open(world.path(name))
    world.open(clean=True)
    assert set(world.names()) == before


def test_a_log_whose_files_are_older_than_its_start_begins_again() -> None:
    world = filled(3)
    world.log.close()
    log = world.open(clean=True, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert world.append(1) == 50
    assert world.names(LOG_SUFFIX) == ["00000000000000000050.log"]


def test_a_new_directory_gets_its_topic_id() -> None:
    world = World()
    assert world.disk.read_bytes(world.path("partition.metadata")) == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"


def test_a_torn_topic_id_is_written_again() -> None:
    world = World()
    world.log.close()
    whole = world.disk.read_bytes(world.path("partition.metadata"))
    for torn in (b"", whole[:20]):
        world.disk.write_atomically(world.path("partition.metadata"), torn)
        world.open(clean=False)
        assert world.disk.read_bytes(world.path("partition.metadata")) == whole


# ---- producers and transactions after a crash


def test_producers_and_aborts_are_found_again() -> None:
    world = World(segment_bytes=400, transaction_verification=False)
    for i in range(20):
        world.log.append_as_leader(produced(3, i), 0)
        world.log.append_as_leader(produced(4, i, transactional=True), 0)
        marker = build_end_transaction_marker(
            committed=i % 2 == 0, producer_id=4, producer_epoch=0, coordinator_epoch=1, timestamp=START_MS
        )
        world.log.append_own(marker, 0)
    world.log.append_as_leader(produced(5, 0, transactional=True), 0)

    def state(log: PartitionLog) -> object:
        log.high_watermark = log.log_end_offset
        entries = {e.producer_id: (e.next_sequence, e.transaction_start) for e in log.active_producers()}
        return entries, log.last_stable_offset, log.collect_aborted(0, log.log_end_offset)

    expected = state(world.log)
    for recovery_point in (0, 30, 60):
        world.disk.crash(keep_unsynced=True)
        assert state(world.open(clean=False, recovery_point=recovery_point)) == expected
    world.log.close()
    for name in world.names(".snapshot"):
        # A torn snapshot is skipped, an older one or the log itself is used.
        world.disk.open(world.path(name)).truncate(7)
    assert state(world.open(clean=False, recovery_point=60)) == expected


@pytest.mark.parametrize("content", [b"\x00\x07" + bytes(32), b"\x00\x00" + b"\xff" * 32])
def test_a_damaged_index_of_aborts_is_made_again(content: bytes) -> None:
    world = World(segment_bytes=400, transaction_verification=False)
    for i in range(12):
        world.log.append_as_leader(produced(4, i, transactional=True), 0)
        marker = build_end_transaction_marker(
            committed=False, producer_id=4, producer_epoch=0, coordinator_epoch=1, timestamp=START_MS
        )
        world.log.append_own(marker, 0)
    expected = world.log.collect_aborted(0, 24)
    assert len(expected) == 12
    for which in (0, 1, -1):
        world.log.close()
        world.disk.write_atomically(world.path(world.names(".txnindex")[which]), content)
        assert world.open(clean=True).collect_aborted(0, 24) == expected


# ---- the cost of a clean open


def operations_to_open(world: World) -> dict[str, int]:
    world.log.close()
    before = world.disk.operations.copy()
    world.open(clean=True)
    return dict(world.disk.operations - before)


def test_a_clean_open_costs_the_same_for_a_long_segment() -> None:
    short = operations_to_open(filled(3, index_interval_bytes=200))
    long = operations_to_open(filled(600, index_interval_bytes=200))
    assert short == long
    assert sum(long.values()) <= 6, long


def test_older_segments_cost_only_their_size() -> None:
    one = operations_to_open(filled(10, index_interval_bytes=200))
    world = filled(300, segment_bytes=1000, index_interval_bytes=200)
    many = operations_to_open(world)
    assert many.pop("stat") - one.pop("stat") == len(world.log.segments) - 1
    assert many == one


def test_an_empty_log_costs_almost_nothing() -> None:
    operations = operations_to_open(World())
    assert "read" not in operations
    assert sum(operations.values()) <= 4, operations


def test_the_directory_is_made() -> None:
    world = World()
    assert world.disk.exists(DIRECTORY)
    assert world.names(LOG_SUFFIX) == ["00000000000000000000.log"]
