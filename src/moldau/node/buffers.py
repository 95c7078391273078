"""Receive buffers: one scratch area for the whole loop, and pooled ones for frames that arrive in pieces.

The loop reads a socket and hands over the bytes in one go, so every connection can share one scratch buffer; only a
connection in the middle of a frame needs memory of its own. That keeps ten thousand idle connections cheap and lets
a large produce request go from the socket to the page cache without being copied in between.
"""

from __future__ import annotations

SCRATCH_BYTES = 1 << 20
# Frames are not trusted to be as long as they claim: memory grows with what has really arrived.
FIRST_ALLOCATION_BYTES = 1 << 20
POOLED_BYTES_MAX = 16 << 20


class BufferPool:
    """Bytearrays of power-of-two sizes, reused. A buffer given back must not be read any more."""

    __slots__ = ("_free", "_held", "scratch", "scratch_view")

    def __init__(self) -> None:
        self.scratch = bytearray(SCRATCH_BYTES)
        self.scratch_view = memoryview(self.scratch)
        self._free: dict[int, list[bytearray]] = {}
        self._held = 0

    def take(self, size: int) -> bytearray:
        rounded = 1 << max(12, (size - 1).bit_length())
        stack = self._free.get(rounded)
        if stack:
            self._held -= rounded
            return stack.pop()
        return bytearray(rounded)

    def give(self, buffer: bytearray) -> None:
        size = len(buffer)
        if self._held + size <= POOLED_BYTES_MAX:
            self._held += size
            self._free.setdefault(size, []).append(buffer)
