"""The assignor `range`: of every topic, each reader gets one stretch of partitions, in the order of the members' names.

Partitions with the same number of different topics go to the same member, where all members read these topics and
they are equally large: that is what makes joins possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moldau.coordinator.group.modern.assignment import Assignee, Assignment


def assign_ranges(members: Sequence[Assignee], partitions: Mapping[bytes, int]) -> dict[str, Assignment]:
    ordered = sorted(members, key=_name)
    readers: dict[bytes, list[str]] = {}
    for member in ordered:
        for topic in member.topics:
            readers.setdefault(topic, []).append(member.member_id)
    result: dict[str, dict[bytes, frozenset[int]]] = {member.member_id: {} for member in members}
    for topic in sorted(readers):
        of_topic = readers[topic]
        least, extra = divmod(partitions[topic], len(of_topic))
        start = 0
        for number, member_id in enumerate(of_topic):
            end = start + least + (number < extra)
            if start == end:
                break
            result[member_id][topic] = frozenset(range(start, end))
            start = end
    return dict(result)


def _name(member: Assignee) -> tuple[bool, str]:
    """Static members first: their names outlive a restart, and so does what they get."""
    if member.instance_id is not None:
        return False, member.instance_id
    return True, member.member_id
