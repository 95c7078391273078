"""Waiting with open eyes, for a moment, for what is due at once: the next request of a client, the answer of a peer.

A process that sleeps must be woken, mostly on another core, and on a virtual machine that takes about 50 µs: longer
than a small request. A record that is copied to two replicas before it is confirmed needs four such calls in a row.
So a node that expects something looks for it again and again before it goes to sleep. It gives way to everybody else
who wants the core after each look. When what it expects comes in less than two cases of three, it sleeps as usual and
tries only now and then.
"""

from __future__ import annotations

import asyncio
from os import sched_yield
from time import perf_counter
from typing import Final

from moldau.config.node_config import NodeConfig
from moldau.config.types import ConfigError

SETTING: Final = "moldau.idle.poll.us"
DEFAULT_US: Final = 300
MAX_US: Final = 10_000
# The account of what it was worth: one more for what came, two less for what did not. With nothing left, one of so
# many occasions is a new try.
WORTH_FIRST: Final = 4
WORTH_MAX: Final = 8
OCCASIONS_PER_TRY: Final = 32


class Alertness:
    """Whether the event loop of a node may sleep. Begins to be used when there is a loop."""

    __slots__ = ("_limit", "_looking", "_loop", "_passed", "_until", "_worth")

    def __init__(self, limit_us: int) -> None:
        """`limit_us`: how long to look for what is due; 0 means to sleep at once, always."""
        self._limit = limit_us / 1_000_000
        self._loop: asyncio.AbstractEventLoop | None = None
        # 0 while nothing is expected.
        self._until = 0.0
        self._looking = False
        self._worth = WORTH_FIRST
        self._passed = 0

    @classmethod
    def of(cls, config: NodeConfig) -> Alertness:
        text = config.original(SETTING) or str(DEFAULT_US)
        try:
            limit_us = int(text)
        except ValueError:
            limit_us = -1
        if not 0 <= limit_us <= MAX_US:
            raise ConfigError(SETTING, text, f"a number of microseconds from 0 to {MAX_US}")
        return cls(limit_us)

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def expect(self) -> None:
        """Something is due: do not sleep for a moment, if that has been worth it lately."""
        loop = self._loop
        if loop is None or self._limit == 0.0:
            return
        if self._worth <= 0:
            self._passed += 1
            if self._passed < OCCASIONS_PER_TRY:
                return
            self._passed = 0
        self._until = perf_counter() + self._limit
        if not self._looking:
            self._looking = True
            loop.call_soon(self._look)

    def arrived(self) -> None:
        """Something came from outside: there is work to do."""
        if self._until != 0.0:
            self._until = 0.0
            if self._worth < WORTH_MAX:
                self._worth += 1

    def _look(self) -> None:
        """Called once in each turn of the loop, which does not sleep while such a call is planned."""
        if self._until != 0.0:
            if perf_counter() < self._until:
                sched_yield()
                assert self._loop is not None
                self._loop.call_soon(self._look)
                return
            self._until = 0.0
            self._worth = max(self._worth - 2, 0)
        self._looking = False
