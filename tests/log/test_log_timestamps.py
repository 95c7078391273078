"""Offsets by time and by epoch."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_helpers import START_MS, World, client_batch

from moldau.records.compression import Codec


def test_the_first_record_as_young_as_asked_for() -> None:
    world = World()
    world.append(3, timestamps=[START_MS + 5, START_MS + 1, START_MS + 9], codec=Codec.GZIP, epoch=2)
    world.append(2, timestamps=[START_MS + 3, START_MS + 20], epoch=3)
    assert world.log.offset_for_timestamp(START_MS) == (START_MS + 5, 0, 2)
    assert world.log.offset_for_timestamp(START_MS + 6) == (START_MS + 9, 2, 2)
    assert world.log.offset_for_timestamp(START_MS + 10) == (START_MS + 20, 4, 3)
    assert world.log.offset_for_timestamp(START_MS + 21) is None


def test_records_before_the_log_start_do_not_count() -> None:
    world = World()
    world.append(3, timestamps=[START_MS + 1, START_MS + 2, START_MS + 3])
    world.log.high_watermark = 3
    world.log.delete_records(2)
    assert world.log.offset_for_timestamp(START_MS) == (START_MS + 3, 2, 0)


def test_the_youngest_record_and_the_ends() -> None:
    world = World(segment_bytes=300)
    assert world.log.max_timestamp_offset() is None
    for i, late in enumerate([0, 50, 3, 50, 7, 8]):
        world.append(2, timestamps=[START_MS + late - 1, START_MS + late], epoch=i)
    assert world.log.max_timestamp_offset() == (START_MS + 50, 3, 1)
    assert world.log.earliest_offset() == (-1, 0, 0)
    assert world.log.latest_offset() == (-1, 12, 5)


def test_one_interval_is_walked_and_one_batch_opened() -> None:
    world = World(index_interval_bytes=500)
    for i in range(2000):
        world.append(1, timestamp=START_MS + i)
    for clean in (False, True):
        if clean:
            world.reopen()
        world.log.offset_for_timestamp(START_MS)
        world.log.max_timestamp_offset()
        before = world.disk.operations.copy()
        assert world.log.offset_for_timestamp(START_MS + 1234) == (START_MS + 1234, 1234, 0)
        assert (world.disk.operations - before)["read"] == 1
        before = world.disk.operations.copy()
        assert world.log.max_timestamp_offset() == (START_MS + 1999, 1999, 0)
        assert (world.disk.operations - before)["read"] == 1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(-1, 40), min_size=1, max_size=4), min_size=1, max_size=40),
    st.sampled_from([0, 150, 4096]),
    st.booleans(),
)
def test_any_order_of_timestamps(stamps: list[list[int]], interval: int, restart: bool) -> None:
    world = World(index_interval_bytes=interval, segment_bytes=800)
    flat: list[int] = []
    for batch in stamps:
        times = [START_MS + t if t >= 0 else -1 for t in batch]
        world.log.append_as_leader(client_batch(len(batch), timestamps=times), 0)
        flat += times
    if restart:
        world.reopen()
    for target in range(START_MS, START_MS + 42, 3):
        expected = next(((t, offset) for offset, t in enumerate(flat) if t >= target), None)
        found = world.log.offset_for_timestamp(target)
        assert (found and (found.timestamp, found.offset)) == expected
    youngest = max(flat)
    found = world.log.max_timestamp_offset()
    assert (found.offset if found else None) == (flat.index(youngest) if youngest >= 0 else None)


# ---- epochs (the rules of KIP-101)


def test_end_offsets_of_epochs() -> None:
    world = World()
    assert world.log.end_offset_for_epoch(0) == (-1, -1)
    for epoch, count in ((2, 3), (2, 1), (5, 2), (9, 4)):
        world.append(count, epoch=epoch)
    assert world.log.epochs.entries() == [(2, 0), (5, 4), (9, 6)]
    for log in (world.log, world.reopen()):
        assert log.end_offset_for_epoch(1) == (1, 0)
        assert log.end_offset_for_epoch(2) == (2, 4)
        assert log.end_offset_for_epoch(4) == (2, 4)
        assert log.end_offset_for_epoch(5) == (5, 6)
        assert log.end_offset_for_epoch(9) == (9, 10)
        assert log.end_offset_for_epoch(10) == (-1, -1)
        assert log.end_offset_for_epoch(-1) == (-1, -1)


def test_an_epoch_without_records_gives_way() -> None:
    world = World()
    world.append(2, epoch=1)
    world.log.begin_leader_epoch(3)
    assert world.log.end_offset_for_epoch(3) == (3, 2)
    world.log.begin_leader_epoch(4)
    assert world.log.epochs.entries() == [(1, 0), (4, 2)]
    world.append(1, epoch=4)
    assert world.log.end_offset_for_epoch(1) == (1, 2)


def test_epochs_are_cut_with_the_log() -> None:
    world = World(segment_bytes=300)
    for epoch in range(8):
        world.append(2, epoch=epoch)
    world.log.truncate_to(9)
    assert world.log.epochs.entries()[-1] == (4, 8)
    world.log.high_watermark = 9
    world.log.delete_records(5)
    assert world.log.epochs.entries() == [(2, 5), (3, 6), (4, 8)]
    assert world.log.earliest_offset() == (-1, 5, 2)


@pytest.mark.parametrize(
    "content", [b"0\n1\n", b"0\n2\n1 0\n", b"1\n0\n", b"0\n1\n1 0 9\n", b"nonsense", b"", b"0\n1\n1 0"]
)
def test_a_damaged_epoch_checkpoint_does_not_stop_the_log(content: bytes) -> None:
    world = World()
    world.append(1, epoch=1)
    world.append(1, epoch=2)
    world.log.close()
    path = world.path("leader-epoch-checkpoint")
    world.disk.write_atomically(path, content)
    for clean in (True, False):
        assert world.open(clean=clean).epochs.entries() == [(1, 0), (2, 1)]
