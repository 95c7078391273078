"""The power goes: everything that was not synced may be lost, in part, torn anywhere. The whole broker on a simulated
disk, again and again.

What must survive: every decision of the controller that was confirmed, and every acknowledged record of a topic that
syncs each one (`flush.messages=1`). Of other topics a prefix survives, as in Kafka, where replicas would have the rest.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.generated.wire.metadata_request import MetadataRequest
from tests.broker.broker_node import SimulatedNode, batch, fetch_request, produce_request, values_of

LIVES = 12
STEPS = 30


class World:
    """A node whose power goes, and what its clients were told."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.node = SimulatedNode(seed=seed)
        # Topic -> (whether it syncs each record, what was acknowledged, what was sent)
        self.topics: dict[str, tuple[bool, list[bytes], list[bytes]]] = {}
        self.gone: set[str] = set()
        self.number = 0

    def live(self) -> None:
        """Some changes; the last ones may find their syncs still under way when the power goes."""
        for _ in range(self.chance.randrange(STEPS)):
            self.step()
        self.node.disk.hold_syncs = True
        for _ in range(self.chance.randrange(5)):
            self.step()

    def step(self) -> None:
        action = self.chance.choice((self.create, self.write, self.write, self.write, self.write, self.delete))
        action()

    def create(self) -> None:
        name = f"topic-{self.number}"
        self.number += 1
        synced = bool(self.chance.randrange(2))
        if self.node.disk.hold_syncs:
            return
        settings = {"segment_bytes": "1048576", "index_interval_bytes": "100"}
        if synced:
            settings["flush_messages"] = "1"
        self.node.create_topic(name, 1, **settings)
        self.topics[name] = (synced, [], [])

    def write(self) -> None:
        if not self.topics:
            return
        name = self.chance.choice(list(self.topics))
        _, acknowledged, sent = self.topics[name]
        value = f"{name}/{len(sent)}".encode() * self.chance.choice((1, 50, 3000))
        sent.append(value)
        request = produce_request(name, batch(value, codec=self.chance.randrange(5)), version=9)
        promise = self.node.client.post(request, 9)

        def answered(answer: Any) -> None:
            code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
            assert code is ErrorCode.NONE, code
            acknowledged.append(value)

        promise.then(answered)

    def delete(self) -> None:
        if not self.topics or self.node.disk.hold_syncs:
            return
        name = self.chance.choice(list(self.topics))
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
        assert self.node.client.send(request, 6).responses[0].error_code == 0
        del self.topics[name]
        self.gone.add(name)

    def lose_power(self) -> None:
        self.node.disk.finish_syncs(self.chance.randrange(3))
        self.node.disk.crash(self.chance if self.chance.randrange(4) else None)
        self.node.disk.hold_syncs = False
        self.node._start()

    def check(self) -> None:
        known = {topic.name for topic in self.node.client.send(MetadataRequest(topics=None), 12).topics}
        assert known == set(self.topics), "a confirmed decision is lost"
        for name, (synced, acknowledged, sent) in self.topics.items():
            fetched = self.node.client.send(fetch_request(name, 0, version=11, partition_max_bytes=50 << 20), 11)
            partition = fetched.responses[0].partitions[0]
            assert partition.error_code == 0
            found = values_of(partition.records)
            assert found == sent[: len(found)], f"{name}: something else than a prefix survived"
            if synced:
                assert found[: len(acknowledged)] == acknowledged, f"{name}: an acknowledged record is lost"
            # What is lost was lost for good: the next record takes its place.
            del sent[len(found) :]
            acknowledged[:] = sent


@pytest.mark.parametrize("seed", range(8))
def test_confirmed_decisions_and_synced_records_survive(seed: int) -> None:
    world = World(seed)
    for _ in range(LIVES):
        world.live()
        world.lose_power()
        world.check()
    assert world.number > LIVES / 2
