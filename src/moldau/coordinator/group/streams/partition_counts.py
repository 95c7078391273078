"""How many partitions the topics get that an application needs for itself.

A repartition topic has as many as the application says, or as many as what its writers read; topics that are joined
must have the same number; a changelog has one for each task. Decides numbers only; nothing is created here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from moldau.coordinator.group.streams.statuses import BadTopics, Status
from moldau.coordinator.group.streams.topology import Topology, read_topics
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.group.streams_group_topology_value import Subtopology, TopicInfo


class PartitionCounts:
    """Counts of topics that exist, and of those that were decided about."""

    __slots__ = ("_existing", "_topology", "decided")

    def __init__(self, topology: Topology, existing: Callable[[str], int | None]) -> None:
        """`existing` says how many partitions a topic of the cluster has; None when there is no such topic."""
        self._topology = topology
        self._existing = existing
        self.decided: dict[str, int] = {}

    def find(self, topic: str) -> int | None:
        existing = self._existing(topic)
        return self.decided.get(topic) if existing is None else existing

    def of(self, topic: str) -> int:
        count = self.find(topic)
        if count is None:
            raise _invalid(f"The number of partitions of topic {topic} is not known.")
        return count

    def of_internal(self, info: TopicInfo) -> int:
        """What an internal topic is to have, whatever it has now."""
        return info.partitions or self.decided[info.name]

    def tasks_of(self, subtopology: Subtopology) -> int:
        return max(map(self.of, read_topics(subtopology)))

    # ---- deciding

    def decide(self) -> None:
        """Raises BadTopics when topics that are joined do not match, ApiError when the topology makes no sense."""
        self._decide_repartition_topics()
        self._align()
        self._decide_changelogs()

    @property
    def _subtopologies(self) -> Iterable[Subtopology]:
        return self._topology.subtopologies.values()

    def _repartition_topics(self) -> Iterator[TopicInfo]:
        for subtopology in self._subtopologies:
            yield from subtopology.repartition_source_topics

    def _decide_repartition_topics(self) -> None:
        for info in self._repartition_topics():
            if info.partitions < 0:
                raise _invalid(f"Topic {info.name} cannot have {info.partitions} partitions.")
        counts = {info.name: info.partitions for info in self._repartition_topics() if info.partitions}
        # What a topic gets may depend on another one of them, so several rounds can be needed.
        while True:
            progress = missing = False
            for subtopology in self._subtopologies:
                for sink in subtopology.repartition_sink_topics:
                    if sink in counts:
                        continue
                    count = self._most_read(subtopology, counts)
                    if count is None:
                        missing = True
                    else:
                        counts[sink] = count
                        progress = True
            if not missing:
                break
            if not progress:
                raise _invalid(
                    "Failed to compute number of partitions for all repartition topics. There may be loops in the "
                    "topology that cannot be resolved."
                )
        if any(info.name not in counts for info in self._repartition_topics()):
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics, because a repartition source "
                "topic is never used as a sink topic."
            )
        self.decided.update(counts)

    def _most_read(self, subtopology: Subtopology, counts: Mapping[str, int]) -> int | None:
        known = [counts.get(info.name) for info in subtopology.repartition_source_topics]
        known += [self.find(topic) for topic in subtopology.source_topics]
        return max((count for count in known if count is not None), default=None)

    def _align(self) -> None:
        """Topics that are joined with each other get the same number of partitions."""
        fixed = {info.name for info in self._repartition_topics() if info.partitions}
        flexible = {info.name for info in self._repartition_topics() if not info.partitions}
        for subtopology in self._subtopologies:
            for topics in _copartitioned(subtopology):
                repartitioned = {topic: self.of(topic) for topic in topics if topic in fixed or topic in flexible}
                external = {topic: self.of(topic) for topic in topics if topic not in repartitioned}
                count = self._common_count(repartitioned, external, fixed)
                for topic, had in repartitioned.items():
                    if topic in fixed and had != count:
                        raise BadTopics(
                            Status.INCORRECTLY_PARTITIONED_TOPICS,
                            f"Number of partitions [{had}] of repartition topic [{topic}] doesn't match number of "
                            f"partitions [{count}] of the source topic.",
                        )
                    self.decided[topic] = count

    def _common_count(self, repartitioned: Mapping[str, int], external: Mapping[str, int], fixed: set[str]) -> int:
        if external:
            return _same(external.values(), external)
        if fixed:
            return _same(map(self.of, fixed), repartitioned)
        return max(repartitioned.values())

    def _decide_changelogs(self) -> None:
        changelogs: dict[str, int] = {}
        for subtopology in self._subtopologies:
            if not any(read_topics(subtopology)):
                raise _invalid(f"No source topics found for subtopology {subtopology.subtopology_id}")
            changelogs.update(
                dict.fromkeys((info.name for info in subtopology.state_changelog_topics), self.tasks_of(subtopology))
            )
        self.decided.update(changelogs)


def _copartitioned(subtopology: Subtopology) -> Iterator[set[str]]:
    for group in subtopology.copartition_groups:
        try:
            topics = {subtopology.source_topics[index] for index in group.source_topics}
            topics.update(
                subtopology.repartition_source_topics[index].name for index in group.repartition_source_topics
            )
        except IndexError:
            raise _invalid(
                f"A copartition group of subtopology {subtopology.subtopology_id} names a topic that is not there."
            ) from None
        if topics:
            yield topics


def _same(counts: Iterable[int], topics: Mapping[str, int]) -> int:
    different = set(counts)
    if len(different) > 1:
        listed = ", ".join(f"{topic}={count}" for topic, count in sorted(topics.items()))
        raise BadTopics(
            Status.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{listed}}}]",
        )
    return different.pop()


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
