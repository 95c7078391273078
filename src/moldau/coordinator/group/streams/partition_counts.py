"""How many partitions the topics get that an application needs for itself.

A repartition topic has as many as the application says, or as many as what its writers read; topics that are joined
must have the same number; a changelog has one for each task. Decides numbers only; nothing is created here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heappop, heappush

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
        self._follow_sinks(counts)
        if any(sink not in counts for each in self._subtopologies for sink in each.repartition_sink_topics):
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
                "that cannot be resolved."
            )
        if any(info.name not in counts for info in self._repartition_topics()):
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics, because a repartition source "
                "topic is never used as a sink topic."
            )
        self.decided.update(counts)

    def _follow_sinks(self, counts: dict[str, int]) -> None:
        """What a topic gets may depend on another one, so Kafka goes through the subtopologies again and again, until
        nothing new is found. This takes the same turns, but only where something has become known."""
        subtopologies = list(self._subtopologies)
        readers: dict[str, list[int]] = {}
        for place, subtopology in enumerate(subtopologies):
            for info in subtopology.repartition_source_topics:
                readers.setdefault(info.name, []).append(place)
        round_: list[int] = list(range(len(subtopologies)))
        while round_:
            following: set[int] = set()
            waiting = set(round_)
            while round_:
                place = heappop(round_)
                waiting.discard(place)
                subtopology = subtopologies[place]
                for sink in subtopology.repartition_sink_topics:
                    count = None if sink in counts else self._most_read(subtopology, counts)
                    if count is None:
                        continue
                    counts[sink] = count
                    for reader in readers.get(sink, ()):
                        if reader < place:
                            following.add(reader)
                        elif reader > place and reader not in waiting:
                            waiting.add(reader)
                            heappush(round_, reader)
            round_ = sorted(following)

    def _most_read(self, subtopology: Subtopology, counts: Mapping[str, int]) -> int | None:
        known = [counts.get(info.name) for info in subtopology.repartition_source_topics]
        known += [self.find(topic) for topic in subtopology.source_topics]
        return max((count for count in known if count is not None), default=None)

    def _align(self) -> None:
        """Topics that are joined with each other get the same number of partitions."""
        fixed = {info.name for info in self._repartition_topics() if info.partitions}
        flexible = {info.name for info in self._repartition_topics() if not info.partitions}
        of_fixed = {self.of(topic) for topic in fixed}
        for subtopology in self._subtopologies:
            for topics in _copartitioned(subtopology):
                repartitioned = {topic: self.of(topic) for topic in topics if topic in fixed or topic in flexible}
                external = {topic: self.of(topic) for topic in topics if topic not in repartitioned}
                if external:
                    count = _same(set(external.values()), external)
                elif fixed:
                    count = _same(of_fixed, repartitioned)
                else:
                    count = max(repartitioned.values())
                for topic, had in repartitioned.items():
                    if topic in fixed and had != count:
                        raise BadTopics(
                            Status.INCORRECTLY_PARTITIONED_TOPICS,
                            f"Number of partitions [{had}] of repartition topic [{topic}] doesn't match number of "
                            f"partitions [{count}] of the source topic.",
                        )
                    self.decided[topic] = count

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


def _same(counts: set[int], topics: Mapping[str, int]) -> int:
    if len(counts) > 1:
        listed = ", ".join(f"{topic}={count}" for topic, count in sorted(topics.items()))
        raise BadTopics(
            Status.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{listed}}}]",
        )
    return next(iter(counts))


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
