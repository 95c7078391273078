"""How far a share group has read, as tools change it: set anew, or forgotten, by topic or with the whole group.

The offsets themselves are at the share coordinators. Decides what is to be asked of them and notes it down first, so
that what was begun is known to whoever comes next. Only groups that nobody is in are touched.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from moldau.coordinator.decision import CoordinatorRecord, Decision
from moldau.coordinator.group.modern.assignment import NOTHING
from moldau.coordinator.group.share.group import ShareGroup
from moldau.coordinator.group.share.topics import Partitions, ShareTopics, TopicPartitions
from moldau.protocol.errors import MESSAGES, ApiError, ErrorCode
from moldau.protocol.generated.wire.alter_share_group_offsets_request import AlterShareGroupOffsetsRequestTopic
from moldau.protocol.generated.wire.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from moldau.protocol.generated.wire.delete_share_group_offsets_response import DeleteShareGroupOffsetsResponseTopic

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.group.share.groups import ShareGroups


class Alteration(NamedTuple):
    response: list[AlterShareGroupOffsetsResponseTopic]
    # The start offsets that the share coordinators are to be told, by topic id and partition.
    offsets: Mapping[bytes, Mapping[int, int]]
    state_epoch: int


class Deletion(NamedTuple):
    # Topics of which there is nothing to delete.
    refused: list[DeleteShareGroupOffsetsResponseTopic]
    partitions: Partitions


class ShareOffsets:
    def __init__(self, shard: GroupShard, groups: ShareGroups) -> None:
        self._shard = shard
        self._groups = groups

    def initialized(self, group_id: str) -> Partitions:
        """The partitions whose state is kept for a group."""
        group = self._groups.get(group_id)
        return NOTHING if group is None else self._groups.initialization.assignable(group)

    # ---- setting anew

    def alter(self, group_id: str, topics: Iterable[AlterShareGroupOffsetsRequestTopic]) -> Decision[Alteration]:
        group = self._groups.open(group_id, create=True)
        if group.members:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        response: list[AlterShareGroupOffsetsResponseTopic] = []
        begun: dict[bytes, TopicPartitions] = {}
        offsets: dict[bytes, dict[int, int]] = {}
        now = self._shard.clock.monotonic_ms()
        for asked in topics:
            topic = self._shard.image.topic(asked.topic_name)
            answer = AlterShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
            response.append(answer)
            exists: Collection[int] = ()
            if topic is not None:
                answer.topic_id = topic.id
                exists = topic.partitions
                offsets[topic.id] = {
                    each.partition_index: each.start_offset
                    for each in asked.partitions
                    if each.partition_index in exists
                }
                begun[topic.id] = TopicPartitions(topic.name, frozenset(offsets[topic.id]), now)
            answer.partitions = [
                _outcome(each.partition_index, each.partition_index in exists) for each in asked.partitions
            ]
        records: list[CoordinatorRecord] = []
        self._groups.initialization.begin(group, begun, records)
        wanted = {topic_id: found for topic_id, found in offsets.items() if found}
        return Decision(Alteration(response, wanted, group.epoch), records)

    # ---- forgetting

    def delete(self, group_id: str, names: Iterable[str]) -> Decision[Deletion]:
        """What is known of these topics is to go."""
        group = self._empty(group_id)
        topics = group.topics
        if topics is None:
            return Decision(Deletion([], NOTHING))
        refused: list[DeleteShareGroupOffsetsResponseTopic] = []
        partitions: dict[bytes, frozenset[int]] = {}
        for name in names:
            topic = self._shard.image.topic(name)
            if topic is None:
                refused.append(_refused(name, MESSAGES[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]))
            elif topic.id in topics.initialized:
                partitions[topic.id] = topics.initialized[topic.id].partitions
            elif topic.id in topics.deleting:
                # Begun before, and not known to be finished.
                partitions[topic.id] = frozenset(topic.partitions)
            else:
                refused.append(_refused(name, "There is no offset information to delete."))
        record = self._groups.initialization.record(group_id, topics.deletes(partitions))
        return Decision(Deletion(refused, partitions), (record,))

    def deleted(self, group_id: str, topic_ids: Collection[bytes]) -> Decision[None]:
        group = self._groups.get(group_id)
        if group is None or group.topics is None:
            return Decision(None)
        return Decision(None, (self._groups.initialization.record(group_id, group.topics.deleted(topic_ids)),))

    def delete_all(self, group_ids: Iterable[str]) -> Decision[dict[str, Partitions | ErrorCode]]:
        """Groups are to be deleted: for each share group among them, the state that has to go first, or why not."""
        outcomes: dict[str, Partitions | ErrorCode] = {}
        records: list[CoordinatorRecord] = []
        for group_id in group_ids:
            group = self._groups.get(group_id)
            if group is None:
                continue
            if group.members:
                outcomes[group_id] = ErrorCode.NON_EMPTY_GROUP
            elif group.topics is not None:
                partitions = self._everything(group.topics)
                deleting = ShareTopics(deleting=frozenset(partitions))
                records.append(self._groups.initialization.record(group_id, deleting))
                if partitions:
                    outcomes[group_id] = partitions
        return Decision(outcomes, records)

    def _everything(self, topics: ShareTopics) -> Partitions:
        """All partitions with a state; what topics had that are gone the share coordinators forget on their own."""
        partitions: dict[bytes, frozenset[int]] = {}
        for each in (topics.initialized, topics.initializing):
            for topic_id, found in each.items():
                if self._shard.image.topic_by_id(topic_id) is not None:
                    partitions[topic_id] = partitions.get(topic_id, frozenset()) | found.partitions
        for topic_id in topics.deleting:
            topic = self._shard.image.topic_by_id(topic_id)
            if topic is not None:
                partitions[topic_id] = partitions.get(topic_id, frozenset()) | frozenset(topic.partitions)
        return partitions

    def topics_deleted(self, topic_ids: Container[bytes]) -> Decision[None]:
        """The share coordinators forget these topics on their own."""
        records: list[CoordinatorRecord] = []
        for group in self._shard.groups.values():
            if isinstance(group, ShareGroup) and group.topics is not None:
                left = group.topics.forgets(topic_ids)
                if left != group.topics:
                    records.append(self._groups.initialization.record(group.group_id, left))
        return Decision(None, records, atomic=False)

    def _empty(self, group_id: str) -> ShareGroup:
        group = self._groups.find(group_id)
        group.check_delete()
        return group


def _outcome(partition: int, exists: bool) -> AlterShareGroupOffsetsResponsePartition:
    if exists:
        return AlterShareGroupOffsetsResponsePartition(partition_index=partition)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return AlterShareGroupOffsetsResponsePartition(partition, code, MESSAGES[code])


def _refused(name: str, message: str) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=message
    )
