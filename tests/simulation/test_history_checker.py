"""The judge itself: hand-made histories, one for each anomaly, and one that is in order."""

from __future__ import annotations

import pytest

from moldau.records.batch import iter_batches
from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.testing.simulation.history import DELIVERIES_ENOUGH, History, Reading, Sent, Transaction
from moldau.testing.simulation.ledger import ABORT, COMMIT, Broken, CommittedRecord, Ledger

PLACE = ("t", 0)
OTHER = ("t", 1)


def ledger(*values: str | None, producer_id: int = 1, transactional: bool = False) -> Ledger:
    """A partition with these values; None stands for a record without one."""
    made = Ledger("t-0", 0)
    for offset, value in enumerate(values):
        data = None if value is None else value.encode()
        made.records.append(CommittedRecord(offset, data, producer_id, transactional, None))
    made.next_offset = len(values)
    return made


def end(made: Ledger, marker: int, producer_id: int = 1) -> Ledger:
    made.records.append(CommittedRecord(made.next_offset, None, producer_id, True, marker))
    made.next_offset += 1
    return made


def sent(
    history: History,
    *values: str,
    idempotent: bool = True,
    place: tuple[str, int] = PLACE,
    transaction: str | None = None,
) -> None:
    for number, value in enumerate(values):
        history.sent[value.encode()] = Sent("p", place, number, idempotent, transaction=transaction)


def test_a_history_in_order_passes() -> None:
    history = History()
    sent(history, "a", "b", "c")
    for offset, value in enumerate((b"a", b"b")):
        history.acknowledged(value, offset)
    reading = Reading("r", PLACE, committed_only=False, start=0, position=0)
    history.readings.append(reading)
    for offset, value in enumerate((b"a", b"b")):
        history.read(reading, offset, value)
        reading.position = offset + 1
    history.judge({PLACE: ledger("a", "b")})


def test_a_lost_write() -> None:
    history = History()
    sent(history, "a")
    history.acknowledged(b"a", 0)
    with pytest.raises(Broken, match="lost write"):
        history.judge({PLACE: ledger()})


def test_a_write_that_is_elsewhere_than_acknowledged() -> None:
    history = History()
    sent(history, "a", "b")
    history.acknowledged(b"a", 1)
    with pytest.raises(Broken, match="acknowledged at 1"):
        history.judge({PLACE: ledger("a", "b")})


def test_two_offsets_for_one_write() -> None:
    history = History()
    sent(history, "a")
    history.acknowledged(b"a", 3)
    with pytest.raises(Broken, match="two offsets"):
        history.acknowledged(b"a", 4)


def test_duplicates_count_only_under_idempotence() -> None:
    history = History()
    sent(history, "a")
    with pytest.raises(Broken, match="duplicate"):
        history.judge({PLACE: ledger("a", "a")})
    history = History()
    sent(history, "a", idempotent=False)
    history.judge({PLACE: ledger("a", "a")})


def test_reordered_writes() -> None:
    history = History()
    sent(history, "a", "b")
    with pytest.raises(Broken, match="reordered"):
        history.judge({PLACE: ledger("b", "a")})


def test_invented_and_misplaced_values() -> None:
    history = History()
    with pytest.raises(Broken, match="nobody sent"):
        history.judge({PLACE: ledger("x")})
    sent(history, "x", place=OTHER)
    with pytest.raises(Broken, match="nobody sent"):
        history.judge({PLACE: ledger("x")})


def test_inconsistent_offsets_and_steps_back() -> None:
    history = History()
    one = Reading("one", PLACE, committed_only=False, start=0, position=0)
    two = Reading("two", PLACE, committed_only=False, start=0, position=0)
    history.read(one, 0, b"a")
    with pytest.raises(Broken, match="inconsistent offsets"):
        history.read(two, 0, b"b")
    one.position = 5
    with pytest.raises(Broken, match="nonmonotonic"):
        history.read(one, 4, b"a")


def test_a_skipped_record_and_one_that_was_never_committed() -> None:
    history = History()
    sent(history, "a", "b")
    reading = Reading("r", PLACE, committed_only=False, start=0, position=0)
    history.readings.append(reading)
    history.read(reading, 1, b"b")
    reading.position = 2
    with pytest.raises(Broken, match="skipped"):
        history.judge({PLACE: ledger("a", "b")})
    history.read(reading, 7, b"z")
    reading.offsets.add(0)
    with pytest.raises(Broken, match="lost read"):
        history.judge({PLACE: ledger("a", "b")})


def test_what_may_be_skipped_of_a_compacted_topic() -> None:
    made = Ledger("t-0", 0, compacted=True)
    for offset, (key, value) in enumerate(((b"k", b"a"), (b"l", b"b"), (b"k", b"c"), (b"l", None))):
        made.records.append(CommittedRecord(offset, value, 1, False, None, key))
    made.next_offset = 4
    assert [each.offset for each in made.latest_values().values()] == [2]
    history = History()
    sent(history, "a", "b", "c")
    reading = Reading("r", PLACE, committed_only=False, start=0, position=4)
    history.readings.append(reading)
    with pytest.raises(Broken, match="read past 2"):
        history.judge({PLACE: made})
    reading.position = 0
    history.read(reading, 2, b"c")
    reading.position = 4
    history.judge({PLACE: made})


def test_a_copy_of_a_compacted_topic_has_nothing_that_was_not_there() -> None:
    def batch(*values: tuple[int, bytes]) -> bytes:
        return build_batch([Record(at, 0, b"k", value, ()) for at, value in values], base_offset=0, last_offset=1)

    whole, left, other = batch((0, b"a"), (1, b"b")), batch((1, b"b")), batch((1, b"c"))
    for compacted, copy, fits in ((True, left, True), (True, other, False), (False, left, False)):
        made = Ledger("t-0", 0, compacted=compacted)
        made.note("n1", next(iter_batches(whole)), whole)
        if fits:
            made.note("n2", next(iter_batches(copy)), copy)
        else:
            with pytest.raises(Broken, match="is another one on n2"):
                made.note("n2", next(iter_batches(copy)), copy)


def test_aborted_reads() -> None:
    history = History()
    sent(history, "a", transaction="x")
    history.transactions["x"] = Transaction([b"a"], commit_asked=False, committed=False)
    reading = Reading("r", PLACE, committed_only=True, start=0, position=0)
    history.readings.append(reading)
    aborted = end(ledger("a", transactional=True), ABORT)
    history.judge({PLACE: aborted})
    history.read(reading, 0, b"a")
    with pytest.raises(Broken, match="aborted read"):
        history.judge({PLACE: aborted})


@pytest.mark.parametrize(
    ("asked", "told", "first", "second", "message"),
    [
        (True, True, COMMIT, ABORT, "was committed, but"),
        (True, None, COMMIT, ABORT, "torn transaction"),
        (False, False, COMMIT, COMMIT, "was aborted, but"),
        (False, None, COMMIT, COMMIT, "nobody asked"),
        (True, True, COMMIT, COMMIT, None),
        (True, None, ABORT, ABORT, None),
    ],
)
def test_transactions(asked: bool, told: bool | None, first: int, second: int, message: str | None) -> None:
    history = History()
    sent(history, "a", transaction="x")
    sent(history, "b", transaction="x", place=OTHER)
    history.transactions["x"] = Transaction([b"a", b"b"], commit_asked=asked, committed=told)
    ledgers = {
        PLACE: end(ledger("a", transactional=True), first),
        OTHER: end(ledger("b", transactional=True), second),
    }
    if message is None:
        history.judge(ledgers)
    else:
        with pytest.raises(Broken, match=message):
            history.judge(ledgers)


def test_lost_offsets_and_two_owners() -> None:
    history = History()
    history.offset_committed("g", PLACE, 5)
    history.offset_fetched("g", PLACE, 5, 5)
    with pytest.raises(Broken, match="lost offset"):
        history.offset_fetched("g", PLACE, 3, 5)
    history.owns("g", 1, PLACE, "m1")
    history.owns("g", 2, PLACE, "m2")
    with pytest.raises(Broken, match="two owners"):
        history.owns("g", 2, PLACE, "m3")


@pytest.mark.parametrize(
    ("copies", "offset", "message"),
    [
        (("copy of a", "copy of b"), 2, None),
        (("copy of a",), 1, None),
        (("copy of a",), 2, "copied 1 of 2"),
        (("copy of b",), 1, "exactly once"),
        (("copy of a", "copy of a"), 1, "exactly once"),
    ],
)
def test_copies(copies: tuple[str, ...], offset: int, message: str | None) -> None:
    history = History()
    sent(history, "a", "b")
    sent(history, *copies, idempotent=False, place=OTHER)
    history.copies.append(("g", PLACE, OTHER))
    history.offset_committed("g", PLACE, offset)
    ledgers = {PLACE: ledger("a", "b"), OTHER: end(ledger(*copies, transactional=True), COMMIT)}
    if message is None:
        history.judge(ledgers)
    else:
        with pytest.raises(Broken, match=message):
            history.judge(ledgers)


def test_what_a_share_group_has_accepted_is_not_given_again() -> None:
    history = History()
    history.share_given("g", PLACE, 0, b"a", 1, history.share_asked(True))
    history.share_accepting("g", PLACE, range(1))
    before = history.share_asked(True)
    history.share_accepted("g", PLACE, range(1))
    history.share_given("g", PLACE, 0, b"a", 2, before)  # asked for before it was accepted
    history.share_given("g", PLACE, 0, b"a", 2, history.share_asked(False))  # by a leader that was deposed
    with pytest.raises(Broken, match="is given it again"):
        history.share_given("g", PLACE, 0, b"a", 2, history.share_asked(True))


def test_what_a_share_group_is_given_is_what_is_there() -> None:
    history = History()
    history.share_given("g", PLACE, 0, b"a", 1, None)
    with pytest.raises(Broken, match="not a"):
        history.share_given("g", PLACE, 0, b"b", 1, None)
    with pytest.raises(Broken, match="without a record"):
        history.share_given("g", PLACE, 1, None, 1, None)


def test_what_a_share_group_has_not_got_yet() -> None:
    history = History()
    history.share_accepting("g", PLACE, range(1, 2))
    history.share_given("g", PLACE, 2, b"c", DELIVERIES_ENOUGH, None)
    assert history.share_left("g", PLACE, ledger("a", "b", "c", "d")) == [0, 3]


def test_epochs_of_committed_records() -> None:
    made = Ledger("t-0", 0)
    log = b"".join(
        build_batch([Record(offset, 0, None, b"v", ())], leader_epoch=epoch)
        for offset, epoch in ((0, 0), (1, 0), (2, 3))
    )
    for header in iter_batches(log):
        made.note("n1", header, log)
    assert [made.epoch_of(offset) for offset in range(4)] == [0, 0, 3, -1]
    older = build_batch([Record(3, 0, None, b"v", ())], leader_epoch=2)
    with pytest.raises(Broken, match="is of epoch 2, after 3"):
        made.note("n1", next(iter_batches(older)), older)
