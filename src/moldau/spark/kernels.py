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
ROWS, KEY_BYTES, VALUE_BYTES, NULL_KEYS, NULL_VALUES, HEADERS, HEADER_KEY_BYTES, HEADER_VALUE_BYTES, NULL_HEADER_VALUES = (
    range(9)
)
FILLED_COLUMNS = 9

CORRUPT = -1

# The smallest record: a length of one byte, then attributes, two deltas, two lengths and a count of a byte each.
SMALLEST_RECORD_BYTES = 7

_MAX_VARINT_BITS = 63
MURMUR_SEED = np.uint32(0x9747B28C)
_MURMUR_MULTIPLIER = np.uint32(0x5BD1E995)


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


@intrinsic  # type: ignore[untyped-decorator]
def _copy(_typing_context, target, source, size):  # type: ignore[no-untyped-def]
    """memcpy between two addresses: a loop over bytes reaches a tenth of its speed."""

    def generate(_context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
        to, start, count = arguments
        pointer = ir.IntType(8).as_pointer()
        cgutils.raw_memcpy(builder, builder.inttoptr(to, pointer), builder.inttoptr(start, pointer), count, 1)

    return types.void(types.int64, types.int64, types.int64), generate


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
    header_ends,
    header_key_ends,
    header_keys,
    header_value_ends,
    header_value_valid,
    header_values,
    filled,
):
    """Read every record whose offset is in [first_offset, end_offset) into columns; CORRUPT, or how many rows."""
    data_address = np.int64(data.ctypes.data)
    keys_address = np.int64(keys.ctypes.data)
    values_address = np.int64(values.ctypes.data)
    header_keys_address = np.int64(header_keys.ctypes.data)
    header_values_address = np.int64(header_values.ctypes.data)
    row = np.int64(0)
    key_at = np.int64(0)
    value_at = np.int64(0)
    header = np.int64(0)
    header_key_at = np.int64(0)
    header_value_at = np.int64(0)
    null_keys = np.int64(0)
    null_values = np.int64(0)
    null_header_values = np.int64(0)
    key_ends[0] = 0
    value_ends[0] = 0
    header_ends[0] = 0
    header_key_ends[0] = 0
    header_value_ends[0] = 0
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
            if with_headers:
                count, position = _varint(data, position, end)
                if position < 0 or count < 0 or count > end - position:
                    return CORRUPT
                for _ in range(count):
                    size, position = _varint(data, position, end)
                    if position < 0 or size < 0 or size > end - position:
                        return CORRUPT
                    _copy(header_keys_address + header_key_at, data_address + position, size)
                    position += size
                    header_key_at += size
                    header_key_ends[header + 1] = header_key_at
                    size, position = _varint(data, position, end)
                    if position < 0 or size > end - position:
                        return CORRUPT
                    if size >= 0:
                        _copy(header_values_address + header_value_at, data_address + position, size)
                        position += size
                        header_value_at += size
                        header_value_valid[header] = 1
                    else:
                        header_value_valid[header] = 0
                        null_header_values += 1
                    header_value_ends[header + 1] = header_value_at
                    header += 1
                header_ends[row] = header
            position = end
        if position != body_end:
            return CORRUPT
    filled[ROWS] = row
    filled[KEY_BYTES] = key_at
    filled[VALUE_BYTES] = value_at
    filled[NULL_KEYS] = null_keys
    filled[NULL_VALUES] = null_values
    filled[HEADERS] = header
    filled[HEADER_KEY_BYTES] = header_key_at
    filled[HEADER_VALUE_BYTES] = header_value_at
    filled[NULL_HEADER_VALUES] = null_header_values
    return row
