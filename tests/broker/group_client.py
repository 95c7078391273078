"""A member of a classic group, and a few words to speak with the coordinator, for tests without sockets."""

from __future__ import annotations

from typing import Any

from broker_node import Client, SimulatedNode

from moldau.coordinator.group.classic.rebalances import GATHERING_MS
from moldau.ports import Pending
from moldau.protocol.generated.wire.find_coordinator_request import FindCoordinatorRequest
from moldau.protocol.generated.wire.heartbeat_request import HeartbeatRequest
from moldau.protocol.generated.wire.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.generated.wire.leave_group_request import LeaveGroupRequest, MemberIdentity
from moldau.protocol.generated.wire.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.generated.wire.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.protocol.generated.wire.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment

SESSION_MS = 10_000
REBALANCE_MS = 60_000
# After this time the first rebalance of a group is over when all of its members came at the beginning.
GATHERED_MS = 2 * GATHERING_MS


def subscription(*topics: str) -> bytes:
    """What consumers of version 0 say about themselves."""
    names = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


def with_groups(**settings: str) -> SimulatedNode:
    """A node whose offsets topic exists, with one partition."""
    # Transactions are begun by the tests themselves, without a coordinator that could vouch for them.
    node = SimulatedNode(
        **{"offsets_topic_num_partitions": "1", "transaction_partition_verification_enable": "false", **settings}
    )
    assert node.client.send(FindCoordinatorRequest(key="any"), 3).error_code == 0
    return node


class Member:
    """One client of one group; remembers its id and generation as a client library does."""

    def __init__(
        self,
        node: SimulatedNode,
        group: str = "group",
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"metadata"),),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 9,
    ) -> None:
        self.client = Client(node)
        self.node = node
        self.group = group
        self.instance = instance
        self.protocols = protocols
        self.protocol_type = protocol_type
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.version = version
        self.id = ""
        self.generation = -1
        self.joined: Any = None

    def post_join(self) -> Pending[Any]:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.id,
            group_instance_id=self.instance if self.version >= 5 else None,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name, metadata) for name, metadata in self.protocols],
        )
        answer = self.client.post(request, self.version)
        answer.then(self._joined)
        return answer

    def _joined(self, response: Any) -> None:
        self.joined = response
        if response.error_code in (0, 79):
            self.id = response.member_id
        if response.error_code == 0:
            self.generation = response.generation_id

    def join(self) -> Pending[Any]:
        """Join, with the id that is given first where one is."""
        answer = self.post_join()
        if answer.done and answer.value.error_code == 79:
            answer = self.post_join()
        return answer

    def join_now(self) -> Any:
        answer = self.join()
        self.node.clock.advance(GATHERED_MS)
        assert answer.done, "the rebalance is not over"
        return answer.value

    def post_sync(self, assignments: dict[str, bytes] | None = None, **changes: Any) -> Pending[Any]:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance,
            assignments=[SyncGroupRequestAssignment(*each) for each in (assignments or {}).items()],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return self.client.post(request, 5)

    def sync(self, assignments: dict[str, bytes] | None = None, **changes: Any) -> Any:
        answer = self.post_sync(assignments, **changes)
        assert answer.done, "nobody has brought the assignment yet"
        return answer.value

    def heartbeat(self, generation: int | None = None) -> int:
        request = HeartbeatRequest(
            self.group, self.generation if generation is None else generation, self.id, self.instance
        )
        code: int = self.client.send(request, 4).error_code
        return code

    def leave(self) -> Any:
        identity = MemberIdentity(self.id, self.instance)
        return self.client.send(LeaveGroupRequest(group_id=self.group, members=[identity]), 5)

    def commit(self, topic: str, partition: int, offset: int, **how: Any) -> int:
        how = {"member": self.id, "generation": self.generation, "instance": self.instance, **how}
        return commit(self.client, self.group, topic, partition, offset, **how)


def stable(node: SimulatedNode, *members: Member) -> None:
    """Bring these members (and nobody else) into one generation, each with its own number as assignment."""
    answers = [member.join() for member in members]
    node.clock.advance(GATHERED_MS)
    assert all(answer.done and answer.value.error_code == 0 for answer in answers), [a.done for a in answers]
    leader = next(member for member in members if member.joined.leader == member.id)
    waiting = [member.post_sync() for member in members if member is not leader]
    leader.sync({member.id: str(number).encode() for number, member in enumerate(members)})
    assert all(answer.done and answer.value.error_code == 0 for answer in waiting)


def commit(
    client: Client,
    group: str,
    topic: str,
    partition: int,
    offset: int,
    *,
    member: str = "",
    generation: int = -1,
    instance: str | None = None,
    metadata: str | None = "",
    leader_epoch: int = -1,
    version: int = 9,
    retention_ms: int = -1,
) -> int:
    asked = OffsetCommitRequestTopic(
        name=topic, partitions=[OffsetCommitRequestPartition(partition, offset, leader_epoch, metadata)]
    )
    if version >= 10:
        known = client.node.services.image.topic(topic)
        asked.topic_id, asked.name = (known.id if known is not None else b"?" * 16), ""
    request = OffsetCommitRequest(group, generation, member, instance, retention_ms, [asked])
    (answered,) = client.send(request, version).topics
    (result,) = answered.partitions
    assert (answered.name, answered.topic_id) == (asked.name, asked.topic_id)
    assert result.partition_index == partition
    code: int = result.error_code
    return code


def fetch(
    client: Client,
    group: str,
    topics: dict[str, list[int]] | None = None,
    *,
    require_stable: bool = False,
    version: int = 9,
) -> Any:
    """The answer for one group; {topic: {partition: (offset, epoch, metadata, error)}} with its own error."""
    asked = None
    if topics is not None:
        asked = [OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in topics.items()]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=asked)], require_stable=require_stable
    )
    (answer,) = client.send(request, version).groups
    assert answer.group_id == group
    return answer


def offsets(answer: Any) -> dict[tuple[str, int], int]:
    """Committed offsets of an OffsetFetch answer, -1 where there are none."""
    assert answer.error_code == 0
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in answer.topics
        for each in topic.partitions
    }
