"""Replication in a simulated world: crashes and cut networks at random, then healing and a look at every copy."""

from __future__ import annotations

import pytest
from tests.replication.replicated_world import BROKERS, ReplicatedWorld

from moldau.metadata.delta import ImageDelta
from moldau.testing.network import NetworkFaults


def write_some(world: ReplicatedWorld, milliseconds: int) -> None:
    for _ in range(milliseconds // 5):
        world.write(world.random.randrange(world.partitions))
        world.run(5)


def heal(world: ReplicatedWorld) -> None:
    world.network.heal()
    for broker in world.brokers.values():
        if not broker.alive:
            broker.start()
    world.run(15_000)  # a lost request is given up after ten seconds


def test_records_are_acknowledged_when_all_replicas_have_them() -> None:
    world = ReplicatedWorld(1)
    for _ in range(20):
        world.write(0)
        world.run(20)
    assert len(world.acknowledged) == 20
    assert {log.log_end_offset for log in world.logs(0).values()} == {20}
    world.check_contents()


def test_a_crashed_leader_is_followed_by_another() -> None:
    world = ReplicatedWorld(2)
    write_some(world, 200)
    before = world.registration(0)
    assert before is not None
    world.brokers[before.leader].crash()
    world.run(2500)
    after = world.registration(0)
    assert after is not None
    assert after.leader not in (before.leader, -1)
    assert before.leader not in after.isr
    acknowledged = len(world.acknowledged)
    write_some(world, 300)
    assert len(world.acknowledged) > acknowledged
    heal(world)
    world.check_contents()


def test_a_replica_that_hears_nothing_leaves_the_in_sync_set_and_comes_back() -> None:
    world = ReplicatedWorld(3)
    truth = world.registration(0)
    assert truth is not None
    silent = next(replica for replica in truth.isr if replica != truth.leader)
    for other in BROKERS:
        if other != silent:
            world.network.cut(world.brokers[silent].address, world.brokers[other].address)
    write_some(world, 2000)
    truth = world.registration(0)
    assert truth is not None
    assert silent not in truth.isr
    heal(world)
    world.check_contents()


@pytest.mark.parametrize("seed", range(20))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    faults = NetworkFaults(max_delay_ms=8, drop=0.01, duplicate=0.01, late=0.01, late_ms=300)
    world = ReplicatedWorld(1000 + seed, faults=faults)
    random = world.random
    for _ in range(8):
        write_some(world, random.randrange(50, 500))
        broker = world.brokers[random.choice(BROKERS)]
        match random.randrange(4):
            case 0 | 1 if broker.alive:
                broker.crash()
            case 0 | 1:
                broker.start()
            case 2:
                other = world.brokers[random.choice(BROKERS)]
                world.network.cut(broker.address, other.address)
            case 3:
                world.network.heal()
        world.run(random.randrange(1500))
    heal(world)
    write_some(world, 100)
    world.run(2000)
    assert world.acknowledged
    world.check_contents()


def test_a_broker_does_not_lead_in_a_life_that_the_cluster_does_not_know_of() -> None:
    """Started again before anybody noticed that it was gone, it reads that it leads: that was another one."""
    world = ReplicatedWorld(4)
    write_some(world, 200)
    leader = world.leader(0)
    leader.crash()
    leader.start(register=False)
    world.run(50)
    leader.broker.image_published(ImageDelta(), world.controller.loader.image)
    partition = leader.partition(0)
    assert partition is None or not partition.is_leader
    leader.register()
    world.run(3000)
    write_some(world, 200)
    heal(world)
    world.check_contents()
    assert len(world.acknowledged) > 20
