"""What the metrics page says of share groups: sessions, records in flight, acknowledgements, locks that ran out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import Metric

    from moldau.broker.share_fetch import ShareFetchHandlers


def collect_share(share: ShareFetchHandlers) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    sessions = share.sessions
    yield GaugeMetricFamily("moldau_share_sessions", "Share sessions of members", value=len(sessions))
    yield GaugeMetricFamily(
        "moldau_share_session_partitions", "Partitions those sessions cover", value=sessions.partition_count
    )
    yield CounterMetricFamily(
        "moldau_share_session_evictions", "Share sessions whose connection broke", value=sessions.evictions
    )
    acknowledged = CounterMetricFamily(
        "moldau_share_acknowledged_records", "Records acknowledged, by how", labels=["type"]
    )
    for kind, count in share.acknowledger.counts.items():
        acknowledged.add_metric([kind.name.lower()], count)
    yield acknowledged
    labels = ["group", "topic", "partition"]
    records = GaugeMetricFamily("moldau_share_in_flight_records", "Records in the group's window", labels=labels)
    batches = GaugeMetricFamily("moldau_share_in_flight_batches", "Batches in the group's window", labels=labels)
    timeouts = CounterMetricFamily(
        "moldau_share_lock_timeouts", "Records taken from members that held them too long", labels=labels
    )
    for led in share.partitions:
        where = [led.share.group_id, led.partition.topic, str(led.key.partition)]
        records.add_metric(where, led.share.in_flight_records)
        batches.add_metric(where, len(led.share.window))
        timeouts.add_metric(where, led.share.lock_timeouts)
    yield from (records, batches, timeouts)
