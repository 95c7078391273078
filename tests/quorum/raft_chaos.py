"""Seeded chaos for a quorum: what happens is drawn from one random, so a seed is a story that can be told again."""

from __future__ import annotations

from functools import partial
from random import Random

from quorum_world import CLUSTER_ID
from raft_world import RaftNode, RaftWorld

from moldau.ports import Pending
from moldau.protocol.generated.wire.add_raft_voter_request import AddRaftVoterRequest, Listener
from moldau.protocol.generated.wire.remove_raft_voter_request import RemoveRaftVoterRequest
from moldau.testing.network import NetworkFaults

# After everything is healed: elections, snapshots and catching up must be over within this.
HEALED_MS = 30_000


class Chaos:
    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.world = RaftWorld(
            random.randrange(1 << 30),
            voters=random.choice((1, 2, 3, 3, 3, 4, 5)),
            observers=random.randrange(3),
            dynamic=random.random() < 0.6,
        )
        if self.world.dynamic and random.random() < 0.4:
            # A controller that is not a voter yet.
            number = len(self.world.nodes) + 1
            self.world.nodes[number] = joining = RaftNode(self.world, number, voter=False)
            joining.settings = joining.settings._replace(auto_join=random.random() < 0.5)
            joining.format({})
        # Swarm: each seed has some kinds of trouble, hardly any has all.
        self.crashes = random.random() < 0.7
        self.power_cuts = random.random() < 0.5
        self.cuts = random.random() < 0.6
        self.slow_disks = random.random() < 0.4
        self.bad_network = random.random() < 0.6
        self.snapshots = random.random() < 0.5
        self.voter_changes = self.world.dynamic and random.random() < 0.4
        self.actions = random.randint(8, 30)

    def run(self) -> RaftWorld:
        world, random = self.world, self.random
        world.start()
        for _ in range(self.actions):
            self._act()
            world.run(random.choice((5, 20, 100, 400, 1500)))
        self._heal()
        return world

    def _act(self) -> None:
        world, random = self.world, self.random
        leaders = [node for node in world.alive if node.quorum.is_leader]
        for leader in leaders:
            if random.random() < 0.7:
                world.append(leader, random.randint(1, 3))
        node = random.choice(list(world.nodes.values()))
        roll = random.random()
        if roll < 0.25 and self.crashes:
            self._crash_or_start(node)
        elif roll < 0.4 and self.cuts:
            self._cut(node)
        elif roll < 0.5 and self.slow_disks and node.alive:
            self._disk(node)
        elif roll < 0.6 and self.bad_network:
            world.tell("the network is bad")
            world.network.faults = NetworkFaults(
                max_delay_ms=random.choice((2, 20, 100)),
                drop=random.choice((0, 0.02, 0.2)),
                duplicate=random.choice((0, 0.1)),
                late=random.choice((0, 0.05, 0.2)),
                late_ms=random.choice((50, 1000, 3000)),
            )
        elif roll < 0.7 and self.snapshots and node.alive:
            world.tell(f"node {node.id} writes a snapshot")
            node.emitter.emit()
        elif roll < 0.75 and node.alive and node.quorum.is_leader:
            world.tell(f"node {node.id} resigns")
            node.quorum.resign()
        elif roll < 0.9 and self.voter_changes and leaders:
            self._change_voters(random.choice(leaders))
        elif roll > 0.95:
            world.tell("the network heals")
            world.network.heal()

    def _crash_or_start(self, node: RaftNode) -> None:
        world, random = self.world, self.random
        if not node.alive:
            world.tell(f"node {node.id} starts")
            node.start()
            return
        power_cut = self.power_cuts and random.random() < 0.7
        world.tell(f"node {node.id} {'loses power' if power_cut else 'is killed'}")
        node.crash(random if random.random() < 0.7 else None, keep_unsynced=not power_cut)

    def _cut(self, node: RaftNode) -> None:
        world, random = self.world, self.random
        world.network.heal()
        others = [other for other in world.nodes.values() if other is not node and random.random() < 0.7]
        incoming, outgoing = random.choice(((True, True), (True, True), (True, False), (False, True)))
        world.tell(f"node {node.id} is cut off from {[o.id for o in others]} (in {incoming}, out {outgoing})")
        for other in others:
            if incoming:
                world.network.cut(other.address, node.address)
            if outgoing:
                world.network.cut(node.address, other.address)

    def _disk(self, node: RaftNode) -> None:
        if node.disk.hold_syncs:
            node.disk.hold_syncs = False
            while node.disk.finish_syncs():
                pass
        else:
            self.world.tell(f"the disk of node {node.id} stalls")
            node.disk.hold_syncs = True

    def _change_voters(self, leader: RaftNode) -> None:
        world, random = self.world, self.random
        node = random.choice([node for node in world.nodes.values() if node.can_vote])
        answer: object
        if node.id in leader.quorum.voters:
            world.tell(f"voter {node.id} is to be removed")
            removal = RemoveRaftVoterRequest(
                cluster_id=CLUSTER_ID, voter_id=node.id, voter_directory_id=node.directory_id
            )
            answer = leader.quorum.voter_changes.remove(removal, 0)
        else:
            world.tell(f"voter {node.id} is to be added")
            addition = AddRaftVoterRequest(
                cluster_id=CLUSTER_ID,
                voter_id=node.id,
                voter_directory_id=node.directory_id,
                listeners=[Listener("CONTROLLER", node.address.host, node.address.port)],
            )
            answer = leader.quorum.voter_changes.add(addition, 1)
        assert isinstance(answer, Pending)
        answer.then(lambda response: world.tell(f"... answered {response.error_code} {response.error_message}"))

    def _heal(self) -> None:
        """Everybody is back and the network is good: now there must be progress."""
        world = self.world
        world.tell("everything heals")
        world.network.heal()
        for node in world.nodes.values():
            node.disk.hold_syncs = False
            while node.disk.finish_syncs():
                pass
            if not node.alive:
                node.start()
        world.elect(HEALED_MS)
        world.run_until(world.is_settled, HEALED_MS)
        before = len(world.acknowledged)
        for _ in range(5):
            # What was sent before may still arrive and cost a leader its place, but not again and again.
            leader = world.elect(HEALED_MS)
            epoch = leader.quorum.epoch
            world.append(leader)
            world.run_until(partial(self._is_over, before, epoch), HEALED_MS)
            if len(world.acknowledged) > before:
                break
        assert len(world.acknowledged) > before, "nothing is acknowledged any more"
        world.run_until(world.is_settled, HEALED_MS)
        world.check_logs()
        expected = world.elect(HEALED_MS).topics
        for node in world.alive:
            assert node.topics == expected, f"node {node.id} has another image than the leader"

    def _is_over(self, acknowledged: int, epoch: int) -> bool:
        return len(self.world.acknowledged) > acknowledged or self.world.is_past(epoch)
