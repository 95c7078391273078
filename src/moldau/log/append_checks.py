"""Whether a client's batch may be appended: the questions its header answers, asked when the quick test says no.

`PartitionLog.append_as_leader` tests everything at once and comes here only to find out what exactly is wrong, or when
the topic asks for more than a look at the header. Nothing here changes the log.
"""

from __future__ import annotations

from typing import Final, NoReturn

from moldau.log.config import LONG_MAX, LogConfig
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.batch import (
    ATTRIBUTES,
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LENGTH_AT,
    LENGTH_FIELD,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_AT,
    MIN_BATCH_LENGTH,
    BatchHeader,
    seal,
)
from moldau.records.builder import recompress
from moldau.records.compression import Codec, CorruptRecords
from moldau.records.record import unpack_body
from moldau.records.validation import TimestampLimits, validate_records

_LARGEST_CODEC: Final = 4
_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
# A batch that unpacks to more than this is an attack: no client builds one.
_MAX_UNPACKED: Final = 256 << 20
# All batches of one request together: this much whatever they claim, beyond it so many times their own size, and
# never more than a node can spare the time for.
_UNPACKED_BASE: Final = 32 << 20
_UNPACKED_RATIO: Final = 100
_UNPACKED_LIMIT: Final = 512 << 20
# The smallest message set entry any format ever had; anything shorter is not a message at all.
_SMALLEST_ENTRY: Final = 14


class UnpackBudget:
    """How far the batches of the request under way may still unpack.

    A request of a megabyte has room for thousands of bombs; each alone may be small enough, all of them are not.
    """

    __slots__ = ("left",)

    def __init__(self) -> None:
        # What is appended outside of a request was written by this broker.
        self.left = LONG_MAX

    def begin(self, request_bytes: int) -> None:
        self.left = min(_UNPACKED_BASE + _UNPACKED_RATIO * request_bytes, _UNPACKED_LIMIT)

    def unpack(self, records: memoryview, header: BatchHeader) -> bytes:
        allowed = min(self.left, _MAX_UNPACKED)
        # Nobody knows how far a body went that does not unpack: it counts as if it had gone to the end.
        self.left -= allowed
        body = unpack_body(records, header, allowed)
        self.left += allowed - len(body)
        return body


# One for the thread that appends: there is one request at a time.
unpacking: Final = UnpackBudget()


def single_batch(records: memoryview, name: str) -> memoryview:
    """The one batch a Produce request may carry for a partition, without a cut batch after it; raises otherwise."""
    if len(records) <= MAGIC_AT:
        raise ApiError(ErrorCode.INVALID_RECORD, f"a produce request must have a record batch for {name}")
    size = _whole_size(records, name)
    magic = records[MAGIC_AT]
    if magic > MAGIC:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a record batch for {name} has the unknown magic {magic}")
    if size > len(records):
        raise ApiError(ErrorCode.INVALID_RECORD, f"the record batch for {name} is cut off")
    if magic != MAGIC:
        raise ApiError(ErrorCode.INVALID_RECORD, f"a produce request may not have records of format {magic} ({name})")
    if size < HEADER_SIZE:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a record batch for {name} is shorter than its header")
    rest = records[size:]
    if len(rest) > MAGIC_AT and _whole_size(rest, name) <= len(rest):
        raise ApiError(ErrorCode.INVALID_RECORD, f"a produce request may have one record batch only for {name}")
    return records[:size]


def _whole_size(records: memoryview, name: str) -> int:
    length: int = LENGTH_FIELD.unpack_from(records, LENGTH_AT)[0]
    if length < _SMALLEST_ENTRY:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a record batch for {name} says it has {length} bytes")
    return length + LENGTH_OVERHEAD


def refuse_header(header: BatchHeader, name: str) -> NoReturn:
    """Say what is wrong with a client's header that failed the quick test."""
    if header.base_offset != 0:
        problem = f"the base offset is {header.base_offset}, not 0"
    elif header.last_offset_delta < 0:
        problem = f"the last offset delta is {header.last_offset_delta}"
    elif header.record_count <= 0:
        problem = f"the record count is {header.record_count}"
    elif header.record_count != header.last_offset_delta + 1:
        problem = f"{header.record_count} records do not fit a last offset delta of {header.last_offset_delta}"
    elif header.attributes & CONTROL_BIT:
        problem = "clients may not write control records"
    elif header.attributes & LOG_APPEND_TIME_BIT:
        raise ApiError(
            ErrorCode.INVALID_TIMESTAMP,
            f"a producer may not set the timestamp type to LogAppendTime ({name})",
            [(i, None) for i in range(min(header.record_count, 1))],
        )
    elif header.has_producer_id and header.base_sequence < 0:
        problem = f"producer {header.producer_id} sent sequence number {header.base_sequence}"
    else:
        assert header.attributes & CODEC_MASK > _LARGEST_CODEC, "the quick test refused a batch for no reason"
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression {header.attributes & CODEC_MASK} ({name})"
        )
    raise ApiError(ErrorCode.INVALID_RECORD, f"{problem} ({name})")


def refuse_size(size: int, limit: int, name: str) -> NoReturn:
    raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes for {name}; max.message.bytes is {limit}")


def refuse_checksum(crc: int, name: str) -> NoReturn:
    raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the checksum {crc} of a record batch for {name} does not fit")


def refuse_timestamp(timestamp: int, now_ms: int, config: LogConfig, name: str) -> NoReturn:
    earliest = max(now_ms - config.message_timestamp_before_max_ms, 0)
    latest = now_ms + config.message_timestamp_after_max_ms
    raise ApiError(ErrorCode.INVALID_TIMESTAMP, f"timestamp {timestamp} in {name} is outside of [{earliest}, {latest}]")


def check_replicated(header: BatchHeader, batch: memoryview, name: str) -> None:
    """What a follower asks of a batch that a leader accepted: whole and undamaged."""
    if header.batch_length < MIN_BATCH_LENGTH or header.last_offset_delta < 0 or header.base_offset < 0:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a replicated batch for {name} has a senseless header")
    if not header.checksum_matches(batch):
        refuse_checksum(header.crc, name)


def prepare_specially(records: memoryview, config: LogConfig, now_ms: int, name: str) -> tuple[memoryview, int, int]:
    """Do what the topic's settings ask for beyond the header: gives (batch to write, its timestamp, append time).

    Records are opened only for settings that need it: keys of a compacted topic, a limit for old timestamps, another
    codec, or `deep_validation`. Stamping with the append time and another codec change the batch, never its offsets.
    """
    header = BatchHeader(records)
    stamp = config.message_timestamp_type == "LogAppendTime"
    codec = header.codec if config.compression_type == "producer" else _CODECS[config.compression_type]
    limits = TimestampLimits(now_ms, config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms)
    batch: memoryview | bytes = records
    if codec != header.codec or config.cleanup_compact or config.deep_validation or limits.before_max_ms < LONG_MAX:
        body = _validated(records, header, config, None if stamp else limits)
        if codec != header.codec:
            batch = recompress(records, codec, config.compression_level, body=body)
            if len(batch) > config.max_message_bytes:
                refuse_size(len(batch), config.max_message_bytes, name)
            header = BatchHeader(batch)
    elif not stamp and header.max_timestamp - now_ms > limits.after_max_ms:
        refuse_timestamp(header.max_timestamp, now_ms, config, name)
    if not stamp:
        return memoryview(batch), header.max_timestamp, -1
    stamped = bytearray(batch)
    ATTRIBUTES.pack_into(stamped, ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_BIT)
    MAX_TIMESTAMP.pack_into(stamped, MAX_TIMESTAMP_AT, now_ms)
    seal(stamped)
    return memoryview(stamped), now_ms, now_ms


def _validated(
    records: memoryview, header: BatchHeader, config: LogConfig, timestamps: TimestampLimits | None
) -> bytes:
    """The unpacked body of a batch whose records are all as they should be."""
    try:
        body = unpacking.unpack(records, header)
    except CorruptRecords as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from None
    validate_records(records, header, require_keys=config.cleanup_compact, timestamps=timestamps, body=body)
    return body
