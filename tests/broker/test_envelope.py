"""Requests in envelopes: opened for what changes the cluster, refused when they make no sense."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.broker_node import SimulatedNode

from moldau.broker.context import ClientConnection
from moldau.broker.letters import seal, unseal
from moldau.ports import Pending
from moldau.protocol.api import ApiKey
from moldau.protocol.codec import encode
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.frames import decode_response, encode_request
from moldau.protocol.generated.wire.create_topics_request import CreatableTopic, CreateTopicsRequest
from moldau.protocol.generated.wire.create_topics_response import CreateTopicsResponse
from moldau.protocol.generated.wire.default_principal_data import DefaultPrincipalData
from moldau.protocol.generated.wire.envelope_request import EnvelopeRequest
from moldau.protocol.generated.wire.envelope_response import EnvelopeResponse
from moldau.protocol.generated.wire.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.generated.wire.metadata_request import MetadataRequest
from moldau.protocol.wire import WireMessage

ALICE = b"\0\0" + encode(DefaultPrincipalData(type_="User", name="alice"), 0)
LOCALHOST = bytes([127, 0, 0, 1])


@pytest.fixture
def node() -> SimulatedNode:
    return SimulatedNode()


def letter(request: WireMessage, version: int) -> bytes:
    assert request.API_KEY is not None
    return encode_request(request.API_KEY, version, 77, "a client", request)[4:]


def send(node: SimulatedNode, inside: bytes, principal: bytes | None = ALICE, address: bytes = LOCALHOST) -> Any:
    request = EnvelopeRequest(request_data=inside, request_principal=principal, client_host_address=address)
    frame = memoryview(bytearray(encode_request(ApiKey.ENVELOPE, 0, 5, "a broker", request)[4:]))
    outcome = node.controller_api.dispatch(frame, ClientConnection(1, "CONTROLLER", "127.0.0.1", 1))
    assert isinstance(outcome, Pending | list)
    node.clock.advance(100)
    buffers = outcome.value if isinstance(outcome, Pending) else outcome
    assert buffers is not None
    return decode_response(ApiKey.ENVELOPE, 0, b"".join(buffers)[4:])[1]


def create(name: str) -> bytes:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    return letter(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)


def test_the_request_inside_is_carried_out_and_answered(node: SimulatedNode) -> None:
    answer = send(node, create("forwarded"))
    assert answer.error_code == 0
    correlation_id, inside = decode_response(ApiKey.CREATE_TOPICS, 7, answer.response_data)
    assert isinstance(inside, CreateTopicsResponse)
    assert (correlation_id, inside.topics[0].error_code) == (77, 0)
    topic = node.services.image.topic("forwarded")
    assert topic is not None
    assert len(topic.partitions) == 2


@pytest.mark.parametrize("inside", [b"", b"\0", letter(MetadataRequest(topics=[]), 12), create("t")[:-3]])
def test_what_does_not_travel_is_refused(node: SimulatedNode, inside: bytes) -> None:
    answer = send(node, inside)
    assert (answer.error_code, answer.response_data) == (ErrorCode.INVALID_REQUEST, None)


def test_an_envelope_in_an_envelope_is_refused(node: SimulatedNode) -> None:
    nested = EnvelopeRequest(request_data=create("t"), request_principal=ALICE, client_host_address=LOCALHOST)
    assert send(node, letter(nested, 0)).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("principal", [None, b"", b"\0\0", b"\0\x09" + ALICE[2:], ALICE[:-2]])
def test_a_sender_nobody_can_read_is_refused(node: SimulatedNode, principal: bytes | None) -> None:
    assert send(node, create("t"), principal).error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
    assert node.services.image.topic("t") is None


def test_an_address_that_is_none_is_refused(node: SimulatedNode) -> None:
    assert send(node, create("t"), address=b"\1\2\3").error_code == ErrorCode.INVALID_REQUEST


# ---- as a broker sends them


def test_what_a_broker_seals_is_opened_in_the_clients_name(node: SimulatedNode) -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(name="sealed", num_partitions=1, replication_factor=1)])
    request.timeout_ms = 1000
    sealed = seal(request, 7, "User:alice", "192.0.2.7")
    assert sealed.client_host_address == bytes([192, 0, 2, 7])
    assert sealed.request_principal == ALICE
    answer = send(node, sealed.request_data, sealed.request_principal, sealed.client_host_address)
    inside = unseal(answer, ApiKey.CREATE_TOPICS, 7)
    assert isinstance(inside, CreateTopicsResponse)
    assert inside.topics[0].error_code == 0


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER), ErrorCode.NOT_CONTROLLER),
        (EnvelopeResponse(response_data=b"\0\0"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(response_data=None), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_envelope_without_an_answer_inside_is_an_error(answer: EnvelopeResponse, code: ErrorCode) -> None:
    found = unseal(answer, ApiKey.CREATE_TOPICS, 7)
    assert isinstance(found, ApiError)
    assert found.code is code


def test_a_host_without_an_address_is_still_passed_on() -> None:
    assert seal(CreateTopicsRequest(), 7, "User:alice", "a pipe").client_host_address == bytes(4)
    assert len(seal(CreateTopicsRequest(), 7, "User:alice", "fe80::1%eth0").client_host_address) == 16


@pytest.mark.parametrize("through_a_broker", [True, False])
def test_directories_are_cordoned_through_a_broker_only(node: SimulatedNode, through_a_broker: bool) -> None:
    setting = AlterableConfig(name="cordoned.log.dirs", value=node.config.log_dirs[0])
    resource = AlterConfigsResource(resource_type=4, resource_name=str(node.config.node_id), configs=[setting])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    if through_a_broker:
        sealed = seal(request, 1, "User:alice", "127.0.0.1")
        answer = unseal(send(node, sealed.request_data, sealed.request_principal), ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
    else:
        frame = memoryview(bytearray(letter(request, 1)))
        outcome = node.controller_api.dispatch(frame, ClientConnection(1, "CONTROLLER", "127.0.0.1", 1))
        node.clock.advance(100)
        buffers = outcome.value if isinstance(outcome, Pending) else outcome
        answer = decode_response(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, b"".join(buffers or [])[4:])[1]
    expected = ErrorCode.NONE if through_a_broker else ErrorCode.INVALID_CONFIG
    assert [each.error_code for each in answer.responses] == [expected]
