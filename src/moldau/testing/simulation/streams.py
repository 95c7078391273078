"""Members of a streams group (KIP-1071): tasks instead of partitions, given by the broker, with offsets as ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moldau.protocol.generated.wire.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    Topology,
)
from moldau.testing.simulation.client import Script
from moldau.testing.simulation.groups import REBALANCE_MS, HeartbeatMember

if TYPE_CHECKING:
    from moldau.testing.simulation.world import Simulation

SUBTOPOLOGY = "0"


class StreamsMember(HeartbeatMember):
    HEARTBEAT_VERSION = 0

    def __init__(self, world: Simulation, name: str, group: str, topic: str) -> None:
        super().__init__(world, name, group, topic)
        self._topology = Topology(0, [Subtopology(subtopology_id=SUBTOPOLOGY, source_topics=[topic])])

    def heartbeat(self) -> StreamsGroupHeartbeatRequest:
        owned = [index for _, index in self.owned]
        return StreamsGroupHeartbeatRequest(
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

    def take(self, answer: Any) -> Script:
        yield from ()
        if answer.active_tasks is not None:
            self.own([(self.topic, index) for each in answer.active_tasks for index in each.partitions])
