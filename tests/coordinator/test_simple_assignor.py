"""The assignor of share groups: nothing is left unread, nobody has nothing to do, and little moves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinator.group.modern.assignment import Assignee, Assignment
from moldau.coordinator.group.modern.simple_assignor import assign_simply

TOPICS = [bytes([number]) * 16 for number in range(3)]
READY = st.fixed_dictionaries({topic: st.frozensets(st.integers(0, 7), max_size=8) for topic in TOPICS})


def members(count: int, topics: list[bytes], owned: dict[str, Assignment] | None = None) -> list[Assignee]:
    return [
        Assignee(f"m{number}", None, frozenset(topics), (owned or {}).get(f"m{number}", {})) for number in range(count)
    ]


def holders(result: dict[str, Assignment]) -> dict[tuple[bytes, int], int]:
    counted: dict[tuple[bytes, int], int] = {}
    for assignment in result.values():
        for topic, partitions in assignment.items():
            for partition in partitions:
                counted[topic, partition] = counted.get((topic, partition), 0) + 1
    return counted


@given(st.integers(1, 12), READY)
def test_all_read_the_same(count: int, ready: dict[bytes, frozenset[int]]) -> None:
    result = assign_simply(members(count, TOPICS), ready)
    everything = {(topic, partition) for topic, found in ready.items() for partition in found}
    counted = holders(result)
    assert set(counted) == everything
    if everything:
        sizes = [sum(map(len, assignment.values())) for assignment in result.values()]
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= 1, "everybody has something to do"
        assert max(counted.values()) <= -(-count // len(everything))


@given(st.data(), READY)
def test_members_read_different_topics(data: st.DataObject, ready: dict[bytes, frozenset[int]]) -> None:
    subscriptions = data.draw(st.lists(st.frozensets(st.sampled_from(TOPICS)), min_size=1, max_size=6))
    people = [Assignee(f"m{number}", None, topics, {}) for number, topics in enumerate(subscriptions)]
    result = assign_simply(people, ready)
    for person in people:
        assert result[person.member_id].keys() <= person.topics, "nobody gets what it does not read"
    read = frozenset[bytes]().union(*subscriptions)
    assert set(holders(result)) == {(topic, partition) for topic in read for partition in ready[topic]}


@given(st.integers(1, 8), READY)
def test_what_is_balanced_stays(count: int, ready: dict[bytes, frozenset[int]]) -> None:
    first = assign_simply(members(count, TOPICS), ready)
    assert assign_simply(members(count, TOPICS, first), ready) == first


def test_a_newcomer_takes_only_its_part() -> None:
    ready = {TOPICS[0]: frozenset(range(6))}
    before = assign_simply(members(2, TOPICS[:1]), ready)
    after = assign_simply(members(3, TOPICS[:1], before), ready)
    for name, assignment in before.items():
        assert after[name][TOPICS[0]] < assignment[TOPICS[0]]
    assert len(after["m2"][TOPICS[0]]) == 2


def test_more_members_than_partitions_share_them() -> None:
    result = assign_simply(members(5, TOPICS[:1]), {TOPICS[0]: frozenset({0, 1})})
    assert sorted(holders(result).values()) == [3, 3], "one of five has two, so that both are shared alike"


def test_partitions_that_are_gone_are_given_up() -> None:
    owned = {"m0": {TOPICS[0]: frozenset({0, 1, 2})}}
    assert assign_simply(members(1, TOPICS[:1], owned), {TOPICS[0]: frozenset({1})}) == {
        "m0": {TOPICS[0]: frozenset({1})}
    }
