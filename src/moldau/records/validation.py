"""Deep validation: whether the records inside a produced batch may enter the log.

This module decides what is refused and with which error, record by record, as Kafka's brokers do for a Produce
request; the header's own claims are judged first. It must never change a batch, and never trust one: a body that does
not unpack within the caller's bound, or does not parse to its last byte, is an invalid record like any other.

The common path never comes here (the broker moves batches, it does not open them); compacted topics, timestamp bounds
and topics with their own codec do, so the loop is written for speed.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from moldau.ports import Buffer
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.batch import MAGIC, NO_SEQUENCE, NO_TIMESTAMP, BatchHeader
from moldau.records.compression import DEFAULT_MAX_SIZE, ZSTD, CorruptRecords
from moldau.records.record import (
    header_of,
    iterate_records,
    read_varint_rest,
    read_varlong_rest,
    skip_headers,
    unpack_body,
)

_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
# How many of a batch's bad records are named in the answer's message; all of them are in `record_errors`.
_NAMED_ERRORS: Final = 3

# A refused record: its index in the batch, and why.
RecordError: TypeAlias = tuple[int, str | None]


class TimestampLimits(NamedTuple):
    """How far a record's own timestamp may be from the broker's clock (message.timestamp.before/after.max.ms)."""

    now_ms: int
    before_max_ms: int = _INT64_MAX
    after_max_ms: int = _INT64_MAX

    def allow(self, earliest: int, latest: int) -> bool:
        return earliest >= self.now_ms - self.before_max_ms and latest <= self.now_ms + self.after_max_ms


class Validated(NamedTuple):
    """What the pass over the records found: the real maximum timestamp, and the body for whoever recompresses it."""

    max_timestamp: int
    body: bytes


def validate_header(header: BatchHeader) -> None:
    """Refuse what a client's batch may not claim, before anything is unpacked."""
    if header.magic != MAGIC:
        raise ApiError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"Record batches of format {header.magic}")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"A batch of {header.record_count} records cannot span {header.last_offset_delta + 1} offsets",
        )
    if header.is_control:
        raise ApiError(ErrorCode.INVALID_RECORD, "Clients may not write control records")
    if header.has_producer_id and header.base_sequence <= NO_SEQUENCE:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Sequence {header.base_sequence} in a batch of producer {header.producer_id}",
        )
    if header.is_log_append_time:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "Only a broker may say that records carry their append time")
    if header.codec > ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"There is no compression codec {header.codec}")


def validate_records(
    batch: Buffer,
    header: BatchHeader | None = None,
    *,
    require_keys: bool = False,
    timestamps: TimestampLimits | None = None,
    max_decompressed: int = DEFAULT_MAX_SIZE,
    body: bytes | None = None,
) -> Validated:
    """Check header, structure, offsets, keys and timestamps of a client's batch; raises ApiError.

    `require_keys` is for compacted topics. `timestamps` is given for topics that keep the records' create time. `body`
    is what the batch unpacks to, where that is known already.
    """
    if header is None:
        try:
            header = header_of(batch)
        except CorruptRecords as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    validate_header(header)
    try:
        if body is None:
            body = unpack_body(batch, header, max_decompressed)
        latest, earliest, keyless = _walk(body, header.record_count)
    except CorruptRecords as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from None
    base = header.base_timestamp
    if base + latest > _INT64_MAX or base + earliest < _INT64_MIN:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "A timestamp does not fit 64 bits")
    errors: list[RecordError] = []
    if keyless and require_keys:
        errors = [(index, "A compacted topic takes no record without a key") for index in keyless]
    if timestamps is not None and not timestamps.allow(base + earliest, base + latest):
        out_of_range = _out_of_range(body, header, timestamps, {index for index, _ in errors})
        if out_of_range:
            raise ApiError(
                ErrorCode.INVALID_TIMESTAMP,
                "One or more records have a timestamp out of range",
                sorted(errors + out_of_range, key=lambda error: error[0]),
            )
    if errors:
        named = "; ".join(f"record {index}: {message}" for index, message in errors[:_NAMED_ERRORS])
        raise ApiError(ErrorCode.INVALID_RECORD, f"{len(errors)} records refused: {named}", errors)
    return Validated(base + latest, body)


def _out_of_range(body: bytes, header: BatchHeader, limits: TimestampLimits, refused: set[int]) -> list[RecordError]:
    """The records, but for those `refused` already, whose timestamp is out of range; having none is allowed."""
    first, last = limits.now_ms - limits.before_max_ms, limits.now_ms + limits.after_max_ms
    found: list[RecordError] = []
    for index, record in enumerate(iterate_records(body, header)):
        if record.timestamp != NO_TIMESTAMP and not first <= record.timestamp <= last and index not in refused:
            found.append((index, f"Timestamp {record.timestamp} is not within [{first}, {last}]"))
    return found


def _walk(body: bytes, count: int) -> tuple[int, int, list[int]]:
    """(latest timestamp delta, earliest one, indexes of records without a key) of a body that parses exactly.

    Short varints are decoded in place: a call costs more than the decoding.
    """
    keyless: list[int] = []
    body_end = len(body)
    position = 0
    latest = -_INT64_MAX * 2
    earliest = _INT64_MAX * 2
    try:
        for index in range(count):
            length = body[position]
            position += 1
            if length > 127:
                if body[position] < 128:
                    length = length & 0x7F | body[position] << 7
                    position += 1
                else:
                    length, position = read_varint_rest(body, position, length)
            end = position + ((length >> 1) ^ -(length & 1))
            if end > body_end:
                raise CorruptRecords(f"record {index} ends {end - body_end} bytes after its batch")
            delta = body[position + 1]
            position += 2
            if delta > 127:
                if body[position] < 128:
                    delta = delta & 0x7F | body[position] << 7
                    position += 1
                else:
                    delta, position = read_varlong_rest(body, position, delta)
            delta = (delta >> 1) ^ -(delta & 1)
            if delta > latest:
                latest = delta
            if delta < earliest:
                earliest = delta
            offset = body[position]
            position += 1
            if offset > 127:
                if body[position] < 128:
                    offset = offset & 0x7F | body[position] << 7
                    position += 1
                else:
                    offset, position = read_varint_rest(body, position, offset)
            if offset != index << 1:
                raise CorruptRecords(f"record {index} has offset delta {(offset >> 1) ^ -(offset & 1)}")
            size = body[position]
            position += 1
            if size > 127:
                if body[position] < 128:
                    size = size & 0x7F | body[position] << 7
                    position += 1
                else:
                    size, position = read_varint_rest(body, position, size)
            if size & 1:
                if size != 1:
                    raise CorruptRecords(f"record {index} has a key of {(size >> 1) ^ -1} bytes")
                keyless.append(index)
            else:
                position += size >> 1
            size = body[position]
            position += 1
            if size > 127:
                if body[position] < 128:
                    size = size & 0x7F | body[position] << 7
                    position += 1
                else:
                    size, position = read_varint_rest(body, position, size)
            if not size & 1:
                position += size >> 1
            elif size != 1:
                raise CorruptRecords(f"record {index} has a value of {(size >> 1) ^ -1} bytes")
            if body[position]:
                position = skip_headers(body, position, end)
            else:
                position += 1
            if position != end:
                raise CorruptRecords(f"the fields of record {index} do not fill its length")
    except IndexError:
        raise CorruptRecords("the batch ends inside a record") from None
    if position != body_end:
        raise CorruptRecords(f"{body_end - position} bytes after the last of {count} records")
    return latest, earliest, keyless
