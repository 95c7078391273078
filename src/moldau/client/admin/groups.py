"""Groups of every type: listing and deleting them; describing classic and consumer groups.

What is particular to share groups and streams groups is in modules of their own; offsets are in group_offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from moldau.client.admin.client import Admin
from moldau.client.cluster import Coordinator, TopicPartition
from moldau.client.coordinators import ask_coordinators
from moldau.client.errors import failure, raise_for
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.wire import ProtocolError, Reader

CLASSIC, CONSUMER, SHARE, STREAMS = "Classic", "Consumer", "Share", "Streams"
TYPES = (CLASSIC, CONSUMER, SHARE, STREAMS)
EMPTY, DEAD = "Empty", "Dead"
CONSUMER_PROTOCOL = "consumer"
# The states a group of each type can be in, as the broker spells them.
STATES = {
    CLASSIC: ("PreparingRebalance", "CompletingRebalance", "Stable", DEAD, EMPTY),
    CONSUMER: ("PreparingRebalance", "CompletingRebalance", "Stable", DEAD, EMPTY, "Assigning", "Reconciling"),
    SHARE: ("Stable", DEAD, EMPTY),
    STREAMS: ("Stable", DEAD, EMPTY, "Assigning", "Reconciling", "NotReady"),
}
_FIRST_WITH_STATES = 4
_FIRST_WITH_TYPES = 5
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


@dataclass(slots=True)
class GroupListing:
    group_id: str
    type: str
    protocol: str
    state: str


@dataclass(slots=True)
class Member:
    """One member. Epoch, target and `upgraded` are only known of members that the broker assigns to."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartition]
    target: list[TopicPartition] | None = None
    epoch: int | None = None
    upgraded: bool | None = None
    subscribed: list[str] = field(default_factory=list)


@dataclass(slots=True)
class GroupDescription:
    group_id: str
    type: str
    protocol: str
    state: str
    coordinator: Coordinator
    assignor: str
    members: list[Member]
    epoch: int | None = None
    assignment_epoch: int | None = None

    @property
    def active(self) -> bool:
        """Members may commit offsets and read, so nobody else should change the group's offsets."""
        return self.state not in (EMPTY, DEAD)


def list_groups(admin: Admin, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
    """The groups of all brokers, by name; only those in one of `states` and of one of `types`, if given."""
    from moldau.client.admin.cluster import describe_cluster
    from moldau.protocol.generated.wire.list_groups_request import ListGroupsRequest

    nodes = [each.node_id for each in describe_cluster(admin).brokers]
    version = admin.any_connection().choose_version(ApiKey.LIST_GROUPS)
    if version < (_FIRST_WITH_TYPES if types else _FIRST_WITH_STATES if states else 0):
        kind = "types" if types else "states"
        raise failure(ErrorCode.UNSUPPORTED_VERSION, f"The cluster cannot list groups by their {kind}")
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    found: dict[str, GroupListing] = {}
    for node in nodes:
        answer = admin.ask_node(node, request, codes=lambda reply: [reply.error_code], max_version=version)
        raise_for(answer.error_code)
        for each in answer.groups:
            found[each.group_id] = GroupListing(
                each.group_id, _known_type(each.group_type), each.protocol_type, each.group_state
            )
    return sorted(found.values(), key=lambda listing: listing.group_id)


def _known_type(name: str) -> str:
    """Brokers have sent types in lower case and capitalised; tools show them capitalised."""
    return next((each for each in TYPES if each.lower() == name.lower()), name)


def describe_groups(admin: Admin, groups: Iterable[str]) -> dict[str, GroupDescription | ApiError]:
    """Classic and consumer groups. Which of the two a group is the broker tells: one API knows each."""
    wanted = list(dict.fromkeys(groups))
    described: dict[str, GroupDescription | ApiError] = {}
    if admin.supports(ApiKey.CONSUMER_GROUP_DESCRIBE):
        described = _describe_consumer(admin, wanted)
    others = [group for group in wanted if _not_of_this_type(described.get(group))]
    for group, found in _describe_classic(admin, others).items() if others else ():
        reason = described.get(group)
        if isinstance(found, ApiError) and isinstance(reason, ApiError) and found.code == reason.code:
            # The newer API gives the better reason.
            continue
        described[group] = found
    return {group: described[group] for group in wanted}


def _not_of_this_type(found: GroupDescription | ApiError | None) -> bool:
    others = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
    return found is None or (isinstance(found, ApiError) and found.code in others)


def _describe_consumer(admin: Admin, groups: list[str]) -> dict[str, GroupDescription | ApiError]:
    from moldau.protocol.generated.wire.consumer_group_describe_request import ConsumerGroupDescribeRequest

    def read(answer: Any, coordinator: Coordinator) -> dict[str, GroupDescription | ApiError]:
        return {each.group_id: _consumer_group(each, coordinator) for each in answer.groups}

    return ask_coordinators(admin, groups, lambda some: ConsumerGroupDescribeRequest(group_ids=some), read)


def _consumer_group(found: Any, coordinator: Coordinator) -> GroupDescription | ApiError:
    if found.error_code != ErrorCode.NONE:
        return failure(found.error_code, found.error_message)
    members = [
        Member(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            assigned_partitions(each.assignment),
            assigned_partitions(each.target_assignment),
            each.member_epoch,
            {_CLASSIC_MEMBER: False, _CONSUMER_MEMBER: True}.get(each.member_type),
            list(each.subscribed_topic_names) + [each.subscribed_topic_regex] * bool(each.subscribed_topic_regex),
        )
        for each in found.members
    ]
    return GroupDescription(
        found.group_id,
        CONSUMER,
        CONSUMER_PROTOCOL,
        found.group_state,
        coordinator,
        found.assignor_name,
        members,
        found.group_epoch,
        found.assignment_epoch,
    )


def assigned_partitions(assignment: Any) -> list[TopicPartition]:
    """The partitions of an assignment in an answer, in order."""
    return sorted((topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions)


def _describe_classic(admin: Admin, groups: list[str]) -> dict[str, GroupDescription | ApiError]:
    from moldau.protocol.generated.wire.describe_groups_request import DescribeGroupsRequest

    def read(answer: Any, coordinator: Coordinator) -> dict[str, GroupDescription | ApiError]:
        return {each.group_id: _classic_group(each, coordinator) for each in answer.groups}

    return ask_coordinators(admin, groups, lambda some: DescribeGroupsRequest(groups=some), read)


def _classic_group(found: Any, coordinator: Coordinator) -> GroupDescription | ApiError:
    if found.error_code != ErrorCode.NONE:
        return failure(found.error_code, found.error_message)
    consumers = found.protocol_type == CONSUMER_PROTOCOL
    members = [
        Member(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            _classic_assignment(each.member_assignment) if consumers else [],
            subscribed=_classic_subscription(each.member_metadata) if consumers else [],
        )
        for each in found.members
    ]
    return GroupDescription(
        found.group_id, CLASSIC, found.protocol_type, found.group_state, coordinator, found.protocol_data, members
    )


def _classic_assignment(data: bytes) -> list[TopicPartition]:
    """Partitions in the form consumers exchange among themselves; none if some client wrote something else."""
    from moldau.protocol.generated.wire.consumer_protocol_assignment import ConsumerProtocolAssignment

    read = _classic_message(data, ConsumerProtocolAssignment)
    if read is None:
        return []
    return sorted((topic.topic, index) for topic in read.assigned_partitions for index in topic.partitions)


def _classic_subscription(data: bytes) -> list[str]:
    from moldau.protocol.generated.wire.consumer_protocol_subscription import ConsumerProtocolSubscription

    read = _classic_message(data, ConsumerProtocolSubscription)
    return [] if read is None else list(read.topics)


def _classic_message(data: bytes, kind: Any) -> Any:
    if not data:
        return None
    try:
        reader = Reader(data)
        # A newer client's message begins as the newest version known here does.
        version = min(max(reader.int16(), kind.MIN_VERSION), kind.MAX_VERSION)
        return kind.read(reader, version)
    except ProtocolError:
        return None


def delete_groups(admin: Admin, groups: Iterable[str]) -> dict[str, ApiError | None]:
    """Delete groups with their offsets; for each why it could not be, or None."""
    from moldau.protocol.generated.wire.delete_groups_request import DeleteGroupsRequest

    def read(answer: Any, _: Coordinator) -> dict[str, ApiError | None]:
        return {
            each.group_id: failure(each.error_code) if each.error_code != ErrorCode.NONE else None
            for each in answer.results
        }

    return ask_coordinators(admin, groups, lambda some: DeleteGroupsRequest(groups_names=some), read)
