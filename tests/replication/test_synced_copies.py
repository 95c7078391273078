"""Topics that want every record on the disk before it counts (flush.messages=1): that holds for every copy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.broker.broker_node import batch, produce_request
from tests.replication.replicated_world import TOPIC, ReplicatedWorld, WorldBroker

from moldau.ports import Pending
from moldau.protocol.errors import ErrorCode
from moldau.replication.partition import Partition

EACH_RECORD = {"log.flush.interval.messages": "1"}


def produce(world: ReplicatedWorld) -> Pending[Any]:
    request = produce_request(TOPIC, batch(b"x", timestamp=world.clock.now_ms()), version=10, acks=-1)
    return world.leader(0).ask(request, 10)


def followers(world: ReplicatedWorld) -> list[WorldBroker]:
    return [broker for broker in world.brokers.values() if broker is not world.leader(0)]


def copy_of(broker: WorldBroker) -> Partition:
    partition = broker.partition(0)
    assert partition is not None
    return partition


def test_a_follower_says_that_it_has_something_when_it_is_on_its_disk() -> None:
    world = ReplicatedWorld(1, partitions=1, overrides=EACH_RECORD)
    slow, quick = followers(world)
    slow.disk.hold_syncs = True
    answer = produce(world)
    world.run(200)
    assert copy_of(slow).log.log_end_offset == 1, "it is written"
    assert copy_of(quick).log.recovery_point == 1
    assert not answer.done, "but not on the disk of all in-sync replicas"
    slow.disk.hold_syncs = False
    slow.disk.finish_syncs()
    assert world.until(answer).responses[0].partition_responses[0].error_code == 0
    assert copy_of(slow).log.recovery_point == 1


def test_a_new_leader_syncs_what_it_copied_before_anybody_writes() -> None:
    """Else what is committed could be read from it only after the next write."""
    world = ReplicatedWorld(2, partitions=1)
    assert world.until(produce(world)) is not None
    world.run(1000)
    former = world.leader(0)
    for broker in followers(world):
        partition = copy_of(broker)
        assert partition.log.recovery_point == 0, "nobody has asked for a sync"
        partition.log.reconfigure(replace(partition.log.config, flush_messages=1))
        # It has not heard yet what is committed.
        partition.log.high_watermark = 0
    former.crash()
    world.run(3000)
    leading = copy_of(world.leader(0))
    assert world.leader(0) is not former
    assert leading.log.recovery_point == 1
    assert leading.log.high_watermark == 1


def test_a_sync_that_ends_after_the_leadership_commits_nothing() -> None:
    world = ReplicatedWorld(3, partitions=1, overrides=EACH_RECORD)
    former = world.leader(0)
    successor = followers(world)[0].id
    former.disk.hold_syncs = True
    answer = produce(world)
    world.run(1)
    leading = copy_of(former)
    assert (leading.log.log_end_offset, leading.log.high_watermark) == (1, 0)
    registration = world.registration(0)
    assert registration is not None
    epoch = registration.leader_epoch + 1
    leading.update(registration._replace(leader=successor, isr=(successor,), leader_epoch=epoch))
    former.disk.hold_syncs = False
    former.disk.finish_syncs()
    assert leading.log.recovery_point == 1
    assert leading.log.high_watermark == 0, "its successor may not have it"
    assert answer.value.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
