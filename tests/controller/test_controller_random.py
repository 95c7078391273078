"""Random sequences of requests, heartbeats, silences and restarts: what must hold for every partition holds."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from controller_world import ControllerWorld
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.metadata.image import NO_LEADER, NO_PROVENANCE, PartitionRegistration
from moldau.metadata.replay import ImageBuilder
from moldau.protocol.generated.wire import alter_partition_request
from moldau.protocol.generated.wire.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.generated.wire.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from moldau.protocol.generated.wire.alter_partition_request import AlterPartitionRequest, BrokerState
from moldau.protocol.generated.wire.alter_partition_response import AlterPartitionResponse
from moldau.protocol.generated.wire.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from moldau.protocol.generated.wire.create_partitions_response import CreatePartitionsResponse
from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.generated.wire.delete_topics_response import DeleteTopicsResponse
from moldau.protocol.generated.wire.elect_leaders_request import ElectLeadersRequest
from moldau.protocol.generated.wire.elect_leaders_response import ElectLeadersResponse
from moldau.protocol.generated.wire.unregister_broker_request import UnregisterBrokerRequest
from moldau.protocol.generated.wire.unregister_broker_response import UnregisterBrokerResponse

BROKERS = range(1, 5)


class Life:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        elr = self.random.choice([0, 1])
        self.elr = elr == 1
        self.world = ControllerWorld(
            features={"eligible.leader.replicas.version": elr}, min_insync_replicas=str(self.random.randint(1, 2))
        )
        self.incarnations = dict.fromkeys(BROKERS, 0)
        self.before: dict[tuple[bytes, int], PartitionRegistration] = {}

    def live(self, steps: int) -> None:
        actions = [
            self.come_back,
            self.come_back,
            self.beat,
            self.beat,
            self.stop,
            self.wait,
            self.create,
            self.delete,
            self.alter,
            self.alter,
            self.alter,
            self.reassign,
            self.elect,
            self.grow,
            self.unregister,
            self.restart,
        ]
        for _ in range(steps):
            self.random.choice(actions)()
            self.check()

    def broker(self) -> int:
        return self.random.choice(BROKERS)

    def come_back(self) -> None:
        broker = self.broker()
        self.incarnations[broker] += 1
        known = self.world.epochs.get(broker, -1)
        cleanly = self.random.random() < 0.5
        self.world.register(
            broker, incarnation=self.incarnations[broker] % 250, previous_epoch=known if cleanly else -1
        )

    def beat(self) -> None:
        for broker in self.world.epochs:
            if self.random.random() < 0.8:
                self.world.heartbeat(broker)

    def stop(self) -> None:
        if self.world.epochs:
            self.world.heartbeat(self.random.choice(list(self.world.epochs)), want_shut_down=True)

    def wait(self) -> None:
        self.world.clock.advance(self.random.randint(100, 6000))

    def create(self) -> None:
        unclean = self.random.random() < 0.2
        configs: dict[str, str | None] = {"unclean.leader.election.enable": "true"} if unclean else {}
        name = f"t{self.random.randrange(4)}{'-unclean' if unclean else ''}"
        self.world.create(name, self.random.randint(1, 4), self.random.randint(1, 3), configs=configs)

    def topic(self) -> str | None:
        names = list(self.world.image.topics_by_name)
        return self.random.choice(names) if names else None

    def delete(self) -> None:
        name = self.topic()
        if name is not None and self.random.random() < 0.3:
            self.world.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]), DeleteTopicsResponse)

    def alter(self) -> None:
        """A leader that knows the truth proposes any in-sync set it can think of."""
        name = self.topic()
        if name is None:
            return
        index = self.random.choice(list(self.world.image.topics_by_name[name].partitions))
        partition = self.world.partition(name, index)
        if partition.leader == NO_LEADER:
            return
        members = [r for r in partition.replicas if r == partition.leader or self.random.random() < 0.6]
        data = alter_partition_request.PartitionData(
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=m, broker_epoch=self.world.epochs.get(m, 0)) for m in members],
            leader_recovery_state=0,
        )
        topic = alter_partition_request.TopicData(topic_id=self.world.image.topics_by_name[name].id, partitions=[data])
        request = AlterPartitionRequest(
            broker_id=partition.leader, broker_epoch=self.world.epochs[partition.leader], topics=[topic]
        )
        self.world.ask(request, AlterPartitionResponse)

    def reassign(self) -> None:
        name = self.topic()
        if name is None:
            return
        replicas = self.random.sample(list(BROKERS), self.random.randint(1, 3))
        target = None if self.random.random() < 0.3 else replicas
        partition = ReassignablePartition(partition_index=0, replicas=target)
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=name, partitions=[partition])])
        self.world.ask(request, AlterPartitionReassignmentsResponse)

    def elect(self) -> None:
        self.world.ask(ElectLeadersRequest(election_type=0, topic_partitions=None), ElectLeadersResponse)

    def grow(self) -> None:
        """One more partition, sometimes exactly where somebody wants it."""
        name = self.topic()
        if name is None:
            return
        partitions = self.world.image.topics_by_name[name].partitions
        factor = len(partitions[0].replicas)
        wanted = self.random.sample(list(BROKERS), min(factor, len(BROKERS)))
        assignments = [CreatePartitionsAssignment(broker_ids=wanted)] if self.random.random() < 0.5 else None
        grown = CreatePartitionsTopic(name=name, count=len(partitions) + 1, assignments=assignments)
        self.world.ask(CreatePartitionsRequest(topics=[grown]), CreatePartitionsResponse)

    def unregister(self) -> None:
        if self.random.random() < 0.3:
            broker = self.broker()
            self.world.ask(UnregisterBrokerRequest(broker_id=broker), UnregisterBrokerResponse)
            self.world.epochs.pop(broker, None)

    def restart(self) -> None:
        if self.random.random() < 0.5:
            image = self.world.image
            if self.random.random() < 0.5:
                self.world.restart()
            else:
                self.world.crash(self.random)
            assert replace(self.world.image, provenance=NO_PROVENANCE) == replace(image, provenance=NO_PROVENANCE)

    # ---- what must always hold

    def check(self) -> None:
        image = self.world.image
        now: dict[tuple[bytes, int], PartitionRegistration] = {}
        for topic in image.topics_by_id.values():
            for index, partition in topic.partitions.items():
                now[topic.id, index] = partition
                self.check_partition(topic.name, partition)
                before = self.before.get((topic.id, index))
                if before is not None:
                    self.check_change(topic.name, before, partition)
        self.before = now

    def check_partition(self, topic: str, partition: PartitionRegistration) -> None:
        replicas, isr, elr = set(partition.replicas), set(partition.isr), set(partition.elr)
        assert len(replicas) == len(partition.replicas) == len(partition.directories)
        assert isr | elr <= replicas
        assert not isr & elr
        adding, removing = set(partition.adding_replicas), set(partition.removing_replicas)
        assert adding | removing <= replicas
        assert not adding & removing
        assert replicas - removing, f"{topic} would be left without replicas"
        if partition.leader != NO_LEADER:
            assert partition.leader in isr
            broker = self.world.image.brokers[partition.leader]
            assert broker.is_active, f"{topic} is led by broker {broker.id}, which is not in service"
        if not self.elr:
            assert isr
            assert not elr
        for member in isr:
            active = member in self.world.image.brokers and self.world.image.brokers[member].is_active
            assert active or (not self.elr and len(isr) == 1), f"{topic}: broker {member} is in sync but out of service"

    def check_change(self, topic: str, before: PartitionRegistration, after: PartitionRegistration) -> None:
        assert after.partition_epoch >= before.partition_epoch
        assert after.leader_epoch >= before.leader_epoch
        if after != before:
            assert after.partition_epoch > before.partition_epoch
        if after.leader != before.leader:
            assert after.leader_epoch > before.leader_epoch
            clean = set(before.isr) | set(before.elr) | set(before.last_known_elr) | {NO_LEADER}
            steps = after.partition_epoch - before.partition_epoch
            if steps == 1 and not topic.endswith("-unclean"):
                assert after.leader in clean | set(after.isr)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_every_partition_stays_sound(seed: int) -> None:
    life = Life(seed)
    life.live(60)
    builder = ImageBuilder()
    builder.replay_all(life.world.image.records())
    again, _ = builder.build(NO_PROVENANCE)
    assert again == replace(life.world.image, provenance=NO_PROVENANCE)
