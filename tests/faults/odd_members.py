"""Members of groups that freeze, come back as zombies, never do their duty, or come by the thousand (`odd_clients`)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.consumer_group_describe_request import ConsumerGroupDescribeRequest
from moldau.protocol.generated.wire.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from moldau.protocol.generated.wire.find_coordinator_request import FindCoordinatorRequest
from moldau.protocol.generated.wire.heartbeat_request import HeartbeatRequest
from moldau.protocol.generated.wire.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.generated.wire.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.generated.wire.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.generated.wire.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.security.wire_client import WireClient, ask

GROUP_KEY = 0
JOIN, SYNC, HEARTBEAT, COMMIT, NEXT_HEARTBEAT = 9, 5, 4, 9, 1
GROUP_RESOURCE, SET = 32, 0
# What classic members commit offsets for.
OFFSETS_TOPIC = "odd-offsets"
PROTOCOL, PROTOCOL_TYPE = "p", "odd"
SECONDS_MAX = 60.0

Create = Callable[..., None]
Transcript = list[str]


def await_coordinator(servers: str, group: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    request = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[group])
    while ask(servers, request, 4).coordinators[0].error_code:
        assert time.monotonic() < deadline, "there is no coordinator"
        time.sleep(0.05)
    loading = HeartbeatRequest(group_id=group, generation_id=1, member_id="nobody")
    while ErrorCode(ask(servers, loading, HEARTBEAT).error_code) is not ErrorCode.UNKNOWN_MEMBER_ID:
        assert time.monotonic() < deadline, "the coordinator does not answer"
        time.sleep(0.05)


class ClassicMember:
    """A member of a classic group on a connection of its own."""

    def __init__(self, servers: str, group: str, *, session_ms: int = 60_000, rebalance_ms: int = 60_000) -> None:
        self.wire = WireClient(servers, timeout=SECONDS_MAX)
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.leader = ""
        self._times = (session_ms, rebalance_ms)
        self._last: Any = None

    def send(self, request: Any, version: int) -> None:
        self._last = (request, version)
        self.wire.send(self.wire.encode(request, version))

    def answer(self) -> Any:
        return self.wire.answer_to(*self._last)

    # ---- joining takes two requests: the first only gives an id

    def begin_to_join(self) -> None:
        session_ms, rebalance_ms = self._times
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=b"")],
        )
        self.send(request, JOIN)

    def get_id(self) -> ErrorCode:
        self.begin_to_join()
        answer = self.answer()
        self.member_id = answer.member_id
        return ErrorCode(answer.error_code)

    def finish_join(self) -> ErrorCode:
        answer = self.answer()
        self.generation, self.leader = answer.generation_id, answer.leader
        return ErrorCode(answer.error_code)

    def join(self) -> ErrorCode:
        if not self.member_id:
            self.get_id()
        self.begin_to_join()
        return self.finish_join()

    # ---- the rest

    @property
    def leads(self) -> bool:
        return self.leader == self.member_id

    def begin_to_sync(self, assignments: dict[str, bytes]) -> None:
        given = [SyncGroupRequestAssignment(member_id=each, assignment=data) for each, data in assignments.items()]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=given,
        )
        self.send(request, SYNC)

    def sync(self, assignments: dict[str, bytes] | None = None) -> ErrorCode:
        self.begin_to_sync(assignments or {})
        return ErrorCode(self.answer().error_code)

    def heartbeat(self, generation: int | None = None) -> ErrorCode:
        number = self.generation if generation is None else generation
        request = HeartbeatRequest(group_id=self.group, generation_id=number, member_id=self.member_id)
        self.send(request, HEARTBEAT)
        return ErrorCode(self.answer().error_code)

    def commit(self, generation: int | None = None) -> ErrorCode:
        number = self.generation if generation is None else generation
        return commit(self.wire, self.group, self.member_id, number, OFFSETS_TOPIC)

    def close(self) -> None:
        self.wire.close()


def commit(wire: WireClient, group: str, member_id: str, epoch: int, topic: str) -> ErrorCode:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    return ErrorCode(wire.ask(request, COMMIT).topics[0].partitions[0].error_code)


def until(wanted: ErrorCode, ask_again: Callable[[], ErrorCode]) -> ErrorCode:
    """The wanted answer, or the last one when it never came."""
    deadline = time.monotonic() + SECONDS_MAX / 2
    while (code := ask_again()) is not wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return code


def classic_pair(
    servers: str, group: str, *, leader_rebalance_ms: int = 60_000, **times: int
) -> tuple[ClassicMember, ClassicMember]:
    """A leader and a follower in one generation, not yet synced. The times are the follower's."""
    await_coordinator(servers, group)
    leader = ClassicMember(servers, group, rebalance_ms=leader_rebalance_ms)
    follower = ClassicMember(servers, group, **times)
    assert leader.join() is ErrorCode.NONE
    assert leader.sync({leader.member_id: b"l"}) is ErrorCode.NONE
    rejoin_with([leader], [follower])
    assert leader.leads, "the first one leads"
    return leader, follower


def rejoin_with(members: list[ClassicMember], newcomers: list[ClassicMember]) -> None:
    """Newcomers join; the members hear of it and join again; all are in one generation then."""
    for each in newcomers:
        assert each.get_id() is ErrorCode.MEMBER_ID_REQUIRED
    for each in newcomers:
        each.begin_to_join()
    for each in members:
        assert until(ErrorCode.REBALANCE_IN_PROGRESS, each.heartbeat) is ErrorCode.REBALANCE_IN_PROGRESS
    for each in members:
        each.begin_to_join()
    codes = {each.finish_join() for each in (*members, *newcomers)}
    assert codes == {ErrorCode.NONE}, codes


def classic_zombie(servers: str, create: Create) -> Transcript:
    """A member with the generation of before the last rebalance, and one with an id that is no more."""
    create(servers, OFFSETS_TOPIC)
    group = "classic-zombie"
    leader, zombie = classic_pair(servers, group)
    leader.sync({zombie.member_id: b"z"})
    zombie.sync()
    old = zombie.generation
    said = [f"commit: {zombie.commit().name}"]
    newcomer = ClassicMember(servers, group)
    newcomer.get_id()
    newcomer.begin_to_join()
    said.append(f"heartbeat while others join: {until(ErrorCode.REBALANCE_IN_PROGRESS, zombie.heartbeat).name}")
    said.append(f"commit while others join: {zombie.commit().name}")
    leader.begin_to_join()
    zombie.begin_to_join()
    said.append(f"joins again: {leader.finish_join().name} {zombie.finish_join().name} {newcomer.finish_join().name}")
    said.append(f"commit before the sync: {zombie.commit().name}")
    said.append(f"commit of the old generation: {zombie.commit(old).name}")
    said.append(f"heartbeat of the old generation: {zombie.heartbeat(old).name}")
    leader.sync({zombie.member_id: b"z"})
    said.append(f"sync: {zombie.sync().name}")
    said.append(f"commit of the old generation after it: {zombie.commit(old).name}")
    said.append(f"commit of a generation to come: {zombie.commit(zombie.generation + 1).name}")
    zombie.member_id = "nobody"
    said.append(f"unknown member commits: {zombie.commit().name}")
    said.append(f"unknown member's heartbeat: {zombie.heartbeat().name}")
    said.append(f"unknown member syncs: {zombie.sync().name}")
    for each in (leader, zombie, newcomer):
        each.close()
    return said


def classic_frozen(servers: str, create: Create) -> Transcript:
    """A member says nothing for longer than its session lasts, and then goes on as if nothing had been."""
    create(servers, OFFSETS_TOPIC)
    leader, frozen = classic_pair(servers, "classic-frozen", session_ms=1000)
    leader.sync({frozen.member_id: b"f"})
    said = [f"sync: {frozen.sync().name}", f"heartbeat: {frozen.heartbeat().name}"]
    said.append(f"the others are told: {until(ErrorCode.REBALANCE_IN_PROGRESS, leader.heartbeat).name}")
    said.append(f"heartbeat after the freeze: {frozen.heartbeat().name}")
    said.append(f"commit after the freeze: {frozen.commit().name}")
    said.append(f"sync after the freeze: {frozen.sync().name}")
    frozen.begin_to_join()
    said.append(f"joins with its old id: {frozen.finish_join().name}")
    frozen.member_id = ""
    said.append(f"asks for a new one: {frozen.get_id().name}")
    frozen.begin_to_join()
    time.sleep(0.1)
    leader.begin_to_join()
    said.append(f"joins: {leader.finish_join().name} {frozen.finish_join().name}")
    leader.close()
    frozen.close()
    return said


def leader_never_syncs(servers: str, create: Create) -> Transcript:
    """The leader computes no assignment: the follower must not wait for ever."""
    create(servers, OFFSETS_TOPIC)
    leader, follower = classic_pair(servers, "never-syncs", rebalance_ms=1500, leader_rebalance_ms=1500)
    follower.begin_to_sync({})
    said = []
    said.append(f"the leader's heartbeat meanwhile: {leader.heartbeat().name}")
    said.append(f"the follower's sync, in the end: {ErrorCode(follower.answer().error_code).name}")
    said.append(f"the leader's heartbeat: {until(ErrorCode.UNKNOWN_MEMBER_ID, leader.heartbeat).name}")
    said.append(f"the leader's sync: {leader.sync({follower.member_id: b''}).name}")
    said.append(f"the leader's commit: {leader.commit().name}")
    said.append(f"the follower joins again: {follower.join().name}, and leads: {follower.leads}")
    said.append(f"and syncs: {follower.sync({follower.member_id: b'x'}).name}")
    leader.close()
    follower.close()
    return said


def classic_crowd(servers: str, size: int) -> Transcript:
    """Very many members come at once; each is asked to join with the id it gets, all end in one generation."""
    group = "classic-crowd"
    await_coordinator(servers, group)
    members = [ClassicMember(servers, group) for _ in range(size)]
    first, *crowd = members
    try:
        first.join()
        first.sync({first.member_id: b"a"})
        for each in crowd:
            each.begin_to_join()
        refused: Counter[str] = Counter()
        for each in crowd:
            answer = each.answer()
            each.member_id = answer.member_id
            refused[ErrorCode(answer.error_code).name] += 1
        said = [f"without an id: {dict(refused)}"]
        for each in crowd:
            each.begin_to_join()
        said.append(f"the first one is told: {until(ErrorCode.REBALANCE_IN_PROGRESS, first.heartbeat).name}")
        first.begin_to_join()
        said.append(f"with an id: {dict(Counter(each.finish_join().name for each in members))}")
        said.append(f"generations: {len({each.generation for each in members})}")
        leaders = [each for each in members if each.leads]
        said.append(f"leaders: {len(leaders)}")
        for each in members:
            each.begin_to_sync({other.member_id: b"a" for other in members} if each.leads else {})
        answers = [each.answer() for each in members]
        said.append(f"syncs: {dict(Counter(ErrorCode(each.error_code).name for each in answers))}")
        said.append(f"with an assignment: {sum(each.assignment == b'a' for each in answers)}")
        said.append(f"heartbeats: {dict(Counter(each.heartbeat().name for each in members))}")
        return said
    finally:
        for each in members:
            each.close()


# ---- KIP-848


class NextMember:
    """A member of a consumer group, which takes over what it is given at once."""

    def __init__(self, servers: str, group: str, topic: str, wire: WireClient | None = None) -> None:
        self.wire = wire or WireClient(servers, timeout=SECONDS_MAX)
        self.group = group
        self.topic = topic
        self.member_id = str(uuid4())
        self.epoch = 0
        self.owned: list[TopicPartitions] = []

    def request(self, epoch: int | None = None) -> ConsumerGroupHeartbeatRequest:
        joining = (self.epoch if epoch is None else epoch) == 0
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            rebalance_timeout_ms=30_000 if joining else -1,
            subscribed_topic_names=[self.topic] if joining else None,
            topic_partitions=[] if joining else self.owned,
        )

    def take(self, answer: Any) -> ErrorCode:
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = [
                    TopicPartitions(topic_id=each.topic_id, partitions=list(each.partitions))
                    for each in answer.assignment.topic_partitions
                ]
        return code

    def heartbeat(self, epoch: int | None = None) -> ErrorCode:
        return self.take(self.wire.ask(self.request(epoch), NEXT_HEARTBEAT))

    def commit(self, epoch: int | None = None) -> ErrorCode:
        return commit(self.wire, self.group, self.member_id, self.epoch if epoch is None else epoch, self.topic)

    @property
    def count(self) -> int:
        return sum(len(each.partitions) for each in self.owned)


def settle(members: list[NextMember], shares: list[int]) -> bool:
    """Heartbeats in turn until each member has its share; whether that came about."""
    deadline = time.monotonic() + SECONDS_MAX / 2
    while time.monotonic() < deadline:
        for each in members:
            each.heartbeat()
        if sorted(each.count for each in members) == shares:
            return True
        time.sleep(0.05)
    return False


def next_zombie(servers: str, create: Create) -> Transcript:
    """A member with the epoch of before the last rebalance."""
    group = topic = "next-zombie"
    create(servers, topic, 2)
    await_coordinator(servers, group)
    zombie = NextMember(servers, group, topic)
    said = [f"joins: {zombie.heartbeat().name}"]
    settle([zombie], [2])
    old = zombie.epoch
    said.append(f"commit: {zombie.commit().name}")
    other = NextMember(servers, group, topic)
    other.heartbeat()
    said.append(f"two members share: {settle([zombie, other], [1, 1])}")
    settled = zombie.epoch
    said.append(f"a later epoch: {settled > old}")
    said.append(f"commit of a later epoch: {zombie.commit(settled + 1).name}")
    said.append(f"heartbeat of a later epoch: {zombie.heartbeat(settled + 1).name}")
    third = NextMember(servers, group, topic)
    third.heartbeat()
    settle([zombie, other, third], [0, 1, 1])
    said.append(f"commit of a much older epoch: {zombie.commit(old).name}")
    said.append(f"heartbeat of a much older epoch: {zombie.heartbeat(old).name}")
    stranger = NextMember(servers, group, topic)
    stranger.epoch = settled
    said.append(f"unknown member's heartbeat: {stranger.heartbeat().name}")
    said.append(f"unknown member commits: {stranger.commit().name}")
    return said


def shorten_session(servers: str, group: str) -> None:
    setting = AlterableConfig(name="consumer.session.timeout.ms", config_operation=SET, value="2000")
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=[setting])
    answer = ask(servers, IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0, answer
    time.sleep(0.3)  # until every broker has heard of it


def next_frozen(servers: str, create: Create) -> Transcript:
    """A member says nothing for longer than its session lasts; its partitions go to the other."""
    group = topic = "next-frozen"
    create(servers, topic, 2)
    await_coordinator(servers, group)
    shorten_session(servers, group)
    frozen, other = NextMember(servers, group, topic), NextMember(servers, group, topic)
    said = [f"joins: {frozen.heartbeat().name} {other.heartbeat().name}"]
    said.append(f"two members share: {settle([frozen, other], [1, 1])}")
    said.append(f"the other gets it all: {settle([other], [2])}")
    said.append(f"heartbeat after the freeze: {frozen.heartbeat().name}")
    said.append(f"commit after the freeze: {frozen.commit().name}")
    frozen.epoch, frozen.owned = 0, []
    said.append(f"joins again: {frozen.heartbeat().name}")
    said.append(f"two members share: {settle([frozen, other], [1, 1])}")
    return said


def next_crowd(servers: str, create: Create, size: int) -> Transcript:
    """Very many members of one group come at once, over a few connections; all partitions find an owner."""
    group = topic = "next-crowd"
    partitions = 100
    create(servers, topic, partitions)
    await_coordinator(servers, group)
    wires = [WireClient(servers, timeout=SECONDS_MAX) for _ in range(10)]
    members = [NextMember(servers, group, topic, wires[number % len(wires)]) for number in range(size)]

    def beat_all() -> Counter[str]:
        requests = [each.request() for each in members]
        for each, request in zip(members, requests, strict=True):
            each.wire.send(each.wire.encode(request, NEXT_HEARTBEAT))
        answers = [
            each.take(each.wire.answer_to(request, NEXT_HEARTBEAT))
            for each, request in zip(members, requests, strict=True)
        ]
        return Counter(each.name for each in answers)

    said = [f"joins: {dict(beat_all())}"]
    codes: Counter[str] = Counter()
    deadline = time.monotonic() + SECONDS_MAX
    while sum(each.count for each in members) != partitions or max(each.count for each in members) > 1:
        assert time.monotonic() < deadline, "the crowd finds no balance"
        time.sleep(0.3)
        codes += beat_all()
    owned = {(each.topic_id, index) for member in members for each in member.owned for index in each.partitions}
    said.append(f"partitions with one owner: {len(owned)}")
    said.append(f"answers on the way: {sorted(codes)}")
    described = ask(servers, ConsumerGroupDescribeRequest(group_ids=[group]), 0).groups[0]
    said.append(f"members: {len(described.members)}")
    for wire in wires:
        wire.close()
    return said
