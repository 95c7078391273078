"""The rules about one transactional id, without any broker around them."""

from __future__ import annotations

from itertools import product

import pytest

from moldau.coordinator.transaction import ending, producers
from moldau.coordinator.transaction.metadata import (
    MAX_EPOCH,
    ProducerIdAndEpoch,
    TransactionMetadata,
    log_record,
    read_key,
    read_value,
    tombstone,
)
from moldau.coordinator.transaction.partitions import add_partitions, verify_partitions
from moldau.coordinator.transaction.states import (
    BY_NAME,
    FOLLOWED_BY,
    IDLE,
    NAMES,
    PREPARED,
    TransactionState,
)
from moldau.protocol.errors import ApiError, ErrorCode

S = TransactionState
PLACE = ("orders", 0)
SEEN_STATES = [S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT]
BOTH_WAYS = list(product(SEEN_STATES, [True, False]))


def metadata(state: TransactionState, epoch: int = 5, producer_id: int = 9, **fields: object) -> TransactionMetadata:
    partitions = frozenset({PLACE}) if state in PREPARED or state is S.ONGOING else frozenset()
    made = TransactionMetadata(producer_id, epoch, 60_000, state, partitions, started_ms=100, updated_ms=100)
    return made._replace(**fields)  # type: ignore[arg-type]


def end(
    current: TransactionMetadata | None, epoch: int, *, commit: bool, version: int, producer_id: int = 9
) -> TransactionMetadata | ErrorCode:
    try:
        return ending.end(
            current,
            ProducerIdAndEpoch(producer_id, epoch),
            commit=commit,
            client_version=version,
            new_producer_id=77,
            now_ms=200,
        )
    except ApiError as error:
        return error.code


# ---- the table


def test_every_state_has_a_name_and_every_seen_one_a_successor() -> None:
    assert set(NAMES) == set(TransactionState)
    assert BY_NAME["PrepareEpochFence"] is S.PREPARE_EPOCH_FENCE
    assert set(FOLLOWED_BY) == set(SEEN_STATES)
    assert all(FOLLOWED_BY[state] for state in SEEN_STATES)


def test_a_decided_transaction_can_only_be_completed() -> None:
    assert FOLLOWED_BY[S.PREPARE_COMMIT] == {S.COMPLETE_COMMIT}
    assert FOLLOWED_BY[S.PREPARE_ABORT] == {S.COMPLETE_ABORT}


# ---- records


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("state", SEEN_STATES)
def test_what_is_written_is_read_back(state: TransactionState, version: int) -> None:
    written = metadata(state, previous_producer_id=9, client_version=2 if version else 0, last_epoch=4)
    key, value = log_record("tx", written, version)
    assert read_key(key) == "tx"
    assert value is not None
    assert value[1] == (1 if version else 0)
    read = read_value(value)
    # The log has no place for the epoch before.
    lost = {"last_epoch": -1} if version else {"last_epoch": -1, "previous_producer_id": -1}
    assert read == written._replace(**lost)  # type: ignore[arg-type]


def test_records_of_another_release_are_left_alone() -> None:
    assert read_key(b"\x00\x07\x00\x02tx") is None
    assert read_value(b"\x00\x09anything") is None
    assert tombstone("tx") == (log_record("tx", metadata(S.EMPTY), 2)[0], None)


# ---- ending


@pytest.mark.parametrize(("state", "commit"), BOTH_WAYS)
def test_ending_without_an_epoch_bump(state: TransactionState, commit: bool) -> None:
    current = metadata(state)
    outcome = end(current, 5, commit=commit, version=0)
    if state is S.ONGOING:
        assert isinstance(outcome, TransactionMetadata)
        assert (outcome.state, outcome.epoch) == (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT, 5)
        assert outcome.partitions == current.partitions
    elif state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT):
        assert outcome is current
    elif state is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT):
        assert outcome is ErrorCode.CONCURRENT_TRANSACTIONS
    else:
        assert outcome is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(("state", "commit"), BOTH_WAYS)
def test_ending_with_an_epoch_bump(state: TransactionState, commit: bool) -> None:
    current = metadata(state)
    outcome = end(current, 5, commit=commit, version=2)
    if state in PREPARED:
        assert outcome is ErrorCode.PRODUCER_FENCED
    elif state is S.ONGOING or not commit:
        assert isinstance(outcome, TransactionMetadata)
        assert (outcome.epoch, outcome.last_epoch, outcome.client_version) == (6, 5, 2)
        assert outcome.state is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
    else:
        assert outcome is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(("state", "commit"), BOTH_WAYS)
def test_a_repetition_with_the_epoch_before(state: TransactionState, commit: bool) -> None:
    current = metadata(state)
    outcome = end(current, 4, commit=commit, version=2)
    if state in (S.EMPTY, S.ONGOING):
        assert outcome is ErrorCode.PRODUCER_FENCED
    elif state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT):
        assert outcome is current
    elif state is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT):
        assert outcome is ErrorCode.CONCURRENT_TRANSACTIONS
    else:
        assert outcome is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("state", SEEN_STATES)
@pytest.mark.parametrize("epoch", [0, 3, 6, 7])
def test_other_epochs_end_nothing(state: TransactionState, version: int, epoch: int) -> None:
    for commit in (True, False):
        assert end(metadata(state), epoch, commit=commit, version=version) is ErrorCode.PRODUCER_FENCED
        other = end(metadata(state), 5, commit=commit, version=version, producer_id=10)
        assert other is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert end(None, 5, commit=True, version=version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_the_last_epoch_is_followed_by_the_first_of_another_id() -> None:
    current = metadata(S.ONGOING, epoch=MAX_EPOCH - 1)
    assert ending.needs_producer_id(current, 2)
    assert not ending.needs_producer_id(current, 1)
    prepared = end(current, MAX_EPOCH - 1, commit=True, version=2)
    assert isinstance(prepared, TransactionMetadata)
    assert (prepared.producer_id, prepared.epoch, prepared.next_producer_id) == (9, MAX_EPOCH, 77)
    assert prepared.after_completion == (77, 0)
    complete = prepared.completed(300)
    assert (complete.producer_id, complete.epoch, complete.previous_producer_id) == (77, 0, 9)
    assert end(complete, MAX_EPOCH - 1, commit=True, version=2) is complete
    begun = complete.with_partitions(frozenset({PLACE}), 2, 400)
    late = end(begun, MAX_EPOCH - 1, commit=True, version=2)
    assert late is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("version", [0, 1, 2])
def test_fencing_voids_the_epoch(version: int) -> None:
    fenced = ending.fenced(metadata(S.ONGOING), transaction_version=version, new_producer_id=-1, now_ms=1)
    assert (fenced.state, fenced.epoch) == (S.PREPARE_ABORT, 6)
    assert fenced.last_epoch == (5 if version >= 2 else -1)


# ---- producers


def init(
    current: TransactionMetadata | None, expected: tuple[int, int] | None = None
) -> TransactionMetadata | ErrorCode:
    who = None if expected is None else ProducerIdAndEpoch(*expected)
    try:
        producers.check_expected(current, who)
        return producers.initialize(current, who, new_producer_id=77, timeout_ms=1, now_ms=1)
    except ApiError as error:
        return error.code


def test_the_first_producer_begins_with_epoch_0() -> None:
    first = init(None)
    assert isinstance(first, TransactionMetadata)
    assert (first.producer_id, first.epoch, first.state) == (77, 0, S.EMPTY)
    # An id that expired meanwhile begins anew, whoever its producer thinks it is.
    assert init(None, (9, 5)) == first


@pytest.mark.parametrize("state", sorted(IDLE))
def test_a_successor_takes_the_next_epoch(state: TransactionState) -> None:
    heir = init(metadata(state, last_epoch=4))
    assert isinstance(heir, TransactionMetadata)
    assert (heir.producer_id, heir.epoch, heir.last_epoch, heir.partitions) == (9, 6, -1, frozenset())


@pytest.mark.parametrize(
    ("expected", "epoch"),
    [
        ((9, 5), 6),
        ((9, 4), 5),  # the same request once more
        ((9, 3), None),
        ((9, 6), None),
        ((10, 5), None),
        ((8, 5), None),
        ((8, MAX_EPOCH - 1), None),  # the id before this one, at its end, but a successor has come since
    ],
)
def test_a_producer_that_names_itself(expected: tuple[int, int], epoch: int | None) -> None:
    outcome = init(metadata(S.COMPLETE_ABORT, last_epoch=4, previous_producer_id=8), expected)
    if epoch is None:
        assert outcome is ErrorCode.PRODUCER_FENCED
    else:
        assert isinstance(outcome, TransactionMetadata)
        assert outcome.epoch == epoch


def test_a_producer_whose_epochs_ran_out_repeats_its_request() -> None:
    current = metadata(S.COMPLETE_COMMIT, epoch=MAX_EPOCH - 1)
    rotated = init(current, (9, MAX_EPOCH - 1))
    assert isinstance(rotated, TransactionMetadata)
    assert (rotated.producer_id, rotated.epoch, rotated.last_epoch) == (77, 0, MAX_EPOCH - 1)
    again = init(rotated, (9, MAX_EPOCH - 1))
    assert isinstance(again, TransactionMetadata)
    assert (again.producer_id, again.epoch) == (77, 0)


@pytest.mark.parametrize("state", sorted(PREPARED))
def test_nobody_begins_while_markers_are_under_way(state: TransactionState) -> None:
    assert init(metadata(state)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert init(metadata(state), (10, 5)) is ErrorCode.PRODUCER_FENCED


# ---- partitions


@pytest.mark.parametrize("state", SEEN_STATES)
def test_partitions_may_be_added_unless_the_transaction_ends(state: TransactionState) -> None:
    current = metadata(state)
    who = ProducerIdAndEpoch(9, 5)
    if state in PREPARED:
        with pytest.raises(ApiError) as refused:
            add_partitions(current, who, frozenset({PLACE}), client_version=0, now_ms=200)
        assert refused.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
        return
    added = add_partitions(current, who, frozenset({PLACE}), client_version=2, now_ms=200)
    if state is S.ONGOING:
        assert added is current
    else:
        assert (added.state, added.started_ms, added.client_version) == (S.ONGOING, 200, 2)
    more = add_partitions(added, who, frozenset({("orders", 1)}), client_version=2, now_ms=300)
    assert more.partitions == {PLACE, ("orders", 1)}
    assert more.started_ms == added.started_ms
    codes = verify_partitions(more, who, frozenset({PLACE, ("orders", 2)}))
    assert codes == {PLACE: ErrorCode.NONE, ("orders", 2): ErrorCode.TRANSACTION_ABORTABLE}
