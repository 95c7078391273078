"""Members of groups, classic and new (KIP-848), that read what they are given and commit how far they got.

A member that does not know what became of a commit joins again as somebody new: a request that is still under way
could otherwise set the offset back later, which is the client's fault and not the cluster's.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from moldau.ports import Unreachable
from moldau.protocol.errors import ErrorCode, error_code
from moldau.protocol.generated.wire.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from moldau.protocol.generated.wire.heartbeat_request import HeartbeatRequest
from moldau.protocol.generated.wire.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
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
from moldau.testing.simulation.client import GROUP, NO_COORDINATOR, Script
from moldau.testing.simulation.history import Place
from moldau.testing.simulation.readers import FetchingClient

if TYPE_CHECKING:
    from moldau.testing.simulation.world import Simulation

SESSION_MS = 1200
REBALANCE_MS = 1500
COMMIT_VERSION = 9


class OffsetClient(FetchingClient):
    def fetch_offset(self, group: str, place: Place) -> Script:
        """A group's committed offset, asked for until it is told; 0 when there is none."""
        history = self.world.history
        asked = OffsetFetchRequestGroup(
            group_id=group, topics=[OffsetFetchRequestTopics(name=place[0], partition_indexes=[place[1]])]
        )
        while True:
            known_before = history.committed_offsets.get((group, place), -1)
            request = OffsetFetchRequest(groups=[asked], require_stable=True)
            answer = yield from self.ask_coordinator(GROUP, group, request, 8)
            if not isinstance(answer, Unreachable):
                found = answer.groups[0]
                if found.error_code == ErrorCode.NONE:
                    partition = found.topics[0].partitions[0]
                    if partition.error_code == ErrorCode.NONE:
                        history.offset_fetched(group, place, partition.committed_offset, known_before)
                        return max(partition.committed_offset, 0)
                else:
                    self.forget_coordinator(GROUP, group)
            yield from self.rest()


class GroupMember(OffsetClient):
    def __init__(self, world: Simulation, name: str, group: str, topic: str) -> None:
        super().__init__(world, name)
        self.group = group
        self.topic = topic
        self.member_id = ""
        self.epoch = -1
        self.owned: list[Place] = []
        self._incarnation = 0

    def own(self, places: list[Place]) -> None:
        """From now on these are nobody else's in this epoch."""
        self.owned = places
        for place in places:
            self.world.history.owns(self.group, self.epoch, place, self.member_id)

    def consume(self) -> Script:
        """Read a little of everything that is owned, and commit; False when the member must join as somebody new."""
        for place in list(self.owned):
            position = yield from self.fetch_offset(self.group, place)
            got = yield from self.fetch(place, position, committed_only=False)
            if got is None or got[1] <= position:
                continue
            partition = OffsetCommitRequestPartition(partition_index=place[1], committed_offset=got[1])
            request = OffsetCommitRequest(
                group_id=self.group,
                generation_id_or_member_epoch=self.epoch,
                member_id=self.member_id,
                topics=[OffsetCommitRequestTopic(name=place[0], partitions=[partition])],
            )
            answer = yield from self.ask_coordinator(GROUP, self.group, request, COMMIT_VERSION)
            if isinstance(answer, Unreachable):
                return False
            code = error_code(answer.topics[0].partitions[0].error_code)
            if code is ErrorCode.NONE:
                self.world.history.offset_committed(self.group, place, got[1])
            elif code in NO_COORDINATOR:
                # It may have been appended and not be committed yet.
                self.forget_coordinator(GROUP, self.group)
                return False
            else:
                return True
        return True


class ClassicMember(GroupMember):
    def run(self) -> Script:
        self.member_id = ""
        while not self.world.ending:
            if not (yield from self._join()):
                yield from self.rest()
                continue
            while not self.world.ending:
                if not (yield from self.consume()):
                    self.member_id = ""
                    break
                if not (yield from self._is_current()):
                    break
                yield from self.sleep(100)
            self.owned = []

    def _join(self) -> Script:
        """Join and be given partitions; whether that came to be."""
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="simple", metadata=b"")],
        )
        answer = yield from self.ask_coordinator(GROUP, self.group, request, 9, timeout_ms=2 * REBALANCE_MS)
        if isinstance(answer, Unreachable):
            self.member_id = ""
            return False
        code = error_code(answer.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return (yield from self._join())
        if code is not ErrorCode.NONE:
            self._refused(code)
            return False
        self.member_id, self.epoch = answer.member_id, answer.generation_id
        assignments = []
        if answer.leader == self.member_id:
            assignments = yield from self._assign([each.member_id for each in answer.members])
        sync = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.epoch,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="simple",
            assignments=assignments,
        )
        synced = yield from self.ask_coordinator(GROUP, self.group, sync, 5, timeout_ms=2 * REBALANCE_MS)
        if isinstance(synced, Unreachable):
            self.member_id = ""
            return False
        if synced.error_code != ErrorCode.NONE:
            self._refused(error_code(synced.error_code))
            return False
        self.own([(self.topic, int(each)) for each in bytes(synced.assignment).decode().split(",") if each])
        return True

    def _assign(self, members: list[str]) -> Script:
        yield from self.leader_of(self.topic, 0)
        count = self.partition_count(self.topic)
        shares: dict[str, list[str]] = {member: [] for member in sorted(members)}
        order = list(shares)
        for index in range(count):
            shares[order[index % len(order)]].append(str(index))
        return [SyncGroupRequestAssignment(member, ",".join(share).encode()) for member, share in shares.items()]

    def _refused(self, code: ErrorCode) -> None:
        if code in NO_COORDINATOR:
            self.forget_coordinator(GROUP, self.group)
        elif code not in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            self.member_id = ""

    def _is_current(self) -> Script:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.epoch, member_id=self.member_id)
        answer = yield from self.ask_coordinator(GROUP, self.group, request, 4)
        if isinstance(answer, Unreachable):
            return True
        code = error_code(answer.error_code)
        if code is not ErrorCode.NONE:
            self._refused(code)
        return code is ErrorCode.NONE


class HeartbeatMember(GroupMember):
    """A member that stays one by heartbeats, whose answers also tell it what it has (KIP-848 and its relatives)."""

    HEARTBEAT_VERSION = 1

    def run(self) -> Script:
        yield from self.prepare()
        self.become_new()
        while not self.world.ending:
            if (yield from self._beat()) and not (yield from self.consume()):
                self.become_new()
            yield from self.pause()

    def prepare(self) -> Script:
        """What is to be done before the first heartbeat."""
        yield from ()

    @abstractmethod
    def heartbeat(self) -> Any:
        """The next heartbeat to be sent."""

    @abstractmethod
    def take(self, answer: Any) -> Script:
        """What a heartbeat was answered with."""

    def pause(self) -> Script:
        return self.sleep(100)

    def become_new(self) -> None:
        """Join as somebody whom the group does not know."""
        self._incarnation += 1
        self.member_id = f"{self.name}-{self.life}-{self._incarnation}"
        self.epoch = 0
        self.owned = []

    def _beat(self) -> Script:
        """Whether it is a member, as far as it knows."""
        answer = yield from self.ask_coordinator(GROUP, self.group, self.heartbeat(), self.HEARTBEAT_VERSION)
        if isinstance(answer, Unreachable):
            return False
        code = error_code(answer.error_code)
        if code is not ErrorCode.NONE:
            if code in NO_COORDINATOR:
                self.forget_coordinator(GROUP, self.group)
            else:
                self.become_new()
            return False
        self.epoch = answer.member_epoch
        yield from self.take(answer)
        return True

    def places_of(self, assignment: Any) -> Script:
        """The partitions that an answer names by the ids of their topics."""
        yield from self.leader_of(self.topic, 0)
        return [
            (self.topic_names[each.topic_id], index)
            for each in assignment.topic_partitions
            if each.topic_id in self.topic_names
            for index in each.partitions
        ]


class ConsumerMember(HeartbeatMember):
    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        owned: dict[bytes, list[int]] = {}
        for topic, index in self.owned:
            owned.setdefault(self.topic_ids[topic], []).append(index)
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=[self.topic] if self.epoch == 0 else None,
            topic_partitions=[TopicPartitions(topic, indexes) for topic, indexes in owned.items()],
        )

    def take(self, answer: Any) -> Script:
        if answer.assignment is not None:
            self.own((yield from self.places_of(answer.assignment)))
