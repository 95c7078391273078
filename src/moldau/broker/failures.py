"""The answer to a request that failed as a whole, for every API that is served.

Most responses have one error code for that. Those that have none (or not in every version) repeat the error for each
thing the request named, because that is where clients look for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from moldau.broker.share_failures import SHARE_SHAPES
from moldau.protocol.api import ApiKey, ApiSpec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from moldau.protocol.generated.wire.alter_client_quotas_response import (
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
)
from moldau.protocol.generated.wire.alter_configs_response import (
    AlterConfigsResourceResponse as LegacyResourceResponse,
)
from moldau.protocol.generated.wire.alter_configs_response import AlterConfigsResponse
from moldau.protocol.generated.wire.alter_replica_log_dirs_response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from moldau.protocol.generated.wire.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from moldau.protocol.generated.wire.consumer_group_describe_response import ConsumerGroupDescribeResponse
from moldau.protocol.generated.wire.consumer_group_describe_response import DescribedGroup as DescribedConsumerGroup
from moldau.protocol.generated.wire.create_acls_response import AclCreationResult, CreateAclsResponse
from moldau.protocol.generated.wire.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from moldau.protocol.generated.wire.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from moldau.protocol.generated.wire.delete_acls_response import DeleteAclsFilterResult, DeleteAclsResponse
from moldau.protocol.generated.wire.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from moldau.protocol.generated.wire.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from moldau.protocol.generated.wire.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from moldau.protocol.generated.wire.describe_client_quotas_response import DescribeClientQuotasResponse
from moldau.protocol.generated.wire.describe_configs_response import DescribeConfigsResponse, DescribeConfigsResult
from moldau.protocol.generated.wire.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from moldau.protocol.generated.wire.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from moldau.protocol.generated.wire.describe_topic_partitions_response import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from moldau.protocol.generated.wire.describe_transactions_response import (
    DescribeTransactionsResponse,
    TransactionState,
)
from moldau.protocol.generated.wire.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from moldau.protocol.generated.wire.find_coordinator_response import Coordinator, FindCoordinatorResponse
from moldau.protocol.generated.wire.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from moldau.protocol.generated.wire.init_producer_id_response import InitProducerIdResponse
from moldau.protocol.generated.wire.join_group_response import JoinGroupResponse
from moldau.protocol.generated.wire.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from moldau.protocol.generated.wire.metadata_response import MetadataResponse, MetadataResponseTopic
from moldau.protocol.generated.wire.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from moldau.protocol.generated.wire.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from moldau.protocol.generated.wire.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from moldau.protocol.generated.wire.streams_group_describe_response import DescribedGroup as DescribedStreamsGroup
from moldau.protocol.generated.wire.streams_group_describe_response import StreamsGroupDescribeResponse
from moldau.protocol.generated.wire.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from moldau.protocol.generated.wire.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from moldau.protocol.wire import Message, ProtocolError

# Characters of an error message where the whole of it does not fit.
EXPLANATION_MAX: Final = 2000


class Failed(NamedTuple):
    """Why, and in which version the client must be told so."""

    version: int
    code: ErrorCode
    message: str | None


Shape: TypeAlias = Callable[[Any, Failed], Any]


def shorten_explanations(message: Message) -> bool:
    """Cut the error messages in a response that are too long to be sent; whether there were any."""
    found = False
    for name in message.__slots__:
        value = getattr(message, name)
        if isinstance(value, str):
            if name.endswith("message") and len(value) > EXPLANATION_MAX:
                setattr(message, name, value[:EXPLANATION_MAX] + " ...")
                found = True
        else:
            inner = value if isinstance(value, list) else [value]
            for each in inner:
                if isinstance(each, Message):
                    found = shorten_explanations(each) or found
    return found


def failure_response(spec: ApiSpec, request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    """A response that says only that the whole request failed."""
    shape = _SHAPES.get(spec.key)
    if shape is not None and request is not None:
        return shape(request, Failed(version, code, message))
    response: Any = spec.response_class()()
    if not hasattr(response, "error_code"):
        raise ProtocolError(f"{spec.name} failed as a whole ({code.name}) and its response cannot say so")
    response.error_code = int(code)
    if hasattr(response, "error_message"):
        response.error_message = message
    return response


def _metadata(request: Any, failed: Failed) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(error_code=failed.code, name=topic.name or "", topic_id=topic.topic_id)
        for topic in request.topics or ()
    ]
    return MetadataResponse(topics=topics, error_code=failed.code if failed.version >= 13 else 0)


def _find_coordinator(request: Any, failed: Failed) -> FindCoordinatorResponse:
    if failed.version < 4:
        return FindCoordinatorResponse(
            error_code=failed.code, error_message=failed.message, node_id=-1, host="", port=-1
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, host="", port=-1, error_code=failed.code, error_message=failed.message)
            for key in request.coordinator_keys
        ]
    )


def _list_offsets(request: Any, failed: Failed) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=failed.code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_for_leader_epoch(request: Any, failed: Failed) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=partition.partition, error_code=failed.code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _delete_records(request: Any, failed: Failed) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=partition.partition_index, low_watermark=-1, error_code=failed.code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _create_topics(request: Any, failed: Failed) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=failed.code, error_message=failed.message)
            for topic in request.topics
        ]
    )


def _delete_topics(request: Any, failed: Failed) -> DeleteTopicsResponse:
    results = [
        DeletableTopicResult(name=name, error_code=failed.code, error_message=failed.message)
        for name in request.topic_names
    ]
    results += [
        DeletableTopicResult(
            name=topic.name, topic_id=topic.topic_id, error_code=failed.code, error_message=failed.message
        )
        for topic in request.topics
    ]
    return DeleteTopicsResponse(responses=results)


def _create_partitions(request: Any, failed: Failed) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=failed.code, error_message=failed.message)
            for topic in request.topics
        ]
    )


def _describe_configs(request: Any, failed: Failed) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=failed.code,
                error_message=failed.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _alter_configs(request: Any, failed: Failed) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            LegacyResourceResponse(
                error_code=failed.code,
                error_message=failed.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _incremental_alter_configs(request: Any, failed: Failed) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=failed.code,
                error_message=failed.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _describe_producers(request: Any, failed: Failed) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=index, error_code=failed.code, error_message=failed.message)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _alter_replica_log_dirs(request: Any, failed: Failed) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=failed.code)
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def _alter_client_quotas(request: Any, failed: Failed) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            EntryData(
                error_code=failed.code,
                error_message=failed.message,
                entity=[
                    EntityData(entity_type=entity.entity_type, entity_name=entity.entity_name)
                    for entity in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def _alter_user_scram_credentials(request: Any, failed: Failed) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys(change.name for change in (*request.deletions, *request.upsertions))
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=failed.code, error_message=failed.message)
            for user in users
        ]
    )


def _describe_client_quotas(_: Any, failed: Failed) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=failed.code, error_message=failed.message, entries=None)


def _create_acls(request: Any, failed: Failed) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=failed.code, error_message=failed.message) for _ in request.creations]
    )


def _delete_acls(request: Any, failed: Failed) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=failed.code, error_message=failed.message) for _ in request.filters
        ]
    )


def _describe_topic_partitions(request: Any, failed: Failed) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=failed.code, name=topic.name) for topic in request.topics
        ]
    )


def _elect_leaders(request: Any, failed: Failed) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=failed.code if failed.version >= 1 else 0,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=failed.code, error_message=failed.message)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _join_group(request: Any, failed: Failed) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=failed.code, member_id=request.member_id, protocol_name=None if failed.version >= 7 else ""
    )


def _offset_commit(request: Any, failed: Failed) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                [OffsetCommitResponsePartition(each.partition_index, failed.code) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _offset_fetch(request: Any, failed: Failed) -> OffsetFetchResponse:
    if failed.version >= 8:
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group.group_id, error_code=failed.code) for group in request.groups]
        )
    if failed.version >= 2:
        return OffsetFetchResponse(error_code=failed.code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                topic.name,
                [OffsetFetchResponsePartition(index, -1, -1, "", failed.code) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe_groups(request: Any, failed: Failed) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[DescribedGroup(error_code=failed.code, group_id=group_id) for group_id in request.groups]
    )


def _consumer_group_describe(request: Any, failed: Failed) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[
            DescribedConsumerGroup(error_code=failed.code, error_message=failed.message, group_id=group_id)
            for group_id in request.group_ids
        ]
    )


def _streams_group_describe(request: Any, failed: Failed) -> StreamsGroupDescribeResponse:
    return StreamsGroupDescribeResponse(
        groups=[
            DescribedStreamsGroup(error_code=failed.code, error_message=failed.message, group_id=group_id)
            for group_id in request.group_ids
        ]
    )


def _delete_groups(request: Any, failed: Failed) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id, failed.code) for group_id in request.groups_names]
    )


def _init_producer_id(_: Any, failed: Failed) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=failed.code, producer_id=-1, producer_epoch=-1)


def _add_partitions_to_txn(request: Any, failed: Failed) -> AddPartitionsToTxnResponse:
    if failed.version >= 4:
        return AddPartitionsToTxnResponse(error_code=failed.code)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                topic.name, [AddPartitionsToTxnPartitionResult(index, failed.code) for index in topic.partitions]
            )
            for topic in request.v3_and_below_topics
        ]
    )


def _txn_offset_commit(request: Any, failed: Failed) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [TxnOffsetCommitResponsePartition(each.partition_index, failed.code) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _write_txn_markers(request: Any, failed: Failed) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                marker.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name,
                        [WritableTxnMarkerPartitionResult(index, failed.code) for index in topic.partition_indexes],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _describe_transactions(request: Any, failed: Failed) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(error_code=failed.code, transactional_id=each) for each in request.transactional_ids
        ]
    )


_SHAPES: Final[Mapping[ApiKey, Shape]] = {
    ApiKey.METADATA: _metadata,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_client_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_user_scram_credentials,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _describe_client_quotas,
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: _delete_acls,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _consumer_group_describe,
    ApiKey.STREAMS_GROUP_DESCRIBE: _streams_group_describe,
    **SHARE_SHAPES,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
}
