"""Requests about several topics: each is allowed or refused by itself, whether it is named or given by its id."""

from __future__ import annotations

import pytest
from broker_node import Client, SimulatedNode

from moldau.broker.authorization import Operation, ResourceKind
from moldau.broker.broker import Broker
from moldau.broker.controller_api import ControllerApi
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.generated.wire.create_topics_request import CreatableTopic, CreateTopicsRequest
from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest, DeleteTopicState

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
TOPIC, CLUSTER = ResourceKind.TOPIC, ResourceKind.CLUSTER
Permission = tuple[Operation, ResourceKind, str]


class Only:
    def __init__(self, allowed: tuple[Permission, ...]) -> None:
        self._allowed = allowed

    def allows(self, principal: str, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return (operation, kind, name) in self._allowed

    def allows_any(self, principal: str, host: str, operation: Operation, kind: ResourceKind) -> bool:
        return False


@pytest.fixture(params=["broker", "controller"])
def asked(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def client(node: SimulatedNode, asked: str, *allowed: Permission) -> Client:
    node.services.authorizer = Only(allowed)
    node.broker = Broker(node.services)
    node.loader.add_publisher(node.broker.image_published)
    node.controller_api = ControllerApi(node.services)
    if asked == "broker":
        return Client(node)
    return Client(node, listener="CONTROLLER", to=node.controller_api)


def creation(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    )


def test_topics_are_created_one_by_one(asked: str) -> None:
    node = SimulatedNode()
    answer = client(node, asked, (Operation.CREATE, TOPIC, "mine")).send(creation("theirs", "mine"), 7)
    assert {each.name: each.error_code for each in answer.topics} == {"mine": 0, "theirs": REFUSED}
    assert node.services.image.topic("mine") is not None
    assert node.services.image.topic("theirs") is None


def test_whoever_may_create_in_the_cluster_may_create_any_topic(asked: str) -> None:
    node = SimulatedNode()
    answer = client(node, asked, (Operation.CREATE, CLUSTER, "kafka-cluster")).send(creation("a", "b"), 7)
    assert [each.error_code for each in answer.topics] == [0, 0]


@pytest.mark.parametrize("version", [5, 6])
def test_topics_are_deleted_one_by_one(asked: str, version: int) -> None:
    node = SimulatedNode()
    for name in ("mine", "theirs"):
        node.create_topic(name)
    names = ["mine", "theirs"]
    request = DeleteTopicsRequest(topic_names=names)
    if version >= 6:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names])
    answer = client(node, asked, (Operation.DELETE, TOPIC, "mine")).send(request, version)
    assert {each.name: each.error_code for each in answer.responses} == {"mine": 0, "theirs": REFUSED}
    assert node.services.image.topic("mine") is None
    assert node.services.image.topic("theirs") is not None


def test_an_id_is_as_good_as_a_name_and_no_better(asked: str) -> None:
    node = SimulatedNode()
    mine, theirs, seen = (node.create_topic(name) for name in ("mine", "theirs", "seen"))
    unknown = bytes(15) + b"\x7f"
    allowed = ((Operation.DELETE, TOPIC, "mine"), (Operation.DESCRIBE, TOPIC, "seen"))
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=None, topic_id=each) for each in (theirs, mine, seen, unknown)]
    )
    answer = client(node, asked, *allowed).send(request, 6)
    assert {each.topic_id: (each.name, each.error_code) for each in answer.responses} == {
        mine: ("mine", 0),
        theirs: (None, REFUSED),
        seen: ("seen", REFUSED),
        unknown: (None, ErrorCode.UNKNOWN_TOPIC_ID),
    }
    assert node.services.image.topic("theirs") is not None
    assert node.services.image.topic("mine") is None


def test_partitions_are_added_one_by_one(asked: str) -> None:
    node = SimulatedNode()
    for name in ("mine", "theirs"):
        node.create_topic(name)
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=3) for name in ("mine", "theirs")])
    request.topics[0].assignments = request.topics[1].assignments = None
    answer = client(node, asked, (Operation.ALTER, TOPIC, "mine")).send(request, 3)
    assert {each.name: each.error_code for each in answer.results} == {"mine": 0, "theirs": REFUSED}


def test_nothing_is_asked_of_the_controller_when_nothing_is_allowed(asked: str) -> None:
    node = SimulatedNode()
    topic_id = node.create_topic("theirs")
    stranger = client(node, asked)
    assert stranger.send(creation("new"), 7).topics[0].error_code == REFUSED
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)])
    assert stranger.send(request, 6).responses[0].error_code == REFUSED
    more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="theirs", count=3)])
    assert stranger.send(more, 3).results[0].error_code == REFUSED
