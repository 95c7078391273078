"""A bit that flips in a batch's leader epoch, which no checksum covers, while its replica is down."""

from __future__ import annotations

import pytest
from tests.replication.replicated_world import TOPIC, ReplicatedWorld

# Where a batch keeps the epoch of the leader that took it, and a bit that makes it impossibly large.
EPOCH_AT, FLIPPED = 12, 0x10


@pytest.mark.parametrize("last", [True, False])
def test_a_replica_forgets_an_epoch_that_never_was(last: bool) -> None:
    world = ReplicatedWorld(21, partitions=1)
    for _ in range(6):
        world.write(0)
        world.run(20)
    found = world.registration(0)
    assert found is not None
    damaged = world.brokers[next(replica for replica in found.isr if replica != found.leader)]
    log = world.logs(0)[damaged.id]
    positions = [position for position, _ in log.active_segment.scan()]
    path = f"{log.directory}/{0:020}.log"
    damaged.crash()
    at = positions[-1 if last else -3] + EPOCH_AT
    file = damaged.disk.open(path)
    file.write_at(at, bytes([file.read(at, 1)[0] ^ FLIPPED]))
    file.sync()
    damaged.start()
    for _ in range(3):
        world.write(0)
        world.run(500)
    world.run(10_000)
    after = world.registration(0)
    assert after is not None
    assert set(after.isr) == set(found.isr), f"{TOPIC}-0 on {damaged.id} never caught up"
    world.check_contents()
