"""An administrator: makes, grows and removes topics, moves replicas and leaders, changes settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moldau.ports import Unreachable
from moldau.protocol.errors import ErrorCode, error_code
from moldau.protocol.generated.wire.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.generated.wire.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.generated.wire.create_topics_request import CreatableTopic, CreateTopicsRequest
from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.generated.wire.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from moldau.protocol.generated.wire.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.testing.simulation.client import Client, Script
from moldau.testing.simulation.ledger import Broken

if TYPE_CHECKING:
    from moldau.testing.simulation.world import Simulation

ADMIN_MS = 2000
TOPIC_RESOURCE = 2
SET = 0
PREFERRED = 0


class TopicMaker(Client):
    """Makes the topics that the other clients need."""

    def __init__(self, world: Simulation, topics: list[CreatableTopic]) -> None:
        super().__init__(world, "maker")
        self._topics = topics

    def run(self) -> Script:
        left = {topic.name: topic for topic in self._topics}
        while left:
            request = CreateTopicsRequest(topics=list(left.values()), timeout_ms=ADMIN_MS)
            answer = yield from self.ask(self.any_broker(), request, 7, timeout_ms=2 * ADMIN_MS)
            if not isinstance(answer, Unreachable):
                for topic in answer.topics:
                    if topic.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                        left.pop(topic.name, None)
            if left:
                yield from self.rest()


def create_topics(world: Simulation, topics: list[CreatableTopic]) -> TopicMaker:
    maker = TopicMaker(world, topics)
    maker.start()
    return maker


class Administrator(Client):
    def __init__(self, world: Simulation, name: str, topic: str, partitions: int) -> None:
        super().__init__(world, name)
        self._topic = topic
        self._partitions = partitions
        self._made = 0
        # What must be so at the end; a topic about which nobody can be sure is not here.
        self._exists: dict[str, bool] = {}
        self._retention_ms: str | None = None

    def run(self) -> Script:
        kinds = (self._create, self._delete, self._grow, self._move, self._elect, self._configure)
        while not self.world.ending:
            yield from kinds[int(self.random.random() * len(kinds))]()
            yield from self.sleep(100 + int(self.random.random() * 300))
        self._judge()

    def _judge(self) -> None:
        topics = self.world.rules.truth.topics_by_name
        for name, exists in self._exists.items():
            if exists != (name in topics):
                raise Broken(
                    f"the controller said that topic {name} {'was made' if exists else 'is gone'}; it is not so"
                )

    def _ask(self, request: Any, version: int) -> Script:
        return self.ask(self.any_broker(), request, version, timeout_ms=2 * ADMIN_MS)

    def _create(self) -> Script:
        self._made += 1
        name = f"extra{self.life}-{self._made}"
        request = CreateTopicsRequest(topics=[CreatableTopic(name, 1, 3)], timeout_ms=ADMIN_MS)
        answer = yield from self._ask(request, 7)
        if not isinstance(answer, Unreachable) and answer.topics[0].error_code == ErrorCode.NONE:
            self._exists[name] = True

    def _delete(self) -> Script:
        present = [name for name, exists in self._exists.items() if exists]
        if not present:
            return
        name = present[int(self.random.random() * len(present))]
        del self._exists[name]
        answer = yield from self._ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=ADMIN_MS), 6)
        if not isinstance(answer, Unreachable) and answer.responses[0].error_code == ErrorCode.NONE:
            self._exists[name] = False

    def _grow(self) -> Script:
        present = [name for name, exists in self._exists.items() if exists]
        if present:
            request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(present[0], 2, None)], timeout_ms=ADMIN_MS)
            yield from self._ask(request, 3)

    def _move(self) -> Script:
        nodes = sorted(self.world.nodes)
        self.random.shuffle(nodes)
        index = int(self.random.random() * self._partitions)
        topic = ReassignableTopic(self._topic, [ReassignablePartition(index, nodes[:3])])
        self.world.tell(f"{self.name} moves {self._topic}-{index} to {nodes[:3]}")
        yield from self._ask(AlterPartitionReassignmentsRequest(timeout_ms=ADMIN_MS, topics=[topic]), 0)

    def _elect(self) -> Script:
        topics = [TopicPartitions(self._topic, list(range(self._partitions)))]
        request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=topics, timeout_ms=ADMIN_MS)
        yield from self._ask(request, 2)

    def _configure(self) -> Script:
        value = str(10**9 + int(self.random.random() * 1000))
        config = AlterableConfig("retention.ms", SET, value)
        resource = AlterConfigsResource(TOPIC_RESOURCE, self._topic, [config])
        answer = yield from self._ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        if not isinstance(answer, Unreachable):
            code = error_code(answer.responses[0].error_code)
            if code is ErrorCode.INVALID_CONFIG:
                raise Broken(f"retention.ms={value} is refused")
