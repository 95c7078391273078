"""acks=all: refused, kept waiting, acknowledged and given up as the replicas come and go."""

from __future__ import annotations

from typing import Any

from tests.broker.broker_node import batch, fetch_request, produce_request
from tests.replication.replicated_world import TOPIC, ReplicatedWorld, WorldBroker

from moldau.ports import Pending
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.protocol.generated.wire.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

LATEST = -1


def produce(world: ReplicatedWorld, *, acks: int = -1, timeout_ms: int = 20_000, topic: str = TOPIC) -> Pending[Any]:
    request = produce_request(
        topic, batch(b"x", timestamp=world.clock.now_ms()), version=10, acks=acks, timeout_ms=timeout_ms
    )
    return world.leader(0, topic).ask(request, 10)


def result(answer: Any) -> Any:
    return answer.responses[0].partition_responses[0]


def followers(world: ReplicatedWorld) -> list[WorldBroker]:
    return [broker for broker in world.brokers.values() if broker is not world.leader(0)]


def silence(world: ReplicatedWorld, silent: WorldBroker) -> None:
    for other in world.brokers.values():
        if other is not silent:
            world.network.cut(silent.address, other.address)


def test_too_few_in_sync_take_nothing_with_acks_all_and_everything_with_acks_one() -> None:
    world = ReplicatedWorld(1, partitions=1)
    for follower in followers(world):
        follower.crash()
    world.run(2500)
    assert result(world.until(produce(world))).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert result(world.until(produce(world, acks=1))).error_code == 0


def test_a_minimum_larger_than_the_number_of_replicas_means_all_of_them() -> None:
    world = ReplicatedWorld(2, partitions=1)
    config = CreatableTopicConfig(name="min.insync.replicas", value="3")
    topic = CreatableTopic(name="two", num_partitions=1, replication_factor=2, configs=[config])
    assert world.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7).topics[0].error_code == 0
    world.run(300)
    assert result(world.until(produce(world, topic="two"))).error_code == 0


def test_a_write_waits_for_a_slow_replica_until_it_leaves_the_in_sync_set() -> None:
    world = ReplicatedWorld(3, partitions=1)
    silence(world, followers(world)[0])
    answer = produce(world)
    world.run(300)
    assert not answer.done
    assert result(world.until(answer)).error_code == 0


def test_a_write_that_nobody_confirms_is_given_up_after_the_time_it_was_given() -> None:
    world = ReplicatedWorld(4, partitions=1)
    silence(world, followers(world)[0])
    answer = produce(world, timeout_ms=200)
    world.run(250)
    assert result(answer.value).error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_write_under_way_is_given_up_when_another_broker_leads() -> None:
    """The old leader is cut off from the others, is replaced, and hears of it: whoever waits must not wait on."""
    world = ReplicatedWorld(5, partitions=1)
    old = world.leader(0)
    for other in followers(world):
        world.network.cut(other.address, old.address)
    answer = produce(world)
    old.epoch = -1  # its heartbeats mean nothing any more
    world.run(3000)
    assert world.leader(0) is not old
    part = result(answer.value)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert part.base_offset == -1
    assert part.current_leader.leader_id == world.leader(0).id
    assert [each.node_id for each in answer.value.node_endpoints] == [world.leader(0).id]


def latest(world: ReplicatedWorld, broker: WorldBroker, version: int) -> Any:
    asked = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(TOPIC, [asked])])
    return world.until(broker.ask(request, version)).topics[0].partitions[0]


def test_a_new_leader_does_not_tell_less_than_its_predecessor_did() -> None:
    """What was committed before is only known when the others have fetched again (KIP-207)."""
    world = ReplicatedWorld(6, partitions=1, overrides={"replica.fetch.wait.max.ms": "700"})
    for _ in range(3):
        assert result(world.until(produce(world))).error_code == 0
    assert latest(world, world.leader(0), 6).offset == 3
    old = world.leader(0)
    candidates = followers(world)
    for follower in candidates:
        partition = follower.partition(0)
        assert partition is not None
        partition.log.high_watermark = 1  # as if it had heard no more
    silent = [(one.address, other.address) for one in candidates for other in candidates if one is not other]
    for source, target in silent:
        world.network.cut(source, target)
    old.crash()
    for _ in range(300):
        world.run(10)
        if world.leader(0) is not old and (new := world.leader(0).partition(0)) is not None and new.is_leader:
            break
    assert latest(world, world.leader(0), 6).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert latest(world, world.leader(0), 4).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    world.network.heal()
    world.run(12_000)
    assert latest(world, world.leader(0), 6).offset == 3
    part = world.until(world.leader(0).ask(fetch_request(TOPIC, 0, version=12), 12)).responses[0].partitions[0]
    assert part.high_watermark == 3


def test_a_lower_minimum_commits_what_waits() -> None:
    world = ReplicatedWorld(7, partitions=1)
    partition = world.leader(0).partition(0)
    assert partition is not None
    answer = produce(world)
    partition.isr = (world.leader(0).id,)
    partition.leading.followers.clear()  # type: ignore[union-attr]
    partition.set_min_isr(3)
    world.run(50)
    assert not answer.done
    partition.set_min_isr(1)
    assert result(world.until(answer)).error_code == 0
