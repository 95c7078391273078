"""Who is alive: when each broker was last heard of, and where it stands on its way in or out of the cluster.

Soft state of the active controller, rebuilt after every change of leadership; only fencing itself is a record. A
broker of which a new controller has only read gets a full session to show up, but that session does not keep a new
incarnation of the broker out: its epoch already does that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from moldau.metadata.image import BrokerRegistration
from moldau.ports import Clock

NOT_SHUTTING_DOWN = -1


@dataclass(slots=True)
class BrokerSession:
    fenced: bool
    last_contact_ms: int
    heard: bool
    metadata_offset: int = -1
    shutdown_offset: int = NOT_SHUTTING_DOWN
    """The end of the log when the broker entered its controlled shutdown: others must have read that far."""

    @property
    def is_shutting_down(self) -> bool:
        return self.shutdown_offset != NOT_SHUTTING_DOWN


class BrokerSessions:
    __slots__ = ("_clock", "_sessions", "timeout_ms")

    def __init__(self, clock: Clock, timeout_ms: int, brokers: Iterable[BrokerRegistration]) -> None:
        self._clock = clock
        self.timeout_ms = timeout_ms
        self._sessions = {broker.id: self._new(broker.fenced) for broker in brokers}

    def _new(self, fenced: bool) -> BrokerSession:
        return BrokerSession(fenced, self._clock.monotonic_ms(), heard=False)

    def of(self, broker_id: int) -> BrokerSession:
        session = self._sessions.get(broker_id)
        if session is None:
            session = self._sessions[broker_id] = self._new(fenced=True)
        return session

    def begin(self, broker_id: int, *, fenced: bool) -> None:
        """A new incarnation of the broker registered."""
        self._sessions[broker_id] = self._new(fenced)

    def end(self, broker_id: int) -> None:
        self._sessions.pop(broker_id, None)

    def touch(self, broker_id: int, *, fenced: bool, metadata_offset: int) -> None:
        """The broker was heard of."""
        session = self.of(broker_id)
        session.fenced = fenced
        session.metadata_offset = metadata_offset
        session.last_contact_ms = self._clock.monotonic_ms()
        session.heard = True
        if fenced:
            session.shutdown_offset = NOT_SHUTTING_DOWN

    def is_certainly_alive(self, broker_id: int) -> bool:
        """Whether this controller itself heard of the broker within its session."""
        session = self._sessions.get(broker_id)
        return session is not None and not session.fenced and session.heard and not self._is_expired(session)

    def lowest_active_offset(self) -> int | None:
        """The least of what the active brokers have read; None when there is none."""
        return min(
            (s.metadata_offset for s in self._sessions.values() if not s.fenced and not s.is_shutting_down),
            default=None,
        )

    def expired(self) -> Iterator[int]:
        """Brokers that are not fenced, but should be."""
        for broker_id, session in self._sessions.items():
            if not session.fenced and self._is_expired(session):
                yield broker_id

    def next_expiry_in_ms(self) -> int | None:
        deadlines = [s.last_contact_ms + self.timeout_ms for s in self._sessions.values() if not s.fenced]
        return max(0, min(deadlines) - self._clock.monotonic_ms()) + 1 if deadlines else None

    def _is_expired(self, session: BrokerSession) -> bool:
        return self._clock.monotonic_ms() - session.last_contact_ms > self.timeout_ms
