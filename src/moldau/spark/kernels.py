"""The loops over single records, compiled: record batches to columns and columns to record batches.

This file decides how bytes of message format v2 become the buffers of Arrow columns and back, and nothing else: it
never sees a socket, a codec or a checksum. numba compiles it on first use and keeps the machine code on disk, so no
compiler and no wheel of our own is needed. Every length read from a record is checked against what is left of its
batch before it is believed; a kernel answers with a negative number instead of raising, so that it stays free of
Python objects.

Restrictions of compiled code: only numbers and NumPy arrays, no exceptions, no allocation.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

# Columns of the table that tells `parse_records` what to read.
BODY_START, BODY_END, RECORD_COUNT, BASE_OFFSET, BASE_TIMESTAMP, APPEND_TIMESTAMP = range(6)
TABLE_COLUMNS = 6

# What `parse_records` leaves behind in its `filled` array.
(
    ROWS,
    KEY_BYTES,
    VALUE_BYTES,
    NULL_KEYS,
    NULL_VALUES,
    HEADERS,
    HEADER_KEY_BYTES,
    HEADER_VALUE_BYTES,
    NULL_HEADER_VALUES,
) = range(9)
FILLED_COLUMNS = 9

CORRUPT = -1

_MAX_VARINT_BITS = 63
_MURMUR_SEED = 0x9747B28C
_MURMUR_MULTIPLIER = 0x5BD1E995
_UINT32 = 0xFFFFFFFF

# A record's length, attributes, deltas, lengths of key and value, and number of headers, at their longest.
RECORD_OVERHEAD_BYTES = 32
HEADER_OVERHEAD_BYTES = 10

# What `encode_records` leaves behind.
NEXT_INDEX, BYTES_WRITTEN = 0, 1

_MIX = np.uint64(0x9E3779B97F4A7C15)
_MIX_END = np.uint64(0xD6E8FEB86659FD93)


@njit(cache=True, nogil=True, inline="always")
def _varint(data, position, end):  # type: ignore[no-untyped-def]
    """(value, position after it) of a zigzag varint; the position is CORRUPT when it does not end in time."""
    result = np.uint64(0)
    shift = np.uint64(0)
    while position < end and shift <= np.uint64(_MAX_VARINT_BITS):
        byte = np.uint64(data[position])
        position += 1
        result |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return np.int64(result >> np.uint64(1)) ^ -np.int64(result & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), np.int64(CORRUPT)


@intrinsic
def _copy(_typing_context, target, source, size):  # type: ignore[no-untyped-def]  # noqa: ARG001 - typed by numba
    """memcpy between two addresses: a loop over bytes reaches a tenth of its speed."""

    def generate(_context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
        to, start, count = arguments
        pointer = ir.IntType(8).as_pointer()
        cgutils.raw_memcpy(builder, builder.inttoptr(to, pointer), builder.inttoptr(start, pointer), count, 1)

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def _load64(_typing_context, address):  # type: ignore[no-untyped-def]  # noqa: ARG001 - typed by numba
    """Eight bytes at an address, aligned or not."""

    def generate(_context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
        pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load(pointer, align=1)

    return types.uint64(types.int64), generate


@njit(cache=True, nogil=True, boundscheck=False)
def _parse_headers(data, position, end, row, columns, filled):  # type: ignore[no-untyped-def]
    """Read the headers of the record that has just become `row` - 1; CORRUPT, or the position after them."""
    ends, key_ends, keys, value_ends, value_valid, values = columns
    data_address = np.int64(data.ctypes.data)
    keys_address = np.int64(keys.ctypes.data)
    values_address = np.int64(values.ctypes.data)
    header = filled[HEADERS]
    key_at = filled[HEADER_KEY_BYTES]
    value_at = filled[HEADER_VALUE_BYTES]
    count, position = _varint(data, position, end)
    if position < 0 or count < 0 or count > end - position:
        return np.int64(CORRUPT)
    for _ in range(count):
        size, position = _varint(data, position, end)
        if position < 0 or size < 0 or size > end - position:
            return np.int64(CORRUPT)
        _copy(keys_address + key_at, data_address + position, size)
        position += size
        key_at += size
        key_ends[header + 1] = key_at
        size, position = _varint(data, position, end)
        if position < 0 or size > end - position:
            return np.int64(CORRUPT)
        if size >= 0:
            _copy(values_address + value_at, data_address + position, size)
            position += size
            value_at += size
            value_valid[header] = 1
        else:
            value_valid[header] = 0
            filled[NULL_HEADER_VALUES] += 1
        value_ends[header + 1] = value_at
        header += 1
    ends[row] = header
    filled[HEADERS] = header
    filled[HEADER_KEY_BYTES] = key_at
    filled[HEADER_VALUE_BYTES] = value_at
    return position


@njit(cache=True, nogil=True, boundscheck=False)
def parse_records(  # type: ignore[no-untyped-def]
    data,
    table,
    first_offset,
    end_offset,
    with_headers,
    offsets,
    timestamps,
    timestamp_types,
    key_ends,
    key_valid,
    keys,
    value_ends,
    value_valid,
    values,
    header_columns,
    filled,
):
    """Read every record whose offset is in [first_offset, end_offset) into columns; CORRUPT, or how many rows."""
    data_address = np.int64(data.ctypes.data)
    keys_address = np.int64(keys.ctypes.data)
    values_address = np.int64(values.ctypes.data)
    row = np.int64(0)
    key_at = np.int64(0)
    value_at = np.int64(0)
    null_keys = np.int64(0)
    null_values = np.int64(0)
    key_ends[0] = 0
    value_ends[0] = 0
    header_columns[0][0] = 0
    header_columns[1][0] = 0
    header_columns[3][0] = 0
    for batch in range(table.shape[0]):
        position = table[batch, BODY_START]
        body_end = table[batch, BODY_END]
        base_offset = table[batch, BASE_OFFSET]
        base_timestamp = table[batch, BASE_TIMESTAMP]
        append_timestamp = table[batch, APPEND_TIMESTAMP]
        for _ in range(table[batch, RECORD_COUNT]):
            length, position = _varint(data, position, body_end)
            if position < 0 or length < 0 or length > body_end - position:
                return CORRUPT
            end = position + length
            position += 1  # attributes: none is defined
            timestamp_delta, position = _varint(data, position, end)
            if position < 0:
                return CORRUPT
            offset_delta, position = _varint(data, position, end)
            if position < 0:
                return CORRUPT
            offset = base_offset + offset_delta
            if offset < first_offset or offset >= end_offset:
                position = end
                continue
            size, position = _varint(data, position, end)
            if position < 0 or size > end - position:
                return CORRUPT
            if size >= 0:
                _copy(keys_address + key_at, data_address + position, size)
                position += size
                key_at += size
                key_valid[row] = 1
            else:
                key_valid[row] = 0
                null_keys += 1
            key_ends[row + 1] = key_at
            size, position = _varint(data, position, end)
            if position < 0 or size > end - position:
                return CORRUPT
            if size >= 0:
                _copy(values_address + value_at, data_address + position, size)
                position += size
                value_at += size
                value_valid[row] = 1
            else:
                value_valid[row] = 0
                null_values += 1
            value_ends[row + 1] = value_at
            offsets[row] = offset
            if append_timestamp >= 0:
                timestamps[row] = append_timestamp * 1000
                timestamp_types[row] = 1
            else:
                timestamps[row] = (base_timestamp + timestamp_delta) * 1000
                timestamp_types[row] = 0
            row += 1
            if with_headers and _parse_headers(data, position, end, row, header_columns, filled) < 0:
                return CORRUPT
            position = end
        if position != body_end:
            return CORRUPT
    filled[ROWS] = row
    filled[KEY_BYTES] = key_at
    filled[VALUE_BYTES] = value_at
    filled[NULL_KEYS] = null_keys
    filled[NULL_VALUES] = null_values
    return row


@njit(cache=True, nogil=True)
def murmur2(data, start, size):  # type: ignore[no-untyped-def]
    """Kafka's hash of a key, as an unsigned number of 32 bits."""
    value = np.int64(_MURMUR_SEED) ^ size
    words = size // 4
    for index in range(words):
        at = start + index * 4
        word = (
            np.int64(data[at])
            | (np.int64(data[at + 1]) << 8)
            | (np.int64(data[at + 2]) << 16)
            | (np.int64(data[at + 3]) << 24)
        )
        word = (word * _MURMUR_MULTIPLIER) & _UINT32
        word ^= word >> 24
        word = (word * _MURMUR_MULTIPLIER) & _UINT32
        value = ((value * _MURMUR_MULTIPLIER) & _UINT32) ^ word
    at = start + words * 4
    rest = size - words * 4
    if rest >= 3:
        value ^= np.int64(data[at + 2]) << 16
    if rest >= 2:
        value ^= np.int64(data[at + 1]) << 8
    if rest >= 1:
        value = ((value ^ np.int64(data[at])) * _MURMUR_MULTIPLIER) & _UINT32
    value ^= value >> 13
    value = (value * _MURMUR_MULTIPLIER) & _UINT32
    return value ^ (value >> 15)


@njit(cache=True, nogil=True)
def choose_partitions(key_ends, key_valid, keys, partition_counts, sticky, partitions):  # type: ignore[no-untyped-def]
    """Fill in the partition of each row that has none yet (-1): by its key, or its topic's sticky one without a key."""
    for row in range(partitions.shape[0]):
        if partitions[row] < 0:
            if key_valid[row]:
                start = np.int64(key_ends[row])
                hashed = murmur2(keys, start, np.int64(key_ends[row + 1]) - start)
                partitions[row] = (hashed & 0x7FFFFFFF) % partition_counts[row]
            else:
                partitions[row] = sticky % partition_counts[row]


@njit(cache=True, nogil=True, inline="always")
def _put_varint(out, at, value):  # type: ignore[no-untyped-def]
    rest = np.uint64((value << 1) ^ (value >> 63))
    while rest >= np.uint64(0x80):
        out[at] = np.uint8((rest & np.uint64(0x7F)) | np.uint64(0x80))
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@njit(cache=True, nogil=True, inline="always")
def _varint_size(value):  # type: ignore[no-untyped-def]
    rest = np.uint64((value << 1) ^ (value >> 63))
    size = 1
    while rest >= np.uint64(0x80):
        rest >>= np.uint64(7)
        size += 1
    return size


@njit(cache=True, nogil=True)
def encode_records(  # type: ignore[no-untyped-def]
    order,
    first,
    last,
    limit,
    key_ends,
    key_valid,
    keys,
    value_ends,
    value_valid,
    values,
    header_ends,
    header_key_ends,
    header_keys,
    header_value_ends,
    header_value_valid,
    header_values,
    out,
    result,
):
    """Write the rows order[first:last] one after the other, until the next would pass `limit` bytes."""
    keys_address = np.int64(keys.ctypes.data)
    values_address = np.int64(values.ctypes.data)
    header_keys_address = np.int64(header_keys.ctypes.data)
    header_values_address = np.int64(header_values.ctypes.data)
    out_address = np.int64(out.ctypes.data)
    with_headers = header_ends.shape[0] > 1
    at = np.int64(0)
    index = first
    while index < last:
        row = order[index]
        delta = index - first
        key_at = np.int64(key_ends[row])
        key_size = np.int64(key_ends[row + 1]) - key_at if key_valid[row] else np.int64(-1)
        value_at = np.int64(value_ends[row])
        value_size = np.int64(value_ends[row + 1]) - value_at if value_valid[row] else np.int64(-1)
        header_first = np.int64(header_ends[row]) if with_headers else np.int64(0)
        header_last = np.int64(header_ends[row + 1]) if with_headers else np.int64(0)
        size = 2 + _varint_size(delta) + _varint_size(key_size) + _varint_size(value_size)
        size += max(key_size, 0) + max(value_size, 0) + _varint_size(header_last - header_first)
        for header in range(header_first, header_last):
            name_size = np.int64(header_key_ends[header + 1]) - np.int64(header_key_ends[header])
            size += _varint_size(name_size) + name_size
            if header_value_valid[header]:
                text_size = np.int64(header_value_ends[header + 1]) - np.int64(header_value_ends[header])
                size += _varint_size(text_size) + text_size
            else:
                size += 1
        if index > first and at + size + _varint_size(size) > limit:
            break
        at = _put_varint(out, at, np.int64(size))
        out[at] = 0  # attributes
        out[at + 1] = 0  # timestamp delta
        at = _put_varint(out, at + 2, delta)
        at = _put_varint(out, at, key_size)
        if key_size > 0:
            _copy(out_address + at, keys_address + key_at, key_size)
            at += key_size
        at = _put_varint(out, at, value_size)
        if value_size > 0:
            _copy(out_address + at, values_address + value_at, value_size)
            at += value_size
        at = _put_varint(out, at, header_last - header_first)
        for header in range(header_first, header_last):
            name_at = np.int64(header_key_ends[header])
            name_size = np.int64(header_key_ends[header + 1]) - name_at
            at = _put_varint(out, at, name_size)
            _copy(out_address + at, header_keys_address + name_at, name_size)
            at += name_size
            if header_value_valid[header]:
                text_at = np.int64(header_value_ends[header])
                text_size = np.int64(header_value_ends[header + 1]) - text_at
                at = _put_varint(out, at, text_size)
                _copy(out_address + at, header_values_address + text_at, text_size)
                at += text_size
            else:
                at = _put_varint(out, at, np.int64(-1))
        index += 1
    result[NEXT_INDEX] = index
    result[BYTES_WRITTEN] = at


@njit(cache=True, nogil=True, inline="always")
def _stirred(value, word):  # type: ignore[no-untyped-def]
    value = (value ^ word) * _MIX
    return value ^ (value >> np.uint64(29))


@njit(cache=True, nogil=True, inline="always")
def _mixed(data, address, start, size, seed):  # type: ignore[no-untyped-def]
    """A 64-bit hash of some bytes, eight at a time; of many bytes four such hashes side by side, because each step of
    one has to wait for the step before."""
    value = seed ^ (np.uint64(size) * _MIX)
    at = address + start
    end = at + size
    if size >= 32:
        second, third, fourth = value ^ _MIX, value ^ _MIX_END, ~value
        while end - at >= 32:
            value = _stirred(value, _load64(at))
            second = _stirred(second, _load64(at + 8))
            third = _stirred(third, _load64(at + 16))
            fourth = _stirred(fourth, _load64(at + 24))
            at += 32
        value = _stirred(_stirred(_stirred(value, second), third), fourth)
    while end - at >= 8:
        value = _stirred(value, _load64(at))
        at += 8
    for index in range(at - address, start + size):
        value = (value ^ np.uint64(data[index])) * _MIX_END
        value ^= value >> np.uint64(32)
    value *= _MIX_END
    return value ^ (value >> np.uint64(32))


@njit(cache=True, nogil=True)
def fingerprint(key_ends, key_valid, keys, value_ends, value_valid, values):  # type: ignore[no-untyped-def]
    """A number that tells sets of rows apart whatever their order: the sum of a hash of each."""
    keys_address = np.int64(keys.ctypes.data)
    values_address = np.int64(values.ctypes.data)
    total = np.uint64(0)
    for row in range(key_valid.shape[0]):
        seed = np.uint64(1)
        if key_valid[row]:
            start = np.int64(key_ends[row])
            seed = _mixed(keys, keys_address, start, np.int64(key_ends[row + 1]) - start, np.uint64(2))
        if value_valid[row]:
            start = np.int64(value_ends[row])
            seed = _mixed(values, values_address, start, np.int64(value_ends[row + 1]) - start, seed)
        total += seed * _MIX
    return total
