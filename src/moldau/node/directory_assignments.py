"""Tells the controller in which of this broker's log directories each replica is.

The controller decides by it which partitions a failed directory takes with it, also over restarts: a directory that is
missing at a start must not look like partitions that never had records. With one directory only there is nothing to
tell, because the controller assigns that one by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from typing import Any

from moldau.broker.context import ANONYMOUS
from moldau.broker.services import ControllerChannel
from moldau.ports import Clock, Pending, Timer
from moldau.protocol.errors import ApiError, ErrorCode, error_code
from moldau.protocol.generated.wire.assign_replicas_to_dirs_request import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)

log = logging.getLogger("moldau.node")

VERSION = 0
# Logs are often opened many at a time: they are told together.
GATHER_MS = 10
RETRY_MS = 500
# As many as Kafka puts into one request.
REPLICAS_MAX = 2250


class DirectoryAssignments:
    """What the controller has to be told yet."""

    def __init__(self, controller: ControllerChannel, clock: Clock, node_id: int, epoch: Callable[[], int]) -> None:
        self._controller = controller
        self._clock = clock
        self._node_id = node_id
        self._epoch = epoch
        # (topic id, partition) -> directory id
        self._untold: dict[tuple[bytes, int], bytes] = {}
        self._timer: Timer | None = None
        self._asking = False
        self._all_told: Pending[None] | None = None

    def tell(self, topic_id: bytes, index: int, directory_id: bytes) -> None:
        """The replica is in this directory, and the controller believes otherwise."""
        self._untold[topic_id, index] = directory_id
        self._schedule(GATHER_MS)

    def tell_now(self) -> Pending[None]:
        """Kept once the controller knows everything. A broker that stops must not take it along unsaid: if the
        directory does not come back, nobody could tell its partitions from ones that never had records."""
        told: Pending[None] = Pending()
        if not self._untold:
            told.resolve(None)
            return told
        self._all_told = told
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._schedule(0)
        return told

    def _schedule(self, delay_ms: int) -> None:
        if self._timer is None and not self._asking:
            self._timer = self._clock.call_later(delay_ms, self._ask)

    def _ask(self) -> None:
        self._timer = None
        self._asking = True
        told = dict(islice(self._untold.items(), REPLICAS_MAX))
        request = AssignReplicasToDirsRequest(
            broker_id=self._node_id, broker_epoch=self._epoch(), directories=_directories(told)
        )
        self._controller.ask(request, VERSION, ANONYMOUS).then(lambda response: self._answered(response, told))

    def _answered(self, response: Any, told: dict[tuple[bytes, int], bytes]) -> None:
        self._asking = False
        code = response.code if isinstance(response, ApiError) else error_code(response.error_code)
        delay = GATHER_MS
        if code is ErrorCode.NONE:
            for replica, directory in told.items():
                if self._untold.get(replica) == directory:
                    del self._untold[replica]
        else:
            log.warning("the controller did not take the directories of %d replicas: %s", len(told), code.name)
            delay = RETRY_MS
        if self._untold:
            self._schedule(delay)
        elif self._all_told is not None:
            all_told, self._all_told = self._all_told, None
            all_told.resolve(None)

    def close(self) -> None:
        self._untold.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _directories(told: dict[tuple[bytes, int], bytes]) -> list[DirectoryData]:
    tree: dict[bytes, dict[bytes, list[int]]] = {}
    for (topic_id, index), directory in told.items():
        tree.setdefault(directory, {}).setdefault(topic_id, []).append(index)
    return [
        DirectoryData(
            id=directory,
            topics=[
                TopicData(
                    topic_id=topic_id, partitions=[PartitionData(partition_index=index) for index in sorted(indexes)]
                )
                for topic_id, indexes in topics.items()
            ],
        )
        for directory, topics in tree.items()
    ]
