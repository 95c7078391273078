"""ApiVersions, DescribeCluster and FindCoordinator: what a client learns before it knows anything."""

from __future__ import annotations

from typing import Any

import pytest
from broker_node import CLUSTER_ID, Client, SimulatedNode

from moldau.broker.discovery import CONTROLLER_ENDPOINT
from moldau.metadata.image import Endpoint
from moldau.protocol.api import API_TABLE, ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.frames import encode_request
from moldau.protocol.generated.wire.api_versions_request import ApiVersionsRequest
from moldau.protocol.generated.wire.api_versions_response import ApiVersionsResponse
from moldau.protocol.generated.wire.describe_cluster_request import DescribeClusterRequest
from moldau.protocol.generated.wire.find_coordinator_request import FindCoordinatorRequest
from moldau.protocol.wire import ProtocolError, Reader

ASK = ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="4.3.1")
STAGE_ONE = {0, 1, 2, 23, 21, 18, 3, 60, 75, 19, 20, 37, 32, 33, 44, 74, 10, 22, 34, 35, 55, 57, 61, 48, 49, 29, 30, 31}


def api_versions(client: Client, version: int) -> Any:
    return client.send(ASK if version >= 3 else ApiVersionsRequest(), version)


# ---- ApiVersions


@pytest.mark.parametrize("version", range(5))
def test_tells_exactly_what_is_served(node: SimulatedNode, version: int) -> None:
    answer = api_versions(node.client, version)
    assert answer.error_code == 0
    told = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert told.keys() == node.broker.router.routes.keys() - {71, 72}
    assert told.keys() >= STAGE_ONE
    for key, (low, high) in told.items():
        spec = API_TABLE[key]
        assert low == (0 if key == ApiKey.PRODUCE else spec.min_version)
        assert high == spec.max_stable_version
    assert list(told) == sorted(told)


def test_clients_get_nothing_that_nodes_say_among_themselves(node: SimulatedNode) -> None:
    told = {each.api_key for each in api_versions(node.client, 4).api_keys}
    inter_broker = {52, 53, 54, 59, 82, 56, 58, 62, 63, 67, 70, 73}
    assert not told & inter_broker
    for key in inter_broker:
        with pytest.raises(ProtocolError, match="is not served on PLAINTEXT"):
            node.client.raw(key.to_bytes(2, "big") + b"\0\0" + b"\0\0\0\1" + b"\xff\xff" + b"\0" * 40)


def test_telemetry_is_offered_once_somebody_wants_it(node: SimulatedNode) -> None:
    from test_broker_telemetry import subscribe

    def offered(node: SimulatedNode) -> bool:
        return {71, 72} <= {each.api_key for each in api_versions(node.client, 4).api_keys}

    assert not offered(node)
    subscribe(node, "all", metrics="*")
    assert offered(node)
    assert offered(SimulatedNode(metric_reporters="com.example.Reporter"))


def test_unstable_versions_only_when_they_are_enabled(node: SimulatedNode) -> None:
    def init_producer_id(node: SimulatedNode) -> int:
        return next(e.max_version for e in api_versions(node.client, 4).api_keys if e.api_key == 22)

    assert init_producer_id(node) == 5
    assert init_producer_id(SimulatedNode(unstable_api_versions_enable="true")) == 6


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_a_version_from_the_future_is_answered_in_version_0(node: SimulatedNode, version: int) -> None:
    frame = b"\0\x12" + version.to_bytes(2, "big", signed=True) + b"\0\0\0\x2a" + b"\0\1c" + b"\xde\xad\xbe\xef"
    (answer,) = node.client.raw(frame)
    assert answer[4:8] == b"\0\0\0\x2a"
    response = ApiVersionsResponse.read(Reader(answer, 8), 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(e.api_key, e.min_version, e.max_version) for e in response.api_keys] == [(18, 0, 4)]


@pytest.mark.parametrize(
    ("name", "release"), [("", "1"), ("a", ""), ("-a", "1"), ("a b", "1"), ("a", "1."), ("a\n", "1"), ("ä", "1")]
)
@pytest.mark.parametrize("version", [3, 4])
def test_software_names_must_look_like_names(node: SimulatedNode, name: str, release: str, version: int) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=release)
    answer = node.client.send(request, version)
    assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, [])
    assert node.client.connection.software_name == "unknown"


def test_the_software_is_remembered(node: SimulatedNode) -> None:
    api_versions(node.client, 4)
    assert node.client.connection.software_name == "apache-kafka-java"
    assert node.client.connection.software_version == "4.3.1"


def test_features(node: SimulatedNode) -> None:
    newer = api_versions(node.client, 4)
    supported = {each.name: (each.min_version, each.max_version) for each in newer.supported_features}
    assert supported["metadata.version"] == (7, 30)
    assert supported["kraft.version"] == (0, 1)
    older = api_versions(node.client, 3)
    assert [each.name for each in older.supported_features] == ["metadata.version"], "a minimum of 0 is not readable"
    for answer in (newer, older):
        finalized = {each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features}
        assert finalized["metadata.version"] == (30, 30)
        assert finalized["kraft.version"] == (1, 1)
        assert finalized["transaction.version"] == (2, 2)
        assert answer.finalized_features_epoch == node.services.image.offset
        assert not answer.zk_migration_ready


def test_the_response_header_is_never_flexible(node: SimulatedNode) -> None:
    frame = encode_request(18, 4, 7, None, ASK)[4:]
    (answer,) = node.client.raw(frame)
    assert answer[4:10] == b"\0\0\0\x07" + b"\0\0", "the error code follows the correlation id at once"


# ---- DescribeCluster


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(node: SimulatedNode, version: int) -> None:
    answer = node.client.send(DescribeClusterRequest(), version)
    assert (answer.error_code, answer.cluster_id, answer.controller_id, answer.endpoint_type) == (0, CLUSTER_ID, 1, 1)
    (broker,) = answer.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.rack) == (1, "broker.example", 9092, "rack-a")
    assert answer.cluster_authorized_operations == -(2**31)


def test_describe_cluster_names_the_listener_the_client_came_through(node: SimulatedNode) -> None:
    other = Client(node, listener="OTHER")
    assert other.send(DescribeClusterRequest(), 2).brokers[0].port == 9094
    nobody = Client(node, listener="ELSEWHERE").send(DescribeClusterRequest(), 2)
    assert (nobody.brokers, nobody.controller_id) == ([], -1)


def test_describe_cluster_with_authorized_operations(node: SimulatedNode) -> None:
    answer = node.client.send(DescribeClusterRequest(include_cluster_authorized_operations=True), 0)
    operations = {bit for bit in range(32) if answer.cluster_authorized_operations >> bit & 1}
    assert operations == {5, 7, 8, 9, 10, 11, 12}


@pytest.mark.parametrize(
    ("version", "endpoint_type", "code"),
    [
        (1, 2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (2, 2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (1, 9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_describe_cluster_of_the_wrong_endpoint(
    node: SimulatedNode, version: int, endpoint_type: int, code: ErrorCode
) -> None:
    answer = node.client.send(DescribeClusterRequest(endpoint_type=endpoint_type), version)
    assert answer.error_code == code
    assert answer.error_message


def test_a_controllers_listener_describes_the_controllers(node: SimulatedNode) -> None:
    tool = Client(node, listener="CONTROLLER", to=node.controller_api)
    answer = tool.send(DescribeClusterRequest(endpoint_type=CONTROLLER_ENDPOINT), 1)
    assert (answer.endpoint_type, answer.controller_id) == (CONTROLLER_ENDPOINT, 1)
    assert [(n.broker_id, n.host, n.port) for n in answer.brokers] == [(1, "controller.example", 9093)]
    assert tool.send(DescribeClusterRequest(endpoint_type=1), 1).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_a_controllers_listener_serves_no_records(node: SimulatedNode) -> None:
    tool = Client(node, listener="CONTROLLER", to=node.controller_api)
    told = {each.api_key for each in api_versions(tool, 4).api_keys}
    assert told >= {18, 60, 19, 20, 37, 33, 44, 32, 55, 57, 49, 62, 63, 67, 70}
    assert not told & {0, 2, 3, 10, 22}


# ---- FindCoordinator


@pytest.mark.parametrize("version", range(4))
def test_the_coordinator_of_a_group(node: SimulatedNode, version: int) -> None:
    """The first question has the topic created, and its answer comes as soon as it is there."""
    answer = node.client.send(FindCoordinatorRequest(key="group"), version)
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, "broker.example", 9092)


@pytest.mark.parametrize("version", range(4, 7))
def test_the_coordinators_of_several_groups(node: SimulatedNode, version: int) -> None:
    answer = node.client.send(FindCoordinatorRequest(coordinator_keys=["a", "b"]), version)
    assert [(c.key, c.error_code, c.node_id) for c in answer.coordinators] == [("a", 0, 1), ("b", 0, 1)]


@pytest.mark.parametrize(
    ("version", "key_type", "key"),
    [(6, 3, "a"), (4, -1, "a"), (5, 2, "g:AAAAAAAAAAAAAAAAAAAAAA:0"), (6, 2, "no share key"), (6, 2, "g:short:0")],
)
def test_keys_that_make_no_sense(node: SimulatedNode, version: int, key_type: int, key: str) -> None:
    answer = node.client.send(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), version)
    assert [c.error_code for c in answer.coordinators] == [ErrorCode.INVALID_REQUEST]


def test_coordinators_can_be_plugged_in(node: SimulatedNode) -> None:
    class Everywhere:
        def wait_for_topic(self, key_type: int, principal: str) -> None:
            return None

        def locate(self, key_type: int, key: str, listener_name: str) -> tuple[int, Endpoint] | ErrorCode:
            if key == "lost":
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            return 1, node.services.image.brokers[1].listeners[listener_name]

    node.services.coordinators = Everywhere()
    answer = node.client.send(FindCoordinatorRequest(key_type=2, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAA:0"]), 6)
    (found,) = answer.coordinators
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "broker.example", 9092)
    answer = node.client.send(FindCoordinatorRequest(key="lost"), 3)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
