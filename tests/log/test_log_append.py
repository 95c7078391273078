"""What a leader accepts from a client, what it refuses and with which error, and what it writes."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from log_helpers import START_MS, World, batches, client_batch, produced, read_all

from moldau.log.errors import LogDirFailure
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.batch import (
    ATTRIBUTES,
    ATTRIBUTES_AT,
    HEADER,
    LAST_OFFSET_DELTA_AT,
    LENGTH_FIELD,
    MAGIC_AT,
    RECORD_COUNT_AT,
    seal,
)
from moldau.records.builder import build_end_transaction_marker
from moldau.records.compression import Codec


def changed(batch: memoryview, position: int, value: bytes) -> memoryview:
    """The batch with some bytes changed and a checksum that fits again."""
    data = bytearray(batch)
    data[position : position + len(value)] = value
    seal(data)
    return memoryview(data)


def test_offsets_and_epoch_are_assigned_and_the_checksum_still_fits() -> None:
    world = World()
    first = world.log.append_as_leader(client_batch(3), 5)
    second = world.log.append_as_leader(client_batch(2), 6)
    assert (first.first_offset, first.last_offset, first.records) == (0, 2, 3)
    assert (second.first_offset, second.last_offset, second.duplicate) == (3, 4, False)
    found = batches(world.log.read(0, 10_000).records)
    assert [(h.base_offset, h.partition_leader_epoch) for h, _ in found] == [(0, 5), (3, 6)]
    assert [record.offset for record in read_all(world.log)] == [0, 1, 2, 3, 4]


def test_the_callers_bytes_are_left_alone() -> None:
    world = World()
    batch = client_batch(2)
    before = bytes(batch)
    world.log.append_as_leader(batch, 1)
    assert bytes(batch) == before


two = bytes(client_batch(1)) + bytes(client_batch(1))
REFUSED: list[tuple[str, bytes | memoryview, ErrorCode]] = [
    ("nothing", b"", ErrorCode.INVALID_RECORD),
    ("less than a header", bytes(client_batch(1))[:40], ErrorCode.INVALID_RECORD),
    ("a cut batch", bytes(client_batch(1))[:-1], ErrorCode.INVALID_RECORD),
    ("two batches", two, ErrorCode.INVALID_RECORD),
    ("a negative length", changed(client_batch(1), 0, b"")[:8].tobytes() + LENGTH_FIELD.pack(-5) + bytes(60),
     ErrorCode.CORRUPT_MESSAGE),
    ("a wrong checksum", bytes(client_batch(1))[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE),
    ("format 0", changed(client_batch(1), MAGIC_AT, b"\x00"), ErrorCode.INVALID_RECORD),
    ("format 1", changed(client_batch(1), MAGIC_AT, b"\x01"), ErrorCode.INVALID_RECORD),
    ("format 3", changed(client_batch(1), MAGIC_AT, b"\x03"), ErrorCode.CORRUPT_MESSAGE),
    ("an offset of its own", changed(client_batch(1), 0, b"\x00" * 7 + b"\x09"), ErrorCode.INVALID_RECORD),
    ("a count that lies", changed(client_batch(2), RECORD_COUNT_AT, b"\x00\x00\x00\x05"), ErrorCode.INVALID_RECORD),
    ("no records", changed(changed(client_batch(1), RECORD_COUNT_AT, bytes(4)), LAST_OFFSET_DELTA_AT, b"\xff" * 4),
     ErrorCode.INVALID_RECORD),
    ("a negative delta", changed(client_batch(1), LAST_OFFSET_DELTA_AT, b"\xff" * 4), ErrorCode.INVALID_RECORD),
    ("codec 5", changed(client_batch(1), ATTRIBUTES_AT, ATTRIBUTES.pack(5)), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ("append time", changed(client_batch(1), ATTRIBUTES_AT, ATTRIBUTES.pack(8)), ErrorCode.INVALID_TIMESTAMP),
    ("a control batch", changed(client_batch(1), ATTRIBUTES_AT, ATTRIBUTES.pack(0x20)), ErrorCode.INVALID_RECORD),
    ("a producer without a sequence", client_batch(1, producer_id=7, producer_epoch=0), ErrorCode.INVALID_RECORD),
    ("the far future", client_batch(1, timestamp=START_MS + 3_600_001), ErrorCode.INVALID_TIMESTAMP),
    ("too large", client_batch([bytes(1_100_000)]), ErrorCode.MESSAGE_TOO_LARGE),
]  # fmt: skip


@pytest.mark.parametrize(("batch", "code"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refused_batches_change_nothing(batch: bytes | memoryview, code: ErrorCode) -> None:
    world = World()
    world.append(1)
    with pytest.raises(ApiError) as refused:
        world.log.append_as_leader(memoryview(batch), 0)
    assert refused.value.code is code
    assert world.log.log_end_offset == 1
    assert world.append(1) == 1


def test_bytes_after_the_batch_that_are_no_batch_are_dropped() -> None:
    world = World()
    world.log.append_as_leader(memoryview(bytes(client_batch(1)) + bytes(10)), 0)
    world.log.append_as_leader(memoryview(two[:-3]), 0)
    assert len(read_all(world.log)) == 2


def test_timestamps_up_to_the_limit_are_taken() -> None:
    world = World()
    assert world.append(1, timestamp=START_MS + 3_600_000) == 0
    assert world.append(1, timestamp=1) == 1


def test_old_timestamps_are_refused_record_by_record_when_the_topic_limits_them() -> None:
    world = World(message_timestamp_before_max_ms=1000)
    with pytest.raises(ApiError) as refused:
        world.log.append_as_leader(client_batch(2, timestamps=[START_MS, START_MS - 1001]), 0)
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    assert refused.value.record_errors is not None
    assert [index for index, _ in refused.value.record_errors] == [1]
    assert world.append(2, timestamps=[START_MS, START_MS - 1000]) == 0


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    world = World(cleanup_compact=True)
    with pytest.raises(ApiError) as refused:
        world.append(2, key=None)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert refused.value.record_errors is not None
    assert [index for index, _ in refused.value.record_errors] == [0, 1]
    assert world.append(2) == 0


def test_deep_validation_finds_records_that_do_not_fit_the_header() -> None:
    batch = bytearray(client_batch(2))
    honest = HEADER.unpack_from(batch)
    lying = bytearray(HEADER.pack(*honest[:6], 4, *honest[7:12], 5)) + batch[HEADER.size :]
    seal(lying)
    with pytest.raises(ApiError) as refused:
        World(deep_validation=True).log.append_as_leader(memoryview(lying), 0)
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_append_time_is_stamped_and_answered() -> None:
    world = World(message_timestamp_type="LogAppendTime")
    world.clock.advance(5)
    info = world.log.append_as_leader(client_batch(2, timestamp=17), 0)
    assert info.log_append_time == START_MS + 5
    header, records = batches(world.log.read(0, 1000).records)[0]
    assert header.is_log_append_time
    assert {record.timestamp for record in records} == {START_MS + 5}
    assert World().log.append_as_leader(client_batch(1), 0).log_append_time == -1


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_topic_with_its_own_codec_recompresses(codec: str) -> None:
    world = World(compression_type=codec)
    world.append(3, codec=Codec.NONE)
    world.append(3, codec=Codec.GZIP)
    found = batches(world.log.read(0, 10_000).records)
    assert {header.codec for header, _ in found} == {Codec[codec.upper()]}
    assert len(read_all(world.log)) == 6


def test_an_uncompressed_topic_unpacks() -> None:
    world = World(compression_type="uncompressed")
    world.append(3, codec=Codec.ZSTD)
    assert batches(world.log.read(0, 10_000).records)[0][0].codec == Codec.NONE


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    world = World(segment_bytes=500)
    with pytest.raises(ApiError) as refused:
        world.log.append_as_leader(client_batch([bytes(600)]), 0)
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_settings_change_while_the_log_is_used() -> None:
    world = World()
    world.append(1)
    world.reconfigure(max_message_bytes=70)
    with pytest.raises(ApiError):
        world.append(1)
    world.reconfigure(max_message_bytes=1000, segment_bytes=300)
    for _ in range(6):
        world.append(1)
    assert len(world.log.segments) > 1


# ---- rolling


def bases(world: World) -> list[int]:
    return [segment.base_offset for segment in world.log.segments]


def test_a_segment_is_rolled_when_the_next_batch_does_not_fit() -> None:
    size = len(client_batch(1))
    world = World(segment_bytes=3 * size)
    for _ in range(7):
        world.append(1)
    assert bases(world) == [0, 3, 6]
    assert world.names(".snapshot") == ["00000000000000000003.snapshot", "00000000000000000006.snapshot"]


def test_a_segment_is_rolled_by_the_records_own_time() -> None:
    world = World(segment_ms=1000)
    for timestamp in (START_MS, START_MS + 1000, START_MS + 1001, START_MS + 1002):
        world.append(1, timestamp=timestamp)
    assert bases(world) == [0, 2]


def test_a_segment_without_timestamps_is_rolled_by_the_clock() -> None:
    world = World(segment_ms=1000)
    world.append(1, timestamp=-1)
    world.clock.advance(1000)
    world.append(1, timestamp=-1)
    world.clock.advance(1)
    world.append(1, timestamp=-1)
    assert bases(world) == [0, 2]


def test_a_segment_is_rolled_when_an_index_is_full() -> None:
    # Room for four entries of the offset index and three of the time index, of which the last is reserved.
    world = World(index_interval_bytes=0, segment_index_bytes=36)
    for i in range(9):
        world.append(1, timestamp=START_MS + i)
    assert bases(world) == [0, 3, 6]


def test_a_segment_is_rolled_when_relative_offsets_run_out() -> None:
    world = World()
    world.append(1)
    far = client_batch(1, base_offset=2**31)
    world.log.append_as_follower(far)
    assert bases(world) == [0, 1]
    world.log.append_as_follower(client_batch(1, base_offset=2**31 + 1))
    assert bases(world) == [0, 1, 2**31 + 1]


def test_jitter_makes_segments_roll_earlier() -> None:
    class Highest:
        def randrange(self, limit: int) -> int:
            return limit - 1

    world = World(segment_ms=1000, segment_jitter_ms=400)
    world.log._random = Highest()  # type: ignore[assignment]
    world.log.roll()
    world.append(1)
    world.log.roll()
    world.append(1, timestamp=START_MS)
    world.append(1, timestamp=START_MS + 601)
    assert bases(world) == [0, 1]
    world.append(1, timestamp=START_MS + 602)
    assert bases(world) == [0, 1, 3]


# ---- what is not a client's


def test_own_batches_may_be_control_batches_and_several() -> None:
    world = World(transaction_verification=False)
    marker = build_end_transaction_marker(
        committed=True, producer_id=9, producer_epoch=0, coordinator_epoch=3, timestamp=START_MS
    )
    info = world.log.append_own(bytes(client_batch(2)) + marker, 4)
    assert (info.first_offset, info.last_offset) == (0, 2)
    found = batches(world.log.read(0, 10_000).records)
    assert [(h.base_offset, h.partition_leader_epoch, h.is_control) for h, _ in found] == [
        (0, 4, False),
        (2, 4, True),
    ]


def test_a_follower_keeps_offsets_and_epochs() -> None:
    leader, follower = World(), World()
    for epoch in (1, 1, 2):
        leader.append(2, epoch=epoch)
    records = bytes(leader.log.read(0, 10_000).records)
    info = follower.log.append_as_follower(records + records[:30])
    assert info is not None
    assert (info.first_offset, info.last_offset) == (0, 5)
    assert bytes(follower.log.read(0, 10_000).records) == records
    assert follower.log.epochs.entries() == [(1, 0), (2, 4)]


def test_a_follower_takes_gaps_but_no_steps_back() -> None:
    world = World()
    world.log.append_as_follower(client_batch(2, base_offset=10))
    assert world.log.log_end_offset == 12
    for base in (0, 11):
        with pytest.raises(ApiError) as refused:
            world.log.append_as_follower(client_batch(1, base_offset=base))
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    world.log.append_as_follower(client_batch(2, base_offset=20))
    assert [record.offset for record in read_all(world.log, 12)] == [20, 21]


def test_a_follower_refuses_damage_and_stops_at_a_later_epoch() -> None:
    world = World()
    damaged = bytearray(client_batch(1))
    damaged[-1] ^= 1
    with pytest.raises(ApiError) as refused:
        world.log.append_as_follower(damaged)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    both = bytes(client_batch(1, leader_epoch=3)) + bytes(client_batch(1, base_offset=1, leader_epoch=4))
    info = world.log.append_as_follower(both, 3)
    assert info is not None
    assert info.last_offset == 0
    assert world.log.append_as_follower(client_batch(1, base_offset=1, leader_epoch=4), 3) is None


def test_replicated_batches_are_spread_over_segments() -> None:
    leader, follower = World(), World(segment_bytes=300)
    for i in range(20):
        leader.append(1, timestamp=START_MS + i)
    follower.log.append_as_follower(leader.log.read(0, 100_000).records)
    assert len(follower.log.segments) > 5
    assert read_all(follower.log) == read_all(leader.log)


# ---- a failing disk


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_failing_disk_takes_the_directory_offline(error: int) -> None:
    world = World()
    world.append(1)
    world.disk.fail("write", error, ending=".log")
    with pytest.raises(LogDirFailure) as failed:
        world.append(1)
    assert failed.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert failed.value.cause.errno == error
    assert world.failures == [failed.value]
    with pytest.raises(LogDirFailure):
        world.append(1)
    world.log.close()
    assert len(world.failures) == 1


def test_a_full_disk_leaves_a_log_that_opens_again() -> None:
    world = World()
    world.disk.capacity = 1000

    def fill() -> None:
        for _ in range(1000):
            world.append(1)

    with pytest.raises(LogDirFailure):
        fill()
    written = world.log.log_end_offset
    assert written > 3
    world.disk.heal()
    world.disk.crash(keep_unsynced=True)
    assert world.open(clean=False).log_end_offset == written
    assert world.append(1) == written


def test_a_read_error_is_a_failure_too() -> None:
    world = World()
    world.append(1)
    world.disk.fail("read", ending=".log")
    with pytest.raises(LogDirFailure):
        world.log.read(0, 100)


@pytest.mark.parametrize("settings", [{}, {"timestamp": START_MS - 5}])
def test_the_latest_append_is_read_with_one_system_call(settings: dict[str, Any]) -> None:
    world = World()
    for _ in range(50):
        world.append(3, **settings)
    world.log.append_as_leader(produced(1, 0), 0)
    before = world.disk.operations.copy()
    world.log.read(150, 10_000)
    assert (world.disk.operations - before) == {"read": 1}
