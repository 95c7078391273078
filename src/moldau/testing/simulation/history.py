"""What the clients did and were told, and the judgement over it: Kafka's promises as a reader of the logs sees them.

Decides what counts as an anomaly: a lost acknowledged write, a duplicate under idempotence, reordering, a value at two
offsets or two values at one, an aborted or invented read, a skipped record, a torn transaction, a lost offset, a record
that a share group has accepted and is given again. The
names follow the checker of Jepsen's Kafka tests. What a client was never told may have happened or not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from moldau.testing.simulation.ledger import Broken, CommittedRecord, Ledger

# Deliveries that get lost count too: a record that was given so often may soon be given up.
DELIVERIES_ENOUGH = 6

Place = tuple[str, int]
"""A topic's name and a partition."""


@dataclass(slots=True)
class Sent:
    """One value that a producer sent, perhaps several times."""

    producer: str
    place: Place
    number: int
    # At most once, and in the order of the numbers.
    idempotent: bool
    # Acknowledged by all in-sync replicas, at this offset; -1 when the client was not told where.
    offset: int | None = None
    transaction: str | None = None


@dataclass(slots=True)
class Transaction:
    values: list[bytes] = field(default_factory=list)
    # Whether all its values were written and its client asked for it to be committed.
    commit_asked: bool = False
    # True: the client was told that it is committed; False: aborted; None: it was never told.
    committed: bool | None = None


@dataclass(slots=True)
class Reading:
    """What one reader saw of one partition, from `start` on."""

    reader: str
    place: Place
    committed_only: bool
    start: int
    position: int
    offsets: set[int] = field(default_factory=set)


class History:
    def __init__(self) -> None:
        self.sent: dict[bytes, Sent] = {}
        self.transactions: dict[str, Transaction] = {}
        self.readings: list[Reading] = []
        # Group and place -> the highest offset whose commit was acknowledged.
        self.committed_offsets: dict[tuple[str, Place], int] = {}
        # Copy of a place into another, exactly once, by a group.
        self.copies: list[tuple[str, Place, Place]] = []
        # What share groups have accepted and when, and how often what they were given had been delivered.
        self._accepted: dict[tuple[str, Place, int], int] = {}
        self._accepting: set[tuple[str, Place, int]] = set()
        self._deliveries: dict[tuple[str, Place, int], int] = {}
        self._share_requests = 0
        self._values: dict[tuple[Place, int], bytes] = {}
        self._owners: dict[tuple[str, int, Place], str] = {}

    # ---- while it runs

    def acknowledged(self, value: bytes, offset: int) -> None:
        sent = self.sent[value]
        if sent.offset is None or sent.offset < 0:
            sent.offset = offset
        elif offset >= 0 and offset != sent.offset:
            raise Broken(f"{_text(value)} of {sent.producer} is acknowledged at two offsets: {sent.offset}, {offset}")

    def read(self, reading: Reading, offset: int, value: bytes) -> None:
        if offset < reading.position:
            raise Broken(f"nonmonotonic poll: {reading.reader} reads {offset} of {_name(reading.place)} again")
        known = self._values.setdefault((reading.place, offset), value)
        if known != value:
            raise Broken(
                f"inconsistent offsets: {reading.reader} reads {_text(value)} at {offset} of {_name(reading.place)}, "
                f"where others read {_text(known)}"
            )
        reading.offsets.add(offset)

    def offset_committed(self, group: str, place: Place, offset: int) -> None:
        before = self.committed_offsets.get((group, place), -1)
        self.committed_offsets[group, place] = max(before, offset)

    def offset_fetched(self, group: str, place: Place, offset: int, known_before: int) -> None:
        """`known_before` had been acknowledged when the fetch was sent."""
        if offset < known_before:
            raise Broken(
                f"lost offset: group {group} had {known_before} committed for {_name(place)}, a fetch gives {offset}"
            )

    def owns(self, group: str, epoch: int, place: Place, member: str) -> None:
        known = self._owners.setdefault((group, epoch, place), member)
        if known != member:
            raise Broken(f"{_name(place)} has two owners in epoch {epoch} of group {group}: {known} and {member}")

    # ---- share groups

    def share_asked(self, by_leader: bool) -> int | None:
        """A member asks for records: what was accepted before, it must not be given. None if that is no promise:
        a leader that was deposed without knowing may still give what it believes to be free."""
        self._share_requests += 1
        return self._share_requests if by_leader else None

    def share_given(
        self, group: str, place: Place, offset: int, value: bytes | None, count: int, asked: int | None
    ) -> None:
        if value is None:
            raise Broken(f"group {group} is given {offset} of {_name(place)} without a record")
        known = self._values.setdefault((place, offset), value)
        if known != value:
            raise Broken(f"group {group} is given {_text(value)} at {offset} of {_name(place)}, not {_text(known)}")
        key = (group, place, offset)
        self._deliveries[key] = max(count, self._deliveries.get(key, 0))
        accepted = self._accepted.get(key)
        if accepted is not None and asked is not None and accepted < asked:
            raise Broken(f"group {group} has accepted {offset} of {_name(place)} and is given it again")

    def share_accepting(self, group: str, place: Place, offsets: range) -> None:
        """A member says that it is done with these; nobody knows whether that gets there."""
        self._accepting.update((group, place, offset) for offset in offsets)

    def share_accepted(self, group: str, place: Place, offsets: range) -> None:
        for offset in offsets:
            self._accepted.setdefault((group, place, offset), self._share_requests)

    def share_left(self, group: str, place: Place, ledger: Ledger) -> list[int]:
        """Offsets that no member has accepted, nor been given so often that they may be given up."""
        return [
            each.offset
            for each in ledger.records
            if (group, place, each.offset) not in self._accepting
            and self._deliveries.get((group, place, each.offset), 0) < DELIVERIES_ENOUGH
        ]

    # ---- at the end

    def judge(self, ledgers: dict[Place, Ledger]) -> None:
        """Compare everything with what is in the logs after all."""
        stable: dict[Place, list[CommittedRecord]] = {}
        seen: dict[bytes, bool] = {}
        for place, ledger in ledgers.items():
            visible, aborted = ledger.stable_records()
            stable[place] = visible
            self._judge_values(place, ledger)
            for record in visible:
                if record.value is not None:
                    seen[record.value] = True
            for record in aborted:
                if record.value is not None:
                    seen.setdefault(record.value, False)
        self._judge_acknowledged(ledgers)
        self._judge_transactions(seen)
        for reading in self.readings:
            self._judge_reading(reading, ledgers[reading.place], stable[reading.place])
        for group, source, target in self.copies:
            self._judge_copy(group, source, stable[source], stable[target])

    def _judge_values(self, place: Place, ledger: Ledger) -> None:
        last: dict[str, int] = {}
        where: dict[bytes, int] = {}
        for record in ledger.records:
            if record.value is None:
                continue
            sent = self.sent.get(record.value)
            if sent is None or sent.place != place:
                raise Broken(f"{_name(place)} has {_text(record.value)} at {record.offset}, which nobody sent there")
            if not sent.idempotent:
                continue
            first = where.setdefault(record.value, record.offset)
            if first != record.offset:
                raise Broken(
                    f"duplicate: {_text(record.value)} of {sent.producer} is at {first} and {record.offset} of "
                    f"{_name(place)}"
                )
            before = last.get(sent.producer, -1)
            if sent.number <= before and sent.transaction is None:
                raise Broken(
                    f"reordered: {_text(record.value)} of {sent.producer} comes after number {before} in {_name(place)}"
                )
            last[sent.producer] = sent.number

    def _judge_acknowledged(self, ledgers: dict[Place, Ledger]) -> None:
        found: dict[Place, dict[bytes, set[int]]] = {}
        for place, ledger in ledgers.items():
            values = found.setdefault(place, {})
            for record in ledger.records:
                if record.value is not None:
                    values.setdefault(record.value, set()).add(record.offset)
        for value, sent in self.sent.items():
            if sent.offset is None:
                continue
            offsets = found.get(sent.place, {}).get(value)
            if not offsets:
                raise Broken(
                    f"lost write: {_text(value)} of {sent.producer} was acknowledged in {_name(sent.place)} "
                    f"(offset {sent.offset}) and is gone"
                )
            if sent.offset >= 0 and sent.offset not in offsets:
                raise Broken(
                    f"{_text(value)} of {sent.producer} was acknowledged at {sent.offset} of {_name(sent.place)} but "
                    f"is at {sorted(offsets)}"
                )

    def _judge_transactions(self, seen: dict[bytes, bool]) -> None:
        for name, transaction in self.transactions.items():
            visible = [value for value in transaction.values if seen.get(value)]
            if transaction.committed is True and len(visible) < len(transaction.values):
                lost = next(value for value in transaction.values if not seen.get(value))
                raise Broken(f"transaction {name} was committed, but {_text(lost)} cannot be read")
            if transaction.committed is False and visible:
                raise Broken(f"transaction {name} was aborted, but {_text(visible[0])} can be read")
            if visible and not transaction.commit_asked:
                raise Broken(f"nobody asked to commit transaction {name}, but {_text(visible[0])} can be read")
            if visible and len(visible) < len(transaction.values):
                raise Broken(
                    f"torn transaction: of {name} {len(visible)} of {len(transaction.values)} values can be read"
                )

    def _judge_reading(self, reading: Reading, ledger: Ledger, stable: list[CommittedRecord]) -> None:
        records = stable if reading.committed_only else [each for each in ledger.records if each.marker is None]
        due = ledger.latest_values().values() if ledger.compacted else records
        expected = {each.offset for each in due if reading.start <= each.offset < reading.position}
        missing = expected - reading.offsets
        if missing:
            raise Broken(
                f"skipped: {reading.reader} read past {min(missing)} of {_name(reading.place)} without seeing it"
            )
        extra = reading.offsets - {each.offset for each in records}
        if extra:
            kind = "aborted read" if reading.committed_only else "lost read"
            raise Broken(f"{kind}: {reading.reader} saw {min(extra)} of {_name(reading.place)}, which is not there")
        values = {each.offset: each.value for each in records}
        for offset in reading.offsets:
            if self._values[reading.place, offset] != values[offset]:
                raise Broken(
                    f"{reading.reader} read something else at {offset} of {_name(reading.place)} than is there"
                )

    def _judge_copy(
        self, group: str, source: Place, given: list[CommittedRecord], copied: list[CommittedRecord]
    ) -> None:
        """Every value once and in order, as far as the group's offset says."""
        end = self.committed_offsets.get((group, source), 0)
        expected = [b"copy of " + each.value for each in given if each.value is not None]
        found = [each.value for each in copied]
        if found != expected[: len(found)]:
            at = next(i for i, value in enumerate(found) if i >= len(expected) or value != expected[i])
            raise Broken(f"group {group} did not copy {_name(source)} exactly once: record {at} is {_text(found[at])}")
        due = sum(1 for each in given if each.offset < end)
        if len(found) < due:
            raise Broken(f"group {group} has offset {end} of {_name(source)}, but copied {len(found)} of {due} records")


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def _text(value: bytes | None) -> str:
    return "nothing" if value is None else value.decode(errors="replace")
