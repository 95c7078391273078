"""The metrics page: turns the node's own counters into Prometheus' text when somebody asks.

Nothing here runs on the hot path: requests, partitions and connections count in plain attributes, and this reads
them at scrape time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from moldau.broker.request_metrics import BUCKETS, RequestMetrics
from moldau.node.cluster_metrics import collect_cluster, collect_controller, collect_groups, collect_quorum
from moldau.node.share_metrics import collect_share
from moldau.protocol.api import API_TABLE
from moldau.protocol.errors import error_code

if TYPE_CHECKING:
    from prometheus_client import Metric

    from moldau.broker.fetch_session import FetchSessionCache
    from moldau.broker.share_fetch import ShareFetchHandlers
    from moldau.controller.controller import Controller
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.runtime import CoordinatorRuntime
    from moldau.metadata.image import ClusterImage
    from moldau.node.listener import Listener
    from moldau.node.unread import UnreadAnswers
    from moldau.quorum.quorum import Quorum
    from moldau.replication.partition_table import PartitionTable


class NodeMetrics:
    """A Prometheus collector over one node."""

    def __init__(
        self,
        requests: RequestMetrics,
        partitions: PartitionTable | None,
        sessions: FetchSessionCache | None,
        listeners: Iterable[Listener],
        unread: UnreadAnswers,
        image: Callable[[], ClusterImage],
        node_id: int,
        share: Callable[[], ShareFetchHandlers | None] = lambda: None,
        *,
        quorum: Quorum | None = None,
        controller: Controller | None = None,
        groups: Callable[[], CoordinatorRuntime[GroupShard] | None] = lambda: None,
    ) -> None:
        self._requests = requests
        self._partitions = partitions
        self._sessions = sessions
        self._listeners = listeners
        self._unread = unread
        self._image = image
        self._node_id = node_id
        self._share = share
        self._quorum = quorum
        self._controller = controller
        self._groups = groups

    def page(self) -> tuple[int, str, bytes]:
        # Imported here: most nodes in tests are never scraped, and the library costs start-up time.
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
        from prometheus_client.process_collector import ProcessCollector

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        ProcessCollector(registry=registry)
        return 200, CONTENT_TYPE_LATEST, generate_latest(registry)

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._collect_requests()
        yield from self._collect_connections()
        yield from collect_cluster(self._image())
        if self._quorum is not None:
            yield from collect_quorum(self._quorum)
        if self._controller is not None:
            yield from collect_controller(self._controller)
        groups = self._groups()
        if groups is not None:
            yield from collect_groups(groups)
        if self._partitions is not None:
            yield from self._collect_partitions(self._partitions)
        if self._sessions is not None:
            yield _gauge("moldau_fetch_sessions", "Incremental fetch sessions in the cache", len(self._sessions))
            yield _gauge(
                "moldau_fetch_session_partitions", "Partitions those sessions cover", self._sessions.partition_count
            )
        share = self._share()
        if share is not None:
            yield from collect_share(share)

    def _collect_requests(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        requests = self._requests
        sizes = CounterMetricFamily("moldau_request_bytes", "Bytes of requests received, by API", labels=["api"])
        latency = HistogramMetricFamily(
            "moldau_request_seconds", "From a request's last byte to its answer, by API", labels=["api"]
        )
        for api_key, figures in requests.by_api.items():
            name = API_TABLE[api_key].name
            sizes.add_metric([name], figures.bytes_in)
            total = 0
            rows: list[tuple[str, float]] = []
            for exponent in range(BUCKETS - 1):
                total += figures.latency_us_buckets[exponent]
                rows.append((str((1 << exponent) / 1e6), total))
            rows.append(("+Inf", figures.count))
            latency.add_metric([name], rows, figures.latency_us_sum / 1e6)
        yield sizes
        yield latency
        errors = CounterMetricFamily("moldau_request_errors", "Errors told to clients, by error", labels=["error"])
        for code, count in requests.errors.items():
            errors.add_metric([error_code(code).name], count)
        yield errors

    def _collect_connections(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        now = GaugeMetricFamily("moldau_connections", "Open connections, by listener", labels=["listener"])
        accepted = CounterMetricFamily("moldau_connections_accepted", "Connections accepted", labels=["listener"])
        idle = CounterMetricFamily("moldau_connections_closed_idle", "Closed for silence", labels=["listener"])
        bad = CounterMetricFamily("moldau_connections_closed_bad", "Closed for a bad request", labels=["listener"])
        refused = CounterMetricFamily("moldau_connections_rejected", "Refused by a limit", labels=["listener"])
        logins = CounterMetricFamily("moldau_logins", "Connections that logged in with SASL", labels=["listener"])
        no_login = CounterMetricFamily("moldau_logins_refused", "Logins and handshakes refused", labels=["listener"])
        for listener in self._listeners:
            now.add_metric([listener.name], listener.connection_count)
            accepted.add_metric([listener.name], listener.accepted)
            idle.add_metric([listener.name], listener.closed_idle)
            bad.add_metric([listener.name], listener.bad_requests)
            refused.add_metric([listener.name], listener.rejected)
            logins.add_metric([listener.name], listener.logins)
            no_login.add_metric([listener.name], listener.refused_logins)
        yield from (now, accepted, idle, bad, refused, logins, no_login)
        yield _gauge("moldau_unread_bytes", "Answers in connections whose clients do not read", self._unread.total)
        yield CounterMetricFamily(
            "moldau_connections_closed_stuck", "Closed for leaving too much unread", value=self._unread.given_up
        )

    def _collect_partitions(self, table: PartitionTable) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        labels = ["topic", "partition"]
        records = CounterMetricFamily("moldau_records_in", "Records appended", labels=labels)
        bytes_in = CounterMetricFamily("moldau_bytes_in", "Bytes appended", labels=labels)
        bytes_out = CounterMetricFamily("moldau_bytes_out", "Bytes read by clients", labels=labels)
        start = GaugeMetricFamily("moldau_log_start_offset", "First offset kept", labels=labels)
        end = GaugeMetricFamily("moldau_log_end_offset", "Next offset to be written", labels=labels)
        watermark = GaugeMetricFamily("moldau_high_watermark", "Next offset to be committed", labels=labels)
        size = GaugeMetricFamily("moldau_log_size_bytes", "Bytes on disk", labels=labels)
        in_sync = GaugeMetricFamily("moldau_in_sync_replicas", "Replicas in sync, where it is led", labels=labels)
        held = leading = under_replicated = under_min_isr = at_min_isr = 0
        for partition in table:
            held += 1
            leading += partition.is_leader
            under_replicated += partition.is_leader and len(partition.isr) < len(partition.replicas)
            under_min_isr += partition.is_leader and len(partition.isr) < partition.min_isr
            at_min_isr += partition.is_leader and len(partition.isr) == partition.min_isr
            if partition.is_leader:
                in_sync.add_metric([partition.topic, str(partition.index)], len(partition.isr))
            if not partition.opened:
                continue  # nobody has used it since the start: nothing to tell yet
            where = [partition.topic, str(partition.index)]
            log = partition.log
            records.add_metric(where, partition.records_in)
            bytes_in.add_metric(where, partition.bytes_in)
            bytes_out.add_metric(where, partition.bytes_out)
            start.add_metric(where, log.log_start_offset)
            end.add_metric(where, log.log_end_offset)
            watermark.add_metric(where, log.high_watermark)
            size.add_metric(where, log.size)
        yield from (records, bytes_in, bytes_out, start, end, watermark, size, in_sync)
        yield _gauge("moldau_partitions", "Partitions this node holds", held)
        yield _gauge("moldau_partitions_leading", "Of them led by this node", leading)
        yield _gauge("moldau_partitions_under_replicated", "Led here with replicas out of sync", under_replicated)
        yield _gauge("moldau_partitions_at_min_isr", "Led here with just enough in sync", at_min_isr)
        yield _gauge("moldau_partitions_under_min_isr", "Led here with too few in sync", under_min_isr)


def _gauge(name: str, text: str, value: float) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, text, value=value)
