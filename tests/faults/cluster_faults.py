"""What can happen to a cluster of three: each fault as a function that lets it happen and returns when it is over.

"Over" means that the cause is gone (the process runs again, the network is whole), not that the cluster has recovered.
Every function takes the cluster, a topic under load and a source of chance.
"""

from __future__ import annotations

import os
import random
import resource
import time
from collections.abc import Callable
from pathlib import Path

from moldau.testing import Cluster
from tests.faults.raw_logs import partition_directories

Fault = Callable[[Cluster, str, random.Random], None]

PARTITIONS = 6


def _leader(cluster: Cluster, topic: str, chance: random.Random) -> int:
    return cluster.leader_of(topic, chance.randrange(PARTITIONS))


def _wait(chance: random.Random, shortest: float = 1.0, longest: float = 4.0) -> None:
    time.sleep(chance.uniform(shortest, longest))


def kill_leader(cluster: Cluster, topic: str, chance: random.Random) -> None:
    node = _leader(cluster, topic, chance)
    cluster.kill(node)
    _wait(chance, 0.2, 3.0)
    cluster.start(node)


def kill_controller(cluster: Cluster, topic: str, chance: random.Random) -> None:
    node = cluster.active_controller()
    cluster.kill(node)
    _wait(chance, 0.2, 3.0)
    cluster.start(node)


def kill_two(cluster: Cluster, topic: str, chance: random.Random) -> None:
    """The majority is gone: nothing can be acknowledged until one of them is back."""
    nodes = chance.sample(cluster.node_ids, 2)
    for node in nodes:
        cluster.kill(node)
    _wait(chance, 0.2, 2.0)
    for node in nodes:
        cluster.start(node)


def kill_all(cluster: Cluster, topic: str, chance: random.Random) -> None:
    cluster.kill()
    cluster.start()


def freeze(cluster: Cluster, topic: str, chance: random.Random) -> None:
    """Some freezes are shorter than the time after which a node is given up, some longer."""
    node = _leader(cluster, topic, chance)
    cluster.freeze(node)
    _wait(chance, 0.5, 6.0)
    cluster.thaw(node)


def cut_off_leader(cluster: Cluster, topic: str, chance: random.Random) -> None:
    """Clients still reach it: it must not acknowledge anything, and must not serve what others do not have."""
    cluster.isolate(_leader(cluster, topic, chance))
    _wait(chance)
    cluster.heal()


def cut_off_controller(cluster: Cluster, topic: str, chance: random.Random) -> None:
    cluster.isolate(cluster.active_controller())
    _wait(chance)
    cluster.heal()


def cut_all(cluster: Cluster, topic: str, chance: random.Random) -> None:
    cluster.isolate(*cluster.node_ids)
    _wait(chance)
    cluster.heal()


def one_way(cluster: Cluster, topic: str, chance: random.Random) -> None:
    """A node that hears the others but is not heard, or the other way round."""
    node = _leader(cluster, topic, chance)
    others = [each for each in cluster.node_ids if each != node]
    sides: list[int | list[int]] = [node, others]
    chance.shuffle(sides)
    cluster.partition(*sides, one_way=True)
    _wait(chance)
    cluster.heal()


def bridge(cluster: Cluster, topic: str, chance: random.Random) -> None:
    """Two nodes do not see each other, the third sees both."""
    first, second = chance.sample(cluster.node_ids, 2)
    cluster.partition(first, second)
    _wait(chance)
    cluster.heal()


def slow_links(cluster: Cluster, topic: str, chance: random.Random) -> None:
    cluster.slow(chance.choice(cluster.node_ids), delay_ms=chance.choice([5, 50, 300]))
    _wait(chance)
    cluster.heal()


def resets(cluster: Cluster, topic: str, chance: random.Random) -> None:
    for _ in range(chance.randrange(3, 12)):
        cluster.reset_links(chance.choice(cluster.node_ids))
        _wait(chance, 0.02, 0.4)


def damage(cluster: Cluster, topic: str, chance: random.Random) -> None:
    """A crash that leaves the newest bytes of one node flipped or missing: the others have what it lost."""
    node = chance.choice(cluster.node_ids)
    cluster.kill(node)
    for directory in partition_directories(cluster.nodes[node].directory, topic):
        _damage_tail(directory, chance)
    cluster.start(node)


def _damage_tail(directory: Path, chance: random.Random) -> None:
    newest = max(directory.glob("*.log"))
    size = newest.stat().st_size
    if size == 0:
        return
    at = chance.randrange(max(0, size - 20_000), size)
    if chance.random() < 0.5:
        os.truncate(newest, at)
        return
    with newest.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ (1 << chance.randrange(8))]))


def full_disk(cluster: Cluster, topic: str, chance: random.Random) -> None:
    """No file of a node may grow any further, in the midst of a write: the kernel refuses it, as on a full disk."""
    node = _leader(cluster, topic, chance)
    pid = cluster.nodes[node].pid
    grown = [file.stat().st_size for file in cluster.nodes[node].directory.rglob(f"{topic}-*/*.log")]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (max(grown) + chance.randrange(100_000), resource.RLIM_INFINITY))
    _wait(chance)
    # There is room again, which a node that gave up its directory finds when it is started again.
    cluster.kill(node)
    cluster.start(node)


def clock_jump(cluster: Cluster, topic: str, chance: random.Random) -> None:
    """Forward by up to a day, or back by up to half an hour: clients' timestamps may be an hour ahead, not more."""
    node = chance.choice([_leader(cluster, topic, chance), cluster.active_controller()])
    cluster.shift_clock(node, chance.uniform(1, 86_400) if chance.random() < 0.5 else -chance.uniform(1, 1800))
    _wait(chance)
    cluster.heal()


def rolling_restart(cluster: Cluster, topic: str, chance: random.Random) -> None:
    for node in cluster.node_ids:
        cluster.restart(node)
        cluster.wait_until_in_sync(topic)


FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        kill_leader,
        kill_controller,
        kill_two,
        kill_all,
        freeze,
        cut_off_leader,
        cut_off_controller,
        cut_all,
        one_way,
        bridge,
        slow_links,
        resets,
        damage,
        full_disk,
        clock_jump,
        rolling_restart,
    )
}
