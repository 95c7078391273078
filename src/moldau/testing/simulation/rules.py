"""What must be true after every single event, looked at on the node where the event happened.

Decides nothing; raises `Broken`. Cheap by design: only what changed since the last look is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.metadata.image import EMPTY_IMAGE, ClusterImage
from moldau.quorum.leader import Leader
from moldau.replication.partition import Partition
from moldau.testing.simulation.ledger import Broken, Ledger, PartitionKey

if TYPE_CHECKING:
    from moldau.log.partition_log import PartitionLog
    from moldau.node.assembly import Assembly
    from moldau.quorum.transitions import Role
    from moldau.testing.simulation.node import SimulatedNode
    from moldau.testing.simulation.world import Simulation


# min.insync.replicas of all topics here.
DEMANDED = 2
EVERYTHING = 1 << 62


class _Seen:
    """What was last seen of one replica in one life of its node."""

    __slots__ = ("compared_to", "end", "epoch", "high_watermark", "log")

    def __init__(self) -> None:
        # Nothing yet: the log was not opened. Once it is, it stays the same for the life of its node.
        self.log: PartitionLog | None = None
        self.end = -1
        self.high_watermark = -1
        self.epoch = -2
        # How far it was compared with what others call committed.
        self.compared_to = -1


class _NodeSeen:
    """What was last seen of one life of a node."""

    __slots__ = ("high_watermark", "hosted", "image", "partitions", "quorum", "role", "rooms")

    def __init__(self, rooms: Assembly) -> None:
        self.rooms = rooms
        self.quorum: tuple[int, int, int, int] = (0, 0, -1, -1)
        self.role: Role | None = None
        self.high_watermark = -1
        self.image: ClusterImage = EMPTY_IMAGE
        # What the node hosts according to that image, opened or not, with what was seen of it.
        self.hosted: list[tuple[Partition, _Seen]] = []
        self.partitions: dict[Partition, _Seen] = {}


class Rules:
    def __init__(self, world: Simulation) -> None:
        self._world = world
        self.ledgers: dict[PartitionKey, Ledger] = {}
        # The newest image anybody has: what the cluster agreed on.
        self.truth: ClusterImage = EMPTY_IMAGE
        self._images: dict[int, ClusterImage] = {}
        self._leaders: dict[tuple[bytes, int, int], int] = {}
        # Who has been a replica in which epoch.
        self._replicas: set[tuple[str, PartitionKey, int]] = set()
        self._quorum_leaders: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._votes: dict[tuple[int, int], int] = {}
        # By node, of the life it has now.
        self._seen: dict[int, _NodeSeen] = {}
        # How far the replicas of nodes that are down reach on their disks.
        self._ends_on_disk: dict[int, dict[PartitionKey, int]] = {}

    def forget(self, node: SimulatedNode, *, lost_data: bool) -> None:
        """A life has ended. What it had is still on its disk, unless it lost some of it."""
        seen = self._seen.pop(node.id, None)
        if seen is None:
            return
        ends: dict[PartitionKey, int] = {}
        for partition, replica in seen.partitions.items():
            if replica.end >= 0:
                ends[partition.topic_id, partition.index] = EVERYTHING if lost_data else replica.end
        if ends:
            self._ends_on_disk[node.id] = ends

    def look(self, node: SimulatedNode) -> None:
        seen = self._seen.get(node.id)
        if seen is None:
            rooms = node.rooms
            if rooms is None or not hasattr(rooms, "broker"):
                return
            seen = self._seen[node.id] = _NodeSeen(rooms)
        quorum = seen.rooms.quorum
        role, high_watermark = quorum.role, quorum.high_watermark
        if role is not seen.role or high_watermark != seen.high_watermark:
            state = (role.epoch, high_watermark, role.election.voted_id, quorum.leader_id)
            self._look_at_quorum(node, seen.quorum, state, leads=isinstance(role, Leader))
            seen.quorum, seen.role, seen.high_watermark = state, role, high_watermark
        image = seen.rooms.loader.image
        if image is not seen.image:
            seen.image = image
            self._look_at_image(node, image)
            known = seen.partitions
            for partition in seen.rooms.partitions:
                if partition not in known:
                    known[partition] = _Seen()
            seen.hosted = [(partition, known[partition]) for partition in seen.rooms.partitions]
        self._look_at_partitions(node, seen)

    def look_for_the_last_time(self, node: SimulatedNode) -> None:
        """The node stops within an event: what it has committed in it, it may have told somebody already. What it
        wanted to remember of elections was told to nobody before it was on its disk."""
        seen = self._seen.get(node.id)
        if seen is not None and seen.rooms is node.rooms:
            self._look_at_partitions(node, seen)

    def _look_at_partitions(self, node: SimulatedNode, seen: _NodeSeen) -> None:
        for partition, replica in seen.hosted:
            log = replica.log
            if log is None:
                if not partition.opened:
                    continue
                log = replica.log = partition.log
            if (
                replica.end != log.log_end_offset
                or replica.high_watermark != log.high_watermark
                or replica.epoch != partition.leader_epoch
            ):
                node.disk.observed = True
                self._look_at_partition(node, replica, partition)
                node.disk.observed = False

    # ---- what clients are told

    def answered(self, host: str, key: PartitionKey, epoch: int, up_to: int) -> None:
        """Somebody gave a reader that counted on that epoch what there is up to an offset: a leader of that epoch, or
        one of its followers (KIP-392)."""
        if up_to > self.ledgers[key].next_offset:
            raise Broken(
                f"{host} gave a reader of {self.ledgers[key].where} everything up to {up_to}, but only "
                f"{self.ledgers[key].next_offset} is committed"
            )
        if (host, key, epoch) not in self._replicas:
            led = self._leaders.get((*key, epoch))
            raise Broken(
                f"{host} answered in epoch {epoch} of {self.ledgers[key].where}, which it was never in; "
                f"{'nobody' if led is None else f'n{led}'} led in it"
            )

    def knows_that_it_leads(self, host: str, key: PartitionKey) -> bool:
        """Whether a node is the leader now, and has heard of it."""
        topic = self.truth.topics_by_id.get(key[0])
        now = None if topic is None else topic.partitions.get(key[1])
        if now is None or now.leader < 0 or self._world.nodes[now.leader].host != host:
            return False
        return (host, key, now.leader_epoch) in self._replicas

    def epoch_of(self, topic_id: bytes, index: int, offset: int) -> int:
        """The leader epoch of a committed record; -1 when there is none at that offset."""
        ledger = self.ledgers.get((topic_id, index))
        return -1 if ledger is None else ledger.epoch_of(offset)

    # ---- the quorum and its image

    def _look_at_quorum(
        self, node: SimulatedNode, before: tuple[int, int, int, int], state: tuple[int, int, int, int], *, leads: bool
    ) -> None:
        epoch, high_watermark, voted, _ = state
        if epoch < self._epochs.get(node.id, 0):
            raise Broken(f"{node.host} went back from quorum epoch {self._epochs[node.id]} to {epoch}")
        self._epochs[node.id] = epoch
        if high_watermark < before[1]:
            raise Broken(
                f"{node.host}: the metadata log's high watermark went back from {before[1]} to {high_watermark}"
            )
        rooms = node.rooms
        assert rooms is not None
        if high_watermark > rooms.quorum.log.end_offset:
            raise Broken(f"{node.host}: more metadata is committed ({high_watermark}) than there is")
        if leads:
            led = self._quorum_leaders.setdefault(epoch, node.id)
            if led != node.id:
                raise Broken(f"quorum epoch {epoch} has two leaders: n{led} and {node.host}")
        if voted >= 0:
            known = self._votes.setdefault((node.id, epoch), voted)
            if known != voted:
                raise Broken(f"{node.host} voted twice in quorum epoch {epoch}: for n{known} and n{voted}")

    def _look_at_image(self, node: SimulatedNode, image: ClusterImage) -> None:
        known = self._images.setdefault(image.offset, image)
        if known is not image and known != image:
            raise Broken(f"{node.host} sees another cluster at metadata offset {image.offset} than others did")
        if image.offset > self.truth.offset:
            before, self.truth = self.truth, image
            self._tell_changes(before, image)

    def _tell_changes(self, before: ClusterImage, image: ClusterImage) -> None:
        tell = self._world.tell
        for name, topic in image.topics_by_name.items():
            known = before.topics_by_name.get(name)
            if known is topic:
                continue
            for index, now in topic.partitions.items():
                then = None if known is None else known.partitions.get(index)
                ledger = self.ledgers.get((topic.id, index))
                if ledger is not None:
                    self._look_at_in_sync(f"{name}-{index}", (topic.id, index), ledger)
                if then is not None and (then.leader, then.isr, then.elr) == (now.leader, now.isr, now.elr):
                    continue
                led = f"led by n{now.leader}" if now.leader >= 0 else "led by nobody"
                eligible = f", eligible {list(now.elr)}" if now.elr else ""
                tell(f"    {name}-{index} is {led} in epoch {now.leader_epoch}, in sync {list(now.isr)}{eligible}")
        for node_id, broker in image.brokers.items():
            was = before.brokers.get(node_id)
            if was is not broker and (was is None or was.fenced != broker.fenced or was.epoch != broker.epoch):
                tell(f"    n{node_id} is {'fenced' if broker.fenced else 'in'}, broker epoch {broker.epoch}")
                if was is None or was.epoch != broker.epoch:
                    # What it lost in its last life is known from now on.
                    for key, ledger in self.ledgers.items():
                        self._look_at_in_sync(ledger.where, key, ledger)

    # ---- partitions

    def _look_at_partition(self, node: SimulatedNode, replica: _Seen, partition: Partition) -> None:
        log = partition.log
        key = (partition.topic_id, partition.index)
        if replica.end < 0:
            replica.high_watermark = replica.compared_to = log.log_start_offset
        before, high_watermark = replica.high_watermark, log.high_watermark
        shorter = log.log_end_offset < replica.end or replica.end < 0
        replica.end, replica.high_watermark, replica.epoch = log.log_end_offset, high_watermark, partition.leader_epoch
        self._replicas.add((node.host, key, partition.leader_epoch))
        where = f"{partition.topic}-{partition.index}"
        if high_watermark > log.log_end_offset:
            raise Broken(f"{where}: {node.host} has committed up to {high_watermark} of a log that ends before")
        if partition.is_leader:
            led = self._leaders.setdefault((*key, partition.leader_epoch), node.id)
            if led != node.id:
                raise Broken(f"{where}: epoch {partition.leader_epoch} is led by n{led} and by {node.host}")
            if log.last_stable_offset > high_watermark:
                raise Broken(
                    f"{where}: {node.host} calls {log.last_stable_offset} stable, committed is {high_watermark}"
                )
        if high_watermark < before:
            raise Broken(f"{where}: the high watermark of {node.host} went back from {before} to {high_watermark}")
        ledger = self.ledgers.get(key)
        if ledger is None:
            compacted = partition.topic in self._world.compacted
            ledger = self.ledgers[key] = Ledger(where, log.log_start_offset, compacted=compacted)
        if high_watermark > replica.compared_to:
            known_to = ledger.next_offset
            replica.compared_to = ledger.compare(node.host, log, replica.compared_to, high_watermark)
            if ledger.next_offset > known_to:
                self._look_at_copies(where, key, ledger, partition)
                shorter = True
        if shorter:
            # More is committed, or there is less of it here: only then can something be missing that was not before.
            self._look_at_in_sync(where, key, ledger)

    def _look_at_copies(self, where: str, key: PartitionKey, ledger: Ledger, partition: Partition) -> None:
        """Something is committed that was not before: at least so many replicas must have it as are demanded."""
        holders = []
        for replica in partition.replicas:
            node = self._world.nodes[replica]
            copy = None if node.rooms is None or not node.alive else node.rooms.partitions.find(partition.topic, key[1])
            if copy is not None and copy.opened:
                end = copy.log.log_end_offset
            else:
                end = self._ends_on_disk.get(replica, {}).get(key, 0)
            if end >= ledger.next_offset:
                holders.append(node.host)
        if len(holders) < min(DEMANDED, len(partition.replicas)):
            raise Broken(f"{where}: {ledger.next_offset} is called committed, but only {holders} have it")

    def _look_at_in_sync(self, where: str, key: PartitionKey, ledger: Ledger) -> None:
        """What is committed, every replica has that the cluster counts as in sync."""
        topic = self.truth.topics_by_id.get(key[0])
        registration = None if topic is None else topic.partitions.get(key[1])
        if registration is None:
            return
        for replica in registration.isr:
            node = self._world.nodes.get(replica)
            if node is None or not node.alive or node.rooms is None or node.rooms.lifecycle is None:
                continue
            broker = self.truth.brokers.get(replica)
            if broker is None or broker.epoch != node.rooms.lifecycle.epoch:
                continue  # it has not been heard of since its last life: what it lost is not known yet
            copy = node.rooms.partitions.find(self.truth.topics_by_id[key[0]].name, key[1])
            if copy is None or not copy.opened or copy.topic_id != key[0]:
                continue
            if copy.log.log_end_offset < ledger.next_offset:
                raise Broken(
                    f"{where}: {ledger.next_offset} is committed, but {node.host}, in sync of {registration.isr}, "
                    f"ends at {copy.log.log_end_offset}"
                )
