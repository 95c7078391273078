"""In-sync sets: what the leaders of this node propose, told to the controller.

Decides when a proposal is sent and what becomes of it; the controller's word arrives with the cluster's image, never
with the answer. One request is under way at a time, with all proposals that have come up meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from moldau.log.pacing import Throttle
from moldau.metadata.image import RECOVERED, ClusterImage
from moldau.ports import Clock, Pending, Timer
from moldau.protocol.errors import ApiError, ErrorCode, error_code
from moldau.protocol.generated.wire.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from moldau.replication.leader_state import UNKNOWN
from moldau.replication.partition import Partition

log: Final = logging.getLogger("moldau.replication")

VERSION: Final = 3
RETRY_MS: Final = 50
# The controller knows something that this node will learn from the image; until then both sets count.
_WAIT_FOR_IMAGE: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
_REFUSED: Final = frozenset(
    {ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST, ErrorCode.OPERATION_NOT_ATTEMPTED}
)


class InSyncSets:
    """`Duties` of the leaders on this node."""

    def __init__(
        self,
        node_id: int,
        clock: Clock,
        ask_controller: Callable[[Any, int], Pending[Any]],
        broker_epoch: Callable[[], int],
        image: Callable[[], ClusterImage],
        leader_throttle: Throttle,
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._ask_controller = ask_controller
        self._broker_epoch = broker_epoch
        self._image = image
        self._waiting: dict[tuple[bytes, int], Partition] = {}
        self._asking = False
        self._timer: Timer | None = None
        self._check: Timer | None = None
        self._closed = False
        self.readers_at_followers = False
        self.leader_throttle = leader_throttle

    # ---- what a leader needs

    def now_ms(self) -> int:
        return self._clock.monotonic_ms()

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self._image().brokers.get(broker_id)
        return broker is not None and broker.is_active and broker_epoch in (UNKNOWN, broker.epoch)

    def propose(self, partition: Partition) -> None:
        self._waiting[partition.topic_id, partition.index] = partition
        self._schedule(0)

    # ---- laggards

    def watch(self, partitions: Callable[[], Iterable[Partition]], max_lag_ms: Callable[[], int]) -> None:
        """Look for replicas that do not keep up, twice in the time they are given."""

        def look() -> None:
            lag = max_lag_ms()
            for partition in list(partitions()):
                if partition.leading is not None:
                    partition.leading.let_go_of_laggards(lag)
            if not self._closed:
                self._check = self._clock.call_later(max(lag // 2, 1), look)

        self._check = self._clock.call_later(max(max_lag_ms() // 2, 1), look)

    def close(self) -> None:
        self._closed = True
        self._waiting.clear()
        for timer in (self._timer, self._check):
            if timer is not None:
                timer.cancel()
        self._timer = self._check = None

    # ---- asking

    def _schedule(self, delay_ms: int) -> None:
        if self._timer is None and not self._asking and not self._closed:
            self._timer = self._clock.call_later(delay_ms, self._ask)

    def _ask(self) -> None:
        self._timer = None
        told, self._waiting = self._waiting, {}
        topics: dict[bytes, list[PartitionData]] = {}
        for (topic_id, index), partition in told.items():
            data = self._proposal(partition)
            if data is not None:
                data.partition_index = index
                topics.setdefault(topic_id, []).append(data)
        if not topics:
            return
        self._asking = True
        request = AlterPartitionRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            topics=[TopicData(topic_id=topic_id, partitions=data) for topic_id, data in topics.items()],
        )
        self._ask_controller(request, VERSION).then(lambda response: self._answered(response, told))

    def _proposal(self, partition: Partition) -> PartitionData | None:
        leading = partition.leading
        if leading is None or leading.proposed is None or leading.proposed_at != partition.partition_epoch:
            return None
        return PartitionData(
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=each, broker_epoch=self._epoch_of(partition, each)) for each in leading.proposed
            ],
            leader_recovery_state=RECOVERED,
            partition_epoch=partition.partition_epoch,
        )

    def _epoch_of(self, partition: Partition, replica: int) -> int:
        if replica == self._node_id:
            return self._broker_epoch()
        assert partition.leading is not None
        follower = partition.leading.followers.get(replica)
        return UNKNOWN if follower is None else follower.broker_epoch

    def _answered(self, response: Any, told: dict[tuple[bytes, int], Partition]) -> None:
        self._asking = False
        delay = 0
        code = response.code if isinstance(response, ApiError) else error_code(response.error_code)
        if code is ErrorCode.NONE:
            for topic in response.topics:
                for answer in topic.partitions:
                    partition = told.pop((topic.topic_id, answer.partition_index), None)
                    if partition is not None and not self._settled(partition, error_code(answer.error_code)):
                        told[topic.topic_id, answer.partition_index] = partition
                        delay = RETRY_MS
        else:
            log.debug("the controller did not take in-sync sets of %d partitions: %s", len(told), code.name)
            delay = RETRY_MS
        # Nobody knows what became of those: the same is asked again, unless the image has moved on.
        for key, partition in told.items():
            self._waiting.setdefault(key, partition)
        if self._waiting:
            self._schedule(delay)

    def _settled(self, partition: Partition, code: ErrorCode) -> bool:
        """Whether nothing more is to be done about a proposal."""
        if code in _WAIT_FOR_IMAGE:
            return True
        leading = partition.leading
        if code in _REFUSED:
            log.debug("the in-sync set of %s-%d stays: %s", partition.topic, partition.index, code.name)
            if leading is not None:
                leading.withdraw()
            return True
        return False
