"""Creating, growing and deleting topics: names, counts, placement, what is refused and in which words."""

from __future__ import annotations

from collections import Counter

import pytest
from controller_world import ControllerWorld
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.controller.placement import StripedPlacer, UsableBroker
from moldau.metadata.image import UNASSIGNED_DIRECTORY
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from moldau.protocol.generated.wire.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from moldau.protocol.generated.wire.create_topics_request import CreatableTopic, CreateTopicsRequest
from moldau.protocol.generated.wire.create_topics_response import CreateTopicsResponse
from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.generated.wire.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse


@pytest.fixture
def world() -> ControllerWorld:
    world = ControllerWorld()
    world.join(1)
    return world


def test_a_topic_with_defaults(world: ControllerWorld) -> None:
    result = world.create("orders")
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 1, 1)
    partition = world.partition("orders")
    assert (partition.replicas, partition.isr, partition.leader, partition.leader_epoch) == ((1,), (1,), 1, 0)
    assert partition.directories == (world.directories[1][0],)
    assert world.image.topics_by_name["orders"].id == result.topic_id


def test_configs_are_stored_and_described(world: ControllerWorld) -> None:
    result = world.create("orders", 1, 1, configs={"retention.ms": "5000", "cleanup.policy": "compact"})
    assert result.error_code == 0
    assert world.image.topic_config_overrides("orders") == {"retention.ms": "5000", "cleanup.policy": "compact"}
    described = {entry.name: entry for entry in result.configs or []}
    assert (described["retention.ms"].value, described["retention.ms"].config_source) == ("5000", 1)
    assert described["segment.bytes"].config_source == 5
    assert len(described) > 25


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty string"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a" * 250, "longer than the max allowed length 249"),
        ("with space", "one or more characters other than ASCII alphanumerics"),
        ("umläut", "one or more characters other than ASCII alphanumerics"),
    ],
)
def test_names_that_no_topic_may_have(world: ControllerWorld, name: str, reason: str) -> None:
    result = world.create(name, 1, 1)
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert reason in (result.error_message or "")


def test_the_metadata_topic_is_not_for_creation(world: ControllerWorld) -> None:
    assert world.create("__cluster_metadata", 1, 1).error_code == ErrorCode.INVALID_REQUEST


def test_names_that_exist_or_collide(world: ControllerWorld) -> None:
    world.create("a.b", 1, 1)
    result = world.create("a.b", 1, 1)
    assert (result.error_code, result.error_message) == (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        "Topic 'a.b' already exists.",
    )
    result = world.create("a_b", 1, 1)
    assert (result.error_code, result.error_message) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic 'a_b' collides with existing topic: a.b",
    )
    world.restart()
    assert world.create("a_b", 1, 1).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    delete(world, "a.b")
    assert world.create("a_b", 1, 1).error_code == 0


@pytest.mark.parametrize(
    ("partitions", "factor", "code", "reason"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS, "invalid non-positive value"),
        (-2, 1, ErrorCode.INVALID_PARTITIONS, "invalid non-positive value"),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR, "must be larger than 0, or -1"),
        (1, 3, ErrorCode.INVALID_REPLICATION_FACTOR, "Unable to replicate the partition 3 time(s)"),
        (10_001, 1, ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."),
    ],
)
def test_counts_that_cannot_be(
    world: ControllerWorld, partitions: int, factor: int, code: ErrorCode, reason: str
) -> None:
    result = world.create("orders", partitions, factor)
    assert result.error_code == code
    assert reason in (result.error_message or "")
    assert world.image.topic("orders") is None


@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        ({"no.such.key": "1"}, "Unknown topic config name: no.such.key"),
        ({"retention.ms": "soon"}, "retention.ms"),
        ({"retention.ms": None}, "Null value not supported for topic configs: retention.ms"),
    ],
)
def test_configs_that_cannot_be(world: ControllerWorld, configs: dict[str, str | None], reason: str) -> None:
    result = world.create("orders", 1, 1, configs=configs)
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert reason in (result.error_message or "")


def test_validation_alone_changes_nothing(world: ControllerWorld) -> None:
    before = world.quorum.next_offset
    assert world.create("orders", 3, 1, validate_only=True).num_partitions == 3
    assert world.quorum.next_offset == before


def test_a_request_with_good_and_bad_topics(world: ControllerWorld) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("a", "b b", "twice", "twice")
    ]
    response = world.ask(CreateTopicsRequest(topics=topics), CreateTopicsResponse)
    assert [(result.name, result.error_code) for result in response.topics] == [
        ("a", 0),
        ("b b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]
    assert list(world.image.topics_by_name) == ["a"]


def test_manual_assignments(world: ControllerWorld) -> None:
    world.join(2, 3)
    assert world.create("orders", assignments={0: [2, 1], 1: [3, 2]}).error_code == 0
    assert world.partition("orders", 0).replicas == (2, 1)
    assert world.partition("orders", 1).leader == 3


@pytest.mark.parametrize(
    ("assignments", "partitions", "factor", "code"),
    [
        ({0: [1]}, 1, -1, ErrorCode.INVALID_REQUEST),
        ({0: [1]}, -1, 1, ErrorCode.INVALID_REQUEST),
        ({0: []}, -1, -1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [9]}, -1, -1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1, 1]}, -1, -1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1], 1: [1, 2]}, -1, -1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1], 2: [1]}, -1, -1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_assignments_that_cannot_be(
    world: ControllerWorld, assignments: dict[int, list[int]], partitions: int, factor: int, code: ErrorCode
) -> None:
    world.join(2)
    assert world.create("orders", partitions, factor, assignments=assignments).error_code == code


def test_without_brokers_there_is_no_topic() -> None:
    world = ControllerWorld()
    result = world.create("orders", 1, 1)
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    world.register(1)
    result = world.create("orders", 1, 1)
    assert "All brokers are currently fenced" in (result.error_message or "")


def test_a_broker_with_several_directories_chooses_later(world: ControllerWorld) -> None:
    world.join(2, directories=[b"d" * 16, b"e" * 16])
    world.create("orders", assignments={0: [2]})
    assert world.partition("orders").directories == (UNASSIGNED_DIRECTORY,)


def test_ten_thousand_partitions_in_one_request(world: ControllerWorld) -> None:
    """More records than one batch takes: they appear together, also after a restart."""
    seen: list[int] = []
    world.loader.add_publisher(lambda delta, image: seen.append(sum(map(len, delta.changed_partitions.values()))))
    assert world.create("many", 10_000, 1).error_code == 0
    assert seen[-1] == 10_000
    world.restart()
    topic = world.image.topic("many")
    assert topic is not None
    assert len(topic.partitions) == 10_000


# ---- placement


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=9),
    st.integers(1, 5),
    st.integers(1, 60),
    st.randoms(use_true_random=False),
)
def test_placement_spreads_leaders_and_replicas(
    racks: list[str | None], factor: int, count: int, random: object
) -> None:
    brokers = [UsableBroker(i, rack, False) for i, rack in enumerate(racks)]
    factor = min(factor, len(brokers))
    placer = StripedPlacer(brokers, random)  # type: ignore[arg-type]
    placer.check(factor)
    placed = [placer.place(factor) for _ in range(count)]
    rack_of = {broker.id: broker.rack for broker in brokers}
    for replicas in placed:
        assert len(set(replicas)) == factor
        # As many racks as possible hold a replica.
        assert len({rack_of[broker] for broker in replicas}) == min(factor, len(set(racks)))
    if len(set(racks)) == 1:
        leaders = Counter(replicas[0] for replicas in placed)
        assert max(leaders.values()) - min(leaders.get(broker.id, 0) for broker in brokers) <= 1


def test_fenced_brokers_take_followers_last() -> None:
    from random import Random

    brokers = [UsableBroker(1, None, True), UsableBroker(2, None, False), UsableBroker(3, None, False)]
    placer = StripedPlacer(brokers, Random(1))
    for _ in range(20):
        replicas = placer.place(2)
        assert 1 not in replicas
    assert {placer.place(3)[0] for _ in range(10)} <= {2, 3}


# ---- delete


def delete(world: ControllerWorld, *names: str) -> list[DeletableTopicResult]:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names])
    return world.ask(request, DeleteTopicsResponse).responses


def test_delete_by_name_and_by_id(world: ControllerWorld) -> None:
    world.create("a", 1, 1, configs={"retention.ms": "5"})
    topic_id = world.create("b", 1, 1).topic_id
    (result,) = delete(world, "a")
    assert (result.name, result.error_code) == ("a", 0)
    assert world.image.topic_config_overrides("a") == {}
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)])
    (result,) = world.ask(request, DeleteTopicsResponse).responses
    assert (result.name, result.topic_id, result.error_code) == ("b", topic_id, 0)
    assert not world.image.topics_by_name


def test_old_versions_delete_by_topic_names(world: ControllerWorld) -> None:
    world.create("a", 1, 1)
    response = world.ask(DeleteTopicsRequest(topic_names=["a", "x"]), DeleteTopicsResponse, 4)
    codes = [result.error_code for result in response.responses]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_deletions_that_cannot_be(world: ControllerWorld) -> None:
    topic_id = world.create("a", 1, 1).topic_id
    states = [
        DeleteTopicState(name="a", topic_id=topic_id),
        DeleteTopicState(name=None),
        DeleteTopicState(name=None, topic_id=b"x" * 16),
        DeleteTopicState(name="unknown"),
        DeleteTopicState(name="b"),
        DeleteTopicState(name="b"),
    ]
    response = world.ask(DeleteTopicsRequest(topics=states), DeleteTopicsResponse)
    assert [result.error_code for result in response.responses] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ]
    assert world.image.topic("a") is not None


def test_deletion_can_be_switched_off() -> None:
    world = ControllerWorld(delete_topic_enable="false")
    world.join(1)
    world.create("a", 1, 1)
    (result,) = delete(world, "a")
    assert result.error_code == ErrorCode.TOPIC_DELETION_DISABLED


# ---- grow


def grow(
    world: ControllerWorld, name: str, count: int, *assignments: list[int], validate_only: bool = False
) -> CreatePartitionsTopicResult:
    topic = CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=[CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments] or None,
    )
    request = CreatePartitionsRequest(topics=[topic], validate_only=validate_only)
    return world.ask(request, CreatePartitionsResponse).results[0]


def test_more_partitions(world: ControllerWorld) -> None:
    world.create("a", 2, 1)
    assert grow(world, "a", 5).error_code == 0
    topic = world.image.topic("a")
    assert topic is not None
    assert list(topic.partitions) == [0, 1, 2, 3, 4]
    assert grow(world, "a", 6, [1]).error_code == 0
    assert grow(world, "a", 9, validate_only=True).error_code == 0
    assert len(world.image.topics_by_name["a"].partitions) == 6


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code", "reason"),
    [
        ("x", 3, [], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        ("a", 2, [], ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        ("a", 1, [], ErrorCode.INVALID_PARTITIONS, "1 would not be an increase."),
        ("a", 4, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "only 1 assignment(s)"),
        ("a", 3, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no such broker is registered"),
        ("a", 20_000, [], ErrorCode.POLICY_VIOLATION, "Excessively large"),
    ],
)
def test_growth_that_cannot_be(
    world: ControllerWorld, name: str, count: int, assignments: list[list[int]], code: ErrorCode, reason: str
) -> None:
    world.create("a", 2, 1)
    result = grow(world, name, count, *assignments)
    assert result.error_code == code
    assert reason in (result.error_message or "")
