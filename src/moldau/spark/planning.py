"""From options to offsets: which partitions there are, where each begins and ends, and how ranges become tasks.

It asks the cluster and computes; it reads no record, except a few batch headers to learn how large records are when a
limit in bytes is set. A streaming query's offsets have the shape of Spark's own Kafka source,
`{"topic": {"0": 23}}`, so a checkpoint can be read by anyone who knows that one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise

from moldau.client.cluster import Cluster, TopicPartition
from moldau.client.errors import Disconnected, MoldauError, unknown_topic
from moldau.client.group_offsets import group_offsets
from moldau.client.offsets import EARLIEST, LATEST, NO_OFFSET, list_offsets
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic
from moldau.records.batch import BatchError, iter_batches
from moldau.spark.fetching import OffsetRange
from moldau.spark.options import Bound, SourceOptions, Subscription

Offsets = dict[TopicPartition, int]

# What is looked at to estimate the size of records: some batches from where the next micro-batch starts.
SAMPLE_BYTES = 64 * 1024

# Starting a Python task costs Spark about as long as reading this many small records.
TASK_OFFSETS_MIN = 10_000


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The shape of Spark's checkpoints, in a fixed order so that equal offsets are equal texts."""
    shaped: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        shaped.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
    return shaped


def from_json(shaped: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        (topic, int(partition)): offset for topic, numbers in shaped.items() for partition, offset in numbers.items()
    }


def find_partitions(
    cluster: Cluster, subscription: Subscription, may_be_gone: Collection[str] = ()
) -> list[TopicPartition]:
    """The partitions a subscription means at this moment. Topics that may be gone have none when they are."""
    if subscription.pattern is not None:
        pattern = re.compile(subscription.pattern)
        known = cluster.all_topics().items()
        # A consumer's pattern does not reach the brokers' own topics, however wide it is.
        views = {name: view for name, view in known if pattern.fullmatch(name) and not view.internal}
    else:
        names = subscription.topics or tuple(dict.fromkeys(topic for topic, _ in subscription.assigned))
        views = cluster.topics(names)
        for name in names:
            error = views[name].error
            if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name in may_be_gone:
                del views[name]
            elif error:
                raise unknown_topic(name, error)
    if subscription.assigned:
        there = sorted(each for each in subscription.assigned if each[0] in views)
        for topic, partition in there:
            if partition not in views[topic].leaders:
                raise MoldauError(f"assign: topic '{topic}' has no partition {partition}")
        return there
    return sorted((name, partition) for name, view in views.items() for partition in view.leaders)


def resolve(
    cluster: Cluster, options: SourceOptions, bound: Bound, partitions: Iterable[TopicPartition], *, starting: bool
) -> Offsets:
    """The offset a bound means in each partition."""
    name = "startingOffsets" if starting else "endingOffsets"
    wanted = list(partitions)
    default = EARLIEST if starting else LATEST
    if bound.from_group:
        return _resolve_group(cluster, options, wanted)
    if bound.timestamp is not None:
        return _resolve_times(cluster, options, dict.fromkeys(wanted, bound.timestamp), starting=starting)
    if bound.timestamps:
        times = dict(bound.timestamps)
        _check_same(wanted, times, f"{name}ByTimestamp")
        return _resolve_times(cluster, options, times, starting=starting)
    if not bound.offsets:
        everywhere = default if bound.everywhere is None else bound.everywhere
        return list_offsets(cluster, dict.fromkeys(wanted, everywhere), options.isolation)
    given = dict(bound.offsets)
    _check_same(wanted, given, name)
    named = {partition: offset for partition, offset in given.items() if offset < 0}
    return given | list_offsets(cluster, named, options.isolation)


def _resolve_group(cluster: Cluster, options: SourceOptions, partitions: list[TopicPartition]) -> Offsets:
    """Where the group has got to; from the beginning where it has committed nothing."""
    assert options.group is not None
    committed = group_offsets(cluster, options.group, partitions)
    found = {partition: offset for partition, (offset, _) in committed.items()}
    fresh = {partition: EARLIEST for partition in partitions if partition not in found}
    return found | list_offsets(cluster, fresh, options.isolation)


def _resolve_times(cluster: Cluster, options: SourceOptions, times: Offsets, *, starting: bool) -> Offsets:
    found = list_offsets(cluster, times, options.isolation)
    late = [partition for partition, offset in found.items() if offset == NO_OFFSET]
    if late and starting and not options.latest_when_no_timestamp:
        raise MoldauError(
            f"No record is at or after the starting timestamp in {_names(late)}; "
            "set startingOffsetsByTimestampStrategy=latest to start at the end there"
        )
    return found | list_offsets(cluster, dict.fromkeys(late, LATEST), options.isolation)


def _check_same(partitions: list[TopicPartition], given: Mapping[TopicPartition, int], name: str) -> None:
    missing, extra = set(partitions) - set(given), set(given) - set(partitions)
    if missing or extra:
        what = f"misses {_names(missing)}" if missing else f"names {_names(extra)}, which are not subscribed to"
        raise MoldauError(f"{name} must name every partition that is read: it {what}")


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions))


def split(ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None) -> list[OffsetRange]:
    """Ranges cut so that there are about `min_partitions` of them and none has more than `max_records` offsets."""
    pieces = []
    for each in ranges:
        size = each.end - each.start
        if size > 0:
            count = 1 if max_records is None else -(-size // max_records)
            pieces += _cut(each, count)
    total = sum(each.end - each.start for each in pieces)
    if min_partitions is None or len(pieces) >= min_partitions or total == 0:
        return pieces
    cut = []
    for each in pieces:
        share = (each.end - each.start) * min_partitions / total
        cut += _cut(each, max(1, round(share)))
    return cut


def pack(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[tuple[OffsetRange, ...]]:
    """Ranges put together into tasks of at least TASK_OFFSETS_MIN offsets, unless it was said how to cut tasks."""
    if min_partitions is not None or max_records is not None:
        return [(each,) for each in ranges]
    tasks: list[list[OffsetRange]] = []
    room = 0
    for each in ranges:
        if room <= 0:
            tasks.append([])
            room = TASK_OFFSETS_MIN
        tasks[-1].append(each)
        room -= each.end - each.start
    return [tuple(task) for task in tasks]


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    size = whole.end - whole.start
    count = min(count, size)
    edges = [whole.start + size * index // count for index in range(count + 1)]
    return [OffsetRange(whole.topic, whole.partition, start, end) for start, end in pairwise(edges)]


def limit(
    start: Offsets, end: Offsets, budget: float, weights: Mapping[TopicPartition, float] | None = None
) -> Offsets:
    """An end that is at most about `budget` away in all, shared out by how much each partition has waiting.

    `weights` says what one offset costs (1 without them). Every partition with something waiting moves by at least one
    offset, so that none starves behind a busy one.
    """
    cost = {part: (end[part] - start.get(part, 0)) * (weights[part] if weights else 1.0) for part in end}
    waiting = sum(each for each in cost.values() if each > 0)
    if waiting <= budget:
        return dict(end)
    limited = {}
    for part, offset in end.items():
        behind = offset - start.get(part, 0)
        allowed = int(behind * budget / waiting)
        limited[part] = start.get(part, 0) + max(allowed, 1) if behind > 0 else offset
    return limited


def record_sizes(cluster: Cluster, start: Offsets, end: Offsets, isolation: int) -> dict[TopicPartition, float]:
    """About how many bytes an offset takes in each partition, from the batches that come next."""
    sizes = {}
    for (topic, partition), offset in end.items():
        sizes[topic, partition] = 1.0
        position = start.get((topic, partition), 0)
        if offset <= position:
            continue
        asked = FetchPartition(partition=partition, fetch_offset=position, partition_max_bytes=SAMPLE_BYTES)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=SAMPLE_BYTES,
            isolation_level=isolation,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[asked])],
        )
        try:
            answer = cluster.node(cluster.leader(topic, partition, cluster.deadline())).request(request)
            batches = list(iter_batches(answer.responses[0].partitions[0].records or b""))
        except (Disconnected, BatchError, IndexError):
            continue  # a guess is enough here; reading itself reports what is wrong
        if batches:
            span = batches[-1].next_offset - batches[0].base_offset
            sizes[topic, partition] = sum(batch.size for batch in batches) / max(span, 1)
    return sizes
