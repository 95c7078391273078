"""The metrics page of a run: the board of queries as Prometheus' text, made when somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from moldau.pipeline.errors import PipelineError
from moldau.pipeline.progress import RUNNING, Board, QueryStatus

if TYPE_CHECKING:
    from prometheus_client import Metric

Value = Callable[[QueryStatus], float | None]

# Name, what it says, where it comes from; the counters' names get Prometheus' `_total`.
_COUNTERS: tuple[tuple[str, str, Value], ...] = (
    ("moldau_query_rows_in", "Rows read, by query", lambda each: each.rows_in),
    ("moldau_query_rows_out", "Rows written, by query", lambda each: each.rows_out),
    ("moldau_query_batches", "Micro-batches completed, by query", lambda each: each.batches),
    ("moldau_query_late_rows", "Rows dropped because they came after the watermark", lambda each: each.late_rows),
    ("moldau_query_restarts", "Times a query was started again after a failure", lambda each: each.restarts),
)
_GAUGES: tuple[tuple[str, str, Value], ...] = (
    ("moldau_query_up", "1 while the query runs", lambda each: float(each.state == RUNNING)),
    ("moldau_query_rows_in_per_second", "Rows read per second lately", lambda each: each.rows_in_per_second),
    ("moldau_query_rows_out_per_second", "Rows written per second lately", lambda each: each.rows_out_per_second),
    ("moldau_query_lag_records", "Records in the topics that are not read yet", lambda each: each.lag),
    ("moldau_query_batch_seconds", "How long the last micro-batch took", lambda each: each.batch_seconds),
    ("moldau_query_state_rows", "Rows of state kept", lambda each: each.state_rows),
    ("moldau_query_state_bytes", "Bytes of state kept", lambda each: each.state_bytes),
    ("moldau_query_watermark_timestamp_seconds", "The event time up to which all is seen", lambda each: each.watermark),
)


class RunMetrics:
    """A Prometheus collector over the queries of one run."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        queries = self._board.snapshot()
        for family, table in ((CounterMetricFamily, _COUNTERS), (GaugeMetricFamily, _GAUGES)):
            for name, text, value_of in table:
                metric = family(name, text, labels=["query"])
                for query in queries:
                    value = value_of(query)
                    if value is not None:
                        metric.add_metric([query.name], value)
                yield metric


def serve_metrics(board: Board, host: str, port: int) -> tuple[int, Callable[[], None]]:
    """Serve the page until the returned function is called; port 0 takes a free one. The port that is used."""
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.process_collector import ProcessCollector

    registry = CollectorRegistry(auto_describe=False)
    registry.register(RunMetrics(board))
    ProcessCollector(registry=registry)
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise PipelineError(
            f"Cannot serve metrics on {host}:{port}: {error.strerror}", hint="Choose another --metrics-port."
        ) from None

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    bound: Any = server.server_address
    return int(bound[1]), stop
