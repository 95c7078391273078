"""Members of a streams group (KIP-1071): tasks instead of partitions, given by the broker, with offsets as ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.ports import Unreachable
from moldau.protocol.errors import ErrorCode, error_code
from moldau.protocol.generated.wire.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    Topology,
)
from moldau.testing.simulation.client import GROUP, NO_COORDINATOR, Script
from moldau.testing.simulation.groups import REBALANCE_MS, GroupMember

if TYPE_CHECKING:
    from moldau.testing.simulation.world import Simulation

SUBTOPOLOGY = "0"


class StreamsMember(GroupMember):
    def __init__(self, world: Simulation, name: str, group: str, topic: str) -> None:
        super().__init__(world, name, group, topic)
        self._topology = Topology(0, [Subtopology(subtopology_id=SUBTOPOLOGY, source_topics=[topic])])

    def run(self) -> Script:
        self._become_new()
        while not self.world.ending:
            if (yield from self._beat()) and self.epoch > 0 and not (yield from self.consume()):
                self._become_new()
            yield from self.sleep(100)

    def _become_new(self) -> None:
        self._incarnation += 1
        self.member_id = f"{self.name}-{self.life}-{self._incarnation}"
        self.epoch = 0
        self.owned = []

    def _beat(self) -> Script:
        owned = [index for _, index in self.owned]
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            endpoint_information_epoch=-1,
            rebalance_timeout_ms=REBALANCE_MS,
            topology=self._topology if self.epoch == 0 else None,
            process_id=self.name,
            active_tasks=[TaskIds(SUBTOPOLOGY, owned)] if owned else [],
            standby_tasks=[],
            warmup_tasks=[],
        )
        answer = yield from self.ask_coordinator(GROUP, self.group, request, 0)
        if isinstance(answer, Unreachable):
            return False
        code = error_code(answer.error_code)
        if code is not ErrorCode.NONE:
            if code in NO_COORDINATOR:
                self.forget_coordinator(GROUP, self.group)
            else:
                self._become_new()
            return False
        self.epoch = answer.member_epoch
        if answer.active_tasks is not None:
            self.owned = [(self.topic, index) for each in answer.active_tasks for index in each.partitions]
            for place in self.owned:
                self.world.history.owns(self.group, self.epoch, place, self.member_id)
        return True
