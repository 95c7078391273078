"""What the metrics page says of the cluster: brokers and partitions as the metadata has them, the quorum, fail-overs,
and the groups that are coordinated here. Read at scrape time; nothing counts for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from moldau.controller.failovers import BUCKETS_MS
from moldau.metadata.image import NO_LEADER
from moldau.quorum.leader import Leader

if TYPE_CHECKING:
    from prometheus_client import Metric

    from moldau.controller.controller import Controller
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.runtime import CoordinatorRuntime
    from moldau.metadata.image import ClusterImage
    from moldau.quorum.quorum import Quorum


def collect_cluster(image: ClusterImage) -> Iterator[Metric]:
    """The same on every node that has read as far."""
    from prometheus_client.core import GaugeMetricFamily

    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    in_sync: Counter[int] = Counter()
    partitions = under_replicated = leaderless = reassigning = not_preferred = 0
    for topic in image.topics_by_id.values():
        for partition in topic.partitions.values():
            partitions += 1
            under_replicated += len(partition.isr) < len(partition.replicas)
            leaderless += partition.leader == NO_LEADER
            reassigning += partition.is_reassigning
            not_preferred += partition.leader != partition.preferred_leader
            leaders[partition.leader] += 1
            replicas.update(partition.replicas)
            in_sync.update(partition.isr)
    yield _gauge("moldau_metadata_offset", "Offset of the newest metadata record applied", image.offset)
    yield _gauge("moldau_topics", "Topics in the cluster", len(image.topics_by_name))
    yield _gauge("moldau_brokers", "Brokers registered", len(image.brokers))
    yield _gauge("moldau_brokers_fenced", "Of them fenced", sum(b.fenced for b in image.brokers.values()))
    yield _gauge("moldau_cluster_partitions", "Partitions in the cluster", partitions)
    yield _gauge("moldau_cluster_partitions_under_replicated", "Of them with replicas out of sync", under_replicated)
    yield _gauge("moldau_cluster_partitions_offline", "Of them without a leader", leaderless)
    yield _gauge("moldau_cluster_partitions_reassigning", "Of them being moved", reassigning)
    yield _gauge("moldau_cluster_partitions_not_preferred", "Of them not led by the preferred replica", not_preferred)
    for name, text, counts in (
        ("moldau_broker_leaders", "Partitions a broker leads", leaders),
        ("moldau_broker_replicas", "Replicas a broker holds", replicas),
        ("moldau_broker_in_sync_replicas", "Of them in sync", in_sync),
    ):
        family = GaugeMetricFamily(name, text, labels=["broker"])
        for broker in sorted(image.brokers):
            family.add_metric([str(broker)], counts[broker])
        yield family


def collect_quorum(quorum: Quorum) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    yield _gauge("moldau_quorum_leader", "Node that leads the metadata quorum, -1 when unknown", quorum.leader_id)
    yield _gauge("moldau_quorum_epoch", "Epoch of the quorum", quorum.epoch)
    yield _gauge("moldau_quorum_voters", "Voters of the quorum", len(quorum.voters))
    yield _gauge("moldau_quorum_log_end_offset", "Next offset of this node's metadata log", quorum.next_offset)
    yield _gauge("moldau_quorum_high_watermark", "Next offset of it to be committed", quorum.high_watermark)
    lag = GaugeMetricFamily(
        "moldau_quorum_lag", "Metadata records a node has not fetched yet; told by the leader", labels=["node"]
    )
    if isinstance(quorum.role, Leader):
        for progress in quorum.role.voter_progress():
            if progress.key.id != quorum.node_id and progress.end_offset >= 0:
                lag.add_metric([str(progress.key.id)], max(0, quorum.next_offset - progress.end_offset))
    yield lag


def collect_controller(controller: Controller) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

    found = controller.failovers
    yield _gauge("moldau_controller_active", "1 where the active controller is", int(controller.is_active))
    yield CounterMetricFamily("moldau_failovers", "Times that others took over from a dead broker", value=found.count)
    yield CounterMetricFamily(
        "moldau_failover_partitions", "Partitions that got a new leader by that", value=found.partitions
    )
    times = HistogramMetricFamily("moldau_failover_seconds", "From the first sign of trouble to new leaders")
    total = 0
    rows: list[tuple[str, float]] = []
    for limit, count in zip(BUCKETS_MS, found.buckets, strict=False):
        total += count
        rows.append((str(limit / 1000), total))
    rows.append(("+Inf", found.count))
    times.add_metric([], rows, found.sum_ms / 1000)
    yield times
    if found.count:
        yield _gauge("moldau_failover_last_seconds", "How long the last one took", found.last_ms / 1000)
        yield _gauge("moldau_failover_last_timestamp_seconds", "When that was", found.last_at_ms / 1000)


def collect_groups(groups: CoordinatorRuntime[GroupShard]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    family = GaugeMetricFamily("moldau_groups", "Groups coordinated here", labels=["type", "state"])
    counts = Counter((g.type.value, g.state_name) for shard in groups.shards() for g in shard.groups.values())
    for (kind, state), count in sorted(counts.items()):
        family.add_metric([kind, state], count)
    yield family
    rebalances = sum(shard.streams_rebalances for shard in groups.shards())
    yield CounterMetricFamily(
        "moldau_streams_group_rebalances", "Times that streams groups coordinated here began anew", value=rebalances
    )


def _gauge(name: str, text: str, value: float) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, text, value=value)
