"""How a classic group stands in the log: GroupMetadataValue, with everything a successor needs to go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from moldau.coordinator.decision import CoordinatorRecord, record
from moldau.protocol.coordinator_records import decode_value
from moldau.protocol.generated.group.group_metadata_key import GroupMetadataKey
from moldau.protocol.generated.group.group_metadata_value import GroupMetadataValue, MemberMetadata

if TYPE_CHECKING:
    from moldau.coordinator.group.classic.group import ClassicGroup

# Type of the record, as the first two bytes of its key.
GROUP_METADATA: Final = 2
# The highest version that is not flexible, as Apache Kafka writes it.
VALUE_VERSION: Final = 3
NO_TIME: Final = -1


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
    """The group as it is, with these assignments of its members."""
    name = group.protocol_name
    assert name is not None or not group.members, "members without a protocol they agreed on"
    members = [
        MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(name or ""),
            assignment=assignments[member.member_id],
        )
        for member in group.members.values()
    ]
    return _record(
        group,
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=name,
            leader=group.leader_id,
            members=members,
        ),
    )


def new_group_record(group: ClassicGroup) -> CoordinatorRecord:
    """A group that exists but has no generation yet."""
    return _record(group, GroupMetadataValue(protocol=None, leader=None))


def _record(group: ClassicGroup, value: GroupMetadataValue) -> CoordinatorRecord:
    value.current_state_timestamp = NO_TIME if group.state_since_ms is None else group.state_since_ms
    return record(GroupMetadataKey(group=group.group_id), value, VALUE_VERSION)


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return record(GroupMetadataKey(group=group_id), None)


def read_group(value: bytes) -> GroupMetadataValue:
    message, _ = decode_value("group", GROUP_METADATA, value)
    assert isinstance(message, GroupMetadataValue)
    return message
