"""What holds for every API that is served, in every version: it is answered, refused and guarded alike."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from broker_node import Client, SimulatedNode

from moldau.broker.authorization import (
    AUTHORIZATION,
    SELF_CHECKED,
    AllowAll,
    Guard,
    Operation,
    ResourceKind,
    guard_for,
)
from moldau.broker.broker import Broker
from moldau.broker.context import Caller
from moldau.broker.controller_api import ControllerApi
from moldau.broker.failures import failure_response
from moldau.broker.request_metrics import RequestMetrics
from moldau.broker.router import Router
from moldau.ports import Pending
from moldau.protocol.api import API_TABLE, ApiKey
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.frames import decode_response, encode_response
from moldau.protocol.generated.wire.create_topics_request import CreatableTopic, CreateTopicsRequest
from moldau.protocol.generated.wire.describe_cluster_request import DescribeClusterRequest
from moldau.protocol.generated.wire.init_producer_id_request import InitProducerIdRequest
from moldau.protocol.generated.wire.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.protocol.generated.wire.metadata_request import MetadataRequest, MetadataRequestTopic
from moldau.protocol.wire import ProtocolError

SERVED = sorted(SimulatedNode().broker.router.routes)
ON_CONTROLLER = sorted(SimulatedNode().controller_api.router.routes)
EVERY_VERSION = [
    (key, version)
    for key in SERVED
    for version in range(API_TABLE[key].min_version, API_TABLE[key].max_stable_version + 1)
]


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_a_request_with_nothing_in_it_is_answered(
    node: SimulatedNode, key: int, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    request = API_TABLE[key].request_class()()
    if key == ApiKey.PRODUCE:
        request.acks = 1
    with caplog.at_level(logging.ERROR, "moldau"):
        response = node.client.send(request, version)
    assert response is not None
    assert not caplog.records, "nothing unexpected happened inside"


@pytest.mark.parametrize("key", ON_CONTROLLER)
def test_so_it_is_on_a_controllers_listener(node: SimulatedNode, key: int, caplog: pytest.LogCaptureFixture) -> None:
    tool = Client(node, listener="CONTROLLER", to=node.controller_api)
    spec = API_TABLE[key]
    with caplog.at_level(logging.ERROR, "moldau"):
        for version in range(spec.min_version, spec.max_stable_version + 1):
            assert tool.send(spec.request_class()(), version) is not None
    assert not caplog.records


@pytest.mark.parametrize(("key", "version"), [each for each in EVERY_VERSION if each[0] not in SELF_CHECKED])
def test_a_failure_can_be_said_in_every_version(key: int, version: int) -> None:
    spec = API_TABLE[key]
    failed = failure_response(spec, spec.request_class()(), version, ErrorCode.NOT_CONTROLLER, "because")
    frame = encode_response(spec, version, 5, failed)
    assert decode_response(spec, version, frame[4:])[0] == 5


def test_every_api_that_exists_has_been_thought_about() -> None:
    assert set(API_TABLE) == set(AUTHORIZATION)


# ---- the router


def router_with(handler: Any, key: ApiKey = ApiKey.DESCRIBE_CLUSTER, **how: Any) -> Router:
    router = Router(RequestMetrics(), **how)
    router.serve({key: handler})
    return router


class Service:
    """A router as a node would see it."""

    def __init__(self, router: Router) -> None:
        self.router = router

    def dispatch(self, frame: memoryview, connection: Any) -> Any:
        return self.router.dispatch(frame, connection)

    def after_requests(self) -> None:
        pass


def ask(node: SimulatedNode, router: Router, request: Any = None, version: int = 0) -> Any:
    return Client(node, to=Service(router)).send(request or DescribeClusterRequest(), version)


def test_a_handler_that_breaks_is_a_server_error(node: SimulatedNode, caplog: pytest.LogCaptureFixture) -> None:
    def broken(request: Any, caller: Caller) -> Any:
        raise ZeroDivisionError

    assert ask(node, router_with(broken)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "ZeroDivisionError" in caplog.text


def test_an_answer_that_cannot_be_written_is_a_server_error(node: SimulatedNode) -> None:
    from moldau.protocol.generated.wire.describe_cluster_response import DescribeClusterResponse

    def wrong(request: Any, caller: Caller) -> Any:
        return DescribeClusterResponse(controller_id=1 << 40)

    assert ask(node, router_with(wrong)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_refusal_may_come_at_once_or_later(node: SimulatedNode) -> None:
    later: Pending[Any] = Pending()

    def now(request: Any, caller: Caller) -> Any:
        raise ApiError(ErrorCode.NOT_CONTROLLER, "ask somebody else")

    answer = ask(node, router_with(now))
    assert (answer.error_code, answer.error_message) == (ErrorCode.NOT_CONTROLLER, "ask somebody else")
    client = Client(node, to=Service(router_with(lambda request, caller: later)))
    promise = client.post(DescribeClusterRequest(), 1)
    assert not promise.done
    later.resolve(ApiError(ErrorCode.REQUEST_TIMED_OUT))
    assert promise.value.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_raw_handler_that_breaks_closes_the_connection(node: SimulatedNode) -> None:
    def broken(frame: memoryview, position: int, caller: Caller) -> Any:
        raise ZeroDivisionError

    router = Router(RequestMetrics())
    router.serve_raw(ApiKey.DESCRIBE_CLUSTER, broken)
    with pytest.raises(ProtocolError, match="reason of our own"):
        ask(node, router)


def test_families_are_loaded_once_and_whole(node: SimulatedNode) -> None:
    loaded: list[int] = []

    def family() -> Any:
        loaded.append(1)
        handler = node.broker.router.routes[ApiKey.DESCRIBE_CLUSTER].handler
        return {ApiKey.DESCRIBE_CLUSTER: handler, ApiKey.METADATA: handler}

    router = Router(RequestMetrics())
    router.serve_family((ApiKey.DESCRIBE_CLUSTER,), family)
    for _ in range(3):
        assert ask(node, router).error_code == 0
    assert loaded == [1]


def test_requests_are_counted(node: SimulatedNode) -> None:
    metrics = node.broker.metrics
    before = metrics.by_api[ApiKey.DESCRIBE_CLUSTER].count if ApiKey.DESCRIBE_CLUSTER in metrics.by_api else 0
    node.client.send(DescribeClusterRequest(), 0)
    node.client.send(DescribeClusterRequest(endpoint_type=2), 1)
    figures = metrics.by_api[ApiKey.DESCRIBE_CLUSTER]
    assert figures.count == before + 2
    assert sum(figures.latency_us_buckets) == before + 2
    assert metrics.errors == {ErrorCode.MISMATCHED_ENDPOINT_TYPE: 1}


def test_a_client_without_an_id_and_one_that_changes_it(node: SimulatedNode) -> None:
    seen: list[str | None] = []

    def note(request: Any, caller: Caller) -> Any:
        seen.append(caller.client_id)
        raise ApiError(ErrorCode.NOT_CONTROLLER)

    client = Client(node, to=Service(router_with(note)))
    for client_id in ("one", "one", None, "two", "", "one"):
        client.client_id = client_id
        client.send(DescribeClusterRequest(), 0)
    assert seen == ["one", "one", None, "two", "", "one"]


# ---- who is let through


class Only:
    """Lets one principal do a few things."""

    def __init__(self, *allowed: tuple[Operation, ResourceKind, str]) -> None:
        self.allowed = set(allowed)
        self.asked: list[tuple[Operation, ResourceKind, str]] = []

    def allows(self, principal: str, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
        self.asked.append((operation, kind, name))
        return (operation, kind, name) in self.allowed

    def allows_any(self, principal: str, host: str, operation: Operation, kind: ResourceKind) -> bool:
        return any(each[:2] == (operation, kind) for each in self.allowed)


def guarded(node: SimulatedNode, *allowed: tuple[Operation, ResourceKind, str]) -> Client:
    node.services.authorizer = Only(*allowed)
    node.broker = Broker(node.services)
    node.controller_api = ControllerApi(node.services)
    return Client(node)


def test_without_an_authorizer_nobody_is_asked() -> None:
    assert guard_for(None) is None
    assert guard_for(AllowAll()) is None
    assert AllowAll().allows("User:a", "h", Operation.READ, ResourceKind.TOPIC, "t")
    assert isinstance(guard_for(Only()), Guard)


def test_topics_are_guarded_by_name(node: SimulatedNode) -> None:
    node.create_topic("mine")
    node.create_topic("theirs")
    client = guarded(node, (Operation.DESCRIBE, ResourceKind.TOPIC, "mine"))

    def latest(name: str) -> int:
        partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[partition])])
        code: int = client.send(request, 7).topics[0].partitions[0].error_code
        return code

    assert latest("mine") == 0
    assert latest("theirs") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    everything = client.send(MetadataRequest(topics=None), 12)
    assert [topic.name for topic in everything.topics] == ["mine"], "what may not be seen is not mentioned"
    named = client.send(MetadataRequest(topics=[MetadataRequestTopic(name=n) for n in ("mine", "theirs")]), 12)
    assert [(t.name, t.error_code) for t in named.topics] == [
        ("mine", 0),
        ("theirs", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]


def test_records_are_guarded(node: SimulatedNode) -> None:
    from broker_node import batch, fetch_request, produce_request

    topic_id = node.create_topic("orders")
    client = guarded(node, (Operation.READ, ResourceKind.TOPIC, "orders"))
    answer = client.send(produce_request("orders", batch(b"a"), version=8), 8)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert client.send(fetch_request("orders", 0, version=11), 11).responses[0].partitions[0].error_code == 0
    client = guarded(node, (Operation.WRITE, ResourceKind.TOPIC, "orders"))
    answer = client.send(produce_request("orders", batch(b"a"), version=8), 8)
    assert answer.responses[0].partition_responses[0].error_code == 0
    for topic, version in (("orders", 11), (topic_id, 13)):
        partition = client.send(fetch_request(topic, 0, version=version), version).responses[0].partitions[0]
        assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not partition.records


def test_the_cluster_is_guarded(node: SimulatedNode) -> None:
    client = guarded(node)
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    answer = client.send(CreateTopicsRequest(topics=[topic]), 7)
    assert answer.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert node.services.image.topic("new") is None
    described = client.send(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    assert described.cluster_authorized_operations == 0
    tool = Client(node, listener="CONTROLLER", to=node.controller_api)
    from moldau.protocol.generated.wire.broker_heartbeat_request import BrokerHeartbeatRequest

    assert tool.send(BrokerHeartbeatRequest(), 0).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(("key", "version"), [each for each in EVERY_VERSION if each[0] not in SELF_CHECKED])
def test_whoever_may_do_nothing_can_do_nothing(key: int, version: int) -> None:
    """With an authorizer that refuses everything, an API either needs no permission or is refused."""
    node = SimulatedNode()
    client = guarded(node)
    authorizer = node.services.authorizer
    assert isinstance(authorizer, Only)
    request = API_TABLE[key].request_class()()
    needs = any(rule.names is None or list(rule.names(request)) for rule in AUTHORIZATION[ApiKey(key)])
    response = client.send(request, version)
    assert bool(authorizer.asked) == needs
    if needs and "error_code" in type(response).__slots__ and version >= 3:
        assert ErrorCode(response.error_code).name.endswith("_AUTHORIZATION_FAILED")


def test_idempotent_producers_need_a_permission_too(node: SimulatedNode) -> None:
    request = InitProducerIdRequest(transactional_id=None)
    assert guarded(node).send(request, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    allowed = (Operation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER, "kafka-cluster")
    assert guarded(node, allowed).send(request, 4).error_code == 0
    writer = (Operation.WRITE, ResourceKind.TOPIC, "orders")
    assert guarded(node, writer).send(request, 4).error_code == 0
    reader = (Operation.READ, ResourceKind.TOPIC, "orders")
    assert guarded(node, reader).send(request, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
