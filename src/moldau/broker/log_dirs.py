"""Log directories: DescribeLogDirs (35) and AlterReplicaLogDirs (34).

A broker answers for its own disks only. Decides what is shown of them and which replicas may move between them; the
moving itself happens in the log room, in the background.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.broker.context import Caller
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.log.log_dir_report import DirectoryDescription, ReplicaDescription, describe_log_dirs
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire.alter_replica_log_dirs_request import AlterReplicaLogDirsRequest
from moldau.protocol.generated.wire.alter_replica_log_dirs_response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from moldau.protocol.generated.wire.describe_log_dirs_request import DescribeLogDirsRequest
from moldau.protocol.generated.wire.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from moldau.replication.partition import Partition

# What a directory of a moving replica is called beside the topic: "-<partition>.<32 digits>-future".
_FUTURE_NAME_EXTRA: Final = len("-.") + 32 + len("-future")
_DIRECTORY_NAME_MAX: Final = 255


class LogDirHandlers:
    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_LOG_DIRS: self.describe_log_dirs,
            ApiKey.ALTER_REPLICA_LOG_DIRS: self.alter_replica_log_dirs,
        }

    # ---- DescribeLogDirs

    def describe_log_dirs(self, request: DescribeLogDirsRequest, caller: Caller) -> DescribeLogDirsResponse:
        services = self._services
        wanted: set[tuple[str, int]] | None = None
        if request.topics is not None:
            wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
        # A partition that was never written to has no directory yet; it is shown where it will be.
        unborn = [
            partition
            for partition in services.partitions
            if (wanted is None or (partition.topic, partition.index) in wanted)
            and services.logs.directory_of(partition.topic, partition.index) is None
        ]
        if unborn and sum(directory.online for directory in services.logs.directories.values()) > 1:
            unborn = self._open(unborn)
        described = describe_log_dirs(
            services.logs, services.disk, None if wanted is None else lambda topic, index: (topic, index) in wanted
        )
        results = [self._shaped(directory) for directory in described]
        for directory, result in zip(described, results, strict=True):
            if unborn and not directory.error:
                replicas = [ReplicaDescription(each.topic, each.index, 0, 0, False) for each in unborn]
                result.topics = _by_topic([*directory.replicas, *replicas])
                unborn = []
        return DescribeLogDirsResponse(results=results)

    def _open(self, unborn: list[Partition]) -> list[Partition]:
        """Let several directories' choice be made now; gives those for which it could not be."""
        left: list[Partition] = []
        for partition in unborn:
            try:
                assert partition.log is not None
            except ApiError:
                left.append(partition)
        return left

    def _shaped(self, directory: DirectoryDescription) -> DescribeLogDirsResult:
        return DescribeLogDirsResult(
            error_code=directory.error,
            log_dir=directory.path,
            topics=_by_topic(directory.replicas),
            total_bytes=directory.total_bytes,
            usable_bytes=directory.usable_bytes,
            is_cordoned=directory.path in self._services.logs.cordoned,
        )

    # ---- AlterReplicaLogDirs

    def alter_replica_log_dirs(
        self, request: AlterReplicaLogDirsRequest, caller: Caller
    ) -> AlterReplicaLogDirsResponse:
        answers: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
        for directory in request.dirs:
            for topic in directory.topics:
                results = answers.setdefault(topic.name, [])
                for index in topic.partitions:
                    result = AlterReplicaLogDirPartitionResult(partition_index=index)
                    try:
                        self._move(topic.name, index, directory.path)
                    except ApiError as error:
                        result.error_code = error.code
                    results.append(result)
        return AlterReplicaLogDirsResponse(
            results=[
                AlterReplicaLogDirTopicResult(topic_name=name, partitions=results) for name, results in answers.items()
            ]
        )

    def _move(self, topic: str, index: int, path: str) -> None:
        if len(topic) + len(str(index)) + _FUTURE_NAME_EXTRA > _DIRECTORY_NAME_MAX:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        services = self._services
        if path in services.logs.cordoned:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The log directory {path} is cordoned.")
        if services.logs.directory_of(topic, index) is not None:
            services.logs.move(topic, index, path)
            return
        # Nothing is there to be moved: it will be created where it is wanted.
        services.logs.prefer(topic, index, path)
        if services.partitions.find(topic, index) is None:
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE)


def _by_topic(replicas: list[ReplicaDescription]) -> list[DescribeLogDirsTopic]:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for replica in replicas:
        topic = topics.setdefault(replica.topic, DescribeLogDirsTopic(name=replica.topic))
        topic.partitions.append(
            DescribeLogDirsPartition(replica.partition, replica.size, replica.offset_lag, replica.is_future)
        )
    return list(topics.values())
