"""The loop that writes single Avro values, compiled: columns to bytes, following a program that `avro_writing` made.

The mirror of `avro_kernel`: the same vectors of 64-bit slots go in, and the values of all rows come out one after the
other. When there is no room left for a row it stops before that row.

Restrictions of compiled code: only numbers and NumPy arrays, no exceptions, no allocation.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from moldau.spark.values.memory import copy_bytes

# What a program is made of: rows of (operation, a, b, c).
(
    END,
    NUMBER,  # a: vector
    BOOLEAN,
    FLOAT,
    DOUBLE,
    BYTES,  # a: vector of starts, a + 1: vector of lengths
    FIXED,
    DECIMAL,  # a: upper halves, a + 1: lower halves; b: size or -1
    CONSTANT,  # b: number
    UNLESS,  # a: vector; b: where to go if it has 0
    JUMP,
    FAIL,
    LOOP,  # a: vector of first items, a + 1: how many; b: where to go after the last one; c: level of the items
    NEXT,  # b: first operation of the loop's body; c: level of the items
) = range(14)

_LONGEST_NUMBER_BYTES = 10
_DECIMAL_BYTES = 16


@njit(cache=True, nogil=True)
def _put_number(out, position, value):  # type: ignore[no-untyped-def]
    bits = np.uint64(value << 1) ^ np.uint64(value >> 63)
    while bits > np.uint64(0x7F):
        out[position] = np.uint8(bits & np.uint64(0x7F)) | np.uint8(0x80)
        bits >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(bits)
    return position + 1


@njit(cache=True, nogil=True)
def _put_decimal(out, position, high, low, size):  # type: ignore[no-untyped-def]
    """Two's complement, most significant byte first: in `size` bytes, or in as few as it needs behind their number.

    The answer is -1 if it does not fit."""
    needed = _DECIMAL_BYTES
    upper, lower = np.uint64(high), np.uint64(low)
    fill = np.uint64(0xFF) if high < 0 else np.uint64(0)
    while needed > 1:
        index = needed - 1
        byte = ((upper >> np.uint64(8 * (index - 8))) if index >= 8 else (lower >> np.uint64(8 * index))) & np.uint64(
            0xFF
        )
        after = index - 1
        below = ((upper >> np.uint64(8 * (after - 8))) if after >= 8 else (lower >> np.uint64(8 * after))) & np.uint64(
            0xFF
        )
        if byte != fill or (below >> np.uint64(7)) != (fill & np.uint64(1)):
            break
        needed -= 1
    if size < 0:
        position = _put_number(out, position, np.int64(needed))
        size = needed
    elif size < needed:
        return np.int64(-1)
    for place in range(size):
        index = size - 1 - place
        if index >= _DECIMAL_BYTES:
            out[position + place] = np.uint8(fill)
        elif index >= 8:
            out[position + place] = np.uint8((upper >> np.uint64(8 * (index - 8))) & np.uint64(0xFF))
        else:
            out[position + place] = np.uint8((lower >> np.uint64(8 * index)) & np.uint64(0xFF))
    return position + size


@njit(cache=True, nogil=True)
def _write_row(code, data, base, level_of, slots, at, stack, out, position):  # type: ignore[no-untyped-def]
    """The position after the row's value; -1 if there is no room left, -2 if it cannot be written."""
    pc = 0
    depth = 0
    while True:
        op = code[pc, 0]
        a = code[pc, 1]
        b = code[pc, 2]
        pc += 1
        if position + 2 * _LONGEST_NUMBER_BYTES + _DECIMAL_BYTES > out.size:
            return np.int64(-1)
        where = base[a] + at[level_of[a]] if a >= 0 else np.int64(0)
        if op == NUMBER:
            position = _put_number(out, position, slots[where])
        elif op == UNLESS:
            if slots[where] == 0:
                pc = b
        elif op == CONSTANT:
            position = _put_number(out, position, b)
        elif op == JUMP:
            pc = b
        elif op in (BYTES, FIXED):
            start = slots[where]
            length = slots[base[a + 1] + at[level_of[a]]]
            if op == BYTES:
                position = _put_number(out, position, length)
            if position + length > out.size:
                return np.int64(-1)
            copy_bytes(np.int64(out.ctypes.data) + position, np.int64(data.ctypes.data) + start, length)
            position += length
        elif op in (DOUBLE, FLOAT):
            bits = np.uint64(slots[where])
            for index in range(8 if op == DOUBLE else 4):
                out[position + index] = np.uint8((bits >> np.uint64(8 * index)) & np.uint64(0xFF))
            position += 8 if op == DOUBLE else 4
        elif op == BOOLEAN:
            out[position] = np.uint8(slots[where])
            position += 1
        elif op == DECIMAL:
            if position + _LONGEST_NUMBER_BYTES + max(b, _DECIMAL_BYTES) > out.size:
                return np.int64(-1)
            position = _put_decimal(out, position, slots[where], slots[base[a + 1] + at[level_of[a]]], b)
            if position < 0:
                return np.int64(-2)
        elif op == LOOP:
            count = slots[base[a + 1] + at[level_of[a]]]
            if count == 0:
                out[position] = 0
                position += 1
                pc = b
            else:
                position = _put_number(out, position, count)
                at[code[pc - 1, 3]] = slots[where]
                stack[depth] = count
                depth += 1
        elif op == NEXT:
            level = code[pc - 1, 3]
            at[level] += 1
            stack[depth - 1] -= 1
            if stack[depth - 1] > 0:
                pc = b
            else:
                out[position] = 0
                position += 1
                depth -= 1
        elif op == FAIL:
            return np.int64(-2)
        else:
            return position


@njit(cache=True, nogil=True)
def encode_rows(  # type: ignore[no-untyped-def]
    code, prefix, present, first, data, base, level_of, slots, at, stack, offsets, out
):
    """Write rows from `first` on. The answer is (row to go on with, 0 or -1 for no room or -2 for a value that cannot
    be written)."""
    position = offsets[first]
    for row in range(first, present.size):
        if present[row]:
            if position + prefix.size > out.size:
                return row, np.int64(-1)
            for ahead in range(prefix.size):
                out[position + ahead] = prefix[ahead]
            at[0] = row
            end = _write_row(code, data, base, level_of, slots, at, stack, out, position + prefix.size)
            if end < 0:
                return row, end
            position = end
        offsets[row + 1] = position
    return present.size, np.int64(0)
