"""The loops over single messages of Protobuf, compiled: bytes to columns, and rows as items of a repeated field.

`decode_rows` decides how the usual wire format is read, following tables that `protobuf_tables` has made. Values land
in vectors of 64-bit slots, as in `avro_kernel`. Whatever is not usual (a message in two parts, two members of a oneof,
a symbol without a name, a group, broken bytes) it leaves alone: such a row is marked and Google's library reads it, or
says that it is bad. So this loop never refuses a value, and must never accept one that the library reads otherwise.

Restrictions of compiled code: only numbers and NumPy arrays, no exceptions, no allocation.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from moldau.spark.values.gathering import STACK_DEPTH, is_utf8, widened
from moldau.spark.values.memory import copy_bytes

# What a field is. The first ones are varints, then 4 bytes, then 8 bytes, then a length and bytes.
(
    INT32,
    INT64,
    UINT32,
    UINT64,
    SINT32,
    SINT64,
    BOOL,
    ENUM,
    FIXED32,
    SFIXED32,
    FLOAT,
    FIXED64,
    SFIXED64,
    DOUBLE,
    STRING,
    BYTES,
    TIME,
    MESSAGE,
) = range(18)

# Columns of the table of messages: where its defaults begin and end, where its fields are in the index, the largest
# number of a field, and for entries of maps the vector of their keys and whether these are strings.
DEFAULTS, DEFAULTS_END, INDEX, LARGEST, KEY, KEY_IS_TEXT = range(6)
# Columns of the table of fields.
KIND, VECTOR, VALID, INNER, INNER_MESSAGE, SYMBOLS, SYMBOL_COUNT, ONEOF, MEMBER, IS_MAP = range(10)
# Columns of the table of defaults: a vector gets a value, or the count of a level.
DEFAULT_VECTOR, DEFAULT_VALUE, DEFAULT_LEVEL = range(3)

GOOD, UNUSUAL = 0, 1

_VARINT, _EIGHT, _DELIMITED, _FOUR = 0, 1, 2, 5
# Maps with more entries are left to the library, because looking for a key that comes twice is quadratic here.
_MOST_ENTRIES = 64
_MOST_SECONDS = 9_000_000_000_000
# Field 1, of a length that follows.
_TAG = 0x0A


@njit(cache=True, nogil=True)
def _varint(data, position, end):  # type: ignore[no-untyped-def]
    """(value, position after it); the position is -1 if there is no value."""
    result = np.uint64(0)
    shift = np.uint64(0)
    while position < end:
        byte = data[position]
        position += 1
        result |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            return np.int64(result), position
        shift += np.uint64(7)
        if shift > np.uint64(63):
            return np.int64(0), np.int64(-1)
    return np.int64(0), np.int64(-1)


@njit(cache=True, nogil=True)
def _micros(data, position, end):  # type: ignore[no-untyped-def]
    """(whether it is usual, microseconds) of a Timestamp or a Duration."""
    seconds = np.int64(0)
    nanos = np.int64(0)
    while position < end:
        tag = data[position]
        value, position = _varint(data, position + 1, end)
        if position < 0:
            return False, np.int64(0)
        if tag == 0x08:
            seconds = value
        elif tag == 0x10:
            nanos = value
        else:
            return False, np.int64(0)
    if seconds > _MOST_SECONDS or seconds < -_MOST_SECONDS or nanos > 999_999_999 or nanos < -999_999_999:
        return False, np.int64(0)
    return True, seconds * 1_000_000 + nanos // 1000


@njit(cache=True, nogil=True)
def _narrow(value):  # type: ignore[no-untyped-def]
    """The lower 32 bits, with their sign."""
    value &= 0xFFFFFFFF
    return value - 0x100000000 if value > 0x7FFFFFFF else value


@njit(cache=True, nogil=True)
def _scalar(data, position, end, field, table, base, slots, floats, at):  # type: ignore[no-untyped-def]
    """Read a field's value into its slot; the answer is the position after it, or -1 if it is not usual."""
    kind = field[KIND]
    where = base[field[VECTOR]] + at
    if kind <= ENUM:
        value, position = _varint(data, position, end)
        if position < 0:
            return position
        if kind == INT32:
            slots[where] = _narrow(value)
        elif kind == UINT32:
            slots[where] = value & 0xFFFFFFFF
        elif kind == UINT64:
            slots[where] = 0
            slots[base[field[VECTOR] + 1] + at] = value
        elif kind == BOOL:
            slots[where] = 1 if value != 0 else 0
        elif kind == SINT32:
            value &= 0xFFFFFFFF
            slots[where] = (value >> 1) ^ -(value & 1)
        elif kind == SINT64:
            bits = np.uint64(value)
            slots[where] = np.int64(bits >> np.uint64(1)) ^ -np.int64(bits & np.uint64(1))
        elif kind == ENUM:
            value = _narrow(value)
            for symbol in range(field[SYMBOL_COUNT]):
                place = field[SYMBOLS] + 3 * symbol
                if table[place] == value:
                    slots[where] = table[place + 1]
                    slots[base[field[VECTOR] + 1] + at] = table[place + 2]
                    return position
            return np.int64(-1)
        else:
            slots[where] = value
        return position
    if kind <= DOUBLE:
        size = 4 if kind <= FLOAT else 8
        if end - position < size:
            return np.int64(-1)
        bits = np.uint64(0)
        for ahead in range(size):
            bits |= np.uint64(data[position + ahead]) << np.uint64(8 * ahead)
        if kind == FLOAT:
            floats[where] = widened(bits)
        elif kind == SFIXED32:
            slots[where] = _narrow(np.int64(bits))
        elif kind == FIXED64:
            slots[where] = 0
            slots[base[field[VECTOR] + 1] + at] = np.int64(bits)
        else:
            slots[where] = np.int64(bits)
        return position + size
    size, position = _varint(data, position, end)
    if position < 0 or size < 0 or size > end - position:
        return np.int64(-1)
    if kind == TIME:
        usual, micros = _micros(data, position, position + size)
        if not usual:
            return np.int64(-1)
        slots[where] = micros
    else:
        if kind == STRING and not is_utf8(data, position, position + size):
            return np.int64(-1)
        slots[where] = position
        slots[base[field[VECTOR] + 1] + at] = size
    return position + size


@njit(cache=True, nogil=True)
def _set_defaults(message, defaults, base, slots, counts, level_of):  # type: ignore[no-untyped-def]
    for each in range(message[DEFAULTS], message[DEFAULTS_END]):
        vector = defaults[each, DEFAULT_VECTOR]
        level = defaults[each, DEFAULT_LEVEL]
        slots[base[vector] + counts[level_of[vector]]] = counts[level] if level >= 0 else defaults[each, DEFAULT_VALUE]


@njit(cache=True, nogil=True)
def _is_new_key(data, message, field, base, slots, counts, level_of):  # type: ignore[no-untyped-def]
    """Whether the entry that has just been read has a key that no other entry of its map has."""
    last = counts[field[INNER]]
    first = slots[base[field[VECTOR]] + counts[level_of[field[VECTOR]]]]
    if last - first >= _MOST_ENTRIES:
        return False
    key = base[message[KEY]]
    for other in range(first, last):
        if not message[KEY_IS_TEXT]:
            if slots[key + other] == slots[key + last]:
                return False
            continue
        lengths = base[message[KEY] + 1]
        size = slots[lengths + last]
        if slots[lengths + other] != size:
            continue
        same = True
        for ahead in range(size):
            if data[slots[key + other] + ahead] != data[slots[key + last] + ahead]:
                same = False
                break
        if same:
            return False
    return True


@njit(cache=True, nogil=True)
def _skip(data, position, end, wire):  # type: ignore[no-untyped-def]
    """Over a field that nobody wants; -1 if that is not usual."""
    size = np.int64(0)
    if wire == _VARINT:
        _, position = _varint(data, position, end)
        return position
    if wire == _DELIMITED:
        size, position = _varint(data, position, end)
        if position < 0 or size < 0:
            return np.int64(-1)
    elif wire == _EIGHT:
        size = np.int64(8)
    elif wire == _FOUR:
        size = np.int64(4)
    else:
        return np.int64(-1)
    return position + size if size <= end - position else np.int64(-1)


@njit(cache=True, nogil=True)
def _wire_of(kind):  # type: ignore[no-untyped-def]
    if kind <= ENUM:
        return _VARINT
    if kind <= FLOAT:
        return _FOUR
    return _EIGHT if kind <= DOUBLE else _DELIMITED


@njit(cache=True, nogil=True)
def _run(  # type: ignore[no-untyped-def]
    data, position, end, messages, fields, index, defaults, table, base, room, slots, floats, counts, level_of, stack
):
    """Read one row. The answer is GOOD or UNUSUAL, or minus (1 + level) if that level has no room left.

    One long function on purpose, as in `avro_kernel`: messages inside messages are kept on a stack, not called.
    """
    depth = 0
    number = np.int64(0)
    message = np.int64(0)
    _set_defaults(messages[0], defaults, base, slots, counts, level_of)
    while True:
        while position == end:
            if depth == 0:
                return np.int64(GOOD)
            depth -= 1
            which = stack[3 * depth]
            if which >= 0:
                field = fields[which]
                if field[IS_MAP] and not _is_new_key(data, messages[message], field, base, slots, counts, level_of):
                    return np.int64(UNUSUAL)
                counts[field[INNER]] += 1
            end = stack[3 * depth + 1]
            message = stack[3 * depth + 2]
        tag, position = _varint(data, position, end)
        if position < 0 or tag <= 7 or tag > 0xFFFFFFFF:
            return np.int64(UNUSUAL)
        number = tag >> 3
        wire = tag & 7
        which = index[messages[message, INDEX] + number] if number <= messages[message, LARGEST] else np.int64(-1)
        if which < 0:
            position = _skip(data, position, end, wire)
            if position < 0:
                return np.int64(UNUSUAL)
            continue
        field = fields[which]
        kind = field[KIND]
        inner = field[INNER]
        if field[ONEOF] >= 0:
            where = base[field[ONEOF]] + counts[level_of[field[ONEOF]]]
            if slots[where] != 0 and slots[where] != field[MEMBER]:
                return np.int64(UNUSUAL)
            slots[where] = field[MEMBER]
        if inner >= 0 and wire == _DELIMITED and kind <= DOUBLE:
            # Packed: values without tags in between.
            size, position = _varint(data, position, end)
            if position < 0 or size < 0 or size > end - position:
                return np.int64(UNUSUAL)
            stop = position + size
            while position < stop:
                if counts[inner] >= room[inner]:
                    return -1 - inner
                position = _scalar(data, position, stop, field, table, base, slots, floats, counts[inner])
                if position < 0:
                    return np.int64(UNUSUAL)
                counts[inner] += 1
            continue
        if wire != _wire_of(kind):
            return np.int64(UNUSUAL)
        if inner >= 0 and counts[inner] >= room[inner]:
            return -1 - inner
        if field[VALID] >= 0:
            where = base[field[VALID]] + counts[level_of[field[VALID]]]
            if slots[where] and kind >= TIME:
                # A message in two parts, which would have to be merged.
                return np.int64(UNUSUAL)
            slots[where] = 1
        if kind != MESSAGE:
            at = counts[inner] if inner >= 0 else counts[level_of[field[VECTOR]]]
            position = _scalar(data, position, end, field, table, base, slots, floats, at)
            if position < 0:
                return np.int64(UNUSUAL)
            if inner >= 0:
                counts[inner] += 1
            continue
        size, position = _varint(data, position, end)
        if position < 0 or size < 0 or size > end - position or 3 * depth + 2 >= STACK_DEPTH:
            return np.int64(UNUSUAL)
        stack[3 * depth] = which if inner >= 0 else -1
        stack[3 * depth + 1] = end
        stack[3 * depth + 2] = message
        depth += 1
        end = position + size
        message = field[INNER_MESSAGE]
        if inner >= 0:
            _set_defaults(messages[message], defaults, base, slots, counts, level_of)


@njit(cache=True, nogil=True)
def decode_rows(  # type: ignore[no-untyped-def]
    data,
    starts,
    ends,
    first,
    tables,
    base,
    room,
    slots,
    floats,
    counts,
    level_of,
    stack,
    before,
    unusual,
):
    """Read rows from `first` on. The answer is (row to go on with, level that has no room left or -1)."""
    messages, fields, index, defaults, table = tables
    for row in range(first, starts.size):
        if counts[0] >= room[0]:
            return row, np.int64(0)
        for level in range(counts.size):
            before[level] = counts[level]
        outcome = _run(
            data,
            starts[row],
            ends[row],
            messages,
            fields,
            index,
            defaults,
            table,
            base,
            room,
            slots,
            floats,
            counts,
            level_of,
            stack,
        )
        if outcome == GOOD:
            counts[0] += 1
            continue
        for level in range(counts.size):
            counts[level] = before[level]
        if outcome < 0:
            return row, -1 - outcome
        unusual[row] = True
    return starts.size, np.int64(-1)


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
