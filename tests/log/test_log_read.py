"""Reading: the right batches, whole, within limits, with one system call."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_helpers import World, batches, client_batch, read_all

from moldau.log import readable_log
from moldau.protocol.errors import ApiError, ErrorCode


def filled(count: int = 200, records: int = 3, **settings: object) -> World:
    world = World(index_interval_bytes=400, **settings)
    for _ in range(count):
        world.append(records)
    return world


def reads(world: World) -> int:
    return world.disk.operations["read"]


def test_an_offset_inside_a_batch_gives_the_whole_batch() -> None:
    world = filled()
    for offset in range(600):
        found = batches(world.log.read(offset, 1).records)
        assert [header.base_offset for header, _ in found] == [offset // 3 * 3]


def test_outside_of_the_log_is_out_of_range_and_the_end_is_empty() -> None:
    world = filled(5)
    world.log.high_watermark = 15
    world.log.delete_records(4)
    for offset in (3, 16):
        with pytest.raises(ApiError) as refused:
            world.log.read(offset, 100)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert world.log.read(15, 100).size == 0
    assert batches(world.log.read(4, 1).records)[0][0].base_offset == 3


def test_nothing_at_or_beyond_the_limit_is_given() -> None:
    world = filled(20)
    for limit in range(61):
        data = world.log.read(0, 100_000, max_offset=limit)
        found = batches(data.records)
        # A batch that reaches the limit is left out as a whole.
        assert sum(header.record_count for header, _ in found) == limit // 3 * 3
        assert data.next_offset == limit
    assert world.log.read(30, 1000, max_offset=30).size == 0


def test_max_bytes_cuts_at_a_batch_and_the_first_may_be_larger() -> None:
    world = filled(20)
    size = len(client_batch(3))
    assert world.log.read(0, size * 3 - 1).size == size * 2
    assert world.log.read(0, size * 3).size == size * 3
    assert world.log.read(0, 1).size == size
    assert world.log.read(0, 0).size == size
    assert world.log.read(0, 1, min_one_message=False).size == 0
    assert world.log.read(0, size, min_one_message=False).size == size


def test_a_batch_larger_than_everything_around_it() -> None:
    world = World(index_interval_bytes=100)
    world.append(2)
    world.log.append_as_leader(client_batch([bytes(200_000)]), 0)
    world.append(2)
    for offset, size in ((2, 200_000), (0, 61), (3, 61)):
        found = batches(world.log.read(offset, 10).records)
        assert len(found) == 1
        assert found[0][0].size > size


def test_readers_in_order_need_one_read_a_time() -> None:
    world = filled(500)
    offset = 0
    rounds = 0
    before = reads(world)
    while offset < world.log.log_end_offset:
        offset = world.log.read(offset, 5000).next_offset
        rounds += 1
    assert rounds > 5
    assert reads(world) - before == rounds


def test_a_reader_anywhere_needs_one_read() -> None:
    world = filled(500)
    for offset in range(1, 1500, 97):
        before = reads(world)
        world.log.read(offset, 1000)
        assert reads(world) - before == 1


def test_a_reader_that_waits_for_the_high_watermark_needs_one_read_a_time() -> None:
    """As a consumer of a replicated partition: every read ends where the followers are."""
    world = World()
    position = 0
    for i in range(50):
        world.append(3)
        world.append(2)
        committed = world.log.log_end_offset - 2
        before = reads(world)
        data = world.log.read(position, 10_000, max_offset=committed)
        # The place of the limit is the latest append's, that of the start is where the last read ended.
        assert reads(world) - before == 1, i
        position = data.next_offset
        assert position == committed


def test_old_segments_are_read_through_their_files() -> None:
    world = filled(200, segment_bytes=2000)
    assert len(world.log.segments) > 10
    expected = read_all(world.log)
    reopened = world.reopen()
    assert read_all(reopened) == expected
    assert [batches(reopened.read(offset, 1).records)[0][0].base_offset for offset in range(0, 600, 3)] == list(
        range(0, 600, 3)
    )


def test_only_one_old_segment_stays_mapped() -> None:
    world = filled(200, segment_bytes=2000)
    for offset in (0, 300, 100, 500, 1):
        world.log.read(offset, 100)
    mapped = [segment for segment in world.log.segments[:-1] if segment.offset_index._view is not None]
    assert len(mapped) <= 1


def test_gaps_between_batches_and_segments_are_stepped_over() -> None:
    world = World(segment_bytes=400, index_interval_bytes=100)
    for base in (0, 10, 20, 90, 92, 200, 300):
        world.log.append_as_follower(client_batch(2, base_offset=base))
        if base == 20:
            world.log.roll()
    assert [record.offset for record in read_all(world.log)] == [
        offset + i for offset in (0, 10, 20, 90, 92, 200, 300) for i in (0, 1)
    ]
    for asked, got in ((2, 10), (21, 20), (22, 90), (94, 200), (250, 300)):
        assert batches(world.log.read(asked, 10).records)[0][0].base_offset == got
    assert world.log.read(250, 1000, max_offset=260).size == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 2500), min_size=1, max_size=60), st.integers(1, 4000), st.integers(0, 1500))
def test_any_sizes_any_limits(sizes: list[int], max_bytes: int, interval: int) -> None:
    world = World(index_interval_bytes=interval, segment_bytes=6000)
    for size in sizes:
        world.log.append_as_leader(client_batch([bytes(size)]), 0)
    assert [len(record.value or b"") for record in read_all(world.log, max_bytes=max_bytes)] == sizes
    for start in range(0, len(sizes), 7):
        data = world.log.read(start, max_bytes)
        assert data.size <= max_bytes or len(batches(data.records)) == 1


@settings(deadline=None, max_examples=40)
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=2, max_size=60),
    interval=st.sampled_from([100, 1000, 100_000]),
    max_bytes=st.integers(100, 20_000),
    data=st.data(),
)
def test_what_is_read_to_be_sent_is_cut_where_it_is_read(
    sizes: list[int], interval: int, max_bytes: int, data: st.DataObject
) -> None:
    world = World(index_interval_bytes=interval, segment_bytes=30_000)
    for size in sizes:
        world.log.append_as_leader(client_batch([bytes(size)]), 0)
    limit = data.draw(st.integers(1, len(sizes)))
    offset = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readable_log, "CUT_FIRST_BYTES", 100)
        while offset < limit:
            sent = world.log.read(offset, max_bytes, max_offset=limit, to_send=True)
            plain = world.log.read(offset, max_bytes, max_offset=limit)
            assert bytes(sent.records) == bytes(plain.records)
            assert (sent.size, sent.next_offset) == (plain.size, plain.next_offset)
            offset = sent.next_offset
