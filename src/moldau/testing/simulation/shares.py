"""Members of a share group (KIP-932): records are given to one of them at a time, and again until they are accepted.

Decides nothing about what is right; it tells the history what was given and what was accepted. A record is given up
after so many deliveries: members are lucky enough, and locks short enough, that it rarely comes to that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moldau.ports import Address, Unreachable
from moldau.protocol.errors import ErrorCode, error_code
from moldau.protocol.generated.wire import share_acknowledge_request as acknowledging
from moldau.protocol.generated.wire import share_fetch_request as fetching
from moldau.protocol.generated.wire.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.generated.wire.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from moldau.records.batch import iter_batches
from moldau.records.record import read_records
from moldau.testing.simulation.client import LOOK_AGAIN, Script
from moldau.testing.simulation.groups import HeartbeatMember
from moldau.testing.simulation.history import Place

if TYPE_CHECKING:
    from moldau.testing.simulation.world import Simulation

FETCH_VERSION = 2
ACKNOWLEDGE_VERSION = 2
WAIT_MS = 150
RECORDS_MAX = 6
ACCEPT, RELEASE = 1, 2
GROUP_RESOURCE = 32
SET = 0


class ShareMember(HeartbeatMember):
    def __init__(self, world: Simulation, name: str, group: str, topic: str) -> None:
        super().__init__(world, name, group, topic)
        # The next epoch of the session with each broker.
        self._sessions: dict[Address, int] = {}
        self._is_sure = False

    def prepare(self) -> Script:
        """A share group begins where its topics end, unless it is told otherwise before it begins."""
        config = AlterableConfig("share.auto.offset.reset", SET, "earliest")
        request = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(GROUP_RESOURCE, self.group, [config])])
        while True:
            answer = yield from self.ask(self.any_broker(), request, 1)
            if not isinstance(answer, Unreachable) and answer.responses[0].error_code == ErrorCode.NONE:
                return
            yield from self.rest()

    def become_new(self) -> None:
        super().become_new()
        self._is_sure = False
        self._sessions.clear()

    # ---- the group

    def pause(self) -> Script:
        return self.sleep(20 + int(self.random.random() * 60))

    def heartbeat(self) -> ShareGroupHeartbeatRequest:
        # Who does not know what became of the last heartbeat says everything again, and is told everything again.
        names = None if self._is_sure else [self.topic]
        self._is_sure = False
        return ShareGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=self.epoch, subscribed_topic_names=names
        )

    def take(self, answer: Any) -> Script:
        self._is_sure = True
        if answer.assignment is not None:
            # Several members may have the same partition.
            self.owned = yield from self.places_of(answer.assignment)

    # ---- records

    def consume(self) -> Script:
        for place in list(self.owned):
            yield from self._consume(place)
        return True

    def _consume(self, place: Place) -> Script:
        """Take a few records, and say what became of them."""
        address, _ = yield from self.leader_of(*place)
        session = self._sessions.get(address, 0)
        topic_id = self.topic_ids[place[0]]
        request = fetching.ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=session,
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=RECORDS_MAX,
            batch_size=RECORDS_MAX,
            topics=[fetching.FetchTopic(topic_id, [fetching.FetchPartition(place[1])])],
        )
        asked = self.world.history.share_asked(self.world.rules.knows_that_it_leads(address.host, (topic_id, place[1])))
        answer = yield from self.ask(address, request, FETCH_VERSION, lane="share")
        if isinstance(answer, Unreachable) or answer.error_code != ErrorCode.NONE:
            self._sessions.pop(address, None)
            self.forget_leader(*place)
            return
        self._sessions[address] = session + 1
        given: dict[Place, list[tuple[int, int]]] = {}
        for topic in answer.responses:
            for data in topic.partitions:
                found = (self.topic_names[topic.topic_id], data.partition_index)
                if error_code(data.error_code) in LOOK_AGAIN:
                    self.forget_leader(*found)
                elif data.acquired_records:
                    certain = asked if found == place else None
                    given[found] = self._note_given(found, data, certain)
        if given and self.random.random() < 0.9:
            yield from self._acknowledge(address, given)

    def _note_given(self, place: Place, data: Any, asked: int | None) -> list[tuple[int, int]]:
        values = {
            record.offset: record.value
            for header in iter_batches(data.records or b"")
            for record in read_records(data.records, header)
        }
        history = self.world.history
        for each in data.acquired_records:
            for offset in range(each.first_offset, each.last_offset + 1):
                history.share_given(self.group, place, offset, values.get(offset), each.delivery_count, asked)
        return [(each.first_offset, each.last_offset) for each in data.acquired_records]

    def _acknowledge(self, address: Address, given: dict[Place, list[tuple[int, int]]]) -> Script:
        said: dict[Place, list[tuple[int, int, int]]] = {}
        for place, ranges in given.items():
            for first, last in ranges:
                kind = ACCEPT if self.random.random() < 0.85 else RELEASE
                said.setdefault(place, []).append((first, last, kind))
                if kind == ACCEPT:
                    self.world.history.share_accepting(self.group, place, range(first, last + 1))
        request = acknowledging.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self._sessions[address],
            topics=[
                acknowledging.AcknowledgeTopic(
                    self.topic_ids[place[0]],
                    [
                        acknowledging.AcknowledgePartition(
                            place[1],
                            [acknowledging.AcknowledgementBatch(first, last, [kind]) for first, last, kind in batches],
                        )
                    ],
                )
                for place, batches in said.items()
            ],
        )
        answer = yield from self.ask(address, request, ACKNOWLEDGE_VERSION, lane="share")
        if isinstance(answer, Unreachable) or answer.error_code != ErrorCode.NONE:
            self._sessions.pop(address, None)
            return
        self._sessions[address] += 1
        for topic in answer.responses:
            for data in topic.partitions:
                place = (self.topic_names[topic.topic_id], data.partition_index)
                if data.error_code == ErrorCode.NONE:
                    for first, last, kind in said[place]:
                        if kind == ACCEPT:
                            self.world.history.share_accepted(self.group, place, range(first, last + 1))
