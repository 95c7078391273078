"""Batches of a read: where they stand, which part of them is sent, and which of them were aborted."""

from __future__ import annotations

from moldau.records.batch import BASE_OFFSET_AT
from moldau.records.builder import build_batch, build_end_transaction_marker
from moldau.records.record import Record
from moldau.share.acquiring import Span
from moldau.share.log_batches import BatchMap, aborted_spans


def batch(base: int, size: int, producer_id: int = -1) -> bytes:
    records = [Record(offset, 1, None, b"v", ()) for offset in range(size)]
    transactional = producer_id >= 0
    built = bytearray(
        build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0 if transactional else -1,
            base_sequence=0 if transactional else -1,
            transactional=transactional,
        )
    )
    return _at(built, base)


def marker(base: int, producer_id: int, *, committed: bool) -> bytes:
    built = build_end_transaction_marker(
        committed=committed, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=1
    )
    return _at(bytearray(built), base)


def _at(built: bytearray, base: int) -> bytes:
    built[BASE_OFFSET_AT:8] = base.to_bytes(8, "big")
    return bytes(built)


def test_where_batches_stand() -> None:
    parts = [batch(0, 3), batch(3, 2), batch(9, 4)]
    records = b"".join(parts)
    batches = BatchMap()
    assert batches.add(records, 100) == len(records)
    assert batches.spans == [Span(0, 2), Span(3, 4), Span(9, 12)]
    assert batches.slice_of(records, 0, 12) is records
    assert bytes(batches.slice_of(records, 4, 4)) == parts[1]
    assert bytes(batches.slice_of(records, 3, 10)) == parts[1] + parts[2]
    assert bytes(batches.slice_of(records, 1, 3)) == parts[0] + parts[1]
    assert bytes(batches.slice_of(records, 10, 12)) == parts[2]


def test_batches_in_pieces_and_no_further_than_needed() -> None:
    parts = [batch(0, 3), batch(3, 2), batch(9, 4), batch(13, 1)]
    batches = BatchMap()
    assert batches.add(parts[0] + parts[1], 10) == len(parts[0] + parts[1])
    assert batches.add(parts[2] + parts[3], 10) == len(parts[2])
    records = b"".join(parts[:3])
    assert batches.end == len(records)
    assert bytes(batches.slice_of(records, 4, 9)) == parts[1] + parts[2]


def test_which_batches_were_aborted() -> None:
    records = b"".join(
        [
            batch(0, 2, 7),
            batch(2, 2),
            batch(4, 1, 8),
            marker(5, 7, committed=False),
            batch(6, 3, 7),
            marker(9, 8, committed=True),
            marker(10, 7, committed=True),
        ]
    )
    assert aborted_spans(records, [(7, 0)]) == [Span(0, 1)]
    assert aborted_spans(records, []) == []
    both = b"".join([batch(0, 2, 7), batch(2, 1, 8), marker(3, 8, committed=False), marker(4, 7, committed=False)])
    assert aborted_spans(both, [(8, 2), (7, 0)]) == [Span(0, 1), Span(2, 2)]
