"""A share partition with a store that answers when the test says so."""

from __future__ import annotations

from dataclasses import dataclass, field

from moldau.config.group_config import GroupConfig
from moldau.ports import Pending
from moldau.protocol.errors import ApiError
from moldau.share.acknowledging import Acknowledgement, acknowledge, release
from moldau.share.acquiring import Acquired, Given, Span, Wish, acquire
from moldau.share.partition import SharePartition
from moldau.share.store import StateBatch, StoredState
from moldau.testing.clock import VirtualClock

TOPIC = bytes(15) + b"\x07"


@dataclass
class Write:
    start_offset: int
    delivery_complete: int
    batches: list[StateBatch]
    outcome: Pending[ApiError | None]


@dataclass
class MemoryStore:
    """What a share coordinator keeps, record by record. Writes are carried out when `answer` is called."""

    at_once: bool = True
    start_offset: int = -1
    records: dict[int, tuple[int, int]] = field(default_factory=dict)
    waiting: list[Write] = field(default_factory=list)
    written: list[Write] = field(default_factory=list)
    state_epoch: int = 3

    def read(self) -> Pending[StoredState | ApiError]:
        batches = [
            StateBatch(offset, offset, *stands)
            for offset, stands in sorted(self.records.items())
            if offset >= self.start_offset
        ]
        return Pending.of(StoredState(self.state_epoch, self.start_offset, batches))

    def write(
        self, state_epoch: int, start_offset: int, delivery_complete: int, batches: list[StateBatch]
    ) -> Pending[ApiError | None]:
        assert state_epoch == self.state_epoch
        write = Write(start_offset, delivery_complete, list(batches), Pending())
        self.waiting.append(write)
        if self.at_once:
            self.answer()
        return write.outcome

    def answer(self, error: ApiError | None = None) -> None:
        write = self.waiting.pop(0)
        if error is None:
            self.written.append(write)
            self.start_offset = max(self.start_offset, write.start_offset)
            for first, last, state, deliveries in write.batches:
                for offset in range(first, last + 1):
                    self.records[offset] = (state, deliveries)
        write.outcome.resolve(error)


class World:
    """One share partition over a log of the given batches."""

    def __init__(self, sizes: list[int] | None = None, *, start: int = 0, **settings: object) -> None:
        self.clock = VirtualClock()
        self.config = GroupConfig(**settings)  # type: ignore[arg-type]
        self.store = MemoryStore()
        self.news = 0
        self.log: list[Span] = []
        self.end = start
        for size in sizes or []:
            self.append(size)
        self.start = start
        self.share = self.load()

    def load(self) -> SharePartition:
        share = SharePartition(
            "g", TOPIC, 0, 5, config=lambda: self.config, clock=self.clock, store=self.store, news=self._heard
        )
        loaded = share.load(lambda: self.start)
        assert loaded.done
        assert loaded.value is None, loaded.value
        self.share = share
        return share

    def _heard(self, _: SharePartition) -> None:
        self.news += 1

    def append(self, size: int) -> None:
        self.log.append(Span(self.end, self.end + size - 1))
        self.end += size

    def read(self, offset: int, batches: int | None = None) -> list[Span]:
        return [span for span in self.log if span.last >= offset][:batches]

    def acquire(
        self,
        member: str,
        max_records: int = 500,
        *,
        batch_size: int = 500,
        record_limit: bool = False,
        batches: int | None = None,
        aborted: list[Span] | None = None,
    ) -> list[Given]:
        return self.fetch(
            member, max_records, batch_size=batch_size, record_limit=record_limit, batches=batches, aborted=aborted
        ).given

    def fetch(
        self,
        member: str,
        max_records: int = 500,
        *,
        batch_size: int = 500,
        record_limit: bool = False,
        batches: int | None = None,
        aborted: list[Span] | None = None,
    ) -> Acquired:
        offset = self.share.next_fetch_offset()
        if self.log and offset < self.log[0].base:
            self.share.log_start_moved(self.log[0].base)
            offset = self.share.next_fetch_offset()
        if not self.share.can_acquire():
            return Acquired([], 0)
        wish = Wish(member, offset, max_records, batch_size, record_limit)
        return acquire(self.share, wish, self.read(offset, batches), aborted or ())

    def acknowledge(self, member: str, first: int, last: int, *kinds: int) -> ApiError | None:
        outcome = self.say(member, first, last, *kinds)
        assert outcome.done, "the store has not answered yet"
        return outcome.value

    def say(self, member: str, first: int, last: int, *kinds: int) -> Pending[ApiError | None]:
        return acknowledge(self.share, member, [Acknowledgement(first, last, list(kinds))])

    def release(self, member: str) -> Pending[ApiError | None]:
        return release(self.share, member)
