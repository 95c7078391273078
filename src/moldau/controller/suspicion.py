"""Brokers that may be dead: found out by asking their machine, not by waiting for their session to run out.

A broker is suspected when its connection to the controller ends, and when a new controller has not heard of it. The
machine's word that nobody listens at the broker's address, while nothing was heard of the broker since it was
suspected, is taken as its death. A wrong guess is safe: the broker is fenced with its epoch, and comes back with its
next heartbeat. What answers nothing (a machine that is gone, a frozen process) is left to the session timeout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from moldau.controller.sessions import BrokerSessions
from moldau.metadata.image import BrokerRegistration
from moldau.ports import Clock, Timer

Probe: TypeAlias = Callable[[BrokerRegistration, Callable[[bool], None]], None]
"""Asks whether a broker's process is gone for certain; calls back with the answer."""

# A new controller waits this long for the brokers to come to it before it looks for them.
FIRST_LOOK_MS: Final = 60
NEXT_LOOK_MS: Final = 500

# Between one look at a suspect and the next, unless it is heard of.
PROBE_AGAIN_MS: Final = (20, 40, 80, 160, 320)


class Suspicions:
    __slots__ = ("_brokers", "_clock", "_dead", "_probe", "_sessions", "_timer")

    def __init__(
        self,
        clock: Clock,
        sessions: BrokerSessions,
        probe: Probe,
        brokers: Callable[[], dict[int, BrokerRegistration]],
        dead: Callable[[BrokerRegistration, int], None],
    ) -> None:
        """`dead` is told who died, and since when (of the clock's milliseconds) that was suspected."""
        self._clock = clock
        self._sessions = sessions
        self._probe = probe
        self._brokers = brokers
        self._dead = dead
        self._timer: Timer | None = clock.call_later(FIRST_LOOK_MS, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def connection_lost(self, broker_id: int, epoch: int) -> None:
        broker = self._brokers().get(broker_id)
        if broker is not None and broker.epoch == epoch:
            self._suspect(broker)

    def _look(self) -> None:
        """Brokers of an earlier controller that have not come to this one."""
        unheard = [broker for broker in self._brokers().values() if self._is_unheard(broker)]
        self._timer = self._clock.call_later(NEXT_LOOK_MS, self._look) if unheard else None
        for broker in unheard:
            self._suspect(broker)

    def _is_unheard(self, broker: BrokerRegistration) -> bool:
        return not broker.fenced and not self._sessions.of(broker.id).heard

    def _suspect(self, broker: BrokerRegistration) -> None:
        if not broker.fenced:
            heard_at = self._sessions.of(broker.id).last_contact_ms
            self._ask(broker, heard_at, self._clock.monotonic_ms(), PROBE_AGAIN_MS)

    def _ask(self, broker: BrokerRegistration, heard_at: int, since: int, again_ms: tuple[int, ...]) -> None:
        """A process that is being torn down still accepts connections for a moment: one look is not enough."""

        def answered(gone: bool) -> None:
            known = self._brokers().get(broker.id)
            if known is None or known.epoch != broker.epoch or known.fenced:
                return
            if self._sessions.of(broker.id).last_contact_ms != heard_at:
                return
            if gone:
                self._dead(known, since)
            elif again_ms:
                self._clock.call_later(again_ms[0], lambda: self._ask(broker, heard_at, since, again_ms[1:]))

        self._probe(broker, answered)
