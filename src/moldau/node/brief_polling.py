"""Waiting for the next small request without going to sleep, while they come quickly one after the other.

A client that sends one small request, waits for its answer and sends the next keeps a node idle for some tens of
microseconds at a time. To sleep so briefly costs more than to stay awake: the processor is put to rest and woken again,
which on a virtual machine takes longer than the request itself. Decides when the event loop looks for events again and
again instead: only where requests and answers are small and mostly do come at once, and never for long. It must never
keep anybody else from the processor, which it offers at every turn.
"""

from __future__ import annotations

import asyncio
import os
from time import monotonic

# More than this is work in bulk, which sleeping does not hold up.
SMALL_BYTES = 2048
# So long the loop stays awake after an event.
AWAKE_SECONDS = 0.0002
# So many small events in quick succession before the first time, and after each disappointment.
QUICK_SECONDS = 0.0008
STREAK = 16
STREAK_AFTER_BULK = 64
# Disappointments make it ever more hesitant, up to this many events.
STREAK_MAX = 4096


class BriefPolling:
    """One for each event loop; told of everything that arrives."""

    __slots__ = ("_hesitation", "_last", "_loop", "_missing", "_polling", "_until", "_won")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._polling = False
        self._until = 0.0
        self._last = 0.0
        # How many more quick events it takes to begin.
        self._missing = self._hesitation = STREAK
        # Events that came while awake, since it began.
        self._won = 0

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> BriefPolling | None:
        """None where there is no second processor for everybody else."""
        return cls(loop) if len(os.sched_getaffinity(0)) > 1 else None

    def bulk(self) -> None:
        """There is work in bulk: sleep between its parts."""
        self._missing = STREAK_AFTER_BULK
        self._until = 0.0

    def arrived(self, now: float, size: int) -> None:
        """Something of this size came in and has been handled."""
        if size > SMALL_BYTES:
            self.bulk()
            return
        if self._polling:
            self._won += 1
            self._until = now + AWAKE_SECONDS
            return
        if now - self._last > QUICK_SECONDS:
            self._missing = self._hesitation
        self._last = now
        self._missing -= 1
        if self._missing <= 0:
            self._polling = True
            self._won = 0
            self._until = now + AWAKE_SECONDS
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Everything that has arrived was handled on the way here."""
        if monotonic() < self._until:
            os.sched_yield()
            self._loop.call_soon(self._look)
            return
        self._polling = False
        # It was worth it when several events came for each time that nothing did.
        if self._won >= STREAK:
            self._hesitation = STREAK
        else:
            self._hesitation = min(2 * self._hesitation, STREAK_MAX)
        self._missing = self._hesitation
        self._last = monotonic()
