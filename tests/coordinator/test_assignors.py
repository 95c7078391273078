"""Assignors: everything is given once, evenly, and as much as possible stays where it is."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.coordinator.group.modern.assignment import NOTHING, Assignee, Assignment, Assignor
from moldau.coordinator.group.modern.assignors import CONSUMER_ASSIGNORS, assignor_names
from moldau.coordinator.group.modern.range_assignor import assign_ranges
from moldau.coordinator.group.modern.uniform_assignor import assign_uniformly

A, B, C, D = (bytes([letter]) * 16 for letter in b"ABCD")


def assignee(name: str, *topics: bytes, owned: Assignment = NOTHING, instance: str | None = None) -> Assignee:
    return Assignee(name, instance, frozenset(topics), owned)


def again(members: Sequence[Assignee], given_before: Mapping[str, Assignment]) -> list[Assignee]:
    return [member._replace(owned=given_before.get(member.member_id, NOTHING)) for member in members]


def load(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def moved(before: Mapping[str, Assignment], after: Mapping[str, Assignment]) -> int:
    """Partitions that somebody had and has no longer."""
    return sum(
        len(indexes - after.get(member, NOTHING).get(topic, frozenset()))
        for member, topics in before.items()
        for topic, indexes in topics.items()
    )


def check_complete(
    members: Sequence[Assignee], partitions: Mapping[bytes, int], result: Mapping[str, Assignment]
) -> None:
    assert result.keys() == {member.member_id for member in members}
    read = {topic for member in members for topic in member.topics}
    handed_out = [
        (topic, index) for mine in result.values() for topic, indexes in mine.items() for index in sorted(indexes)
    ]
    assert sorted(handed_out) == sorted((topic, index) for topic in read for index in range(partitions[topic]))
    for member in members:
        assert result[member.member_id].keys() <= member.topics
        assert all(result[member.member_id].values()), "topics without partitions are left out"


TOPICS = st.dictionaries(st.sampled_from([A, B, C, D]), st.integers(1, 12), min_size=1)


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[Assignee], dict[bytes, int]]:
    """Members with any subscriptions, and any old assignment in which nobody shares a partition."""
    partitions = draw(TOPICS)
    topics = sorted(partitions)
    names = [f"m{number}" for number in range(draw(st.integers(1, 8)))]
    same = draw(st.booleans())
    everything = draw(st.frozensets(st.sampled_from(topics)))
    subscriptions = {name: everything if same else draw(st.frozensets(st.sampled_from(topics))) for name in names}
    owned: dict[str, dict[bytes, set[int]]] = {name: {} for name in names}
    for topic in topics:
        # Topics may have had fewer or more partitions, and members may have read others.
        for index in range(draw(st.integers(0, 14))):
            owner = draw(st.sampled_from([*names, ""]))
            if owner:
                owned[owner].setdefault(topic, set()).add(index)
    members = [
        assignee(name, *subscriptions[name], owned={t: frozenset(i) for t, i in owned[name].items()}) for name in names
    ]
    return members, partitions


@given(groups(), st.sampled_from(sorted(CONSUMER_ASSIGNORS)))
@settings(max_examples=300)
def test_every_partition_has_one_reader(group: tuple[list[Assignee], dict[bytes, int]], name: str) -> None:
    members, partitions = group
    check_complete(members, partitions, CONSUMER_ASSIGNORS[name](members, partitions))


@given(groups(), st.sampled_from(sorted(CONSUMER_ASSIGNORS)))
@settings(max_examples=200)
def test_nothing_moves_when_nothing_has_changed(group: tuple[list[Assignee], dict[bytes, int]], name: str) -> None:
    members, partitions = group
    assignor = CONSUMER_ASSIGNORS[name]
    first = assignor(members, partitions)
    second = assignor(again(members, first), partitions)
    assert moved(first, second) == 0


@given(groups())
@settings(max_examples=300)
def test_uniform_is_balanced(group: tuple[list[Assignee], dict[bytes, int]]) -> None:
    members, partitions = group
    result = assign_uniformly(members, partitions)
    loads = {member.member_id: load(result[member.member_id]) for member in members}
    if all(member.topics == members[0].topics for member in members):
        assert max(loads.values()) - min(loads.values()) <= 1
    # However different the subscriptions: no single partition could move and make two loads more alike.
    for giver in members:
        for taker in members:
            if giver is not taker and result[giver.member_id].keys() & taker.topics:
                assert loads[giver.member_id] - loads[taker.member_id] <= 1


@given(st.integers(1, 12), st.integers(1, 60), st.data())
@settings(max_examples=100)
def test_uniform_moves_as_little_as_possible(count: int, size: int, data: st.DataObject) -> None:
    partitions = {A: size}
    members = [assignee(f"m{number:02}", A) for number in range(count)]
    before = assign_uniformly(members, partitions)
    if data.draw(st.booleans(), label="one more") or count == 1:
        later = [*again(members, before), assignee("new", A)]
        # The newcomer gets its fair share, and nothing else moves.
        expected = size // (count + 1)
        after = assign_uniformly(later, partitions)
        assert load(after["new"]) in (expected, expected + 1)
        assert moved(before, after) == load(after["new"])
    else:
        gone = data.draw(st.sampled_from(members), label="leaves")
        later = [member for member in again(members, before) if member.member_id != gone.member_id]
        after = assign_uniformly(later, partitions)
        assert moved({name: mine for name, mine in before.items() if name != gone.member_id}, after) == 0


def test_range_keeps_equal_topics_together() -> None:
    members = [assignee(name, A, B) for name in ("x", "y", "z")]
    result = assign_ranges(members, {A: 7, B: 7})
    assert {name: {t: sorted(i) for t, i in mine.items()} for name, mine in result.items()} == {
        "x": {A: [0, 1, 2], B: [0, 1, 2]},
        "y": {A: [3, 4], B: [3, 4]},
        "z": {A: [5, 6], B: [5, 6]},
    }


def test_range_puts_static_members_first_and_leaves_some_with_nothing() -> None:
    members = [assignee("a", A), assignee("zz", A, instance="i2"), assignee("yy", A, instance="i1")]
    result = assign_ranges(members, {A: 2})
    assert result == {"yy": {A: frozenset({0})}, "zz": {A: frozenset({1})}, "a": {}}


def test_nobody_gets_nothing() -> None:
    for assignor in CONSUMER_ASSIGNORS.values():
        assert assignor([], {}) == {}
        assert assignor([assignee("m")], {}) == {"m": {}}


def test_names_of_assignors() -> None:
    assert assignor_names(("uniform", "range")) == ["uniform", "range"]
    assert assignor_names(("org.apache.kafka.coordinator.group.assignor.RangeAssignor",)) == ["range"]
    assert assignor_names(("com.example.Own",)) == ["uniform", "range"]


@pytest.mark.parametrize("assignor", CONSUMER_ASSIGNORS.values(), ids=CONSUMER_ASSIGNORS.keys())
@pytest.mark.parametrize("different", [False, True])
def test_large_groups_are_quick(assignor: Assignor, different: bool) -> None:
    """A thousand members and a thousand partitions; the limit is generous because machines differ."""
    topics = [number.to_bytes(16, "big") for number in range(20)]
    partitions = dict.fromkeys(topics, 50)
    members = [assignee(f"m{number:04}", *(topics[number % 7 :] if different else topics)) for number in range(1000)]
    began = time.process_time()
    first = assignor(members, partitions)
    second = assignor(again(members[:-1], first), partitions)
    assert time.process_time() - began < 2
    check_complete(members, partitions, first)
    check_complete(members[:-1], partitions, second)
