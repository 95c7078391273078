"""The share coordinator of this node: InitializeShareGroupState (83), ReadShareGroupState (84),
WriteShareGroupState (85), DeleteShareGroupState (86), ReadShareGroupStateSummary (87).

Decides when the log is made shorter, and takes requests apart into decisions of the shards. Only brokers ask here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from moldau.broker.context import Caller
from moldau.broker.gathering import after, gather
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.broker.share_state_apis import SHARE_STATE_APIS, parts_of
from moldau.broker.topic_names import SHARE_GROUP_STATE
from moldau.coordinator.decision import Decision
from moldau.coordinator.runtime import CoordinatorRuntime, ShardHost
from moldau.coordinator.share.shard import ShareShard
from moldau.coordinator.share.state import SharePartitionKey, ShareState, coordinating_partition
from moldau.metadata.delta import ImageDelta
from moldau.metadata.features import SHARE_VERSION
from moldau.metadata.image import ClusterImage
from moldau.ports import Timer
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire import read_share_group_state_response as read_response
from moldau.protocol.generated.wire import read_share_group_state_summary_response as summary_response

log = logging.getLogger("moldau.coordinator")

Host: TypeAlias = ShardHost[ShareShard]
NOT_INITIALIZED = -1


class ShareCoordinator:
    """Every share partition whose partition of the share-state topic is led here."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._clock = services.clock
        self.runtime: CoordinatorRuntime[ShareShard] = CoordinatorRuntime(
            SHARE_GROUP_STATE,
            partitions=services.partitions,
            clock=services.clock,
            background=services.background,
            make_shard=lambda _: ShareShard(services.clock, lambda: services.config),
            image=lambda: services.image,
            has_log=lambda topic, index: services.logs.directory_of(topic, index) is not None,
            codec=lambda: services.config.integer("share.coordinator.state.topic.compression.codec"),
            timeout_ms=lambda: services.config.integer("share.coordinator.write.timeout.ms"),
        )
        self._pruning: Timer | None = None
        self._snapshots: Timer | None = None
        self._ways: Mapping[int, Callable[[Host, SharePartitionKey, Any], Any]] = {
            ApiKey.INITIALIZE_SHARE_GROUP_STATE: self._initialize,
            ApiKey.READ_SHARE_GROUP_STATE: self._read,
            ApiKey.WRITE_SHARE_GROUP_STATE: self._write,
            ApiKey.DELETE_SHARE_GROUP_STATE: self._delete,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: self._summary,
        }
        self.image_published(ImageDelta(), services.image)

    # ---- requests

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {ApiKey(key): self._handle for key in self._ways}

    def _handle(self, request: Any, caller: Caller) -> Any:
        return self.answer(request)

    def answer(self, request: Any) -> Any:
        """The response, or a promise of it; partitions that are coordinated elsewhere get NOT_COORDINATOR."""
        api = SHARE_STATE_APIS[request.API_KEY]
        topics = request.topics
        # An initialisation may name a topic without partitions; the others would have nothing to answer.
        may_be_empty = request.API_KEY == ApiKey.INITIALIZE_SHARE_GROUP_STATE
        if not request.group_id or not topics or not (may_be_empty or all(topic.partitions for topic in topics)):
            return api.response()
        keys = []
        outcomes = []
        for key, asked in parts_of(request):
            keys.append(key)
            outcomes.append(self.answer_part(request.API_KEY, key, asked))
        return gather(
            outcomes,
            lambda results: api.response_of((key.topic_id, each) for key, each in zip(keys, results, strict=True)),
        )

    def answer_part(self, api_key: int, key: SharePartitionKey, asked: Any) -> Any:
        """The result of one partition of a request, or a promise of it."""
        api = SHARE_STATE_APIS[api_key]
        try:
            host = self.runtime.host(self._index_of(key))
        except ApiError as error:
            return api.failed(key.partition, error.code, f"Unable to {api.verb}: {error.message}")
        try:
            outcome = self._ways[api_key](host, key, asked)
        except ApiError as error:
            return api.failed(key.partition, error.code, error.message)
        return after(
            outcome,
            lambda result: (
                api.failed(key.partition, result.code, f"Unable to {api.verb}: {result.message}")
                if isinstance(result, ApiError)
                else result
            ),
        )

    def _index_of(self, key: SharePartitionKey) -> int | None:
        topic = self._services.image.topic(SHARE_GROUP_STATE)
        return None if topic is None or not topic.partitions else coordinating_partition(key, len(topic.partitions))

    def _initialize(self, host: Host, key: SharePartitionKey, asked: Any) -> Any:
        return self._write_through(host, ApiKey.INITIALIZE_SHARE_GROUP_STATE, key, lambda s: s.initialize(key, asked))

    def _write(self, host: Host, key: SharePartitionKey, asked: Any) -> Any:
        return self._write_through(host, ApiKey.WRITE_SHARE_GROUP_STATE, key, lambda s: s.write(key, asked))

    def _delete(self, host: Host, key: SharePartitionKey, asked: Any) -> Any:
        return self._write_through(host, ApiKey.DELETE_SHARE_GROUP_STATE, key, lambda s: s.delete(key))

    def _write_through(
        self, host: Host, api_key: ApiKey, key: SharePartitionKey, decide: Callable[[ShareShard], Decision[None]]
    ) -> Any:
        done = SHARE_STATE_APIS[api_key].response_partition(partition=key.partition)
        return after(self.runtime.write(host, decide), lambda result: result if isinstance(result, ApiError) else done)

    def _read(self, host: Host, key: SharePartitionKey, asked: Any) -> Any:
        return after(
            self.runtime.write(host, lambda shard: shard.read(key, asked.leader_epoch)),
            lambda state: state if isinstance(state, ApiError) else _state_result(key.partition, state),
        )

    def _summary(self, host: Host, key: SharePartitionKey, asked: Any) -> Any:
        return after(
            self.runtime.read(host, lambda shard: shard.summary(key)),
            lambda state: state if isinstance(state, ApiError) else _summary_result(key.partition, state),
        )

    # ---- following the cluster

    def image_published(self, delta: ImageDelta, image: ClusterImage) -> None:
        self.runtime.image_published(delta, image)
        if delta.deleted_topics:
            for host in self.runtime.hosts():
                host.perform(lambda host=host: host.shard.forget_topics(delta.deleted_topics))  # type: ignore[misc]
        if image.feature_level(SHARE_VERSION) >= 1:
            if self._pruning is None:
                self._schedule_pruning()
            if self._snapshots is None:
                self._schedule_snapshots()
        else:
            self._stop_jobs()

    def close(self) -> None:
        self._stop_jobs()
        self.runtime.close()

    def _stop_jobs(self) -> None:
        for timer in (self._pruning, self._snapshots):
            if timer is not None:
                timer.cancel()
        self._pruning = self._snapshots = None

    # ---- keeping the log short

    def _schedule_pruning(self) -> None:
        interval = self._services.config.integer("share.coordinator.state.topic.prune.interval.ms")
        self._pruning = self._clock.call_later(interval, self._prune)

    def _prune(self) -> None:
        for host in self.runtime.hosts():
            self._prune_one(host)
        self._schedule_pruning()

    def _prune_one(self, host: Host) -> None:
        redundant = host.shard.redundant_before()
        if redundant <= 0 or not host.partition.is_leader:
            return
        partition_log = host.partition.log
        if partition_log.log_start_offset < redundant <= partition_log.high_watermark:
            try:
                host.partition.delete_before(redundant)
            except ApiError as error:
                log.warning("%s-%d is not pruned: %s", SHARE_GROUP_STATE, host.index, error)

    def _schedule_snapshots(self) -> None:
        interval = self._services.config.integer("share.coordinator.cold.partition.snapshot.interval.ms")
        self._snapshots = self._clock.call_later(interval, self._snapshot_cold)

    def _snapshot_cold(self) -> None:
        for host in self.runtime.hosts():
            host.perform(host.shard.snapshot_cold)
        self._schedule_snapshots()


def _state_result(partition: int, state: ShareState) -> read_response.PartitionResult:
    return read_response.PartitionResult(
        partition=partition,
        error_code=ErrorCode.NONE,
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        state_batches=[
            read_response.StateBatch(
                first_offset=batch.first_offset,
                last_offset=batch.last_offset,
                delivery_state=batch.delivery_state,
                delivery_count=batch.delivery_count,
            )
            for batch in state.batches
        ],
    )


def _summary_result(partition: int, state: ShareState | None) -> summary_response.PartitionResult:
    if state is None:
        return summary_response.PartitionResult(
            partition=partition, start_offset=NOT_INITIALIZED, delivery_complete_count=NOT_INITIALIZED
        )
    return summary_response.PartitionResult(
        partition=partition,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
    )
