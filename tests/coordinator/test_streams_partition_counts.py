"""How many partitions repartition topics get: exactly as Kafka decides it, round by round over all subtopologies."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from moldau.coordinator.group.streams.partition_counts import PartitionCounts
from moldau.coordinator.group.streams.topology import Topology
from moldau.protocol.errors import ApiError
from moldau.protocol.generated.group.streams_group_topology_value import (
    StreamsGroupTopologyValue,
    Subtopology,
    TopicInfo,
)

SOURCES = {"s1": 1, "s3": 3, "s5": 5}
REPARTITIONED = [f"r{number}" for number in range(6)]
SIZES = st.fixed_dictionaries(dict.fromkeys(REPARTITIONED, st.sampled_from([0, 0, 0, 2, 4])))


@st.composite
def topologies(draw: st.DrawFn) -> list[Subtopology]:
    """Each repartition topic has one reader and one size, and any number of writers."""
    sizes = draw(SIZES)
    count = draw(st.integers(1, 6))
    reader = {name: draw(st.integers(0, count - 1)) for name in REPARTITIONED if draw(st.booleans())}
    return [
        Subtopology(
            subtopology_id=str(place),
            source_topics=draw(st.lists(st.sampled_from(sorted(SOURCES)), max_size=2, unique=True)),
            repartition_sink_topics=draw(st.lists(st.sampled_from(REPARTITIONED), max_size=3, unique=True)),
            repartition_source_topics=[TopicInfo(name, sizes[name]) for name, at in reader.items() if at == place],
        )
        for place in range(count)
    ]


def round_by_round(subtopologies: list[Subtopology]) -> dict[str, int] | None:
    """As Kafka does it; None when it gives up."""
    infos = [info for each in subtopologies for info in each.repartition_source_topics]
    counts = {info.name: info.partitions for info in infos if info.partitions}
    while True:
        needed = progress = False
        for each in subtopologies:
            for sink in each.repartition_sink_topics:
                if sink in counts:
                    continue
                known = [counts[info.name] for info in each.repartition_source_topics if info.name in counts]
                known += [SOURCES[topic] for topic in each.source_topics]
                if known:
                    counts[sink] = max(known)
                    progress = True
                else:
                    needed = True
        if not needed:
            return counts if all(info.name in counts for info in infos) else None
        if not progress:
            return None


@settings(max_examples=300)
@given(topologies())
def test_the_same_numbers_as_kafkas(subtopologies: list[Subtopology]) -> None:
    expected = round_by_round(subtopologies)
    counts = PartitionCounts(Topology(StreamsGroupTopologyValue(0, subtopologies)), SOURCES.get)
    assume(all(each.source_topics or each.repartition_source_topics for each in subtopologies))
    if expected is None:
        with pytest.raises(ApiError, match="Failed to compute number of partitions"):
            counts.decide()
    else:
        counts.decide()
        assert counts.decided == expected
