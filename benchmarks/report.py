"""The results as people read them: a table on the terminal, the same table in Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.results import KAFKA, MOLDAU, Line, Results

COLUMNS = ("work", "figure", "Apache Kafka", "Moldau", "ratio", "bar", "")
NOISY_SHARE = 0.10


def figure(value: float | None) -> str:
    """Three significant digits, thousands and millions by letter."""
    if value is None:
        return "-"
    for limit, letter in ((1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{_three_digits(value / (1e6 if letter == 'M' else 1e3))} {letter}"
    return _three_digits(value)


def _three_digits(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


def verdict(line: Line) -> str:
    return {True: "ok", False: "MISS", None: ""}[line.is_met]


def cells(results: Results) -> Iterator[tuple[Line, tuple[str, ...]]]:
    for line in results.lines:
        if not line.metric.shown:
            continue
        ratio = "-" if line.ratio is None else f"{line.ratio:.2f}x"
        yield (
            line,
            (
                line.title,
                f"{line.metric.title}, {line.metric.unit}",
                _value(results, line, KAFKA),
                _value(results, line, MOLDAU),
                ratio,
                "" if line.metric.bar is None else str(line.metric.bar),
                verdict(line),
            ),
        )


def _value(results: Results, line: Line, broker: str) -> str:
    median = line.median(broker)
    if median is None:
        return results.absent.get((line.row, broker), "-")
    return figure(median)


def print_table(results: Results, console: Console) -> None:
    table = Table(title="Moldau and Apache Kafka, side by side (medians)")
    for index, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if index < 2 else "right", overflow="fold")
    last = ""
    for line, row in cells(results):
        if last and line.row != last:
            table.add_section()
        style = {"ok": "green", "MISS": "bold red"}.get(row[-1], "")
        title = row[0] if line.row != last else ""
        table.add_row(title, *row[1:-1], f"[{style}]{row[-1]}[/]" if style else row[-1])
        last = line.row
    console.print(table)
    for note in notes(results):
        console.print(note)


def notes(results: Results) -> Iterator[str]:
    for limits in results.limits.values():
        values = ", ".join(figure(limit.value) for limit in limits)
        yield f"Limit, whoever does the work: {limits[0].what}: {values} {limits[0].unit} by round."
    noisy = {row: share for row, share in results.foreign_shares.items() if share > NOISY_SHARE}
    if noisy:
        rows = ", ".join(f"{row} {share:.0%}" for row, share in noisy.items())
        yield f"Noisy, as other programs took much of the machine meanwhile: {rows}."
    for failure in sorted(results.failed):
        yield f"Failed: {failure}."
    counted = [line for line in results.lines if line.is_met is not None]
    if counted:
        yield f"{len(counted) - len(results.missed)} of {len(counted)} bars met."


def markdown(results: Results, record: dict[str, Any]) -> str:
    versions, facts = record["versions"], record["machine"]
    lines = [
        "# Moldau and Apache Kafka, side by side",
        "",
        f"{record['date'][:10]}: Moldau {versions['moldau']} ({record['commit']}, {versions['build']}), "
        f"Apache Kafka {versions['kafka']}; "
        f"{facts['cores']} cores ({facts['processor']}), {facts['memory_gb']} GB, Linux {facts['kernel']}, "
        f"Python {facts['python']}, Java {facts['java']}, librdkafka {versions['librdkafka']}; "
        f"medians of {record['settings']['rounds']} rounds. How it is measured: [README](README.md). "
        "Many partitions, large topics, many groups: [SCALE](SCALE.md).",
        "",
        "![Moldau relative to Apache Kafka](results.svg)",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|---|---|--:|--:|--:|--:|---|",
        *("| " + " | ".join(row) + " |" for _, row in cells(results)),
        "",
        *(f"{note}\n" for note in notes(results)),
    ]
    return "\n".join(lines).rstrip() + "\n"
