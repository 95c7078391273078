"""What a row of the comparison is: the work, the figures it yields, and the bar each figure must clear.

A row is a subclass of `Row` in `benchmarks/rows/`; its client side runs in processes of its own (see `client.py`).
This file knows nothing about any particular row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from benchmarks.target import Target

Sample = dict[str, float]
OVER_LIMIT = "over_limit"


@dataclass(frozen=True, slots=True)
class Bar:
    """A limit on Moldau's figure: as a multiple of Kafka's ("ratio ...") or by itself ("value ...")."""

    kind: Literal["ratio at least", "ratio at most", "value at most"]
    limit: float
    unit: str = "x"

    def is_met(self, kafka: float | None, moldau: float) -> bool | None:
        """Whether Moldau clears the bar; None when there is nothing to compare with."""
        if self.kind == "value at most":
            return moldau <= self.limit
        if kafka is None:
            return None
        if self.kind == "ratio at least":
            return moldau >= self.limit * kafka
        return moldau <= self.limit * kafka

    def __str__(self) -> str:
        sign = "≥" if self.kind == "ratio at least" else "≤"
        return f"{sign} {self.limit:g}{self.unit}" if self.limit >= 0.2 else f"{sign} 1/{1 / self.limit:g}"


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a row. Figures without a bar are shown, or only recorded when `shown` is false."""

    key: str
    title: str
    unit: str
    bar: Bar | None = None
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Limit:
    """What bounds one figure of a row here, whoever does the work: the same done by as little as possible."""

    what: str
    key: str
    unit: str
    value: float


AT_LEAST_KAFKAS = Bar("ratio at least", 1.0)
TWICE_KAFKAS = Bar("ratio at least", 2.0)
THREE_TIMES_KAFKAS = Bar("ratio at least", 3.0)
HALF_OF_KAFKAS = Bar("ratio at most", 0.5)
AT_MOST_KAFKAS = Bar("ratio at most", 1.0)
NO_SLOWER_THAN_KAFKA = Bar("ratio at most", 1.2)
AN_EIGHTH_OF_KAFKAS = Bar("ratio at most", 1 / 8)
TWICE_THE_FLOOR = Bar("value at most", 2.0)
A_SECOND = Bar("value at most", 1.0, " s")


def throughput_metrics(
    *, by: Literal["message", "byte"], rate: Bar = AT_LEAST_KAFKAS, cpu: Bar = HALF_OF_KAFKAS
) -> tuple[Metric, ...]:
    """Throughput and broker CPU, judged by message or by byte; the other unit is recorded without being shown."""
    message = by == "message"
    return (
        Metric("messages_per_second", "throughput", "msg/s", rate if message else None, shown=message),
        Metric("megabytes_per_second", "throughput", "MB/s", None if message else rate, shown=not message),
        Metric("cpu_us_per_message", "broker CPU", "µs/msg", cpu if message else None, shown=message),
        Metric("cpu_ns_per_byte", "broker CPU", "ns/B", None if message else cpu, shown=not message),
    )


def latency_metrics() -> tuple[Metric, ...]:
    return (
        Metric("p50_ms", "p50", "ms", NO_SLOWER_THAN_KAFKA),
        Metric("p99_ms", "p99", "ms", NO_SLOWER_THAN_KAFKA),
        Metric("cpu_us_per_message", "broker CPU", "µs/msg", HALF_OF_KAFKAS),
    )


def throughput_sample(*, messages: int, size_bytes: int, seconds: float, cpu_seconds: float) -> Sample:
    payload = messages * size_bytes
    return {
        "messages_per_second": messages / seconds,
        "megabytes_per_second": payload / seconds / 1e6,
        "cpu_us_per_message": cpu_seconds / messages * 1e6,
        "cpu_ns_per_byte": cpu_seconds / payload * 1e9,
    }


class Row:
    """One kind of work. `measure` does it once against a target and returns the figures named by `metrics`."""

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    metrics: ClassVar[tuple[Metric, ...]] = ()
    # Rows that name the same data share a topic: the first fills it, the others read it.
    data: ClassVar[str] = ""
    # API keys a broker must advertise for this work; a broker without them is shown as not having the row.
    needs: ClassVar[frozenset[int]] = frozenset()

    # How many nodes the work is done on: one, or a cluster of three.
    nodes: ClassVar[int] = 1

    # For work that takes long whoever does it: it is measured this often at most.
    rounds_max: ClassVar[int] = 99

    # Whether doing it once more warms a broker up; not for what is slow because it waits, or starts a client's JVM.
    warms_up: ClassVar[bool] = True

    def measure(self, target: Target) -> Sample:
        raise NotImplementedError

    def limit(self, target: Target) -> Limit | None:
        """Measured once a round. Samples get their distance from it as `OVER_LIMIT`; most rows have no such thing."""
        return None
