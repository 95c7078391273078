"""Replicas that catch up do so at the rates their brokers and topics say; those in sync are never held back."""

from __future__ import annotations

import pytest
from tests.broker.broker_node import batch
from tests.replication.replicated_world import TOPIC, ReplicatedWorld

from moldau.log.pacing import Throttle
from moldau.protocol.generated.wire.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.replication.throttles import is_throttled
from moldau.testing.clock import VirtualClock

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
RECORDS, RECORD_BYTES = 100, 20_000
RATE = 400_000


def set_config(world: ReplicatedWorld, kind: int, name: str, key: str, value: str) -> None:
    resource = AlterConfigsResource(kind, name, [AlterableConfig(key, 0, value)])
    answer = world.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0, answer
    world.run(50)


def fall_behind(world: ReplicatedWorld) -> int:
    """One replica misses two megabytes; its id."""
    victim = next(node_id for node_id in world.brokers if node_id != world.leader(0).id)
    world.brokers[victim].crash()
    world.run(2500)
    partition = world.leader(0).partition(0)
    assert partition is not None
    for _ in range(RECORDS):
        partition.append(memoryview(batch(bytes(RECORD_BYTES), timestamp=world.clock.now_ms())), 1)
        world.run(2)
    world.run(6000)  # the replicas in sync have got theirs at the expense of the rate
    world.brokers[victim].start()
    return victim


def catch_up_ms(world: ReplicatedWorld, victim: int) -> int:
    begin = world.clock.now_ms()
    for _ in range(2000):
        partition = world.brokers[victim].partition(0)
        if partition is not None and partition.opened and partition.log.log_end_offset == RECORDS:
            return world.clock.now_ms() - begin
        world.run(10)
    raise AssertionError("it does not catch up")


def world_with_small_fetches() -> ReplicatedWorld:
    return ReplicatedWorld(1, partitions=1, overrides={"replica.fetch.max.bytes": "100000"})


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_who_catches_up_is_held_back(side: str) -> None:
    world = world_with_small_fetches()
    set_config(world, BROKER_RESOURCE, "", f"{side}.replication.throttled.rate", str(RATE))
    set_config(world, TOPIC_RESOURCE, TOPIC, f"{side}.replication.throttled.replicas", "*")
    took = catch_up_ms(world, fall_behind(world))
    expected = RECORDS * RECORD_BYTES * 1000 // RATE
    assert 0.8 * expected < took < 1.5 * expected + 1000


def test_without_a_topic_that_says_so_nobody_is_held_back() -> None:
    world = world_with_small_fetches()
    for side in ("leader", "follower"):
        set_config(world, BROKER_RESOURCE, "", f"{side}.replication.throttled.rate", "1000")
    assert catch_up_ms(world, fall_behind(world)) < 2500


def test_a_higher_rate_counts_at_once() -> None:
    world = world_with_small_fetches()
    set_config(world, BROKER_RESOURCE, "", "follower.replication.throttled.rate", "1000")
    set_config(world, TOPIC_RESOURCE, TOPIC, "follower.replication.throttled.replicas", "0:1,0:2,0:3")
    victim = fall_behind(world)
    world.run(3000)
    partition = world.brokers[victim].partition(0)
    assert partition is not None
    assert partition.log.log_end_offset < RECORDS
    set_config(world, BROKER_RESOURCE, "", "follower.replication.throttled.rate", "100000000")
    assert catch_up_ms(world, victim) < 3000


def test_replicas_in_sync_are_never_held_back() -> None:
    world = world_with_small_fetches()
    for side in ("leader", "follower"):
        set_config(world, BROKER_RESOURCE, "", f"{side}.replication.throttled.rate", "1")
        set_config(world, TOPIC_RESOURCE, TOPIC, f"{side}.replication.throttled.replicas", "*")
    for _ in range(20):
        world.write(0)
        world.run(20)
    assert len(world.acknowledged) == 20


def test_lists_of_throttled_replicas() -> None:
    assert is_throttled(("*",), 3, 1)
    assert is_throttled(("0:1", "3:1"), 3, 1)
    assert not is_throttled(("0:1", "3:2"), 3, 1)
    assert not is_throttled((), 3, 1)


def test_what_was_spent_is_waited_for_at_the_rate_of_the_moment() -> None:
    clock = VirtualClock()
    throttle = Throttle(clock, 1000)
    throttle.spend(1100)
    assert 900 <= throttle.wait_ms() <= 1000
    throttle.set_rate(10_000)
    assert 90 <= throttle.wait_ms() <= 100
    clock.advance(100)
    assert throttle.wait_ms() == 0
    throttle.set_rate(0)
    throttle.spend(10)
    assert throttle.wait_ms() > 5000
