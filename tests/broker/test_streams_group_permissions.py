"""Who may do what with streams groups: the group, the topics of the topology, and the topics that must be created."""

from __future__ import annotations

import pytest
from broker_node import SimulatedNode
from group_client import with_groups
from streams_group_client import StreamsMember, described, stateful
from test_txn_permissions import Denying

from moldau.broker.authorization import Operation, ResourceKind
from moldau.broker.broker import Broker
from moldau.coordinator.group.streams.statuses import Status
from moldau.protocol.errors import ErrorCode

OP, K = Operation, ResourceKind


class Guarded:
    def __init__(self) -> None:
        self.authorizer = Denying()
        self.node = with_groups(group_streams_initial_rebalance_delay_ms="0")
        self.node.services.authorizer = self.authorizer
        self.node.broker = Broker(self.node.services)
        self.node.client.service = self.node.broker
        self.node.loader.add_publisher(self.node.broker.image_published)
        self.node.create_topic("orders", 3)
        self.member = StreamsMember(self.node, "a", stateful("orders"))

    def deny(self, *what: tuple[Operation, ResourceKind, str]) -> None:
        self.authorizer.denied.update(what)

    def exists(self, topic: str) -> bool:
        return self.node.services.image.topic(topic) is not None


@pytest.fixture
def guarded() -> Guarded:
    return Guarded()


def described_by(node: SimulatedNode) -> int:
    return int(described(node).error_code)


def test_the_group_must_be_readable(guarded: Guarded) -> None:
    guarded.deny((OP.READ, K.GROUP, "app"))
    assert guarded.member.join().error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize("topic", ["orders", "app-store-changelog"])
def test_every_topic_must_be_visible(guarded: Guarded, topic: str) -> None:
    guarded.deny((OP.DESCRIBE, K.TOPIC, topic))
    answer = guarded.member.join()
    assert (answer.error_code, answer.error_message) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    assert not guarded.exists("app-store-changelog")


def test_only_who_may_create_topics_gets_them(guarded: Guarded) -> None:
    guarded.deny((OP.CREATE, K.CLUSTER, "kafka-cluster"), (OP.CREATE, K.TOPIC, "app-store-changelog"))
    guarded.member.join()
    assert guarded.member.statuses == {
        Status.MISSING_INTERNAL_TOPICS: (
            "Internal topics are missing: app-store-changelog; Unauthorized to CREATE on topics app-store-changelog."
        )
    }
    assert not guarded.exists("app-store-changelog")
    # Either permission is enough.
    guarded.authorizer.denied = {(OP.CREATE, K.CLUSTER, "kafka-cluster")}
    guarded.member.beat()
    assert guarded.exists("app-store-changelog")


def test_describing_shows_only_what_may_be_seen(guarded: Guarded) -> None:
    guarded.member.join()
    assert described_by(guarded.node) == 0
    guarded.deny((OP.DESCRIBE, K.TOPIC, "app-store-changelog"))
    hidden = described(guarded.node)
    assert (hidden.error_code, hidden.topology, hidden.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, [])
    assert hidden.error_message == "The described group uses topics that the client is not authorized to describe."
    guarded.deny((OP.DESCRIBE, K.GROUP, "app"))
    assert described_by(guarded.node) == ErrorCode.GROUP_AUTHORIZATION_FAILED
