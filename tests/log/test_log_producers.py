"""Idempotence and transactions: duplicates, gaps, fencing, markers, last stable offset, snapshots."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_helpers import START_MS, World, produced

from moldau.log.errors import CorruptSnapshot
from moldau.log.producer_snapshot import decode_snapshot, encode_snapshot
from moldau.log.producer_state import ProducerEntry, VerificationGuard, restored_entry
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.builder import build_end_transaction_marker

LAST = 2**31 - 1


def world(**settings: object) -> World:
    settings.setdefault("transaction_verification", False)
    return World(**settings)


def append(world: World, *args: int, guard: VerificationGuard | None = None, **settings: object) -> tuple[int, bool]:
    info = world.log.append_as_leader(produced(*args, **settings), 0, guard=guard)
    return info.first_offset, info.duplicate


def refused(world: World, *args: int, **settings: object) -> ErrorCode:
    end = world.log.log_end_offset
    with pytest.raises(ApiError) as caught:
        append(world, *args, **settings)
    assert world.log.log_end_offset == end
    return caught.value.code


def mark(
    world: World,
    producer_id: int,
    *,
    committed: bool,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    transaction_version: int = 1,
) -> int:
    marker = build_end_transaction_marker(
        committed=committed,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp=world.clock.now_ms(),
    )
    return world.log.append_own(marker, 0, transaction_version=transaction_version).first_offset


# ---- sequence numbers


def test_the_last_five_batches_are_recognised() -> None:
    w = world()
    for i in range(7):
        assert append(w, 1, 2 * i, 2) == (2 * i, False)
    for i in range(2, 7):
        info = w.log.append_as_leader(produced(1, 2 * i, 2), 0)
        assert (info.first_offset, info.last_offset, info.duplicate) == (2 * i, 2 * i + 1, True)
        assert info.log_append_time == START_MS
    assert refused(w, 1, 2, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    # The same first sequence with another count is another batch.
    assert refused(w, 1, 12, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(w, 1, 14) == (14, False)


def test_gaps_and_steps_back_are_out_of_order() -> None:
    w = world()
    append(w, 1, 0, 3)
    assert refused(w, 1, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(w, 1, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(w, 1, 3)


def test_a_producer_nobody_remembers_may_begin_anywhere() -> None:
    w = world()
    assert append(w, 1, 17) == (0, False)
    assert refused(w, 1, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(w, 1, 18) == (1, False)


def test_epochs_fence_and_begin_at_zero() -> None:
    w = world()
    append(w, 1, 0, epoch=3)
    assert refused(w, 1, 1, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(w, 1, 1, epoch=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(w, 1, 0, epoch=4)
    assert refused(w, 1, 1, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    # A batch of the old epoch is no duplicate of anything.
    assert refused(w, 1, 0, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequence_numbers_wrap() -> None:
    w = world()
    append(w, 1, LAST - 1, 2)
    assert append(w, 1, 0) == (2, False)
    w = world()
    append(w, 1, LAST - 1, 4)
    assert append(w, 1, LAST - 1, 4) == (0, True)
    assert refused(w, 1, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(w, 1, 2) == (4, False)
    for reopened in (w.reopen(),):
        assert reopened.append_as_leader(produced(1, 3), 0).first_offset == 5


def test_an_idle_producer_is_forgotten() -> None:
    w = world(producer_id_expiration_ms=1000)
    append(w, 1, 0)
    append(w, 2, 0, transactional=True)
    w.clock.advance(999)
    w.log.remove_expired_producers(w.clock.now_ms())
    assert refused(w, 1, 9) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    w.clock.advance(1)
    w.log.remove_expired_producers(w.clock.now_ms())
    assert append(w, 1, 9)[1] is False
    assert {entry.producer_id for entry in w.log.active_producers()} == {1, 2}


def test_producers_survive_restarts_and_truncation() -> None:
    w = world()
    for i in range(6):
        append(w, 1, i)
    append(w, 2, 5)
    w.reopen()
    assert append(w, 1, 5) == (5, True)
    assert append(w, 1, 6) == (7, False)
    w.log.truncate_to(3)
    assert append(w, 1, 2) == (2, True)
    assert append(w, 1, 3) == (3, False)
    assert append(w, 2, 9) == (4, False)


def test_a_clean_stop_right_after_a_cut_forgets_no_producer() -> None:
    w = world()
    for i in range(6):
        append(w, 1, i)
    w.log.truncate_to(4)
    w.reopen()
    assert append(w, 1, 3) == (3, True)
    assert append(w, 1, 4) == (4, False)


def test_batches_in_former_segments_are_recognised_after_a_clean_restart() -> None:
    w = World(segment_bytes=100)
    for sequence in range(4):
        w.log.append_as_leader(produced(1, sequence), 0)
    assert len(w.names(".log")) == 4
    w.reopen()
    info = w.log.append_as_leader(produced(1, 1), 0)
    assert (info.first_offset, info.duplicate) == (1, True)


def test_the_last_five_batches_are_recognised_after_a_clean_restart() -> None:
    w = world()
    for i in range(7):
        append(w, 1, 2 * i, 2)
        append(w, 2, i)
    w.reopen()
    # The snapshot has the last batch of each producer only; the log has the others.
    for i in range(2, 7):
        assert append(w, 1, 2 * i, 2) == (3 * i, True)
    assert refused(w, 1, 2, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(w, 2, 9) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(w, 1, 14) == (21, False)
    assert append(w, 2, 7) == (22, False)


# ---- transactions


def test_the_last_stable_offset_waits_for_open_transactions_and_uncommitted_markers() -> None:
    w = world()
    append(w, 9, 0)
    append(w, 1, 0, transactional=True)
    append(w, 2, 0, transactional=True)
    append(w, 9, 1)
    w.log.high_watermark = 4
    assert w.log.last_stable_offset == 1
    assert mark(w, 1, committed=True) == 4
    # The marker is not committed yet.
    assert w.log.last_stable_offset == 1
    w.log.high_watermark = 5
    assert w.log.last_stable_offset == 2
    mark(w, 2, committed=False)
    w.log.high_watermark = 6
    assert w.log.last_stable_offset == 6
    assert w.log.collect_aborted(0, 6) == [(2, 2)]


def test_aborted_transactions_are_found_for_what_is_read() -> None:
    w = world(segment_bytes=400)
    for i in range(12):
        append(w, 1, 2 * i, 2, transactional=True)
        mark(w, 1, committed=i % 2 == 0)
    everything = [(1, 3 * i) for i in range(1, 12, 2)]
    for log in (w.log, w.reopen()):
        assert log.collect_aborted(0, 36) == everything
        assert log.collect_aborted(0, 3) == []
        assert log.collect_aborted(4, 5) == [(1, 3)]
        assert log.collect_aborted(6, 10) == [(1, 9)]
        assert log.collect_aborted(5, 9) == [(1, 3)]
        assert log.collect_aborted(34, 36) == [(1, 33)]


def test_a_transaction_over_many_segments_is_found_from_its_beginning() -> None:
    w = world(segment_bytes=300)
    append(w, 1, 0, transactional=True)
    for i in range(20):
        append(w, 9, i)
    mark(w, 1, committed=False)
    assert w.log.collect_aborted(0, 2) == [(1, 0)]
    assert w.log.collect_aborted(10, 12) == [(1, 0)]


def test_writing_outside_of_an_open_transaction_is_refused() -> None:
    w = world()
    append(w, 1, 0, transactional=True)
    assert refused(w, 1, 1) is ErrorCode.INVALID_TXN_STATE
    mark(w, 1, committed=True)
    append(w, 1, 1)


@pytest.mark.parametrize("how", ["cut", "reopened"])
def test_a_copied_abort_is_found_although_producers_were_forgotten(how: str) -> None:
    """What producers did is found out anew after a cut or a start; the abort that comes next is not known by then."""
    leader, follower = world(), world()
    append(leader, 1, 0, transactional=True)
    mark(leader, 1, committed=False)
    copied = bytes(leader.log.read(0, 1 << 20, max_offset=2).records)
    size = len(leader.log.read(0, 1, max_offset=1, min_one_message=True).records)
    follower.log.append_as_follower(copied[:size], 0)
    if how == "cut":
        mark(follower, 1, committed=False)
        follower.log.truncate_to(1)
    else:
        follower.reopen()
    follower.log.append_as_follower(copied[size:], 0)
    assert follower.log.collect_aborted(0, 2) == [(1, 0)]


def test_markers_are_fenced() -> None:
    w = world()
    append(w, 1, 0, epoch=2, transactional=True)
    with pytest.raises(ApiError) as caught:
        mark(w, 1, committed=True, epoch=1)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    mark(w, 1, committed=True, epoch=2, coordinator_epoch=5)
    with pytest.raises(ApiError) as caught:
        mark(w, 1, committed=True, epoch=2, coordinator_epoch=4)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    # An abort for a fenced producer comes with a later epoch.
    mark(w, 1, committed=False, epoch=3, coordinator_epoch=5)
    assert refused(w, 1, 1, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert append(w, 1, 0, epoch=3)[1] is False


def test_markers_that_bump_the_epoch_must_be_newer() -> None:
    """KIP-890: a delayed marker of the transaction before must not end this one."""
    w = world()
    append(w, 1, 0, epoch=2, transactional=True)
    with pytest.raises(ApiError) as caught:
        mark(w, 1, committed=True, epoch=2, transaction_version=2)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    mark(w, 1, committed=True, epoch=3, transaction_version=2)
    # The same marker again, after its transaction ended, is a retry.
    mark(w, 1, committed=True, epoch=3, transaction_version=2)
    with pytest.raises(ApiError):
        mark(w, 1, committed=True, epoch=2, transaction_version=2)
    assert refused(w, 1, 5, epoch=3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(w, 1, 0, epoch=3, transactional=True)


def test_the_last_epoch_of_a_producer_can_still_be_ended() -> None:
    w = world()
    append(w, 1, 0, epoch=32767, transactional=True)
    mark(w, 1, committed=False, epoch=32767, transaction_version=2)
    w.log.high_watermark = 2
    assert w.log.last_stable_offset == 2


def test_a_marker_without_a_transaction_is_remembered_but_aborts_nothing() -> None:
    w = world()
    mark(w, 1, committed=False, coordinator_epoch=3)
    w.log.high_watermark = 1
    assert w.log.last_stable_offset == 1
    assert w.log.collect_aborted(0, 1) == []
    assert w.names(".txnindex") == []
    entry = w.log.active_producers()[0]
    assert (entry.producer_id, entry.coordinator_epoch, entry.last_sequence) == (1, 3, -1)


def test_late_transactions_are_noticed() -> None:
    w = world()
    append(w, 1, 0, transactional=True)
    limit = 900_000 + 5 * 60 * 1000
    assert not w.log.producers.has_late_transaction(START_MS + limit, 900_000)
    assert w.log.producers.has_late_transaction(START_MS + limit + 1, 900_000)


# ---- verification (KIP-890)


def test_a_transaction_begins_only_with_the_coordinators_word() -> None:
    w = world(transaction_verification=True)
    assert refused(w, 1, 0, transactional=True) is ErrorCode.INVALID_TXN_STATE
    guard = w.log.start_verification(1, 0, 0)
    assert guard is not None
    assert w.log.start_verification(1, 0, 0) is guard
    assert refused(w, 1, 0, transactional=True, guard=VerificationGuard()) is ErrorCode.INVALID_TXN_STATE
    assert append(w, 1, 0, transactional=True, guard=guard) == (0, False)
    # From then on the open transaction itself is the proof.
    assert w.log.start_verification(1, 1, 0) is None
    assert w.log.has_ongoing_transaction(1, 0)
    append(w, 1, 1, transactional=True)
    mark(w, 1, committed=True)
    assert refused(w, 1, 2, transactional=True, guard=guard) is ErrorCode.INVALID_TXN_STATE


def test_a_marker_in_between_voids_the_word() -> None:
    w = world(transaction_verification=True)
    guard = w.log.start_verification(1, 0, 0)
    mark(w, 1, committed=False)
    assert refused(w, 1, 0, transactional=True, guard=guard) is ErrorCode.INVALID_TXN_STATE


def test_the_lowest_sequence_asked_about_comes_first() -> None:
    w = world(transaction_verification=True)
    later = w.log.start_verification(1, 5, 0)
    first = w.log.start_verification(1, 0, 0)
    assert later is first
    assert refused(w, 1, 5, transactional=True, guard=first) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(w, 1, 0, 5, transactional=True, guard=first)
    append(w, 1, 5, transactional=True)


def test_a_bumping_client_without_state_must_begin_at_zero() -> None:
    w = world(transaction_verification=True)
    guard = w.log.start_verification(1, 3, 0, supports_epoch_bump=True)
    assert refused(w, 1, 3, transactional=True, guard=guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_duplicate_needs_no_verification() -> None:
    w = world(transaction_verification=True)
    guard = w.log.start_verification(1, 0, 0)
    append(w, 1, 0, transactional=True, guard=guard)
    mark(w, 1, committed=True)
    assert append(w, 1, 0, transactional=True) == (0, True)


# ---- snapshots

entries = st.builds(
    restored_entry,
    st.integers(0, 2**62),
    st.integers(0, 32767),
    st.integers(0, LAST),
    st.integers(100, 2**60),
    st.integers(0, 50),
    st.integers(-1, 2**60),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**60),
) | st.builds(ProducerEntry, st.integers(0, 2**62), st.integers(0, 32767))


def flat(entry: ProducerEntry) -> tuple[object, ...]:
    return (
        entry.producer_id,
        entry.epoch,
        entry.coordinator_epoch,
        entry.last_timestamp,
        entry.transaction_start,
        entry.batches,
        entry.next_sequence,
        entry.from_snapshot,
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(entries, max_size=6))
def test_snapshots_come_back_as_they_were(producers: list[ProducerEntry]) -> None:
    assert [flat(e) for e in decode_snapshot(encode_snapshot(producers))] == [flat(e) for e in producers]


@settings(max_examples=50, deadline=None)
@given(st.lists(entries, min_size=1, max_size=3), st.data())
def test_damaged_snapshots_are_noticed(producers: list[ProducerEntry], data: st.DataObject) -> None:
    whole = bytearray(encode_snapshot(producers))
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(bytes(whole[: data.draw(st.integers(0, len(whole) - 1))]))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(bytes(whole))


def test_a_snapshot_looks_as_kafkas() -> None:
    entry = restored_entry(5, 2, 9, 107, 3, 1234, 8, -1)
    assert encode_snapshot([entry])[6:].hex() == (
        "00000001" "0000000000000005" "0002" "00000009" "000000000000006b" "00000003" "00000000000004d2" "00000008"
        "ffffffffffffffff"
    )  # fmt: skip
