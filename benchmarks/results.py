"""The figures of a run: collected by row and metric, compared, judged, and turned into the JSON record kept in history.

This file decides what counts as met or missed. It never measures and never prints.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from benchmarks.row import Limit, Metric, Row, Sample

KAFKA, MOLDAU = "kafka", "moldau"
FOREIGN_SHARE = "foreign_share"  # a sample's key beside those of its row's metrics


@dataclass(slots=True)
class Line:
    """One metric of one row, with every broker's values, one a round."""

    row: str
    title: str
    metric: Metric
    values: dict[str, list[float]]

    def median(self, broker: str) -> float | None:
        values = self.values.get(broker)
        return statistics.median(values) if values else None

    @property
    def ratio(self) -> float | None:
        """Moldau's median as a multiple of Kafka's."""
        kafka, moldau = self.median(KAFKA), self.median(MOLDAU)
        return moldau / kafka if kafka and moldau is not None else None

    @property
    def is_met(self) -> bool | None:
        """Whether the bar is cleared; None when there is no bar or nothing to judge."""
        moldau = self.median(MOLDAU)
        if self.metric.bar is None or moldau is None:
            return None
        return self.metric.bar.is_met(self.median(KAFKA), moldau)

    def to_json(self) -> dict[str, Any]:
        bar = self.metric.bar
        return {
            "title": self.metric.title,
            "unit": self.metric.unit,
            **{broker: [round_figure(value) for value in values] for broker, values in self.values.items()},
            "ratio": None if self.ratio is None else round_figure(self.ratio),
            "bar": None if bar is None else str(bar),
            "met": self.is_met,
        }


@dataclass(slots=True)
class Results:
    """Everything one run found out."""

    lines: list[Line] = field(default_factory=list)
    # row -> what bounds it on this machine, by round
    limits: dict[str, list[Limit]] = field(default_factory=dict)
    # (row, broker) -> why it has no figures
    absent: dict[tuple[str, str], str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    # row -> CPU that other programs took while it was measured, as a share of the machine; the median over its samples
    foreign_shares: dict[str, float] = field(default_factory=dict)

    def add_row(self, row: Row, samples: dict[str, list[Sample]]) -> None:
        shares = [sample[FOREIGN_SHARE] for taken in samples.values() for sample in taken if FOREIGN_SHARE in sample]
        if shares:
            self.foreign_shares[row.name] = statistics.median(shares)
        for metric in row.metrics:
            values = {
                broker: [sample[metric.key] for sample in taken if metric.key in sample]
                for broker, taken in samples.items()
            }
            self.lines.append(Line(row.name, row.title, metric, values))

    @property
    def missed(self) -> list[Line]:
        return [line for line in self.lines if line.is_met is False]

    def to_json(self) -> dict[str, Any]:
        rows: dict[str, Any] = {}
        for line in self.lines:
            row = rows.setdefault(line.row, {"title": line.title, "metrics": {}})
            row["metrics"][line.metric.key] = line.to_json()
        for (name, broker), reason in self.absent.items():
            rows.setdefault(name, {"metrics": {}}).setdefault("absent", {})[broker] = reason
        return {
            "rows": rows,
            "limits": {
                row: {
                    "what": limits[0].what,
                    "unit": limits[0].unit,
                    "values": [round_figure(limit.value) for limit in limits],
                }
                for row, limits in self.limits.items()
            },
            "foreign_cpu_share": {row: round_figure(share) for row, share in self.foreign_shares.items()},
            "missed": [f"{line.row}: {line.metric.title}" for line in self.missed],
        }


def round_figure(value: float) -> float:
    """Four significant digits: more would be noise."""
    return float(f"{value:.4g}")
