"""What a produced batch is refused for, with which error code and which record named."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.batch import CONTROL_BIT, HEADER, HEADER_SIZE, LOG_APPEND_TIME_BIT, seal
from moldau.records.builder import build_batch, encode_varint, recompress
from moldau.records.compression import Codec, CorruptRecords
from moldau.records.record import Record, read_records
from moldau.records.validation import TimestampLimits, validate_records

FIELDS = (
    "base_offset",
    "batch_length",
    "leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)


def plain(count: int = 3, **options: object) -> bytes:
    records = [Record(offset, 1000 + offset, b"k%d" % offset, b"v") for offset in range(count)]
    return build_batch(records, **options)  # type: ignore[arg-type]


def altered(batch: bytes, *, body: bytes | None = None, **fields: int) -> bytes:
    values = dict(zip(FIELDS, HEADER.unpack_from(batch), strict=True)) | fields
    changed = bytearray(HEADER.pack(*values.values())) + (batch[HEADER_SIZE:] if body is None else body)
    seal(changed)
    return bytes(changed)


def refusal(batch: bytes, **options: object) -> ApiError:
    with pytest.raises(ApiError) as caught:
        validate_records(batch, **options)  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize("codec", list(Codec))
def test_a_good_batch_passes_and_its_latest_timestamp_is_found(codec: Codec) -> None:
    records = [Record(0, 5000, b"a", b"1"), Record(1, 9000, None, None), Record(2, 2000, b"c", b"3" * 200)]
    lying = altered(build_batch(records, codec=codec), max_timestamp=77)
    assert validate_records(memoryview(lying)).max_timestamp == 9000


@given(count=st.integers(1, 300), codec=st.sampled_from(list(Codec)), size=st.integers(0, 20_000))
@settings(max_examples=30)
def test_batches_of_any_size_pass(count: int, codec: Codec, size: int) -> None:
    records = [Record(offset, offset * 1000, b"key", bytes(size // count), (("h", b""),)) for offset in range(count)]
    validated = validate_records(build_batch(records, codec=codec), require_keys=True)
    assert validated.max_timestamp == (count - 1) * 1000


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"magic": 1}, ErrorCode.CORRUPT_MESSAGE),
        ({"record_count": 2}, ErrorCode.INVALID_RECORD),
        ({"record_count": 0, "last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"record_count": -1, "last_offset_delta": -2}, ErrorCode.CORRUPT_MESSAGE),
        ({"record_count": 4, "last_offset_delta": 3}, ErrorCode.INVALID_RECORD),
        ({"record_count": 2, "last_offset_delta": 1}, ErrorCode.INVALID_RECORD),
        ({"attributes": CONTROL_BIT}, ErrorCode.INVALID_RECORD),
        ({"attributes": LOG_APPEND_TIME_BIT}, ErrorCode.INVALID_TIMESTAMP),
        ({"attributes": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 4}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 5, "base_sequence": -1}, ErrorCode.INVALID_RECORD),
    ],
)
def test_header_lies(fields: dict[str, int], code: ErrorCode) -> None:
    assert refusal(altered(plain(), **fields)).code is code


def test_a_batch_with_a_wrong_length_is_corrupt() -> None:
    batch = plain()
    assert refusal(batch[:-1]).code is ErrorCode.CORRUPT_MESSAGE
    assert refusal(batch[:20]).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", list(Codec))
def test_records_without_a_key_are_named_on_a_compacted_topic(codec: Codec) -> None:
    records = [Record(0, 0, b"a", b""), Record(1, 0, None, b""), Record(2, 0, b"", b""), Record(3, 0, None, None)]
    batch = build_batch(records, codec=codec)
    validate_records(batch)
    error = refusal(batch, require_keys=True)
    assert error.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.record_errors or []] == [1, 3]


@pytest.mark.parametrize("deltas", [[0, 2], [1, 2], [0, 0], [1, 0], [0, -1]])
def test_offset_deltas_must_count_from_zero(deltas: list[int]) -> None:
    bodies = [b"\x00\x00" + encode_varint(delta) + b"\x01\x01\x00" for delta in deltas]
    body = b"".join(encode_varint(len(each)) + each for each in bodies)
    for codec in Codec:
        batch = recompress(altered(plain(2), body=body), codec)
        assert refusal(batch).code is ErrorCode.INVALID_RECORD


def test_bytes_after_the_last_record_are_refused() -> None:
    batch = plain()
    assert refusal(altered(batch, body=batch[HEADER_SIZE:] + b"\x00")).code is ErrorCode.INVALID_RECORD


def test_timestamps_out_of_range_are_named() -> None:
    now = 1_000_000
    limits = TimestampLimits(now, before_max_ms=5000, after_max_ms=1000)
    times = [now, now - 5000, now + 1000, now - 5001, now + 1001, -1]
    batch = build_batch([Record(offset, when, b"k", b"") for offset, when in enumerate(times)])
    error = refusal(batch, timestamps=limits)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors or []] == [3, 4]
    validate_records(batch, timestamps=TimestampLimits(now))


def test_records_without_a_timestamp_are_never_out_of_range() -> None:
    batch = build_batch([Record(0, -1, b"k", b"")])
    assert validate_records(batch, timestamps=TimestampLimits(10**12, 1000, 1000)).max_timestamp == -1


def test_a_bad_timestamp_outweighs_a_missing_key() -> None:
    batch = build_batch([Record(0, 0, b"k", b""), Record(1, 10**12, None, b"")])
    error = refusal(batch, require_keys=True, timestamps=TimestampLimits(10**12, 1000, 1000))
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors or []] == [0, 1]


def test_one_record_is_refused_for_one_reason() -> None:
    batch = build_batch([Record(0, 0, None, b""), Record(1, 10**12, b"k", b"")])
    error = refusal(batch, require_keys=True, timestamps=TimestampLimits(10**12, 1000, 1000))
    assert error.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.record_errors or []] == [0]


def test_timestamps_that_overflow_are_refused() -> None:
    batch = altered(plain(), base_timestamp=2**63 - 1)
    assert refusal(batch).code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_is_an_invalid_record(codec: Codec) -> None:
    batch = build_batch([Record(0, 0, b"k", bytes(3_000_000))], codec=codec)
    assert refusal(batch, max_decompressed=1_000_000).code is ErrorCode.INVALID_RECORD


@given(
    codec=st.sampled_from(list(Codec)),
    flips=st.lists(st.tuples(st.integers(0, 10**4), st.integers(1, 255)), min_size=1, max_size=3),
    reseal=st.booleans(),
)
@settings(max_examples=300)
def test_damaged_batches_pass_or_are_refused_and_what_passes_can_be_read(
    codec: Codec, flips: list[tuple[int, int]], reseal: bool
) -> None:
    damaged = bytearray(plain(5, codec=codec))
    for where, mask in flips:
        damaged[where % len(damaged)] ^= mask
    if reseal:
        seal(damaged)
    try:
        validate_records(bytes(damaged), require_keys=True, timestamps=TimestampLimits(1000), max_decompressed=10**6)
    except ApiError:
        return
    try:
        assert len(list(read_records(bytes(damaged)))) == 5
    except CorruptRecords:
        pytest.fail("validation passed what the reader refuses")
