"""Memory that is used again: a fresh megabyte costs more in page faults than the records that are copied into it.

A buffer is free as soon as nobody but the pool refers to it. That is asked of the interpreter and not agreed upon: an
Arrow batch that somebody keeps also keeps its buffers, for as long as it lives, and is never written over. The pool
keeps no more than it was using at once, and no more than a limit.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

# Below this size the allocator has memory at hand that is mapped already.
SMALLEST_POOLED_BYTES = 64 * 1024
POOL_BYTES_MAX = 64 * 1024 * 1024
# What `getrefcount` says about an array that only the pool's list, the loop over it and the question itself refer to.
_UNUSED = 3


class BufferPool:
    """Byte arrays for one thread."""

    __slots__ = ("_arrays", "_bytes")

    def __init__(self) -> None:
        self._arrays: list[Any] = []
        self._bytes = 0

    def take(self, size: int) -> Any:
        """A byte array of this size with anything in it; it is free again when the caller has dropped it."""
        if size < SMALLEST_POOLED_BYTES:
            return np.empty(size, dtype=np.uint8)
        capacity = 1 << (size - 1).bit_length()
        for array in self._arrays:
            if array.size == capacity and sys.getrefcount(array) == _UNUSED:
                return array[:size]
        fresh = np.empty(capacity, dtype=np.uint8)
        if capacity <= POOL_BYTES_MAX:
            self._make_room(capacity)
            self._arrays.append(fresh)
            self._bytes += capacity
        return fresh[:size]

    def take_numbers(self, count: int, kind: Any) -> Any:
        """An array of numbers of a NumPy type."""
        wanted = np.dtype(kind)
        return self.take(count * wanted.itemsize).view(wanted)

    def _make_room(self, size: int) -> None:
        """Forget the oldest arrays; whoever still uses one keeps it alive."""
        while self._arrays and self._bytes + size > POOL_BYTES_MAX:
            self._bytes -= self._arrays.pop(0).size


POOL = BufferPool()
