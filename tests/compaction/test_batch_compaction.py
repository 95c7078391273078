"""What stays of a batch: the latest value of each key, tombstones and markers until their horizon, sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.log.compaction import (
    BYTES_PER_KEY,
    RECORDS_PER_STEP,
    BatchCompactor,
    CompactionStats,
    LastOfProducer,
    LatestOffsets,
    TransactionTracker,
)
from moldau.log.transaction_index import AbortedTransaction
from moldau.records.batch import BatchHeader, iter_batches
from moldau.records.builder import build_batch, build_end_transaction_marker
from moldau.records.compression import Codec, CorruptRecords
from moldau.records.record import Record, read_records, scan_keys, unpack_body

NOW = 1_000_000
DELETE_RETENTION = 5_000


def keyed(offset: int, key: str, value: str | None) -> Record:
    return Record(offset, 1000 + offset, key.encode(), None if value is None else value.encode())


def offsets_of(batches: list[bytes], memory: int = 1 << 20) -> LatestOffsets:
    latest = LatestOffsets(memory)
    for batch in batches:
        header = BatchHeader(batch)
        if not header.is_control:
            body = unpack_body(batch, header)
            if not latest.add(header.base_offset, scan_keys(body, header.record_count), 0):
                break
        latest.latest_offset = header.last_offset
    return latest


def compact(
    batches: list[bytes],
    *,
    latest: LatestOffsets | None = None,
    now: int = NOW,
    producers: Mapping[int, LastOfProducer] | None = None,
    aborted: list[AbortedTransaction] | None = None,
    upper_bound: int = -1,
) -> tuple[list[bytes], BatchCompactor]:
    transactions = TransactionTracker()
    transactions.add_aborted(aborted or [])
    compactor = BatchCompactor(
        latest or offsets_of(batches),
        transactions,
        producers or {},
        CompactionStats(),
        now_ms=now,
        delete_retention_ms=DELETE_RETENTION,
        upper_bound=upper_bound,
    )
    kept = []
    for batch in batches:
        left = run(compactor, batch)
        if left is not None:
            kept.append(left)
    return kept, compactor


def run(compactor: BatchCompactor, batch: bytes) -> bytes | None:
    steps = compactor.compact(memoryview(batch))
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return None if end.value is None else bytes(end.value)


def records_in(batches: list[bytes]) -> Iterator[Record]:
    for batch in batches:
        header = BatchHeader(batch)
        assert header.checksum_matches(batch)
        if not header.is_control:
            yield from read_records(batch)


keys = st.sampled_from([b"a", b"b", b"c", b"longer than any digest could be, so hashed", b""])
values = st.none() | st.binary(max_size=5)


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    offset = 0
    batches = []
    for _ in range(draw(st.integers(1, 6))):
        records = []
        for _ in range(draw(st.integers(1, 5))):
            records.append(Record(offset, 1000 + offset, draw(keys), draw(values)))
            offset += 1
        batches.append(build_batch(records, codec=draw(st.sampled_from(list(Codec)))))
        offset += draw(st.integers(0, 2))
    return batches


@given(batches=logs())
@settings(max_examples=150)
def test_the_final_view_is_that_of_a_dictionary(batches: list[bytes]) -> None:
    everything = list(records_in(batches))
    view = {record.key: record for record in everything}
    kept, _ = compact(batches)
    assert list(records_in(kept)) == sorted(view.values())


@given(batches=logs())
@settings(max_examples=80)
def test_tombstones_go_once_their_horizon_has_passed_and_nothing_else(batches: list[bytes]) -> None:
    once, _ = compact(batches)
    early, _ = compact(once, now=NOW + DELETE_RETENTION - 1)
    assert list(records_in(early)) == list(records_in(once))
    late, _ = compact(once, now=NOW + DELETE_RETENTION)
    assert list(records_in(late)) == [record for record in records_in(once) if record.value is not None]


@given(batches=logs())
@settings(max_examples=80)
def test_compacting_again_changes_nothing(batches: list[bytes]) -> None:
    once, _ = compact(batches)
    again, _ = compact(once)
    assert again == once


@given(batches=logs(), capacity=st.integers(1, 4))
@settings(max_examples=80)
def test_a_small_map_never_loses_a_latest_value(batches: list[bytes], capacity: int) -> None:
    latest = offsets_of(batches, capacity * BYTES_PER_KEY)
    assert len(latest) <= max(capacity, 5), "only the first batch may have more keys than there is room for"
    everything = list(records_in(batches))
    kept = list(records_in(compact(batches, latest=latest)[0]))
    assert {record.key: record for record in kept} == {record.key: record for record in everything}
    assert [record for record in kept if record.offset > latest.latest_offset] == [
        record for record in everything if record.offset > latest.latest_offset
    ]


def test_the_horizon_is_set_once() -> None:
    batches = [build_batch([keyed(0, "a", None)])]
    once, _ = compact(batches)
    header = BatchHeader(once[0])
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW + DELETE_RETENTION
    later, _ = compact(once, now=NOW + 100)
    assert later == once


def test_offsets_and_untouched_batches_stay_as_they_are() -> None:
    batches = [
        build_batch([keyed(0, "a", "old"), keyed(1, "b", "1"), keyed(2, "a", "older")], leader_epoch=4),
        build_batch([keyed(5, "a", "new")]),
    ]
    kept, _ = compact(batches)
    assert kept[1] == batches[1]
    header = BatchHeader(kept[0])
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (0, 2, 4)


def test_records_without_a_key_go() -> None:
    kept, _ = compact([build_batch([Record(0, 0, None, b"?"), keyed(1, "a", "1")])])
    assert [record.offset for record in records_in(kept)] == [1]


def test_the_last_batch_of_a_remembered_producer_stays_as_a_header() -> None:
    batches = [
        build_batch([keyed(0, "a", "1")], producer_id=7, producer_epoch=2, base_sequence=10),
        build_batch([keyed(1, "a", "2")], producer_id=8, producer_epoch=0, base_sequence=0),
        build_batch([keyed(2, "a", "3")]),
    ]
    kept, _ = compact(batches, producers={7: LastOfProducer(0, 2), 8: LastOfProducer(9, 0)})
    headers = [BatchHeader(batch) for batch in kept]
    assert [(header.base_offset, header.record_count) for header in headers] == [(0, 0), (2, 1)]
    assert (headers[0].producer_id, headers[0].producer_epoch, headers[0].base_sequence) == (7, 2, 10)
    forgotten, _ = compact(kept)
    assert [BatchHeader(batch).base_offset for batch in forgotten] == [2]


def test_the_last_batch_before_the_bound_stays_as_a_header() -> None:
    batches = [build_batch([keyed(0, "a", "1"), keyed(1, "a", "2")]), build_batch([keyed(2, "a", "3")])]
    latest = offsets_of(batches)
    kept, _ = compact(batches[:1], latest=latest, upper_bound=2)
    header = BatchHeader(kept[0])
    assert (header.last_offset, header.record_count) == (1, 0)


def test_long_batches_are_worked_through_in_steps() -> None:
    count = RECORDS_PER_STEP * 3 + 1
    batch = build_batch([keyed(offset, f"k{offset % 700}", "v") for offset in range(count)], codec=Codec.LZ4)
    compactor = compact([], latest=offsets_of([batch]))[1]
    assert len(list(compactor.compact(memoryview(batch)))) == 3
    left = run(compactor, batch)
    assert left is not None
    assert len(list(records_in([left]))) == 700


def test_a_damaged_batch_is_never_given_a_new_checksum() -> None:
    batches = [build_batch([keyed(0, "a", "1"), keyed(1, "a", "2")])]
    latest = offsets_of(batches)
    damaged = bytearray(batches[0])
    damaged[-2] ^= 1
    with pytest.raises(CorruptRecords):
        compact([bytes(damaged)], latest=latest)


# ---- transactions


def data(offset: int, key: str, producer: int) -> bytes:
    return build_batch(
        [keyed(offset, key, "v")], producer_id=producer, producer_epoch=0, base_sequence=offset, transactional=True
    )


def marker(offset: int, producer: int, committed: bool) -> bytes:
    return build_end_transaction_marker(
        committed=committed,
        producer_id=producer,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=1000 + offset,
        base_offset=offset,
    )


def shape(batches: list[bytes]) -> list[tuple[int, bool, int]]:
    return [(h.base_offset, h.is_control, h.record_count) for h in map(BatchHeader, batches)]


def test_aborted_records_go_and_do_not_hide_committed_ones() -> None:
    batches = [
        build_batch([keyed(0, "a", "good")]),
        data(1, "a", 5),
        data(2, "b", 6),
        marker(3, 5, False),
        marker(4, 6, True),
    ]
    aborted = [AbortedTransaction(5, 1, 3, 2)]
    latest = offsets_of([batches[0], batches[2], batches[4]])
    kept, compactor = compact(batches, latest=latest, aborted=aborted)
    assert shape(kept) == [(0, False, 1), (2, False, 1), (3, True, 1), (4, True, 1)]
    assert compactor.take_aborted() == aborted
    assert compactor.take_aborted() == []


def test_a_marker_is_given_a_horizon_when_its_transaction_is_gone_and_goes_after_it() -> None:
    batches = [data(0, "a", 5), marker(1, 5, True), build_batch([keyed(2, "a", "newer")])]
    latest = offsets_of(batches)
    once, _ = compact(batches, latest=latest)
    assert shape(once) == [(1, True, 1), (2, False, 1)]
    assert not BatchHeader(once[0]).has_delete_horizon, "the round that removes the data still needs the marker"
    twice, _ = compact(once, latest=latest)
    assert BatchHeader(twice[0]).has_delete_horizon
    early, _ = compact(twice, latest=latest, now=NOW + DELETE_RETENTION - 1)
    assert shape(early) == shape(twice)
    late, _ = compact(twice, latest=latest, now=NOW + DELETE_RETENTION)
    assert shape(late) == [(2, False, 1)]


def test_a_spent_abort_marker_needs_no_index_entry() -> None:
    aborted = [AbortedTransaction(5, 0, 1, 0)]
    kept, compactor = compact([marker(1, 5, False)], aborted=aborted, latest=LatestOffsets(1000))
    assert BatchHeader(kept[0]).has_delete_horizon
    assert compactor.take_aborted() == []


def test_the_marker_of_a_producer_known_only_by_its_epoch_stays_as_a_header() -> None:
    batches = [marker(1, 5, True)]
    producers = {5: LastOfProducer(None, 0)}
    once, _ = compact(batches, latest=LatestOffsets(1000), producers=producers)
    late, _ = compact(once, latest=LatestOffsets(1000), producers=producers, now=NOW + DELETE_RETENTION)
    assert shape(late) == [(1, True, 0)]
    gone, _ = compact(late, latest=LatestOffsets(1000))
    assert gone == []


def test_two_transactions_of_one_producer_are_told_apart() -> None:
    batches = [data(0, "a", 5), marker(1, 5, False), data(2, "b", 5), marker(3, 5, True)]
    aborted = [AbortedTransaction(5, 0, 1, 0)]
    kept, _ = compact(batches, latest=offsets_of([batches[2], batches[3]]), aborted=aborted * 2)
    assert shape(kept) == [(1, True, 1), (2, False, 1), (3, True, 1)]


def test_batches_can_be_walked_after_compaction() -> None:
    batches = [build_batch([keyed(offset, "a", str(offset))]) for offset in range(5)]
    kept, _ = compact(batches)
    assert [header.base_offset for header in iter_batches(b"".join(kept))] == [4]
