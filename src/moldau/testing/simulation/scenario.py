"""One seed as a story: a cluster, some clients, some kinds of trouble, then healing, a demand for progress, judgement.

Decides what a seed contains. Each seed draws some kinds of faults, hardly any has all (swarm): faults hide each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from moldau.protocol.generated.wire.create_topics_request import CreatableTopic, CreatableTopicConfig
from moldau.testing.simulation.admin import Administrator, create_topics
from moldau.testing.simulation.client import Client
from moldau.testing.simulation.faults import FAULTS, Faults
from moldau.testing.simulation.groups import ClassicMember, ConsumerMember
from moldau.testing.simulation.history import Place
from moldau.testing.simulation.ledger import Broken
from moldau.testing.simulation.producers import ALL, IdempotentProducer, PlainProducer, Producer
from moldau.testing.simulation.readers import Reader
from moldau.testing.simulation.shares import ShareMember
from moldau.testing.simulation.streams import StreamsMember
from moldau.testing.simulation.tables import TableProducer, judge_tables
from moldau.testing.simulation.transactions import Copier, TransactionalWriter
from moldau.testing.simulation.voters import VoterOperator
from moldau.testing.simulation.world import Simulation

TOPIC: Final = "data"
COPIES: Final = "copies"
WRITES: Final = "writes"
TABLE: Final = "table"
VOTERS: Final = "voters"
COMPACTED: Final = ("__consumer_offsets", "__transaction_state")
COORDINATORS: Final = (*COMPACTED, "__share_group_state")
SHARE_GROUP: Final = "share-group"
START_MS_MAX: Final = 10_000
VOTERS_FIRST: Final = 3
# After everything is healed: elections, recoveries and catching up must be over within this.
HEALED_MS_MAX: Final = 30_000
HEALED_PACE_MS: Final = 30
# Of these each seed draws some; what came later is drawn apart, so that seeds without it stay what they were.
DRAWN: Final = ("idempotent", "plain", "transactions", "copier", "classic", "consumer", "admin", "share", "streams")
WORKLOADS: Final = (*DRAWN, TABLE, VOTERS)


class Scenario:
    def __init__(
        self, seed: int, *, faults: Iterable[str] | None = None, workloads: Iterable[str] | None = None
    ) -> None:
        """`faults` and `workloads` fix what is drawn otherwise."""
        self.random = random = Random(f"{seed} scenario")
        chosen = [name for name in FAULTS if random.random() < 0.45]
        rare = {TABLE: 0.12, VOTERS: 0.05}
        apart = frozenset(name for name, often in rare.items() if Random(f"{seed} {name}").random() < often)
        workloads = None if workloads is None else frozenset(workloads)
        self.compacts = TABLE in (apart if workloads is None else workloads)
        self.changes_voters = VOTERS in (apart if workloads is None else workloads)
        overrides = {}
        if random.random() < 0.25:
            overrides["metadata.log.max.record.bytes.between.snapshots"] = "2000"
        if random.random() < 0.5:
            # Catching up takes many small steps.
            overrides["replica.fetch.max.bytes"] = "200"
        # Logs of many small segments, with indexes that have something to tell.
        self.segment_bytes = random.choice((200, 400)) if random.random() < 0.4 else None
        if self.segment_bytes is not None:
            overrides["internal.metadata.log.segment.bytes"] = "1500"
        if self.compacts:
            overrides["log.cleaner.backoff.ms"] = "100"
        self.flushes = random.random() < 0.2
        brokers = 1 if random.random() < 0.15 or self.changes_voters else 0
        self.world = Simulation(
            seed, voters=VOTERS_FIRST, brokers=brokers, dynamic=self.changes_voters, overrides=overrides
        )
        self.faults = Faults(self.world, random, frozenset(chosen if faults is None else faults))
        drawn = {name for name in DRAWN if random.random() < 0.28} | {"idempotent"} | apart
        if self.compacts:
            self.world.compacted = frozenset({TABLE, *COMPACTED})
        self.workloads = frozenset(drawn if workloads is None else workloads)
        self.partitions = random.choice((1, 1, 2))
        self.rounds = random.randint(6, 16)
        # Some clients are done before the worst comes, others are still at work at the end of it.
        self.world.pace_ms = random.choice((40, 150, 350))
        self.producers: list[Producer] = []
        self.readers: list[Reader] = []
        self.members: list[Client] = []
        self.writers: list[TransactionalWriter] = []
        self.copiers: list[Copier] = []

    def run(self) -> Simulation:
        world = self.world
        self._start()
        self._begin_clients()
        for _ in range(self.rounds):
            world.run(self.random.choice((5, 20, 60, 150, 400, 700)))
            self.faults.act()
            if self.random.random() < 0.1:
                self._crash_client()
        self._heal()
        self._finish()
        return world

    # ---- beginning

    def _start(self) -> None:
        world = self.world
        for node in world.nodes.values():
            node.start()
        self._demand(
            lambda: all(node.joined for node in world.nodes.values()), START_MS_MAX, "the cluster does not start"
        )
        made = create_topics(world, self._topics())
        self._demand(lambda: made.done, START_MS_MAX, "the topics are not made")
        self._demand(world.is_healthy, START_MS_MAX, "the new topics are not in sync")
        world.tell(
            f"{len(world.nodes)} nodes are up; clients: {', '.join(sorted(self.workloads))}; trouble: "
            f"{', '.join(sorted(self.faults.chosen)) or 'none'}"
        )

    def _topics(self) -> list[CreatableTopic]:
        topics = [self._topic(TOPIC, self.partitions, self.segment_bytes)]
        if "transactions" in self.workloads:
            topics.append(self._topic(WRITES, 2, self.segment_bytes))
        if "copier" in self.workloads:
            # A copy is as large as what was read at once.
            topics.append(self._topic(COPIES, self.partitions, self.segment_bytes and 5000))
        if self.compacts:
            topics.append(self._topic(TABLE, 1, 300))
        if self.segment_bytes is not None or self.compacts:
            # Nothing else gives the coordinators' topics small segments.
            topics += [self._topic(name, 1, 1500) for name in COORDINATORS]
        return topics

    def _topic(self, name: str, partitions: int, segment_bytes: int | None) -> CreatableTopic:
        settings = {"flush.messages": "1"} if self.flushes else {}
        if name in self.world.compacted:
            settings |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        if segment_bytes is not None:
            settings |= {"internal.segment.bytes": str(segment_bytes), "index.interval.bytes": "100"}
        configs = [CreatableTopicConfig(key, value) for key, value in settings.items()]
        return CreatableTopic(name, partitions, 3, configs=configs)

    def _begin_clients(self) -> None:
        world, workloads = self.world, self.workloads
        places: list[Place] = [(TOPIC, index) for index in range(self.partitions)]
        batches = self.random.randint(6, 14)
        for place in places:
            suffix = place[1]
            if "idempotent" in workloads:
                self.producers.append(IdempotentProducer(world, f"idem{suffix}", place, batches))
            if "plain" in workloads:
                acks = self.random.choice((ALL, ALL, 1))
                self.producers.append(PlainProducer(world, f"plain{suffix}", place, batches, acks))
            committed_only = self.random.random() < 0.5
            self.readers.append(Reader(world, f"reader{suffix}", place, committed_only=committed_only))
            if "copier" in workloads:
                copier = Copier(world, f"copier{suffix}", place, (COPIES, suffix), old=self.random.random() < 0.4)
                self.copiers.append(copier)
                self.readers.append(Reader(world, f"checker{suffix}", (COPIES, suffix), committed_only=True))
        if TABLE in workloads:
            self.producers.append(TableProducer(world, "table0", (TABLE, 0), 2 * batches))
            self.readers.append(Reader(world, "table-reader", (TABLE, 0), committed_only=False))
        if "transactions" in workloads:
            old = self.random.random() < 0.4
            self.writers.append(TransactionalWriter(world, "writer", [(WRITES, 0), (WRITES, 1)], batches, old=old))
            self.readers.append(Reader(world, "stable", (WRITES, 0), committed_only=True))
        for count in range(2):
            if "classic" in workloads:
                self.members.append(ClassicMember(world, f"classic{count}", "old-group", TOPIC))
            if "consumer" in workloads:
                self.members.append(ConsumerMember(world, f"member{count}", "new-group", TOPIC))
            if "share" in workloads:
                self.members.append(ShareMember(world, f"sharer{count}", SHARE_GROUP, TOPIC))
            if "streams" in workloads:
                self.members.append(StreamsMember(world, f"streamer{count}", "streams-group", TOPIC))
        if "admin" in workloads:
            self.members.append(Administrator(world, "admin", TOPIC, self.partitions))
        if VOTERS in workloads:
            self.members.append(VoterOperator(world, "operator", VOTERS_FIRST))
        world.clients += [*self.producers, *self.readers, *self.writers, *self.copiers, *self.members]
        for client in world.clients:
            client.start()

    def _crash_client(self) -> None:
        """Producers are left alone: what they have acknowledged is what is judged."""
        mortal = [*self.readers, *self.writers, *self.copiers, *self.members]
        client = self.random.choice(mortal)
        if isinstance(client, TransactionalWriter | Copier) and self.random.random() < 0.6:
            if client.is_zombie:
                return
            self._replace(client)
            return
        self.world.tell(f"client {client.name} crashes and begins anew")
        client.crash()

    def _replace(self, client: TransactionalWriter | Copier) -> None:
        """A second process takes over, while the first one is still there."""
        self.world.tell(f"client {client.name} is taken for dead and replaced, but lives")
        successor = client.successor()
        if isinstance(successor, Copier):
            self.copiers.append(successor)
        else:
            self.writers.append(successor)
        self.world.clients.append(successor)
        successor.start()

    # ---- the end

    def _heal(self) -> None:
        """Everybody is back and the network is good: now there must be progress."""
        world = self.world
        world.tell("everything heals")
        self.faults.heal()
        world.pace_ms = HEALED_PACE_MS
        self._demand(world.is_healthy, HEALED_MS_MAX, "the cluster does not recover")
        before = {producer.name: producer.acknowledged for producer in self.producers}
        for producer in self.producers:
            producer.wanted += 2
            if producer.done:
                producer.start()
        self._demand(
            lambda: all(each.acknowledged > before[each.name] for each in self.producers),
            HEALED_MS_MAX,
            "nothing is acknowledged any more",
        )

    def _finish(self) -> None:
        world = self.world
        for writer in self.writers:
            writer.wanted = min(writer.wanted, 1)
        self._demand(lambda: all(each.done for each in self.producers), HEALED_MS_MAX, "the producers do not finish")
        self._demand(lambda: all(each.done for each in self.writers), HEALED_MS_MAX, "transactions do not finish")
        for copier in self.copiers:
            copier.until = self._end_of(copier.source)
        self._demand(lambda: all(each.done for each in self.copiers), HEALED_MS_MAX, "the copiers do not finish")
        self._demand(self._have_read_everything, HEALED_MS_MAX, "the readers do not get to the end")
        if "share" in self.workloads:
            self._demand(self._has_shared_everything, HEALED_MS_MAX, "the share group does not get everything")
        world.ending = True
        self._demand(lambda: all(each.done for each in world.clients), HEALED_MS_MAX, "the clients do not end")
        self._demand(world.is_healthy, HEALED_MS_MAX, "the cluster does not settle")
        if not world.run_until(lambda: world.differing_copies() is None, HEALED_MS_MAX):
            raise Broken(f"the copies of a partition do not become the same: {world.differing_copies()}")
        forgotten = world.forgotten_epoch()
        if forgotten is not None:
            raise Broken(f"a replica has forgotten a leader epoch: {forgotten}")
        world.history.judge({place: each for place, each in world.ledgers().items() if not place[0].startswith("__")})
        judge_tables(world)
        world.tell("the end")

    def _end_of(self, place: Place) -> int:
        return self.world.ledgers()[place].next_offset

    def _have_read_everything(self) -> bool:
        ledgers = self.world.ledgers()
        return all(each.position >= ledgers[each.place].next_offset for each in self.readers)

    def _has_shared_everything(self) -> bool:
        history = self.world.history
        return not any(
            history.share_left(SHARE_GROUP, place, ledger)
            for place, ledger in self.world.ledgers().items()
            if place[0] == TOPIC
        )

    def _demand(self, condition: Callable[[], bool], limit_ms: int, otherwise: str) -> None:
        if not self.world.run_until(condition, limit_ms):
            raise Broken(f"no progress: {otherwise} within {limit_ms} ms")
