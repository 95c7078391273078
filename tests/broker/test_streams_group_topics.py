"""Streams groups and topics: what is missing is said or created, with the right partitions; changes are noticed."""

from __future__ import annotations

import time

import pytest
from broker_node import SimulatedNode
from group_client import with_groups
from streams_group_client import StreamsMember, counting, described, stateful, stateless

from moldau.coordinator.group.streams.configured_topology import configure
from moldau.coordinator.group.streams.statuses import Status
from moldau.coordinator.group.streams.topology import topology_of
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.generated.wire.streams_group_heartbeat_request import (
    CopartitionGroup,
    KeyValue,
    Subtopology,
    TopicInfo,
    Topology,
)


@pytest.fixture
def node() -> SimulatedNode:
    node = with_groups(group_streams_initial_rebalance_delay_ms="0", group_streams_assignment_interval_ms="0")
    node.create_topic("orders", 3)
    node.create_topic("payments", 2)
    return node


def tasks(subtopology: str, count: int) -> set[tuple[str, int]]:
    return {(subtopology, partition) for partition in range(count)}


def grow(node: SimulatedNode, topic: str, count: int) -> None:
    asked = CreatePartitionsTopic(name=topic, count=count, assignments=None)
    (result,) = node.client.send(CreatePartitionsRequest(topics=[asked], timeout_ms=1000), 3).results
    assert result.error_code == 0, result


def test_a_group_waits_for_its_source_topics(node: SimulatedNode) -> None:
    member = StreamsMember(node, "a", stateless("orders", "later"))
    answer = member.join()
    assert (answer.error_code, answer.member_epoch) == (0, 2)
    assert member.statuses == {Status.MISSING_SOURCE_TOPICS: "Source topics later are missing."}
    assert (member.active, described(node).group_state) == (set(), "NotReady")
    node.create_topic("later", 5)
    member.beat()
    assert (member.statuses, member.epoch) == ({}, 3)
    assert member.active == tasks("0", 5)
    assert described(node).group_state == "Stable"


def test_internal_topics_are_created(node: SimulatedNode) -> None:
    member = StreamsMember(node, "a", counting("orders"))
    member.join()
    assert list(member.statuses) == [Status.MISSING_INTERNAL_TOPICS]
    assert member.statuses[Status.MISSING_INTERNAL_TOPICS] == (
        "Internal topics are missing: app-by-word-repartition, app-counts-changelog"
    )
    assert member.answer.heartbeat_interval_ms < 5000, "it is worth asking again soon"
    image = node.services.image
    for name, policy in (("app-by-word-repartition", "delete"), ("app-counts-changelog", "compact")):
        topic = image.topic(name)
        assert topic is not None
        assert len(topic.partitions) == 3
        assert image.topic_config_overrides(name)["cleanup.policy"] == policy
    member.beat()
    assert member.statuses == {}
    assert member.active == tasks("0", 3) | tasks("1", 3)
    topology = described(node).topology
    assert [each.subtopology_id for each in topology.subtopologies] == ["0", "1"]
    (between,) = topology.subtopologies[1].repartition_source_topics
    assert (between.name, between.partitions) == ("app-by-word-repartition", 3)
    (store,) = topology.subtopologies[1].state_changelog_topics
    assert (store.name, store.partitions, store.replication_factor) == ("app-counts-changelog", 3, 1)


def test_an_application_may_say_how_many_partitions_it_wants(node: SimulatedNode) -> None:
    member = StreamsMember(node, "a", counting("orders", partitions=7))
    member.join()
    for name in ("app-by-word-repartition", "app-counts-changelog"):
        topic = node.services.image.topic(name)
        assert topic is not None
        assert len(topic.partitions) == 7
    member.beat()
    assert member.active == tasks("0", 3) | tasks("1", 7)


def test_internal_topics_of_the_wrong_size_are_not_used(node: SimulatedNode) -> None:
    node.create_topic("app-store-changelog", 2)
    member = StreamsMember(node, "a", stateful("orders"))
    member.join()
    assert member.statuses == {
        Status.INCORRECTLY_PARTITIONED_TOPICS: (
            "Existing topic app-store-changelog has different number of partitions: expected 3, found 2"
        )
    }
    grow(node, "app-store-changelog", 3)
    member.beat()
    assert (member.statuses, member.active) == ({}, tasks("0", 3))


def test_topics_that_are_joined_must_match(node: SimulatedNode) -> None:
    joined = Subtopology(
        subtopology_id="0",
        source_topics=["orders", "payments"],
        copartition_groups=[CopartitionGroup(source_topics=[0, 1])],
    )
    member = StreamsMember(node, "a", Topology(0, [joined]))
    member.join()
    assert member.statuses == {
        Status.INCORRECTLY_PARTITIONED_TOPICS: (
            "Following topics do not have the same number of partitions: [{orders=3, payments=2}]"
        )
    }


def test_a_repartition_topic_gets_as_many_partitions_as_what_it_is_joined_with(node: SimulatedNode) -> None:
    between = TopicInfo(name="app-x-repartition")
    topology = Topology(
        0,
        [
            Subtopology(subtopology_id="0", source_topics=["payments"], repartition_sink_topics=[between.name]),
            Subtopology(
                subtopology_id="1",
                source_topics=["orders"],
                repartition_source_topics=[between],
                copartition_groups=[CopartitionGroup(source_topics=[0], repartition_source_topics=[0])],
            ),
        ],
    )
    member = StreamsMember(node, "a", topology)
    member.join()
    topic = node.services.image.topic(between.name)
    assert topic is not None
    assert len(topic.partitions) == 3
    between.partitions = 2
    other = StreamsMember(node, "b", topology, group="other")
    other.join()
    assert other.statuses == {
        Status.INCORRECTLY_PARTITIONED_TOPICS: (
            "Existing topic app-x-repartition has different number of partitions: expected 2, found 3"
        )
    }
    between.name = topology.subtopologies[0].repartition_sink_topics[0] = "app-y-repartition"
    third = StreamsMember(node, "c", topology, group="third")
    third.join()
    assert third.statuses == {
        Status.INCORRECTLY_PARTITIONED_TOPICS: (
            "Number of partitions [2] of repartition topic [app-y-repartition] doesn't match number of partitions [3]"
            " of the source topic."
        )
    }


@pytest.mark.parametrize(
    ("subtopologies", "message"),
    [
        ([Subtopology(subtopology_id="0", repartition_source_topics=[TopicInfo(name="never-written")])], "sink topic"),
        (
            [
                Subtopology(
                    subtopology_id="0",
                    repartition_source_topics=[TopicInfo(name="loop")],
                    repartition_sink_topics=["loop"],
                )
            ],
            "loops",
        ),
        ([Subtopology(subtopology_id="0")], "No source topics"),
        ([Subtopology(subtopology_id="0", source_topics=["__consumer_offsets"])], "prohibited"),
        ([Subtopology(subtopology_id="0", source_topics=["a b"])], "not valid topic names"),
        (
            [Subtopology("0", ["orders"], state_changelog_topics=[TopicInfo(name="c", partitions=2)])],
            "undefined partition count",
        ),
        (
            [Subtopology("0", ["orders"], copartition_groups=[CopartitionGroup(source_topics=[4])])],
            "not there",
        ),
        ([Subtopology("0", ["orders"]), Subtopology("0", ["payments"])], "same id"),
        ([Subtopology("0", ["orders"], repartition_source_topics=[TopicInfo("r", -3)])], "-3 partitions"),
    ],
)
def test_a_topology_that_makes_no_sense_is_refused(
    node: SimulatedNode, subtopologies: list[Subtopology], message: str
) -> None:
    answer = StreamsMember(node, "a", Topology(0, subtopologies)).join()
    assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert message in answer.error_message
    assert described(node).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_long_chains_of_topics_are_followed_in_no_time(node: SimulatedNode) -> None:
    """Each subtopology reads what the next one writes: whoever goes through all of them again and again never ends."""
    length = 5_000
    chain = [
        Subtopology(
            subtopology_id=str(place),
            repartition_source_topics=[TopicInfo(name=f"r{place}")],
            repartition_sink_topics=[f"r{place - 1}"] if place else [],
        )
        for place in range(length)
    ]
    chain.append(Subtopology(str(length), ["orders"], repartition_sink_topics=[f"r{length - 1}"]))
    value = topology_of(Topology(0, chain))
    began = time.process_time()
    configured = configure(value, node.services.image)
    assert time.process_time() - began < 3
    assert len(configured.missing) == length
    assert {topic.num_partitions for topic in configured.missing.values()} == {3}


def test_what_cannot_be_created_is_said_and_not_tried_again_at_once(node: SimulatedNode) -> None:
    topology = stateful("orders")
    topology.subtopologies[0].state_changelog_topics[0].topic_configs = [KeyValue("no.such.setting", "1")]
    member = StreamsMember(node, "a", topology)
    member.join()
    detail = member.statuses[Status.MISSING_INTERNAL_TOPICS]
    assert detail.startswith("Internal topics are missing: app-store-changelog; Creation failed: app-store-changelog (")
    assert "no.such.setting" in detail
    created = node.services.image.offset
    member.beat()
    assert member.statuses[Status.MISSING_INTERNAL_TOPICS] == detail
    node.clock.advance(11_000)
    member.beat()
    assert node.services.image.topic("app-store-changelog") is None
    assert node.services.image.offset >= created


def test_more_partitions_bring_more_tasks(node: SimulatedNode) -> None:
    member = StreamsMember(node, "a", stateless("orders"))
    member.join()
    assert (member.active, member.epoch) == (tasks("0", 3), 2)
    grow(node, "orders", 6)
    member.beat()
    assert (member.active, member.epoch) == (tasks("0", 6), 3)


def test_topics_of_others_do_not_matter(node: SimulatedNode) -> None:
    member = StreamsMember(node, "a", stateless("orders"))
    member.join()
    node.create_topic("unrelated", 4)
    member.beat()
    assert member.epoch == 2
