"""How far groups are behind: what they have committed beside where the logs end, and who reads which partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from moldau.client.admin.groups import GroupDescription, Member
from moldau.client.cluster import Cluster, TopicPartition
from moldau.client.group_offsets import Committed
from moldau.client.offsets import LATEST, find_offsets
from moldau.protocol.errors import ApiError


@dataclass(slots=True)
class PartitionLag:
    """One partition a group reads or has read: where it stands, where the log ends, who reads it."""

    topic: str
    partition: int
    committed: Committed | None
    end: int | None
    member: Member | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end is None:
            return None
        return self.end - self.committed.offset


def group_lags(
    cluster: Cluster,
    descriptions: Iterable[GroupDescription],
    committed: Mapping[str, Mapping[TopicPartition, Committed]],
) -> dict[str, list[PartitionLag]]:
    """Every partition a group is assigned or has committed to: first those with a member, the member with most
    partitions first, then those nobody reads now."""
    rows: dict[str, list[PartitionLag]] = {}
    for group in descriptions:
        offsets = committed.get(group.group_id, {})
        mine: list[PartitionLag] = []
        assigned: set[TopicPartition] = set()
        for member in sorted(group.members, key=lambda each: -len(each.partitions)):
            for name, index in sorted(member.partitions):
                assigned.add((name, index))
                mine.append(PartitionLag(name, index, offsets.get((name, index)), None, member))
        mine += [
            PartitionLag(name, index, offsets[name, index], None, None)
            for name, index in sorted(set(offsets) - assigned)
        ]
        rows[group.group_id] = mine
    wanted = {(row.topic, row.partition) for mine in rows.values() for row in mine}
    ends = find_offsets(cluster, dict.fromkeys(sorted(wanted), LATEST)) if wanted else {}
    for mine in rows.values():
        for row in mine:
            at = ends[row.topic, row.partition]
            # A topic that is gone or has no leader has no end: its lag is unknown, not zero.
            row.end = None if isinstance(at, ApiError) else at.offset
    return rows
