"""Partitions that nobody writes to while others are busy: their replicas stay in sync, and go on at once."""

from __future__ import annotations

from tests.replication.replicated_world import ReplicatedWorld

LAG_MS = 4000


def test_a_long_silence_is_no_lag() -> None:
    """Who had everything all the time may take the whole lag time for what is new, and not a moment less."""
    world = ReplicatedWorld(11, partitions=6, overrides={"replica.lag.time.max.ms": str(LAG_MS)})
    for index in range(world.partitions):
        world.write(index)
        world.run(20)
    found = world.registration(1)
    assert found is not None
    busy = next(index for index in range(world.partitions) if index != 1)
    for _ in range(3 * LAG_MS // 100):
        world.write(busy)
        world.run(100)
    silent = next(replica for replica in found.isr if replica != found.leader)
    world.network.cut(world.brokers[silent].address, world.brokers[found.leader].address)
    world.write(1)
    world.run(6 * LAG_MS // 10)  # leaders look for laggards in every half of the time
    assert _in_sync(world) == set(found.isr)
    world.run(2 * LAG_MS)
    assert _in_sync(world) == set(found.isr) - {silent}
    world.network.heal()
    world.run(15_000)
    assert _in_sync(world) == set(found.isr)
    world.check_contents()


def _in_sync(world: ReplicatedWorld) -> set[int]:
    found = world.registration(1)
    assert found is not None
    return set(found.isr)


def test_each_of_many_is_copied_when_its_turn_comes() -> None:
    world = ReplicatedWorld(12, partitions=40)
    for index in range(world.partitions):
        before = len(world.acknowledged)
        world.write(index)
        world.run(30)
        assert len(world.acknowledged) == before + 1, f"partition {index} was not copied at once"
    world.check_contents()
