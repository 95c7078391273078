"""Where topics and partitions are: Metadata (3) and DescribeTopicPartitions (75).

Reads the image and nothing else. Decides which error a missing topic, leader or listener gives in which version, and
has topics created that a client asked about when that is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from moldau.broker.authorization import NOT_ASKED, Operation, ResourceKind, authorized_operations
from moldau.broker.auto_creation import TopicAutoCreator
from moldau.broker.context import Caller
from moldau.broker.departures import Departures
from moldau.broker.discovery import broker_for_administration, cluster_operations
from moldau.broker.gathering import chain
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.broker.topic_names import is_internal
from moldau.controller.topic_names import reason_against
from moldau.metadata.image import BrokerRegistration, ClusterImage, PartitionRegistration, TopicImage
from moldau.ports import Pending
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from moldau.protocol.generated.wire.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from moldau.protocol.generated.wire.metadata_request import MetadataRequest
from moldau.protocol.generated.wire.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from moldau.protocol.uuids import ZERO_UUID

NO_LEADER = -1


class TopicMetadataHandlers:
    def __init__(
        self, services: BrokerServices, creator: TopicAutoCreator, departures: Departures | None = None
    ) -> None:
        """`departures` knows of brokers that are just going, where there are others."""
        self._services = services
        self._creator = creator
        self._departures = departures

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.METADATA: self.metadata,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: self.describe_topic_partitions,
        }

    # ---- Metadata

    def metadata(self, request: MetadataRequest, caller: Caller) -> object:
        waits: Pending[Any] | None = None if self._departures is None else self._departures.settled()
        if waits is None:
            return self._metadata(request, caller)
        return chain(waits, lambda _: self._metadata(request, caller))

    def _metadata(self, request: MetadataRequest, caller: Caller) -> MetadataResponse:
        services = self._services
        version = caller.api_version
        _check_names(request, version)
        # Null asks for all topics; so does an empty list in version 0, which knows no null.
        if request.topics is None or (version == 0 and not request.topics):
            topics = [
                self._known(topic, caller)
                for topic in services.image.topics_by_name.values()
                if self._may_describe(topic.name, caller)
            ]
        else:
            topics = self._asked_topics(request, caller)
        if version >= 8 and request.include_topic_authorized_operations:
            for topic in topics:
                if topic.name is not None and topic.error_code == 0:
                    topic.topic_authorized_operations = authorized_operations(
                        services.guard, caller, ResourceKind.TOPIC, topic.name
                    )
        operations = NOT_ASKED
        if 8 <= version <= 10 and request.include_cluster_authorized_operations:
            operations = cluster_operations(services, caller)
        return MetadataResponse(
            brokers=self._listed_brokers(caller.listener_name),
            cluster_id=services.cluster_id,
            controller_id=broker_for_administration(services),
            topics=topics,
            cluster_authorized_operations=operations,
        )

    def _listed_brokers(self, listener_name: str) -> list[MetadataResponseBroker]:
        found: list[MetadataResponseBroker] = []
        departures = self._departures
        for broker in self._services.image.brokers.values():
            endpoint = broker.listeners.get(listener_name)
            listed = not broker.fenced if departures is None else departures.is_listed(broker)
            if endpoint is not None and listed:
                found.append(MetadataResponseBroker(broker.id, endpoint.host, endpoint.port, broker.rack))
        return found

    def _asked_topics(self, request: MetadataRequest, caller: Caller) -> list[MetadataResponseTopic]:
        image = self._services.image
        assert request.topics is not None
        ids = list(dict.fromkeys(topic.topic_id for topic in request.topics if topic.topic_id != ZERO_UUID))
        if ids:
            return [self._by_id(image.topic_by_id(topic_id), topic_id, caller) for topic_id in ids]
        names = list(dict.fromkeys(topic.name for topic in request.topics if topic.name is not None))
        answers: dict[str, MetadataResponseTopic] = {}
        missing: list[str] = []
        for name in names:
            if not self._may_describe(name, caller):
                answers[name] = MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
                continue
            topic = image.topic(name)
            if topic is not None and topic.partitions:
                answers[name] = self._known(topic, caller)
            else:
                missing.append(name)
        for name, code in self._missing(missing, request, caller).items():
            answers[name] = MetadataResponseTopic(error_code=code, name=name, is_internal=is_internal(name))
        return [answers[name] for name in names]

    def _missing(self, names: list[str], request: MetadataRequest, caller: Caller) -> dict[str, ErrorCode]:
        """What clients that ask for unknown topics are told; if they may, the topics are on their way."""
        if not names:
            return {}
        if not (request.allow_auto_topic_creation and self._services.config.flag("auto.create.topics.enable")):
            return {
                name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if reason_against(name) is None
                else ErrorCode.INVALID_TOPIC_EXCEPTION
                for name in names
            }
        guard = self._services.guard
        refused: list[str] = []
        if guard is not None and not guard.allows(caller, Operation.CREATE, ResourceKind.CLUSTER):
            refused = [name for name in names if not guard.allows(caller, Operation.CREATE, ResourceKind.TOPIC, name)]
        answers = dict.fromkeys(refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        answers.update(self._creator.create((name for name in names if name not in answers), caller))
        return answers

    def _by_id(self, topic: TopicImage | None, topic_id: bytes, caller: Caller) -> MetadataResponseTopic:
        if topic is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        if not self._may_describe(topic.name, caller):
            # An id is no secret, the name is.
            return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
        return self._known(topic, caller)

    def _known(self, topic: TopicImage, caller: Caller) -> MetadataResponseTopic:
        view = _View(self._services.image, caller)
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=is_internal(topic.name),
            partitions=[view.partition(index, found) for index, found in topic.partitions.items()],
        )

    def _may_describe(self, name: str, caller: Caller) -> bool:
        guard = self._services.guard
        return guard is None or guard.allows(caller, Operation.DESCRIBE, ResourceKind.TOPIC, name)

    # ---- DescribeTopicPartitions

    def describe_topic_partitions(
        self, request: DescribeTopicPartitionsRequest, caller: Caller
    ) -> DescribeTopicPartitionsResponse:
        cursor = request.cursor
        all_topics = not request.topics
        names: Iterable[str] = (
            self._services.image.topics_by_name if all_topics else {topic.name for topic in request.topics}
        )
        if cursor is not None:
            names = [name for name in names if name >= cursor.topic_name]
            if not all_topics and cursor.topic_name not in names:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {cursor.topic_name}",
                )
            if cursor.partition_index < 0:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"DescribeTopicPartitionsRequest cursor partition must be valid: {cursor.partition_index}",
                )
        limit = self._services.config.integer("max.request.partition.size.limit")
        response = DescribeTopicPartitionsResponse()
        self._describe(
            sorted(names),
            response,
            caller,
            remaining=max(1, min(limit, request.response_partition_limit)),
            first=(cursor.topic_name, cursor.partition_index) if cursor is not None else ("", 0),
            all_topics=all_topics,
        )
        return response

    def _describe(
        self,
        names: list[str],
        response: DescribeTopicPartitionsResponse,
        caller: Caller,
        *,
        remaining: int,
        first: tuple[str, int],
        all_topics: bool,
    ) -> None:
        image = self._services.image
        view = _View(image, caller)
        for name in names:
            if not self._may_describe(name, caller):
                if not all_topics:
                    refused = DescribeTopicPartitionsResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
                    response.topics.append(refused)
                continue
            if remaining <= 0:
                response.next_cursor = Cursor(topic_name=name, partition_index=0)
                return
            topic = image.topic(name)
            if topic is None:
                if not all_topics:
                    response.topics.append(self._absent(name, caller))
                continue
            start = first[1] if name == first[0] else 0
            end = min(len(topic.partitions), start + remaining)
            indexes = [index for index in range(start, end) if index in topic.partitions]
            response.topics.append(
                DescribeTopicPartitionsResponseTopic(
                    name=name,
                    topic_id=topic.id,
                    is_internal=is_internal(name),
                    partitions=[view.described(index, topic.partitions[index]) for index in indexes],
                    topic_authorized_operations=self._operations(name, caller),
                )
            )
            remaining -= len(indexes)
            if end < len(topic.partitions):
                response.next_cursor = Cursor(topic_name=name, partition_index=end)
                return

    def _absent(self, name: str, caller: Caller) -> DescribeTopicPartitionsResponseTopic:
        invalid = reason_against(name) is not None
        return DescribeTopicPartitionsResponseTopic(
            error_code=ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            name=name,
            is_internal=is_internal(name),
            topic_authorized_operations=self._operations(name, caller),
        )

    def _operations(self, name: str, caller: Caller) -> int:
        return authorized_operations(self._services.guard, caller, ResourceKind.TOPIC, name)


class _View:
    """Partitions as seen through one listener and one version."""

    __slots__ = ("_alive_only", "_brokers", "_listener", "_missing_listener")

    def __init__(self, image: ClusterImage, caller: Caller) -> None:
        self._brokers = image.brokers
        self._listener = caller.listener_name
        # Version 0 clients cannot cope with replicas that are not in the list of brokers.
        self._alive_only = caller.api_version == 0 and caller.api_key == ApiKey.METADATA
        # A leader without this listener is a mistake in the configuration, which clients since version 6 can name.
        self._missing_listener = (
            ErrorCode.LISTENER_NOT_FOUND if caller.api_version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
        )

    def partition(self, index: int, found: PartitionRegistration) -> MetadataResponsePartition:
        replicas, isr = list(found.replicas), list(found.isr)
        error = ErrorCode.NONE
        if self._alive_only:
            replicas, isr = self._alive(replicas), self._alive(isr)
            if len(replicas) < len(found.replicas) or len(isr) < len(found.isr):
                error = ErrorCode.REPLICA_NOT_AVAILABLE
        leader = self._leader(found)
        if leader == NO_LEADER:
            known = found.leader in self._brokers
            error = self._missing_listener if known else ErrorCode.LEADER_NOT_AVAILABLE
        return MetadataResponsePartition(error, index, leader, found.leader_epoch, replicas, isr, self._offline(found))

    def described(self, index: int, found: PartitionRegistration) -> DescribeTopicPartitionsResponsePartition:
        return DescribeTopicPartitionsResponsePartition(
            partition_index=index,
            leader_id=self._leader(found),
            leader_epoch=found.leader_epoch,
            replica_nodes=list(found.replicas),
            isr_nodes=list(found.isr),
            eligible_leader_replicas=list(found.elr),
            last_known_elr=list(found.last_known_elr),
            offline_replicas=self._offline(found),
        )

    def _leader(self, found: PartitionRegistration) -> int:
        broker = self._brokers.get(found.leader)
        return found.leader if broker is not None and self._listener in broker.listeners else NO_LEADER

    def _alive(self, replicas: list[int]) -> list[int]:
        return [replica for replica in replicas if self._serves(self._brokers.get(replica))]

    def _serves(self, broker: BrokerRegistration | None) -> bool:
        return broker is not None and not broker.fenced and self._listener in broker.listeners

    def _offline(self, found: PartitionRegistration) -> list[int]:
        offline: list[int] = []
        for replica, directory in zip(found.replicas, found.directories, strict=True):
            broker = self._brokers.get(replica)
            if broker is None or not self._serves(broker) or not broker.has_online_directory(directory):
                offline.append(replica)
        return offline


def _check_names(request: MetadataRequest, version: int) -> None:
    """Versions 10 and 11 have a field for ids that may not be used yet, and names that may not be null."""
    if version >= 12 or request.topics is None:
        return
    for topic in request.topics:
        if topic.name is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Topic name can not be null for version {version}")
        if topic.topic_id != ZERO_UUID:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Topic IDs are not supported in requests for version {version}")
