"""Records of streams groups: recognised by their types, and read back as they were written."""

from __future__ import annotations

from moldau.coordinator.group import streams
from moldau.coordinator.group.streams import records
from moldau.coordinator.group.streams.member import MemberState, StreamsMember
from moldau.coordinator.group.streams.tasks import OwnedTasks, Tasks
from moldau.protocol.coordinator_records import decode_key, decode_value, key_class, record_types
from moldau.protocol.generated.group.streams_group_current_member_assignment_value import (
    StreamsGroupCurrentMemberAssignmentValue,
    TaskIds,
)


def test_every_type_of_record_is_known() -> None:
    found = {kind for kind in record_types("group") if key_class("group", kind).__name__.startswith("StreamsGroup")}
    assert found == set(streams.RECORD_TYPES)


def test_what_a_member_has_is_read_back() -> None:
    member = StreamsMember(
        "m",
        epoch=7,
        previous_epoch=6,
        state=MemberState.UNREVOKED_TASKS,
        assigned=OwnedTasks({"1": {0: 7, 2: 3}}, {"0": frozenset({1})}, {}),
        revoking=OwnedTasks({"0": {4: 5}}, {}, {"1": frozenset({3})}),
    )
    key, value = records.current_record("g", member)
    assert value is not None
    assert decode_key("group", key) == decode_key("group", records.current_tombstone("g", "m")[0])
    read, _ = decode_value("group", streams.CURRENT_ASSIGNMENT, value)
    assert isinstance(read, StreamsGroupCurrentMemberAssignmentValue)
    assert (read.member_epoch, read.previous_member_epoch) == (7, 6)
    assert records.state_of(read.state) is MemberState.UNREVOKED_TASKS
    assert (records.assigned_of(read), records.revoking_of(read)) == (member.assigned, member.revoking)


def test_older_records_say_nothing_of_epochs() -> None:
    value = StreamsGroupCurrentMemberAssignmentValue(member_epoch=9, active_tasks=[TaskIds("0", [1, 2])])
    assert records.assigned_of(value).active == {"0": {1: 9, 2: 9}}


def test_states_of_newer_releases() -> None:
    assert records.state_of(55) is MemberState.UNKNOWN


def test_targets_are_read_back() -> None:
    target = Tasks({"0": frozenset({0, 1})}, {"1": frozenset({2})}, {})
    _, value = records.target_record("g", "m", target)
    assert value is not None
    assert records.target_of(decode_value("group", streams.TARGET_MEMBER, value)[0]) == target
