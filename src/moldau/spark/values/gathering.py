"""What the compiled loops of several formats have in common: checking text, widening floats, gathering bytes.

Restrictions of compiled code: only numbers and NumPy arrays, no exceptions, no allocation.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from moldau.spark.values.memory import copy_bytes

# How deep values may be nested.
STACK_DEPTH = 512


@njit(cache=True, nogil=True)
def is_utf8(data, position, end):  # type: ignore[no-untyped-def]
    while position < end:
        byte = data[position]
        if byte < 0x80:
            position += 1
            continue
        if 0xC2 <= byte <= 0xDF:
            more, low, high = 1, 0x80, 0xBF
        elif 0xE0 <= byte <= 0xEF:
            more = 2
            low = 0xA0 if byte == 0xE0 else 0x80
            high = 0x9F if byte == 0xED else 0xBF
        elif 0xF0 <= byte <= 0xF4:
            more = 3
            low = 0x90 if byte == 0xF0 else 0x80
            high = 0x8F if byte == 0xF4 else 0xBF
        else:
            return False
        if position + more >= end:
            return False
        if data[position + 1] < low or data[position + 1] > high:
            return False
        for ahead in range(2, more + 1):
            if data[position + ahead] & 0xC0 != 0x80:
                return False
        position += more + 1
    return True


@njit(cache=True, nogil=True)
def widened(bits):  # type: ignore[no-untyped-def]
    """The double that is equal to the float with these bits."""
    sign = -1.0 if bits >> np.uint64(31) else 1.0
    exponent = np.int64((bits >> np.uint64(23)) & np.uint64(0xFF))
    fraction = np.float64(bits & np.uint64(0x7FFFFF))
    if exponent == 0xFF:
        return sign * np.inf if fraction == 0.0 else np.nan
    if exponent == 0:
        return sign * fraction * 2.0**-149
    return sign * (fraction + 8388608.0) * 2.0 ** np.float64(exponent - 150)


@njit(cache=True, nogil=True)
def total_length(lengths):  # type: ignore[no-untyped-def]
    total = np.int64(0)
    for length in lengths:
        total += length
    return total


@njit(cache=True, nogil=True)
def gather(data, constants, starts, lengths, offsets, out):  # type: ignore[no-untyped-def]
    """Put pieces of `data` (or, for starts below zero, of `constants`) one after the other."""
    end = 0
    offsets[0] = 0
    to = np.int64(out.ctypes.data)
    from_data, from_constants = np.int64(data.ctypes.data), np.int64(constants.ctypes.data)
    for index in range(starts.size):
        start = starts[index]
        length = lengths[index]
        if start >= 0:
            copy_bytes(to + end, from_data + start, length)
        else:
            copy_bytes(to + end, from_constants - 1 - start, length)
        end += length
        offsets[index + 1] = end
