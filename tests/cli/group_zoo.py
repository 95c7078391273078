"""Groups of every type with members that stay, for commands to look at."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer, ShareConsumer, TopicPartition

from moldau.client.admin import Admin
from moldau.client.coordinators import find_coordinators
from moldau.protocol.errors import ApiError
from moldau.protocol.generated.wire.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    Topology,
)

JOIN_SECONDS = 30.0


def consumer(servers: str, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def commit(servers: str, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Make a group that has offsets and never had a member."""
    committer = consumer(servers, group)
    wanted = [TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
    committer.commit(offsets=wanted, asynchronous=False)
    committer.close()


@contextmanager
def member(servers: str, group: str, topic: str, **settings: object) -> Iterator[Consumer]:
    """A member that has its partitions."""
    joined = consumer(servers, group, **settings)
    joined.subscribe([topic])
    deadline = time.monotonic() + JOIN_SECONDS
    while not joined.assignment():
        assert time.monotonic() < deadline, f"nobody assigned anything to a member of {group}"
        joined.poll(0.1)
    joined.pause(joined.assignment())
    try:
        yield joined
    finally:
        joined.close()


@contextmanager
def share_member(servers: str, group: str, topic: str) -> Iterator[ShareConsumer]:
    """A member of a share group that has read once."""
    joined = ShareConsumer({"bootstrap.servers": servers, "group.id": group, "client.id": "sharer", "log_level": 0})
    joined.subscribe([topic])
    joined.poll(5.0)
    try:
        yield joined
    finally:
        joined.close()


class StreamsMember:
    """A member of a streams group with one subtopology, kept by hand."""

    def __init__(self, servers: str, group: str, topic: str) -> None:
        self._admin = Admin(servers)
        self._group = group
        topology = Topology(epoch=1, subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])])
        first = StreamsGroupHeartbeatRequest(
            group_id=group,
            member_id="member-1",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            topology=topology,
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="process-1",
            client_tags=[],
        )
        answer = self._beat(first)
        deadline = time.monotonic() + JOIN_SECONDS
        owned: list[TaskIds] = []
        while not answer.active_tasks and not owned:
            assert time.monotonic() < deadline, f"no tasks for the member of {group}"
            time.sleep(0.1)
            answer = self._beat(self._again(answer.member_epoch))
        owned = [
            TaskIds(subtopology_id=each.subtopology_id, partitions=each.partitions) for each in answer.active_tasks
        ]
        self._beat(
            self._again(answer.member_epoch, active_tasks=owned, standby_tasks=[], warmup_tasks=[]),
        )
        self.epoch = answer.member_epoch

    def _again(self, epoch: int, **more: object) -> StreamsGroupHeartbeatRequest:
        request = StreamsGroupHeartbeatRequest(group_id=self._group, member_id="member-1", member_epoch=epoch)
        for name, value in more.items():
            setattr(request, name, value)
        return request

    def _beat(self, request: StreamsGroupHeartbeatRequest):  # type: ignore[no-untyped-def]
        deadline = time.monotonic() + JOIN_SECONDS
        while True:
            node = find_coordinators(self._admin, [self._group], self._admin.deadline())[self._group]
            if not isinstance(node, ApiError):
                answer = self._admin.ask_node(node.node_id, request, codes=lambda reply: [reply.error_code])
                assert answer.error_code == 0, answer
                return answer
            assert time.monotonic() < deadline, node
            time.sleep(0.1)

    def leave(self) -> None:
        self._beat(self._again(-1))
        self._admin.close()
