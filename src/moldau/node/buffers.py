"""Receive buffers: one scratch area for the whole loop, and pooled ones for frames that arrive in pieces.

The loop reads a socket and hands over the bytes in one go, so every connection can share one scratch buffer; only a
connection in the middle of a frame needs memory of its own. That keeps ten thousand idle connections cheap and lets
a large produce request go from the socket to the page cache without being copied in between.

A frame's length is only a claim: what a connection gets depends on what has really arrived, and all of them together
get no more than `LENT_BYTES_MAX`.
"""

from __future__ import annotations

from typing import Final

from moldau.protocol.wire import ProtocolError

SCRATCH_BYTES: Final = 1 << 20
# A frame that has begun gets this much at once, so that it need not grow step by step ...
FIRST_ALLOCATION_BYTES: Final = 1 << 20
# ... unless so much is lent already that somebody may be after our memory: then only what it fills.
GENEROUS_UNTIL_BYTES: Final = 64 << 20
STINGY_ALLOCATION_BYTES: Final = 4 << 10
# Half-arrived requests of all connections; a connection that needs more is closed. Kafka's own limit for one request
# (100 MiB) fits several times.
LENT_BYTES_MAX: Final = 1 << 30
POOLED_BYTES_MAX: Final = 16 << 20


class BufferPool:
    """Bytearrays of power-of-two sizes, reused. A buffer given back must not be read any more."""

    __slots__ = ("_free", "_held", "lent", "scratch", "scratch_view")

    def __init__(self) -> None:
        self.scratch = bytearray(SCRATCH_BYTES)
        self.scratch_view = memoryview(self.scratch)
        self._free: dict[int, list[bytearray]] = {}
        self._held = 0
        self.lent = 0

    def begin(self, arrived: int, claimed: int) -> bytearray:
        """A buffer for a frame of which some bytes are here; always with room for at least one more."""
        generous = FIRST_ALLOCATION_BYTES if self.lent < GENEROUS_UNTIL_BYTES else STINGY_ALLOCATION_BYTES
        return self.take(max(arrived + 1, min(claimed, generous)))

    def take(self, size: int) -> bytearray:
        rounded = 1 << max(12, (size - 1).bit_length())
        if self.lent + rounded > LENT_BYTES_MAX:
            raise ProtocolError(f"requests that are still arriving fill {self.lent >> 20} MiB already")
        self.lent += rounded
        stack = self._free.get(rounded)
        if stack:
            self._held -= rounded
            return stack.pop()
        return bytearray(rounded)

    def give(self, buffer: bytearray) -> None:
        size = len(buffer)
        self.lent -= size
        if self._held + size <= POOLED_BYTES_MAX:
            self._held += size
            self._free.setdefault(size, []).append(buffer)
