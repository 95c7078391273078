"""The loop over single Avro values, compiled: bytes to columns, following a program that `avro_program` has written.

It decides how Avro's binary encoding is read, and nothing else: which fields there are and where they go is in the
program. Values land in vectors of 64-bit slots (a number, the bits of a double, or where some bytes begin and how many
they are), one vector for each thing an Arrow column is made of; vectors of one level (rows, items of one array) grow
together. A row that cannot be read leaves a code in `errors` and nothing in the vectors. Every length and count is
checked against what is left of the row before it is believed.

Restrictions of compiled code: only numbers and NumPy arrays, no exceptions, no allocation.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from moldau.spark.values.gathering import STACK_DEPTH, is_utf8, widened

# What a program is made of: rows of (operation, a, b, c).
(
    END,  # the row is over: nothing may be left of it
    BOOLEAN,  # a: vector
    INT,
    LONG,
    LONG_TIMES,  # a: vector, b: factor
    LONG_OVER,  # a: vector, b: divisor
    INTEGER_TO_DOUBLE,
    FLOAT,
    DOUBLE,
    BYTES,  # a: vector of starts, a + 1: vector of lengths
    STRING,
    FIXED,  # b: size
    ENUM,  # b: where its symbols' (start, length) begin in the table, c: how many
    DECIMAL,  # a: upper halves, a + 1: lower halves; b: where the limit's halves are in the table; c: fixed size or -1
    SET,  # a: vector, b: value
    MARK,  # a: vector, b: level whose count goes there
    UNION,  # b: where the branches' targets begin in the table, c: how many
    JUMP,  # b: target
    FAIL,  # b: code
    LOOP,  # begin of an array or a map: the next operation is its BLOCK
    BLOCK,  # a: level of the items or -1, b: where to go after the last one
    NEXT,  # a: level of the items or -1, b: the BLOCK
    ITEM,  # a: level: one more item will be written
    COUNT,  # a: level: it has been written
    SKIP_VARINT,
    SKIP_BYTES,
    SKIP,  # b: bytes
    CALL,  # b: target
    RETURN,
) = range(29)

# Why a row could not be read.
(
    GOOD,
    TRUNCATED,
    LEFT_OVER,
    LONG_VARINT,
    NEGATIVE_LENGTH,
    NO_SUCH_BRANCH,
    NO_SUCH_SYMBOL,
    NOT_UTF8,
    NOT_AN_INT,
    NOT_A_BOOLEAN,
    TOO_MANY_ITEMS,
    DECIMAL_TOO_LARGE,
    TOO_DEEP,
    OUT_OF_RANGE,
) = range(14)
# Codes from here on are numbers of messages that the program carries.
FIRST_MESSAGE = 100

# Items that need no bytes (nulls, empty records) are believed up to this number for each row.
_FREE_ITEMS = 65_536


@njit(cache=True, nogil=True)
def _zigzag(data, position, end):  # type: ignore[no-untyped-def]
    """(value, position after it); the position is minus an error's code if there is no value."""
    result = np.uint64(0)
    shift = np.uint64(0)
    while position < end:
        byte = data[position]
        position += 1
        result |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            return np.int64(result >> np.uint64(1)) ^ -np.int64(result & np.uint64(1)), position
        shift += np.uint64(7)
        if shift > np.uint64(63):
            return np.int64(0), -LONG_VARINT
    return np.int64(0), -TRUNCATED


@njit(cache=True, nogil=True)
def _decimal(data, position, size, limit_high, limit_low):  # type: ignore[no-untyped-def]
    """(fits, upper half, lower half) of a two's complement number, most significant byte first."""
    fill = np.uint64(0)
    if size > 0 and data[position] >= 0x80:
        fill = ~np.uint64(0)
    high, low = fill, fill
    for index in range(size):
        if index < size - 16:
            if data[position + index] != np.uint8(fill & np.uint64(0xFF)):
                return False, np.int64(0), np.int64(0)
            continue
        high = (high << np.uint64(8)) | (low >> np.uint64(56))
        low = (low << np.uint64(8)) | np.uint64(data[position + index])
    if (high >> np.uint64(63)) != (fill & np.uint64(1)):
        return False, np.int64(0), np.int64(0)
    size_high, size_low = high, low
    if fill:
        size_low = ~low + np.uint64(1)
        size_high = ~high + (np.uint64(1) if size_low == 0 else np.uint64(0))
    most_high, most_low = np.uint64(limit_high), np.uint64(limit_low)
    if size_high > most_high or (size_high == most_high and size_low > most_low):
        return False, np.int64(0), np.int64(0)
    return True, np.int64(high), np.int64(low)


@njit(cache=True, nogil=True)
def _run(data, position, end, code, table, base, room, slots, floats, counts, level_of, stack):  # type: ignore[no-untyped-def]
    """Read one row. The answer is its error's code, or minus (1 + level) if that level has no room left.

    One long function on purpose: it is the loop of an interpreter, and state that had to travel between several would
    cost more than the work itself.
    """
    pc = 0
    depth = 0
    budget = end - position + _FREE_ITEMS
    value = np.int64(0)
    while True:
        op = code[pc, 0]
        a = code[pc, 1]
        b = code[pc, 2]
        pc += 1
        if op == SET:
            slots[base[a] + counts[level_of[a]]] = b
        elif op in (LONG, INT, LONG_TIMES, LONG_OVER, INTEGER_TO_DOUBLE):
            value, position = _zigzag(data, position, end)
            if position < 0:
                return -position
            where = base[a] + counts[level_of[a]]
            if op == INT:
                if value > 0x7FFFFFFF or value < -0x80000000:
                    return np.int64(NOT_AN_INT)
                slots[where] = value
            elif op == LONG_TIMES:
                slots[where] = value * b
                if slots[where] // b != value:
                    return np.int64(OUT_OF_RANGE)
            elif op == LONG_OVER:
                slots[where] = value // b
            elif op == INTEGER_TO_DOUBLE:
                floats[where] = np.float64(value)
            else:
                slots[where] = value
        elif op in (STRING, BYTES, FIXED):
            value = b
            if op != FIXED:
                value, position = _zigzag(data, position, end)
                if position < 0:
                    return -position
                if value < 0:
                    return np.int64(NEGATIVE_LENGTH)
            if value > end - position:
                return np.int64(TRUNCATED)
            if op == STRING and not is_utf8(data, position, position + value):
                return np.int64(NOT_UTF8)
            slots[base[a] + counts[level_of[a]]] = position
            slots[base[a + 1] + counts[level_of[a]]] = value
            position += value
        elif op in (DOUBLE, FLOAT):
            size = 8 if op == DOUBLE else 4
            if end - position < size:
                return np.int64(TRUNCATED)
            where = base[a] + counts[level_of[a]]
            bits = np.uint64(0)
            for index in range(size):
                bits |= np.uint64(data[position + index]) << np.uint64(8 * index)
            if op == DOUBLE:
                slots[where] = np.int64(bits)
            else:
                # Widening in software keeps this free of pointer casts; the value is exact.
                floats[where] = widened(bits)
            position += size
        elif op == UNION:
            value, position = _zigzag(data, position, end)
            if position < 0:
                return -position
            if value < 0 or value >= code[pc - 1, 3]:
                return np.int64(NO_SUCH_BRANCH)
            pc = table[b + value]
        elif op == JUMP:
            pc = b
        elif op == BOOLEAN:
            if position >= end:
                return np.int64(TRUNCATED)
            if data[position] > 1:
                return np.int64(NOT_A_BOOLEAN)
            slots[base[a] + counts[level_of[a]]] = data[position]
            position += 1
        elif op == ENUM:
            value, position = _zigzag(data, position, end)
            if position < 0:
                return -position
            if value < 0 or value >= code[pc - 1, 3] or table[b + 2 * value + 1] < 0:
                return np.int64(NO_SUCH_SYMBOL)
            slots[base[a] + counts[level_of[a]]] = table[b + 2 * value]
            slots[base[a + 1] + counts[level_of[a]]] = table[b + 2 * value + 1]
        elif op == DECIMAL:
            value = code[pc - 1, 3]
            if value < 0:
                value, position = _zigzag(data, position, end)
                if position < 0:
                    return -position
                if value < 0:
                    return np.int64(NEGATIVE_LENGTH)
            if value > end - position:
                return np.int64(TRUNCATED)
            fits, high, low = _decimal(data, position, value, table[b], table[b + 1])
            if not fits:
                return np.int64(DECIMAL_TOO_LARGE)
            slots[base[a] + counts[level_of[a]]] = high
            slots[base[a + 1] + counts[level_of[a]]] = low
            position += value
        elif op == MARK:
            slots[base[a] + counts[level_of[a]]] = counts[b]
        elif op in (LOOP, CALL):
            if depth >= STACK_DEPTH:
                return np.int64(TOO_DEEP)
            stack[depth] = 0 if op == LOOP else pc
            depth += 1
            if op == CALL:
                pc = b
        elif op == BLOCK:
            if stack[depth - 1] == 0:
                value, position = _zigzag(data, position, end)
                if position < 0:
                    return -position
                if value < 0:
                    # A block that says its size in bytes, which only a reader that wants to skip needs.
                    value = -value
                    _, position = _zigzag(data, position, end)
                    if position < 0:
                        return -position
                if value == 0:
                    depth -= 1
                    pc = b
                    continue
                if value < 0 or value > budget:
                    return np.int64(TOO_MANY_ITEMS)
                budget -= value
                stack[depth - 1] = value
            if a >= 0 and counts[a] >= room[a]:
                return -1 - a
        elif op == NEXT:
            if a >= 0:
                counts[a] += 1
            stack[depth - 1] -= 1
            pc = b
        elif op == ITEM:
            if counts[a] >= room[a]:
                return -1 - a
        elif op == COUNT:
            counts[a] += 1
        elif op == SKIP_VARINT:
            value, position = _zigzag(data, position, end)
            if position < 0:
                return -position
        elif op in (SKIP_BYTES, SKIP):
            value = b
            if op == SKIP_BYTES:
                value, position = _zigzag(data, position, end)
                if position < 0:
                    return -position
                if value < 0:
                    return np.int64(NEGATIVE_LENGTH)
            if value > end - position:
                return np.int64(TRUNCATED)
            position += value
        elif op == RETURN:
            depth -= 1
            pc = stack[depth]
        elif op == FAIL:
            return b
        else:
            return np.int64(GOOD if position == end else LEFT_OVER)


@njit(cache=True, nogil=True)
def decode_rows(  # type: ignore[no-untyped-def]
    data, starts, ends, first, code, table, base, room, slots, floats, counts, level_of, stack, before, errors
):
    """Read rows from `first` on. The answer is (row to go on with, level that has no room left or -1)."""
    for row in range(first, starts.size):
        if counts[0] >= room[0]:
            return row, np.int64(0)
        for level in range(counts.size):
            before[level] = counts[level]
        outcome = _run(data, starts[row], ends[row], code, table, base, room, slots, floats, counts, level_of, stack)
        if outcome == GOOD:
            counts[0] += 1
            continue
        for level in range(counts.size):
            counts[level] = before[level]
        if outcome < 0:
            return row, -1 - outcome
        errors[row] = outcome
    return starts.size, np.int64(-1)
