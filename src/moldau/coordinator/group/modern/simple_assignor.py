"""The assignor `simple` of share groups: every partition has a member, every member has a partition.

Partitions may be shared, so with fewer partitions than members each partition has several. Members keep what they have
as long as that is balanced. Where all members read the same topics these are balanced together, else topic by topic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence, Set
from typing import TypeAlias

from moldau.coordinator.group.modern.assignment import Assignee, Assignment, reads_the_same

TopicPartition: TypeAlias = tuple[bytes, int]


def assign_simply(members: Sequence[Assignee], partitions: Mapping[bytes, Set[int]]) -> dict[str, Assignment]:
    """What each member gets of these partitions, by topic. Topics without any are read by nobody."""
    result: dict[str, dict[bytes, set[int]]] = {member.member_id: {} for member in members}
    if not members:
        return {}
    if reads_the_same(members):
        _share_out(members, _listed(sorted(members[0].topics), partitions), result)
    else:
        for topic in sorted(frozenset().union(*(member.topics for member in members))):
            readers = [member for member in members if topic in member.topics]
            _share_out(readers, _listed([topic], partitions), result)
    return {
        member_id: {topic: frozenset(found) for topic, found in assigned.items()}
        for member_id, assigned in result.items()
    }


def _listed(topics: Sequence[bytes], partitions: Mapping[bytes, Set[int]]) -> list[TopicPartition]:
    return [(topic, partition) for topic in topics for partition in sorted(partitions.get(topic, ()))]


def _share_out(
    readers: Sequence[Assignee], shared: Sequence[TopicPartition], result: dict[str, dict[bytes, set[int]]]
) -> None:
    """Assign these partitions to members who all read them."""
    if not shared:
        return
    sharing = -(-len(readers) // len(shared))
    room = _room(len(readers), sharing * len(shared))
    held: dict[TopicPartition, set[int]] = {each: set() for each in shared}
    counts = [0] * len(readers)
    for index, reader in enumerate(readers):
        for each in shared:
            topic, partition = each
            has = partition in reader.owned.get(topic, ())
            if has and counts[index] < room[index] and len(held[each]) < sharing:
                held[each].add(index)
                counts[index] += 1
    waiting = deque(index for index in range(len(readers)) if counts[index] < room[index])
    for each in shared:
        holders = held[each]
        for _ in range(len(waiting)):
            if len(holders) >= sharing:
                break
            index = waiting.popleft()
            if index not in holders:
                holders.add(index)
                counts[index] += 1
            if counts[index] < room[index]:
                waiting.append(index)
    for (topic, partition), holders in held.items():
        for index in holders:
            result[readers[index].member_id].setdefault(topic, set()).add(partition)


def _room(readers: int, assignments: int) -> list[int]:
    """How many partitions each reader is to have, so that the differences are spread evenly."""
    return [-(-assignments * (index + 1) // readers) - -(-assignments * index // readers) for index in range(readers)]
