"""In-sync sets, elections, reassignments and directories of partitions."""

from __future__ import annotations

import pytest
from controller_world import ControllerWorld

from moldau.metadata.image import NO_LEADER, RECOVERED, RECOVERING
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire import (
    alter_partition_request,
    alter_partition_response,
)
from moldau.protocol.generated.wire.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.generated.wire.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
)
from moldau.protocol.generated.wire.alter_partition_request import AlterPartitionRequest, BrokerState
from moldau.protocol.generated.wire.alter_partition_response import AlterPartitionResponse
from moldau.protocol.generated.wire.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from moldau.protocol.generated.wire.elect_leaders_response import ElectLeadersResponse
from moldau.protocol.generated.wire.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from moldau.protocol.generated.wire.list_partition_reassignments_response import ListPartitionReassignmentsResponse


@pytest.fixture
def world() -> ControllerWorld:
    world = ControllerWorld()
    world.join(1, 2, 3)
    world.create("orders", assignments={0: [1, 2, 3]})
    return world


def alter(
    world: ControllerWorld, broker: int, isr: list[int], *, recovery: int = RECOVERED, **wrong: int
) -> alter_partition_response.PartitionData:
    partition = world.partition("orders")
    data = alter_partition_request.PartitionData(
        partition_index=wrong.get("index", 0),
        leader_epoch=partition.leader_epoch + wrong.get("leader_epoch", 0),
        partition_epoch=partition.partition_epoch + wrong.get("partition_epoch", 0),
        new_isr_with_epochs=[
            BrokerState(broker_id=member, broker_epoch=world.epochs.get(member, 0) + wrong.get("member_epoch", 0))
            for member in isr
        ],
        leader_recovery_state=recovery,
    )
    topic = alter_partition_request.TopicData(topic_id=world.image.topics_by_name["orders"].id, partitions=[data])
    request = AlterPartitionRequest(broker_id=broker, broker_epoch=world.epochs[broker], topics=[topic])
    return world.ask(request, AlterPartitionResponse).topics[0].partitions[0]


def test_the_leader_shrinks_and_expands_the_in_sync_set(world: ControllerWorld) -> None:
    answer = alter(world, 1, [1, 2])
    assert (answer.error_code, answer.isr, answer.leader_epoch, answer.partition_epoch) == (0, [1, 2], 0, 1)
    assert world.partition("orders").isr == (1, 2)
    assert alter(world, 1, [1, 2, 3]).isr == [1, 2, 3]
    assert world.partition("orders").leader_epoch == 0


def test_below_the_minimum_those_who_left_stay_eligible() -> None:
    world = ControllerWorld(min_insync_replicas="2")
    world.join(1, 2, 3)
    world.create("orders", assignments={0: [1, 2, 3]})
    alter(world, 1, [1])
    assert world.partition("orders").elr == (2, 3)
    alter(world, 1, [1, 2])
    assert world.partition("orders").elr == ()


@pytest.mark.parametrize(
    ("broker", "isr", "wrong", "code"),
    [
        (1, [1], {"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        (1, [1], {"partition_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        (1, [1], {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        (1, [1], {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        (1, [1], {"index": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, [2], {}, ErrorCode.INVALID_REQUEST),
        (1, [2], {}, ErrorCode.INVALID_REQUEST),
        (1, [1, 9], {}, ErrorCode.INVALID_REQUEST),
        (1, [1, 1], {}, ErrorCode.INVALID_REQUEST),
        (1, [1, 2], {"member_epoch": 5}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_proposals_that_are_refused(
    world: ControllerWorld, broker: int, isr: list[int], wrong: dict[str, int], code: ErrorCode
) -> None:
    assert alter(world, broker, isr, **wrong).error_code == code
    assert world.partition("orders").isr == (1, 2, 3)


def test_nobody_joins_who_is_shutting_down(world: ControllerWorld) -> None:
    world.create("other", assignments={0: [2, 1]})
    alter(world, 1, [1, 3])
    world.heartbeat(2, want_shut_down=True)
    assert alter(world, 1, [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_recovered_leader_says_so() -> None:
    world = ControllerWorld()
    world.join(1)
    world.create("orders", 1, 1)
    world.restart()
    world.join(1, incarnation=1)
    assert world.partition("orders").leader_recovery_state == RECOVERING
    assert alter(world, 1, [1]).leader_recovery_state == RECOVERED
    assert alter(world, 1, [1], recovery=RECOVERING).error_code == ErrorCode.INVALID_REQUEST


# ---- elections


def elect(world: ControllerWorld, kind: int, *partitions: int, topic: str = "orders") -> list[int]:
    wanted = [TopicPartitions(topic=topic, partitions=list(partitions))] if partitions else None
    request = ElectLeadersRequest(election_type=kind, topic_partitions=wanted)
    response = world.ask(request, ElectLeadersResponse)
    assert response.error_code == 0
    return [p.error_code for result in response.replica_election_results for p in result.partition_result]


def test_preferred_election(world: ControllerWorld) -> None:
    assert elect(world, 0, 0) == [ErrorCode.ELECTION_NOT_NEEDED]
    assert elect(world, 0, 5) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert elect(world, 0, 0, topic="x") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    for _ in range(6):
        world.clock.advance(2000)
        world.heartbeat(2)
        world.heartbeat(3)
    assert world.partition("orders").leader == 2
    assert elect(world, 0, 0) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    world.heartbeat(1)
    alter(world, 2, [1, 2, 3])
    assert elect(world, 0) == [0]
    assert world.partition("orders").leader == 1
    assert elect(world, 0) == []


def test_leaders_go_home_by_themselves(world: ControllerWorld) -> None:
    def time_passes(ms: int, *alive: int) -> None:
        for _ in range(ms // 2000):
            world.clock.advance(2000)
            for broker in alive:
                world.heartbeat(broker)

    time_passes(12_000, 2, 3)
    world.heartbeat(1)
    alter(world, 2, [1, 2, 3])
    assert world.partition("orders").leader == 2
    time_passes(302_000, 1, 2, 3)
    assert world.partition("orders").leader == 1


def test_unclean_election_when_asked_for() -> None:
    world = ControllerWorld(features={"eligible.leader.replicas.version": 0})
    world.join(1, 2)
    world.create("orders", assignments={0: [1, 2]})
    alter(world, 1, [1])
    for _ in range(6):
        world.clock.advance(2000)
        world.heartbeat(2)
    stopped = world.partition("orders")
    assert (stopped.leader, stopped.isr) == (NO_LEADER, (1,))
    assert elect(world, 1, 0) == [0]
    led = world.partition("orders")
    assert (led.leader, led.isr, led.leader_recovery_state) == (2, (2,), RECOVERING)
    assert elect(world, 1, 0) == [ErrorCode.ELECTION_NOT_NEEDED]


def test_unclean_election_where_the_topic_allows_it() -> None:
    world = ControllerWorld(features={"eligible.leader.replicas.version": 0})
    world.join(1, 2)
    world.create("orders", assignments={0: [1, 2]}, configs={"unclean.leader.election.enable": "true"})
    alter(world, 1, [1])
    for _ in range(6):
        world.clock.advance(2000)
        world.heartbeat(2)
    led = world.partition("orders")
    assert (led.leader, led.isr, led.leader_recovery_state) == (2, (2,), RECOVERING)


# ---- reassignments


def reassign(
    world: ControllerWorld, replicas: list[int] | None, *, keep_factor: bool = False, topic: str = "orders"
) -> ReassignablePartitionResponse:
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=not keep_factor,
        topics=[
            ReassignableTopic(name=topic, partitions=[ReassignablePartition(partition_index=0, replicas=replicas)])
        ],
    )
    return world.ask(request, AlterPartitionReassignmentsResponse).responses[0].partitions[0]


def ongoing(world: ControllerWorld) -> list[tuple[str, int, list[int], list[int], list[int]]]:
    response = world.ask(ListPartitionReassignmentsRequest(topics=None), ListPartitionReassignmentsResponse)
    return [
        (topic.name, p.partition_index, p.replicas, p.adding_replicas, p.removing_replicas)
        for topic in response.topics
        for p in topic.partitions
    ]


def test_a_reassignment_ends_when_the_new_replica_is_in_sync() -> None:
    world = ControllerWorld()
    world.join(1, 2, 3)
    world.create("orders", assignments={0: [1, 2]})
    assert reassign(world, [3, 2]).error_code == 0
    assert ongoing(world) == [("orders", 0, [3, 2, 1], [3], [1])]
    assert world.partition("orders").leader == 1
    assert alter(world, 1, [1, 2, 3]).error_code == ErrorCode.NEW_LEADER_ELECTED
    done = world.partition("orders")
    assert (done.replicas, done.isr, done.leader) == ((3, 2), (2, 3), 3)
    assert len(done.directories) == 2
    assert ongoing(world) == []


def test_a_second_reassignment_forgets_what_the_first_one_wanted() -> None:
    world = ControllerWorld()
    world.join(1, 2, 3, 4)
    world.create("orders", assignments={0: [1, 2, 3]})
    reassign(world, [4, 1, 2])
    assert ongoing(world) == [("orders", 0, [4, 1, 2, 3], [4], [3])]
    # The new replica is not wanted any more, and the one that was to leave stays.
    assert reassign(world, [2, 3, 1]).error_code == 0
    after = world.partition("orders")
    assert (after.replicas, set(after.isr)) == ((2, 3, 1), {1, 2, 3})
    assert ongoing(world) == []


def test_a_reassignment_can_be_cancelled() -> None:
    world = ControllerWorld()
    world.join(1, 2, 3)
    world.create("orders", assignments={0: [1, 2]})
    assert reassign(world, None).error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    reassign(world, [3, 2])
    assert reassign(world, None).error_code == 0
    back = world.partition("orders")
    assert sorted(back.replicas) == [1, 2]
    assert (back.adding_replicas, back.removing_replicas, back.leader) == ((), (), 1)


def test_reassignments_that_cannot_be(world: ControllerWorld) -> None:
    assert reassign(world, [9]).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(world, []).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(world, [1], topic="x").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(world, [1, 2], keep_factor=True).error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_fewer_replicas_only_when_the_rest_is_in_sync(world: ControllerWorld) -> None:
    alter(world, 1, [1, 3])
    reassign(world, [1, 2])
    assert ongoing(world) == [("orders", 0, [1, 2, 3], [], [3])]
    alter(world, 1, [1, 2, 3])
    assert ongoing(world) == []
    assert world.partition("orders").replicas == (1, 2)


# ---- directories


def test_a_broker_says_where_its_replicas_are(world: ControllerWorld) -> None:
    one, two = b"1" * 16, b"2" * 16
    world.join(4, directories=[one, two])
    world.create("more", assignments={0: [4, 1]})
    assert world.assign(4, two, "more", 0) == 0
    assert world.partition("more").directories[0] == two
    assert world.partition("more").leader_epoch == 0
    assert world.assign(4, one, "more", 3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.assign(4, one, "orders", 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.assign(4, b"3" * 16, "more", 0) == 0
    assert world.partition("more").leader == 1
