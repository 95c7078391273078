"""The assignor `uniform`: everybody gets as many partitions as the others, and keeps what it has as far as possible.

Where all members read the same topics, no two differ by more than one partition. Where they do not, partitions move
from the busiest to the idlest reader of a topic until no such move helps any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace

from moldau.coordinator.group.modern.assignment import Assignee, Assignment, reads_the_same

# Rounds over all topics in which partitions move; each brings the loads closer together.
_ROUNDS = 16
_NOBODY = -1


def assign_uniformly(members: Sequence[Assignee], partitions: Mapping[bytes, int]) -> dict[str, Assignment]:
    if not members:
        return {}
    if reads_the_same(members):
        return _assign_same(members, partitions)
    return _Unequal(members, partitions).assign()


# ---- all read the same topics


def _assign_same(members: Sequence[Assignee], partitions: Mapping[bytes, int]) -> dict[str, Assignment]:
    topics = sorted(members[0].topics)
    total = sum(partitions[topic] for topic in topics)
    least, extra = divmod(total, len(members))
    free = {topic: set(range(partitions[topic])) for topic in topics}
    kept: list[dict[bytes, frozenset[int]]] = []
    sizes: list[int] = []
    for member in members:
        owned = {topic: had & free[topic] for topic, had in member.owned.items() if topic in free}
        size = sum(map(len, owned.values()))
        limit = least
        if size > least and extra:
            # Whoever has one more already keeps it: that moves the fewest partitions.
            limit += 1
            extra -= 1
        if size > limit:
            owned, size = _first(owned, limit), limit
        for topic, had in owned.items():
            free[topic] -= had
        kept.append({topic: had for topic, had in owned.items() if had})
        sizes.append(size)
    left = [(topic, index) for topic in topics for index in sorted(free[topic])]
    result: dict[str, Assignment] = {}
    at = 0
    for member, owned, size in zip(members, kept, sizes, strict=True):
        wanted = least - size
        if wanted >= 0 and extra:
            wanted += 1
            extra -= 1
        if wanted > 0:
            owned = _with(owned, left[at : at + wanted])
            at += wanted
        result[member.member_id] = owned
    assert at == len(left), "a partition is left over"
    return result


def _first(owned: Mapping[bytes, frozenset[int]], limit: int) -> dict[bytes, frozenset[int]]:
    """Some of the partitions, as many as the limit allows."""
    result: dict[bytes, frozenset[int]] = {}
    for topic in sorted(owned):
        had = owned[topic]
        if len(had) > limit:
            had = frozenset(sorted(had)[:limit])
        result[topic] = had
        limit -= len(had)
    return result


def _with(owned: Mapping[bytes, frozenset[int]], more: Sequence[tuple[bytes, int]]) -> dict[bytes, frozenset[int]]:
    added: dict[bytes, list[int]] = {}
    for topic, index in more:
        added.setdefault(topic, []).append(index)
    result = dict(owned)
    for topic, indexes in added.items():
        result[topic] = result.get(topic, frozenset()).union(indexes)
    return result


# ---- members read different topics


class _Unequal:
    """One computation; members are numbers here."""

    def __init__(self, members: Sequence[Assignee], partitions: Mapping[bytes, int]) -> None:
        self._members = members
        self._load = [0] * len(members)
        self._readers: dict[bytes, list[int]] = {}
        for number, member in enumerate(members):
            for topic in member.topics:
                self._readers.setdefault(topic, []).append(number)
        # Who gets each partition.
        self._owners = {topic: [_NOBODY] * partitions[topic] for topic in self._readers}
        # Topics with much work for few readers first: the others can make up for what these do to the balance.
        self._order = sorted(
            self._readers,
            key=lambda topic: (-partitions[topic] / len(self._readers[topic]), len(self._readers[topic]), topic),
        )

    def assign(self) -> dict[str, Assignment]:
        self._keep()
        for topic in self._order:
            self._hand_out(topic)
        shared = [topic for topic in self._order if len(self._readers[topic]) > 1]
        for _ in range(_ROUNDS):
            if not sum(self._balance(topic) for topic in shared):
                break
        given: list[dict[bytes, list[int]]] = [{} for _ in self._members]
        for topic, owners in self._owners.items():
            for index, owner in enumerate(owners):
                given[owner].setdefault(topic, []).append(index)
        return {
            member.member_id: {topic: frozenset(indexes) for topic, indexes in mine.items()}
            for member, mine in zip(self._members, given, strict=True)
        }

    def _keep(self) -> None:
        for number, member in enumerate(self._members):
            for topic, had in member.owned.items():
                if topic not in member.topics:
                    continue
                owners = self._owners[topic]
                for index in had:
                    if index < len(owners) and owners[index] == _NOBODY:
                        owners[index] = number
                        self._load[number] += 1

    def _hand_out(self, topic: bytes) -> None:
        owners = self._owners[topic]
        left = [index for index, owner in enumerate(owners) if owner == _NOBODY]
        if not left:
            return
        load = self._load
        idle = [(load[number], number) for number in self._readers[topic]]
        heapify(idle)
        for index in left:
            _, number = idle[0]
            owners[index] = number
            load[number] += 1
            heapreplace(idle, (load[number], number))

    def _balance(self, topic: bytes) -> int:
        """Move partitions of one topic to readers with less to do; gives how many have moved."""
        load = self._load
        readers = self._readers[topic]
        if max(load[number] for number in readers) - min(load[number] for number in readers) <= 1:
            return 0
        owned: dict[int, list[int]] = {}
        for index, owner in enumerate(self._owners[topic]):
            owned.setdefault(owner, []).append(index)
        idle = [(load[number], number) for number in readers]
        busy = [(-load[number], number) for number in owned]
        heapify(idle)
        heapify(busy)
        moved = 0
        while busy:
            heavy, giver = busy[0]
            # What is known of an idle reader may be out of date, since it may have given something away itself.
            while idle[0][0] != load[idle[0][1]]:
                heapreplace(idle, (load[idle[0][1]], idle[0][1]))
            if -heavy != load[giver]:
                heapreplace(busy, (-load[giver], giver))
                continue
            light, taker = idle[0]
            if load[giver] - light <= 1:
                break
            self._owners[topic][owned[giver].pop()] = taker
            load[giver] -= 1
            load[taker] += 1
            moved += 1
            heapreplace(idle, (load[taker], taker))
            if owned[giver]:
                heapreplace(busy, (-load[giver], giver))
            else:
                heappop(busy)
        return moved
