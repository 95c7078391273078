"""What the benchmark judges and shows: bars, medians, the table, the plot, the record."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from benchmarks.results import FOREIGN_SHARE, KAFKA, MOLDAU, Line, Results
from benchmarks.row import (
    AN_EIGHTH_OF_KAFKAS,
    AT_LEAST_KAFKAS,
    HALF_OF_KAFKAS,
    TWICE_KAFKAS,
    TWICE_THE_FLOOR,
    Bar,
    Limit,
    Metric,
    Row,
    throughput_metrics,
    throughput_sample,
)
from benchmarks.rows import ROWS

from benchmarks import chart, report


class SampleRow(Row):
    name = "sample"
    title = "sample <row>"
    metrics = throughput_metrics(by="message")


def sample(messages: int, seconds: float, cpu_seconds: float) -> dict[str, float]:
    return throughput_sample(messages=messages, size_bytes=100, seconds=seconds, cpu_seconds=cpu_seconds)


def results_of(kafka: list[dict[str, float]], moldau: list[dict[str, float]]) -> Results:
    results = Results()
    results.add_row(SampleRow(), {KAFKA: kafka, MOLDAU: moldau})
    return results


@pytest.mark.parametrize(
    ("bar", "kafka", "moldau", "met"),
    [
        (AT_LEAST_KAFKAS, 100.0, 100.0, True),
        (AT_LEAST_KAFKAS, 100.0, 99.9, False),
        (TWICE_KAFKAS, 100.0, 199.0, False),
        (HALF_OF_KAFKAS, 1.0, 0.5, True),
        (HALF_OF_KAFKAS, 1.0, 0.51, False),
        (AN_EIGHTH_OF_KAFKAS, 400.0, 50.0, True),
        (AN_EIGHTH_OF_KAFKAS, 400.0, 50.1, False),
        (AT_LEAST_KAFKAS, None, 5.0, None),
        (TWICE_THE_FLOOR, None, 1.9, True),
        (TWICE_THE_FLOOR, 0.1, 2.1, False),
    ],
)
def test_a_bar_is_met_exactly_at_its_limit(bar: Bar, kafka: float | None, moldau: float, met: bool | None) -> None:
    assert bar.is_met(kafka, moldau) is met


def test_bars_read_as_the_issue_states_them() -> None:
    assert [str(bar) for bar in (AT_LEAST_KAFKAS, TWICE_KAFKAS, HALF_OF_KAFKAS, AN_EIGHTH_OF_KAFKAS)] == [
        "≥ 1x",
        "≥ 2x",
        "≤ 0.5x",
        "≤ 1/8",
    ]


def test_a_throughput_sample_is_consistent_in_all_its_units() -> None:
    taken = sample(1_000_000, 2.0, 0.5)
    assert taken == {
        "messages_per_second": 500_000,
        "megabytes_per_second": 50.0,
        "cpu_us_per_message": 0.5,
        "cpu_ns_per_byte": 5.0,
    }


def test_one_bad_round_does_not_decide() -> None:
    steady = [sample(1000, 1.0, 1.0)] * 3
    disturbed = [sample(1000, 1.0, 0.4), sample(1000, 60.0, 5.0), sample(1000, 0.9, 0.4)]
    assert results_of(steady, disturbed).missed == []


def test_a_row_one_broker_does_not_have_is_shown_and_not_judged() -> None:
    results = results_of([sample(1000, 1.0, 1.0)], [])
    results.absent["sample", MOLDAU] = "not served yet"
    assert results.missed == []
    assert all(line.is_met is None and line.ratio is None for line in results.lines)
    assert all(row[3] == "not served yet" for _, row in report.cells(results))


def test_the_table_shows_each_figure_once_with_its_verdict() -> None:
    results = results_of([sample(1000, 1.0, 1.0)], [sample(1000, 0.5, 0.9)])
    rows = [row for _, row in report.cells(results)]
    assert [row[1] for row in rows] == ["throughput, msg/s", "broker CPU, µs/msg"]
    assert [row[4:] for row in rows] == [("2.00x", "≥ 1x", "ok"), ("0.90x", "≤ 0.5x", "MISS")]
    assert "1 of 2 bars met." in list(report.notes(results))


def test_disturbed_rows_are_named() -> None:
    quiet, loud = {**sample(1000, 1.0, 1.0), FOREIGN_SHARE: 0.02}, {**sample(1000, 1.0, 1.0), FOREIGN_SHARE: 0.5}
    assert not any("Noisy" in note for note in report.notes(results_of([quiet], [quiet])))
    assert any("sample 50%" in note for note in report.notes(results_of([loud], [loud])))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0.0816, "0.082"),
        (0.123, "0.12"),
        (12.34, "12.3"),
        (999.4, "999"),
        (9999, "9999"),
        (784_000, "784 k"),
        (1.52e6, "1.52 M"),
    ],
)
def test_figures_have_three_digits(value: float | None, shown: str) -> None:
    assert report.figure(value) == shown


def test_the_plot_is_svg_with_one_bar_for_every_compared_figure() -> None:
    results = results_of([sample(1000, 1.0, 1.0)], [sample(1000, 0.5, 0.001)])
    results.lines.append(Line("floor", "floor", Metric("x", "x", "x", TWICE_THE_FLOOR), {MOLDAU: [1.0]}))
    root = ElementTree.fromstring(chart.svg(results))
    namespace = "{http://www.w3.org/2000/svg}"
    bars = [rect for rect in root.iter(f"{namespace}rect") if rect.get("fill") != "white"]
    assert len(bars) == 2
    assert all(float(rect.get("width") or -1) >= 0 for rect in bars)
    assert any("sample <row>" in (text.text or "") for text in root.iter(f"{namespace}text"))


def test_the_record_is_json_with_every_round() -> None:
    results = results_of([sample(1000, 1.0, 1.0)] * 3, [sample(1000, 0.5, 0.1)] * 3)
    results.limits["sample"] = [Limit("nothing but copying", "cpu_ns_per_byte", "ns/B", 0.41234567)]
    record = json.loads(json.dumps(results.to_json()))
    figures = record["rows"]["sample"]["metrics"]["messages_per_second"]
    assert (figures[KAFKA], figures["ratio"], figures["met"]) == ([1000.0] * 3, 2.0, True)
    assert record["limits"]["sample"] == {"what": "nothing but copying", "unit": "ns/B", "values": [0.4123]}
    assert "nothing but copying: 0.41 ns/B by round." in " ".join(report.notes(results))


def test_rows_have_names_of_their_own_and_something_to_judge() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    for row in ROWS:
        assert row.title, row.name
        assert row.data, row.name
        assert any(metric.bar for metric in row.metrics), row.name
