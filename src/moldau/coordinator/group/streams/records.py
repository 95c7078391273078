"""How streams groups stand in the log: Kafka's records, and how members and assignments are read back from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from moldau.coordinator.decision import CoordinatorRecord, record
from moldau.coordinator.group.streams.member import MemberState, StreamsMember
from moldau.coordinator.group.streams.tasks import OwnedTasks, TaskEpochs, TaskIds, Tasks, task_ids
from moldau.coordinator.group.streams.topology import Topology
from moldau.protocol.generated.group import streams_group_target_assignment_member_value as target_value
from moldau.protocol.generated.group.streams_group_current_member_assignment_key import (
    StreamsGroupCurrentMemberAssignmentKey,
)
from moldau.protocol.generated.group.streams_group_current_member_assignment_value import (
    StreamsGroupCurrentMemberAssignmentValue,
)
from moldau.protocol.generated.group.streams_group_current_member_assignment_value import (
    TaskIds as CurrentTaskIds,
)
from moldau.protocol.generated.group.streams_group_member_metadata_key import StreamsGroupMemberMetadataKey
from moldau.protocol.generated.group.streams_group_member_metadata_value import (
    Endpoint,
    KeyValue,
    StreamsGroupMemberMetadataValue,
)
from moldau.protocol.generated.group.streams_group_metadata_key import StreamsGroupMetadataKey
from moldau.protocol.generated.group.streams_group_metadata_value import (
    LastAssignmentConfig,
    StreamsGroupMetadataValue,
)
from moldau.protocol.generated.group.streams_group_target_assignment_member_key import (
    StreamsGroupTargetAssignmentMemberKey,
)
from moldau.protocol.generated.group.streams_group_target_assignment_metadata_key import (
    StreamsGroupTargetAssignmentMetadataKey,
)
from moldau.protocol.generated.group.streams_group_target_assignment_metadata_value import (
    StreamsGroupTargetAssignmentMetadataValue,
)
from moldau.protocol.generated.group.streams_group_topology_key import StreamsGroupTopologyKey

# ---- the group


def group_record(
    group_id: str, epoch: int, metadata_hash: int, validated_topology_epoch: int, settings: Mapping[str, str]
) -> CoordinatorRecord:
    """`settings` are those that the next assignment depends on."""
    return record(
        StreamsGroupMetadataKey(group_id),
        StreamsGroupMetadataValue(
            epoch=epoch,
            metadata_hash=metadata_hash,
            validated_topology_epoch=validated_topology_epoch,
            last_assignment_configs=[LastAssignmentConfig(key, settings[key]) for key in sorted(settings)],
        ),
    )


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return record(StreamsGroupMetadataKey(group_id), None)


def topology_record(group_id: str, topology: Topology) -> CoordinatorRecord:
    return record(StreamsGroupTopologyKey(group_id), topology.value)


def topology_tombstone(group_id: str) -> CoordinatorRecord:
    return record(StreamsGroupTopologyKey(group_id), None)


def target_metadata_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    return record(
        StreamsGroupTargetAssignmentMetadataKey(group_id),
        StreamsGroupTargetAssignmentMetadataValue(epoch, timestamp_ms),
    )


def target_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    return record(StreamsGroupTargetAssignmentMetadataKey(group_id), None)


# ---- its members


def member_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    endpoint = member.user_endpoint
    return record(
        StreamsGroupMemberMetadataKey(group_id, member.member_id),
        StreamsGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            topology_epoch=member.topology_epoch,
            process_id=member.process_id,
            user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
            client_tags=[KeyValue(key, value) for key, value in sorted(member.client_tags.items())],
        ),
    )


def member_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return record(StreamsGroupMemberMetadataKey(group_id, member_id), None)


def target_record(group_id: str, member_id: str, target: Tasks) -> CoordinatorRecord:
    return record(
        StreamsGroupTargetAssignmentMemberKey(group_id, member_id),
        target_value.StreamsGroupTargetAssignmentMemberValue(
            active_tasks=_target_ids(target.active),
            standby_tasks=_target_ids(target.standby),
            warmup_tasks=_target_ids(target.warmup),
        ),
    )


def target_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return record(StreamsGroupTargetAssignmentMemberKey(group_id, member_id), None)


def current_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    return record(
        StreamsGroupCurrentMemberAssignmentKey(group_id, member.member_id),
        StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            active_tasks=_with_epochs(member.assigned.active),
            standby_tasks=_current_ids(member.assigned.standby),
            warmup_tasks=_current_ids(member.assigned.warmup),
            active_tasks_pending_revocation=_with_epochs(member.revoking.active),
            standby_tasks_pending_revocation=_current_ids(member.revoking.standby),
            warmup_tasks_pending_revocation=_current_ids(member.revoking.warmup),
        ),
    )


def current_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return record(StreamsGroupCurrentMemberAssignmentKey(group_id, member_id), None)


def removal(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """A member goes, with everything that is known of it."""
    return [
        current_tombstone(group_id, member_id),
        target_tombstone(group_id, member_id),
        member_tombstone(group_id, member_id),
    ]


def _target_ids(tasks: TaskIds) -> list[target_value.TaskIds]:
    return [target_value.TaskIds(each, sorted(tasks[each])) for each in sorted(tasks)]


def _current_ids(tasks: TaskIds) -> list[CurrentTaskIds]:
    return [CurrentTaskIds(each, sorted(tasks[each])) for each in sorted(tasks)]


def _with_epochs(tasks: TaskEpochs) -> list[CurrentTaskIds]:
    listed: list[CurrentTaskIds] = []
    for subtopology_id in sorted(tasks):
        epochs = tasks[subtopology_id]
        partitions = sorted(epochs)
        listed.append(CurrentTaskIds(subtopology_id, partitions, [epochs[partition] for partition in partitions]))
    return listed


# ---- reading


def target_of(value: Any) -> Tasks:
    return Tasks(task_ids(value.active_tasks), task_ids(value.standby_tasks), task_ids(value.warmup_tasks))


def assigned_of(value: Any) -> OwnedTasks:
    return OwnedTasks(
        _epochs_of(value.active_tasks, value.member_epoch), task_ids(value.standby_tasks), task_ids(value.warmup_tasks)
    )


def revoking_of(value: Any) -> OwnedTasks:
    return OwnedTasks(
        _epochs_of(value.active_tasks_pending_revocation, value.member_epoch),
        task_ids(value.standby_tasks_pending_revocation),
        task_ids(value.warmup_tasks_pending_revocation),
    )


def state_of(value: int) -> MemberState:
    return _STATES.get(value, MemberState.UNKNOWN)


_STATES: Final[Mapping[int, MemberState]] = {state.value: state for state in MemberState}


def _epochs_of(listed: Iterable[CurrentTaskIds], member_epoch: int) -> TaskEpochs:
    """Older releases did not say in which epoch a task was assigned: the member's own is the safe answer."""
    tasks: dict[str, Mapping[int, int]] = {}
    for each in listed:
        epochs = each.assignment_epochs
        if epochs is None or len(epochs) != len(each.partitions):
            tasks[each.subtopology_id] = dict.fromkeys(each.partitions, member_epoch)
        else:
            tasks[each.subtopology_id] = dict(zip(each.partitions, epochs, strict=True))
    return tasks
