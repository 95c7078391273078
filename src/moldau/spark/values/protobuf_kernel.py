"""Rows put one behind the other as items of a repeated field, compiled: see `protobuf_reading`."""

from __future__ import annotations

import numpy as np
from numba import njit

from moldau.spark.values.memory import copy_bytes

# Field 1, of a length that follows.
_TAG = 0x0A


@njit(cache=True, nogil=True)
def length_delimited(data, starts, ends, out):  # type: ignore[no-untyped-def]
    """Write a tag, the length and the bytes of every row; the answer is how many bytes that makes."""
    position = 0
    for row in range(starts.size):
        out[position] = _TAG
        position += 1
        length = ends[row] - starts[row]
        left = length
        while left > 0x7F:
            out[position] = np.uint8(left & 0x7F) | np.uint8(0x80)
            left >>= 7
            position += 1
        out[position] = np.uint8(left)
        position += 1
        copy_bytes(np.int64(out.ctypes.data) + position, np.int64(data.ctypes.data) + starts[row], length)
        position += length
    return position
