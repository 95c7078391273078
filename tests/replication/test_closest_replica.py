"""Reading from the closest replica (KIP-392): who is sent where, and what replicas that do not lead give."""

from __future__ import annotations

from typing import Any

from tests.broker.broker_node import batch, fetch_request, produce_request
from tests.replication.replicated_world import TOPIC, ReplicatedWorld, WorldBroker

from moldau.broker.replica_selection import RACK_AWARE
from moldau.protocol.errors import ErrorCode

SELECTOR = {"replica.selector.class": RACK_AWARE}


def world_of_racks(seed: int = 1, **settings: str) -> ReplicatedWorld:
    return ReplicatedWorld(seed, partitions=1, overrides={**SELECTOR, **settings})


def produce(world: ReplicatedWorld, *values: bytes) -> None:
    request = produce_request(TOPIC, batch(*values, timestamp=world.clock.now_ms()), version=9)
    answer = world.until(world.leader(0).ask(request, 9))
    assert answer.responses[0].partition_responses[0].error_code == 0, answer


def fetch(world: ReplicatedWorld, broker: WorldBroker, offset: int, rack: str = "", **settings: Any) -> Any:
    """One partition of an answer."""
    version = settings.pop("version", 12)
    request = fetch_request(TOPIC, offset, version=version, **settings)
    request.rack_id = rack
    return world.until(broker.ask(request, version)).responses[0].partitions[0]


def followers(world: ReplicatedWorld) -> list[WorldBroker]:
    return [broker for broker in world.brokers.values() if broker is not world.leader(0)]


def test_a_consumer_is_sent_to_the_replica_in_its_rack() -> None:
    world = world_of_racks()
    produce(world, b"a", b"b")
    closest = followers(world)[0]
    part = fetch(world, world.leader(0), 0, closest.rack)
    assert part.preferred_read_replica == closest.id
    assert not part.records
    assert part.high_watermark == 2
    assert len(fetch(world, closest, 0, closest.rack).records) > 0


def test_consumers_without_a_replica_in_their_rack_stay_with_the_leader() -> None:
    world = world_of_racks()
    produce(world, b"a")
    leader = world.leader(0)
    for rack in ("", "rack-of-nobody", leader.rack):
        part = fetch(world, leader, 0, rack)
        assert part.preferred_read_replica == -1
        assert part.records


def test_without_a_selector_everybody_stays_with_the_leader() -> None:
    world = ReplicatedWorld(2, partitions=1)
    produce(world, b"a")
    part = fetch(world, world.leader(0), 0, followers(world)[0].rack)
    assert part.preferred_read_replica == -1
    assert part.records


def test_nobody_is_sent_to_a_replica_that_does_not_have_the_offset_or_is_not_in_sync() -> None:
    world = world_of_racks(3)
    produce(world, b"a")
    behind = followers(world)[0]
    for other in world.brokers.values():
        world.network.cut(behind.address, other.address)
    world.run(300)
    partition = world.leader(0).partition(0)
    assert partition is not None
    partition.append(memoryview(batch(b"b", timestamp=world.clock.now_ms())), 1)
    assert behind.id in partition.isr
    assert fetch(world, world.leader(0), 2, behind.rack).preferred_read_replica == -1
    world.run(2500)
    assert behind.id not in partition.isr
    assert fetch(world, world.leader(0), 0, behind.rack).preferred_read_replica == -1


def test_a_replica_gives_what_it_knows_to_be_committed() -> None:
    world = world_of_racks(4)
    produce(world, b"a")
    world.run(50)
    follower, silent = followers(world)
    partition, leading = follower.partition(0), world.leader(0).partition(0)
    assert partition is not None
    assert leading is not None
    assert fetch(world, follower, 0).high_watermark == 1
    world.network.cut(silent.address, world.leader(0).address)
    leading.append(memoryview(batch(b"not committed", timestamp=1)), 1)
    world.run(50)
    assert partition.log.log_end_offset == 2
    part = fetch(world, follower, 1)
    assert (part.error_code, part.high_watermark) == (0, 1)
    assert not part.records
    assert fetch(world, follower, 5).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert fetch(world, world.leader(0), 5).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_readers_that_know_no_racks_or_another_epoch_are_refused_by_followers() -> None:
    world = world_of_racks(5)
    produce(world, b"a")
    follower = followers(world)[0]
    assert fetch(world, follower, 0, version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    epoch = follower.partition(0).leader_epoch  # type: ignore[union-attr]
    assert fetch(world, follower, 0, leader_epoch=epoch).error_code == 0
    assert fetch(world, follower, 0, leader_epoch=epoch + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_reader_that_waits_at_a_follower_learns_of_new_records_at_once() -> None:
    world = world_of_racks(6, **{"replica.fetch.wait.max.ms": "5000", "replica.lag.time.max.ms": "5000"})
    produce(world, b"a")
    world.run(100)
    follower = followers(world)[0]
    request = fetch_request(TOPIC, 1, version=12, max_wait_ms=4000)
    waiting = follower.ask(request, 12)
    world.run(100)
    assert not waiting.done
    produce(world, b"b")
    world.run(30)
    assert waiting.done, "the follower was not told that the record is committed"
    assert waiting.value.responses[0].partitions[0].records


def test_deletions_reach_the_readers_of_followers() -> None:
    world = world_of_racks(7)
    produce(world, b"a", b"b", b"c")
    leader = world.leader(0).partition(0)
    assert leader is not None
    leader.delete_before(2)
    world.run(500)
    part = fetch(world, followers(world)[0], 0)
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(world, followers(world)[0], 2).log_start_offset == 2
