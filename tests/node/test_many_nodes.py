"""Real processes in one cluster: combined and separate roles, a killed controller, a killed broker, changing voters."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.java_tools import JavaTools

from moldau.testing.nodes import NodeCluster

QUORUM_TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"

# Who says nothing is given up after nine seconds; whose connection breaks, much sooner, though it stays listed for two.
SESSION_SECONDS = 6.0


def until(condition: Callable[[], bool], seconds: float = 10.0) -> float:
    """Wait for something; how long it took."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < seconds, "it did not happen in time"
        time.sleep(0.005)
    return time.monotonic() - begin


def admin(cluster: NodeCluster, *without: int) -> AdminClient:
    servers = [
        listener.removeprefix("PLAINTEXT://")
        for node in cluster.nodes.values()
        if node.id not in without
        for listener in node.properties["listeners"].split(",")
        if listener.startswith("PLAINTEXT://")
    ]
    return AdminClient({"bootstrap.servers": ",".join(servers), "log_level": 0})


def create(client: AdminClient, name: str, partitions: int = 6) -> None:
    client.create_topics([NewTopic(name, partitions, 1)])[name].result(20)


def brokers(client: AdminClient) -> list[int]:
    return sorted(client.list_topics(timeout=10).brokers)


def leaders(client: AdminClient, topic: str) -> set[int]:
    return {p.leader for p in client.list_topics(topic, timeout=10).topics[topic].partitions.values()}


def active_controller(cluster: NodeCluster) -> int:
    """The node that last said that its controller is active."""
    found = [
        (line[:12], node.id)
        for node in cluster.nodes.values()
        for line in node.log().splitlines()
        if " is active" in line
    ]
    return max(found)[1]


@pytest.fixture
def three() -> Iterator[NodeCluster]:
    with NodeCluster(combined=3) as cluster:
        yield cluster


def test_three_combined_nodes_serve_clients(three: NodeCluster) -> None:
    client = admin(three)
    create(client, "t")
    assert brokers(client) == [1, 2, 3]
    assert leaders(client, "t") == {1, 2, 3}
    producer = Producer({"bootstrap.servers": three.bootstrap_servers})
    for i in range(300):
        producer.produce("t", f"{i}".encode())
    assert producer.flush(20) == 0
    consumer = Consumer(
        {"bootstrap.servers": three.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    seen: set[bytes] = set()

    def read() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            seen.add(message.value() or b"")
        return len(seen) == 300

    until(read, 20)
    consumer.close()


def test_whoever_made_a_topic_sees_it_at_once_wherever_it_asks(three: NodeCluster) -> None:
    """A broker that passes a change on answers only when its own image has it."""
    clients = [admin(three, *(other for other in three.nodes if other != node)) for node in three.nodes]
    for number, client in enumerate(clients):
        create(client, f"t{number}", 1)
        assert f"t{number}" in client.list_topics(timeout=10).topics


def test_a_killed_active_controller_is_replaced(three: NodeCluster) -> None:
    client = admin(three)
    create(client, "before")
    killed = active_controller(three)
    three.nodes[killed].kill()
    other = admin(three, killed)
    begin = time.monotonic()
    create(other, "after")
    assert time.monotonic() - begin < 2.0
    assert until(lambda: killed not in brokers(other)) < SESSION_SECONDS
    assert active_controller(three) != killed
    three.nodes[killed].start()
    until(lambda: brokers(other) == [1, 2, 3])
    assert leaders(other, "before") == {1, 2, 3}


def test_a_frozen_active_controller_is_replaced_and_follows_when_it_thaws(three: NodeCluster) -> None:
    frozen = active_controller(three)
    three.nodes[frozen].freeze()
    begin = time.monotonic()
    create(admin(three, frozen), "meanwhile")
    assert time.monotonic() - begin < 6.0
    three.nodes[frozen].thaw()
    client = admin(three, *(node for node in three.nodes if node != frozen))
    until(lambda: "meanwhile" in client.list_topics(timeout=10).topics)
    create(client, "afterwards")
    assert active_controller(three) != frozen


def test_all_killed_at_once_come_back(three: NodeCluster) -> None:
    create(admin(three), "t")
    for node in three.nodes.values():
        node.kill()
    three.start()
    client = admin(three)
    until(lambda: brokers(client) == [1, 2, 3])
    assert leaders(client, "t") == {1, 2, 3}


def test_a_controller_that_stops_hands_over(three: NodeCluster) -> None:
    stopped = active_controller(three)
    assert three.nodes[stopped].stop() == 0
    begin = time.monotonic()
    create(admin(three, stopped), "t")
    assert time.monotonic() - begin < 2.0


def test_separate_roles_and_a_killed_broker() -> None:
    with NodeCluster(controllers=1, brokers=2) as cluster:
        client = admin(cluster)
        create(client, "t")
        assert brokers(client) == [2, 3]
        assert leaders(client, "t") == {2, 3}
        cluster.nodes[3].kill()
        assert until(lambda: brokers(client) == [2]) < SESSION_SECONDS, "its broken connection tells, not its session"
        cluster.nodes[3].start()
        until(lambda: leaders(client, "t") == {2, 3})
        # The only controller comes back: the brokers find it again by themselves.
        cluster.nodes[1].kill()
        cluster.nodes[1].start()
        create(client, "u")
        assert brokers(client) == [2, 3]


def test_controllers_join_a_dynamic_quorum_by_themselves() -> None:
    with NodeCluster(combined=3, dynamic=True) as cluster:
        first = cluster.nodes[1]
        until(lambda: first.log().count("is added to the metadata quorum") == 2)
        client = admin(cluster)
        create(client, "t")
        first.kill()
        create(admin(cluster, 1), "u")
        assert active_controller(cluster) != 1


def test_a_node_of_another_cluster_is_refused() -> None:
    with NodeCluster(controllers=1, brokers=1) as cluster:
        stranger = NodeCluster(controllers=1, brokers=1, config={"cluster.id": "c29tZXRoaW5nIGVsc2UtMQ"})
        broker = stranger.nodes[2]
        broker.properties["controller.quorum.voters"] = cluster.nodes[2].properties["controller.quorum.voters"]
        try:
            broker.launch()
            until(lambda: "INCONSISTENT_CLUSTER_ID" in (broker.log() if broker.directory.exists() else ""))
            assert not broker.is_ready
        finally:
            stranger.close()


@pytest.mark.java
def test_the_quorum_tool_describes_and_changes_the_quorum(java_tools: JavaTools) -> None:
    """From static voters to dynamic ones, then one voter less and one more."""
    with NodeCluster(combined=3, brokers=1) as cluster:
        servers = ("--bootstrap-server", cluster.bootstrap_servers)
        status = java_tools.run(QUORUM_TOOL, *servers, "describe", "--status")
        assert "ClusterId:" in status
        assert re.search(rf"LeaderId: +{active_controller(cluster)}\n", status)
        replication = java_tools.run(QUORUM_TOOL, *servers, "describe", "--replication")
        assert sorted(line.split()[0] for line in replication.splitlines()[1:]) == ["1", "2", "3", "4"]
        assert sorted(line.split()[-1] for line in replication.splitlines()[1:]) == [
            "Follower",
            "Follower",
            "Leader",
            "Observer",
        ]
        # Every voter tells the leader its directory id; then the quorum can become a dynamic one.
        upgrade = ("org.apache.kafka.tools.FeatureCommand", *servers, "upgrade", "--feature", "kraft.version=1")
        until(lambda: java_tools.attempt(*upgrade).exit == 0)
        removed = next(i for i in (1, 2, 3) if i != active_controller(cluster))
        before = java_tools.run(QUORUM_TOOL, *servers, "describe", "--replication")
        directory = next(line.split()[1] for line in before.splitlines() if line.split()[0] == str(removed))
        change = ("--controller-id", removed, "--controller-directory-id", directory)
        java_tools.run(QUORUM_TOOL, *servers, "remove-controller", *change)
        after = java_tools.run(QUORUM_TOOL, *servers, "describe", "--replication")
        roles = {line.split()[0]: line.split()[-1] for line in after.splitlines()[1:]}
        assert roles[str(removed)] == "Observer"
        create(admin(cluster), "t")
