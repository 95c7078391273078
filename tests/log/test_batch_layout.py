"""The batch header: where its fields stand, what its bits mean, and walking a buffer of batches."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_helpers import client_batch

from moldau.records.batch import (
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    CRC_AT,
    HEADER,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
    BatchError,
    BatchHeader,
    add_sequence,
    iter_batches,
    seal,
)


def test_every_field_stands_where_its_name_says() -> None:
    assert HEADER.size == HEADER_SIZE == 61
    packed = HEADER.pack(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
    places = [0, LENGTH_AT, LEADER_EPOCH_AT, MAGIC_AT, CRC_AT, 21, LAST_OFFSET_DELTA_AT, BASE_TIMESTAMP_AT]
    places += [MAX_TIMESTAMP_AT, PRODUCER_ID_AT, PRODUCER_EPOCH_AT, BASE_SEQUENCE_AT, RECORD_COUNT_AT, HEADER_SIZE]
    for number, (start, end) in enumerate(pairwise(places), 1):
        assert int.from_bytes(packed[start:end], "big") == number


def test_a_sealed_batch_fits_its_checksum_and_any_change_breaks_it() -> None:
    batch = bytearray(client_batch(2))
    assert BatchHeader(batch).checksum_matches(batch)
    for at in range(21, len(batch)):
        batch[at] ^= 0x10
        assert not BatchHeader(batch).checksum_matches(batch)
        batch[at] ^= 0x10
    # The leader assigns these: they are not covered.
    batch[0:8] = (77).to_bytes(8, "big")
    batch[12:16] = (5).to_bytes(4, "big")
    header = BatchHeader(batch)
    assert header.checksum_matches(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (77, 78, 79)
    assert header.partition_leader_epoch == 5


@pytest.mark.parametrize(
    ("bit", "name"),
    [(3, "is_log_append_time"), (4, "is_transactional"), (5, "is_control"), (6, "has_delete_horizon")],
)
def test_attribute_bits(bit: int, name: str) -> None:
    batch = bytearray(client_batch(1))
    assert getattr(BatchHeader(batch), name) is False
    batch[22] |= 1 << bit
    seal(batch)
    header = BatchHeader(batch)
    assert getattr(header, name) is True
    assert header.codec == 0


def test_sequences_wrap() -> None:
    assert add_sequence(5, 3) == 8
    assert add_sequence(2**31 - 1, 1) == 0
    assert add_sequence(2**31 - 2, 5) == 3
    batch = client_batch(4, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert BatchHeader(batch).last_sequence == 1
    assert BatchHeader(client_batch(4)).last_sequence == -1


@given(st.lists(st.integers(1, 4), max_size=5), st.integers(0, 60), st.integers(0, 9))
def test_walking_stops_before_a_cut_batch(counts: list[int], extra: int, start: int) -> None:
    whole = [bytes(client_batch(count)) for count in counts]
    tail = bytes(client_batch(3))[:extra]
    found = list(iter_batches(bytes(start) + b"".join(whole) + tail, start))
    assert [header.record_count for header in found] == counts
    assert [header.size for header in found] == [len(batch) for batch in whole]
    assert (found[-1].end if found else start) == start + sum(map(len, whole))


@pytest.mark.parametrize(
    ("at", "value"), [(MAGIC_AT, b"\x01"), (LENGTH_AT, b"\xff\xff\xff\xff"), (LENGTH_AT, bytes(4))]
)
def test_walking_refuses_nonsense(at: int, value: bytes) -> None:
    batch = bytearray(client_batch(1))
    batch[at : at + len(value)] = value
    with pytest.raises(BatchError):
        list(iter_batches(batch))
