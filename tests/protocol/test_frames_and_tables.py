"""Frames, the table of APIs, log records of the metadata log and of coordinators, error codes and UUIDs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.protocol import coordinator_records, metadata_records
from moldau.protocol.api import API_TABLE, ApiKey, request_header_version, response_header_version
from moldau.protocol.codec import encode
from moldau.protocol.coordinator_records import Coordinator
from moldau.protocol.errors import INVALID_METADATA, MESSAGES, RETRIABLE, ApiError, ErrorCode, error_code
from moldau.protocol.frames import (
    decode_response,
    encode_request,
    encode_response,
    encode_response_chunks,
    parse_request_header,
    parse_response_header,
)
from moldau.protocol.generated.group.group_metadata_key import GroupMetadataKey
from moldau.protocol.generated.group.offset_commit_key import OffsetCommitKey
from moldau.protocol.generated.group.offset_commit_value import OffsetCommitValue
from moldau.protocol.generated.metadata.topic_record import TopicRecord
from moldau.protocol.generated.wire.api_versions_request import ApiVersionsRequest
from moldau.protocol.generated.wire.api_versions_response import ApiVersionsResponse
from moldau.protocol.generated.wire.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from moldau.protocol.generated.wire.heartbeat_response import HeartbeatResponse
from moldau.protocol.uuids import METADATA_TOPIC_ID, ZERO_UUID, uuid_from_string, uuid_to_string
from moldau.protocol.wire import ProtocolError

# --- frames ---


@pytest.mark.parametrize("client_id", [None, "", "a client", "ü" * 200])
@pytest.mark.parametrize(("key", "version"), [(12, 3), (12, 4), (18, 0), (18, 3), (17, 1)])
def test_request_headers(key: int, version: int, client_id: str | None) -> None:
    spec = API_TABLE[key]
    body = spec.request_class()()
    frame = encode_request(spec, version, 42, client_id, body)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    *head, pos = parse_request_header(memoryview(frame)[4:])
    assert head == [key, version, 42, client_id]
    assert frame[4 + pos :] == encode(body, version)


def test_a_request_header_may_carry_tagged_fields() -> None:
    frame = b"\x00\x0c\x00\x04\x00\x00\x00\x01\xff\xff" + b"\x01\x05\x02ab" + b"body"
    assert parse_request_header(memoryview(frame)) == (12, 4, 1, None, 15)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00\x0c\x00\x04\x00\x00\x00\x01",
        b"\x00\x0c\x00\x04\x00\x00\x00\x01\x00\x05abc",
        b"\x00\x0c\x00\x04\x00\x00\x00\x01\x00\x01\xff\x00",
        b"\x00\x0c\x00\x04\x00\x00\x00\x01\xff\xff",
        b"\x00\x0c\x00\x04\x00\x00\x00\x01\xff\xff\x01\x00\x09a",
        b"\x7f\xff\x00\x04\x00\x00\x00\x01\xff\xff\x00",
        b"\x00\x04\x00\x00\x00\x00\x00\x01\xff\xff\x00",
    ],
)
def test_request_headers_that_are_none(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_request_header(memoryview(frame))


@given(st.binary(max_size=40))
def test_any_bytes_as_a_request_header(frame: bytes) -> None:
    try:
        key, *_, pos = parse_request_header(memoryview(frame))
    except ProtocolError:
        return
    assert key in API_TABLE
    assert pos <= len(frame)


def test_response_frames() -> None:
    classic = encode_response(ApiKey.HEARTBEAT, 3, 9, HeartbeatResponse(error_code=27))
    assert classic == b"\x00\x00\x00\x0a" + b"\x00\x00\x00\x09" + b"\x00\x00\x00\x00\x00\x1b"
    flexible = encode_response(API_TABLE[12], 4, 9, HeartbeatResponse(error_code=27))
    assert flexible == b"\x00\x00\x00\x0c" + b"\x00\x00\x00\x09\x00" + b"\x00\x00\x00\x00\x00\x1b\x00"
    assert decode_response(12, 4, flexible[4:]) == (9, HeartbeatResponse(error_code=27))
    with pytest.raises(ProtocolError, match="left over"):
        decode_response(12, 4, flexible[4:] + b"\x00")
    with pytest.raises(ProtocolError):
        parse_response_header(b"\x00\x00", 12, 4)


def test_api_versions_answers_with_the_oldest_header() -> None:
    frame = encode_response(ApiKey.API_VERSIONS, 3, 1, ApiVersionsResponse())
    assert frame[8:] == encode(ApiVersionsResponse(), 3)
    assert response_header_version(18, 3) == 0
    assert request_header_version(18, 3) == 2
    assert encode_request(18, 3, 1, None, ApiVersionsRequest())[14] == 0


def test_a_response_in_chunks_is_the_same_response() -> None:
    large = memoryview(b"r" * 10_000)
    partitions = [PartitionData(partition_index=0, records=large), PartitionData(partition_index=1, records=b"small")]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    for version in (11, 12):
        chunks = encode_response_chunks(ApiKey.FETCH, version, 3, response)
        assert any(chunk is large for chunk in chunks)
        assert b"".join(chunks) == encode_response(ApiKey.FETCH, version, 3, response)


# --- tables ---


def test_the_table_is_kafkas() -> None:
    assert len(API_TABLE) == 89
    assert not {4, 5, 6, 7} & API_TABLE.keys()
    produce, init = API_TABLE[ApiKey.PRODUCE], API_TABLE[ApiKey.INIT_PRODUCER_ID]
    assert (produce.min_version, produce.max_version, produce.advertised_min_version) == (3, 13, 0)
    assert (init.max_version, init.latest_version_unstable, init.max_stable_version) == (6, True, 5)
    assert API_TABLE[ApiKey.VOTE].listeners == {"controller"}
    assert API_TABLE[ApiKey.FETCH].listeners == {"broker", "controller"}
    assert (request_header_version(47, 0), response_header_version(47, 0)) == (1, 0)
    assert (request_header_version(0, 8), request_header_version(0, 9)) == (1, 2)
    assert (response_header_version(0, 8), response_header_version(0, 9)) == (0, 1)


@pytest.mark.parametrize("spec", API_TABLE.values(), ids=lambda spec: spec.name)
def test_the_table_and_the_classes_agree(spec: object) -> None:
    from moldau.protocol.api import ApiSpec

    assert isinstance(spec, ApiSpec)
    for cls in (spec.request_class(), spec.response_class()):
        assert spec.key == cls.API_KEY
        assert (spec.min_version, spec.max_version) == (cls.MIN_VERSION, cls.MAX_VERSION)
        assert (None if spec.flexible_from is None else max(spec.flexible_from, spec.min_version)) == cls.FLEXIBLE_FROM
    assert spec.request_class() is spec.request_class()


# --- records of internal logs ---


def test_metadata_records_have_a_frame() -> None:
    record = TopicRecord(name="t", topic_id=bytes(range(16)))
    data = metadata_records.encode_record(record, 0)
    assert data == b"\x01\x02\x00" + b"\x02t" + bytes(range(16)) + b"\x00"
    assert metadata_records.decode_record(data) == (record, 0)


@pytest.mark.parametrize("data", [b"", b"\x00\x02\x00", b"\x01\x02", b"\x01\x02\x05\x02t", b"\x01\x02\x00\x02t"])
def test_malformed_metadata_records(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        metadata_records.decode_record(data)


def test_trailing_bytes_and_unknown_types_of_metadata_records() -> None:
    data = metadata_records.encode_record(TopicRecord(name="t"), 0)
    with pytest.raises(ProtocolError, match="left over"):
        metadata_records.decode_record(data + b"\x00")
    with pytest.raises(metadata_records.UnknownRecordType):
        metadata_records.decode_record(b"\x01\xff\x7f\x00")


def test_coordinator_records_have_their_type_in_front() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    data = coordinator_records.encode_key(key)
    assert data == b"\x00\x01" + b"\x00\x01g" + b"\x00\x01t" + b"\x00\x00\x00\x03"
    assert coordinator_records.decode_key("group", data) == key
    value = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9)
    for version in (3, 4):
        stored = coordinator_records.encode_value(value, version)
        assert stored[:2] == version.to_bytes(2, "big")
        assert coordinator_records.decode_value("group", 1, stored) == (value, version)
    with pytest.raises(ProtocolError, match="left over"):
        coordinator_records.decode_key("group", data + b"\x00")
    with pytest.raises(coordinator_records.UnknownRecordType):
        coordinator_records.decode_key("transaction", b"\x00\x63")
    with pytest.raises(ProtocolError):
        coordinator_records.decode_value("group", 1, b"\x00\x63")


@pytest.mark.parametrize("coordinator", ["group", "transaction", "share"])
def test_every_coordinator_record_can_be_found(coordinator: Coordinator) -> None:
    for record_type in coordinator_records.record_types(coordinator):
        key_class = coordinator_records.key_class(coordinator, record_type)
        value_class = coordinator_records.value_class(coordinator, record_type)
        assert key_class.API_KEY == value_class.API_KEY == record_type
        assert key_class.MIN_VERSION == key_class.MAX_VERSION == coordinator_records.KEY_VERSION
        assert coordinator_records.decode_key(coordinator, coordinator_records.encode_key(key_class())) == key_class()
    assert coordinator_records.key_class("group", 2) is GroupMetadataKey


# --- errors and UUIDs ---


def test_error_codes() -> None:
    assert ErrorCode.UNKNOWN_SERVER_ERROR == -1
    assert ErrorCode.NONE == 0
    assert sorted(ErrorCode) == list(range(-1, 134))
    assert set(MESSAGES) == set(ErrorCode)
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER in RETRIABLE
    assert INVALID_METADATA < RETRIABLE
    assert error_code(27) is ErrorCode.REBALANCE_IN_PROGRESS
    assert error_code(30000) is ErrorCode.UNKNOWN_SERVER_ERROR
    plain = ApiError(ErrorCode.NOT_CONTROLLER)
    assert (plain.code, plain.message) == (ErrorCode.NOT_CONTROLLER, MESSAGES[ErrorCode.NOT_CONTROLLER])
    assert str(ApiError(ErrorCode.INVALID_CONFIG, "no such key")) == "INVALID_CONFIG: no such key"


@given(st.binary(min_size=16, max_size=16))
def test_uuids_round_trip(uuid: bytes) -> None:
    text = uuid_to_string(uuid)
    assert len(text) == 22
    assert uuid_from_string(text) == uuid


def test_uuids_as_kafka_prints_them() -> None:
    assert uuid_to_string(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_string(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_to_string(b"\xff" * 16) == "_____________________w"
    for text in ("", "short", "!" * 22, "é" * 22, "A" * 23):
        with pytest.raises(ValueError, match="is not a UUID"):
            uuid_from_string(text)
    with pytest.raises(ValueError, match="16 bytes"):
        uuid_to_string(b"")
