"""Answers that clients have not read yet, over all connections of a node, kept within bounds.

Decides what happens when clients ask for more than they read: first the answers to all fetches become small, and when
that does not help, the connections that have been stuck the longest are closed. One connection alone is kept in check
by `connection.py`, which takes up no further request while its client does not read.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger("moldau.network")

LIMIT_BYTES_MIN = 256 << 20
LIMIT_BYTES_MAX = 4 << 30
# The limit as a share of the machine's memory.
LIMIT_SHARE = 8


class Stuck(Protocol):
    """A connection whose client does not read."""

    def give_up(self) -> None: ...


def default_limit() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(max(memory // LIMIT_SHARE, LIMIT_BYTES_MIN), LIMIT_BYTES_MAX)


class UnreadAnswers:
    """The account of what is waiting in connections that are stuck."""

    def __init__(self, limit: int, scarce: Callable[[bool], None]) -> None:
        """`scarce` is told when half of the limit is reached, and when it is not any more."""
        self._limit = limit
        self._scarce = scarce
        self._is_scarce = False
        # In the order in which they got stuck.
        self._stuck: dict[Stuck, int] = {}
        self.total = 0
        self.given_up = 0

    def stuck(self, connection: Stuck, size: int) -> None:
        """The connection holds so many bytes that its client does not take."""
        self.total += size - self._stuck.get(connection, 0)
        self._stuck[connection] = size
        while self.total > self._limit and len(self._stuck) > 1:
            longest = next(iter(self._stuck))
            log.warning(
                "clients leave %d MiB of answers unread: closing the one that is stuck longest", self.total >> 20
            )
            self.free(longest)
            self.given_up += 1
            longest.give_up()
        self._judge()

    def free(self, connection: Stuck) -> None:
        """The connection's client reads again, or is gone."""
        size = self._stuck.pop(connection, None)
        if size is not None:
            self.total -= size
            self._judge()

    def _judge(self) -> None:
        scarce = self.total > self._limit // 2
        if scarce != self._is_scarce:
            self._is_scarce = scarce
            self._scarce(scarce)
