"""The plot: for every judged figure, how many times better than Apache Kafka, as a small SVG written by hand.

Better is always to the right (throughput as Moldau / Kafka, everything else as Kafka / Moldau), on a logarithmic axis,
with a tick where the bar is. No plotting library: a bar chart is a loop over rectangles.
"""

from __future__ import annotations

import math
from html import escape

from benchmarks.report import figure
from benchmarks.results import KAFKA, MOLDAU, Line, Results

WIDTH, LABEL_WIDTH, VALUE_WIDTH = 1000, 400, 190
LINE_HEIGHT, TOP, BOTTOM = 24, 64, 40
AXIS_LOW, AXIS_HIGH = 0.25, 32.0
BETTER, WORSE, INK, PALE = "#2f7d6b", "#c2562d", "#22303a", "#d5dde2"


def svg(results: Results) -> str:
    lines = [line for line in results.lines if advantage(line) is not None]
    height = TOP + LINE_HEIGHT * len(lines) + BOTTOM
    body = [*_axis(height), *(part for index, line in enumerate(lines) for part in _bar(line, index))]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{INK}">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n'
        '<text x="16" y="26" font-size="16" font-weight="600">Moldau, times better than Apache Kafka</text>\n'
        '<text x="16" y="44" fill="#5b6b75">right of 1x is better; the dark tick is the bar to reach</text>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def advantage(line: Line) -> float | None:
    """How many times better Moldau is, or None for figures that are not compared with Kafka."""
    ratio, bar = line.ratio, line.metric.bar
    if bar is None or not ratio or bar.kind == "value at most":
        return None
    return ratio if bar.kind == "ratio at least" else 1 / ratio


def _x(times: float) -> float:
    low, high = math.log2(AXIS_LOW), math.log2(AXIS_HIGH)
    share = (math.log2(min(max(times, AXIS_LOW), AXIS_HIGH)) - low) / (high - low)
    return LABEL_WIDTH + share * (WIDTH - LABEL_WIDTH - VALUE_WIDTH)


def _axis(height: int) -> list[str]:
    parts = []
    times = AXIS_LOW
    while times <= AXIS_HIGH:
        x, label = _x(times), f"{times:g}x"
        stroke = INK if times == 1 else PALE
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height - BOTTOM + 6}" stroke="{stroke}"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - BOTTOM + 22}" text-anchor="middle">{label}</text>')
        times *= 2
    return parts


def _bar(line: Line, index: int) -> list[str]:
    times, bar = advantage(line), line.metric.bar
    assert times is not None
    assert bar is not None
    y = TOP + index * LINE_HEIGHT
    left, right = sorted((_x(1), _x(times)))
    target = _x(bar.limit if bar.kind == "ratio at least" else 1 / bar.limit)
    colour = BETTER if line.is_met else WORSE
    values = f"{times:.2g}x: {figure(line.median(MOLDAU))} vs {figure(line.median(KAFKA))} {line.metric.unit}"
    label = f"{line.title}: {line.metric.title}"
    middle = y + LINE_HEIGHT / 2 + 4
    return [
        f'<text x="{LABEL_WIDTH - 10}" y="{middle}" text-anchor="end" font-size="11">{escape(label)}</text>',
        f'<rect x="{left:.1f}" y="{y + 4}" width="{right - left:.1f}" height="{LINE_HEIGHT - 8}" fill="{colour}"/>',
        f'<line x1="{target:.1f}" x2="{target:.1f}" y1="{y + 1}" y2="{y + LINE_HEIGHT - 1}" stroke="{INK}" '
        'stroke-width="2"/>',
        f'<text x="{WIDTH - VALUE_WIDTH + 10}" y="{middle}" font-size="11">{escape(values)}</text>',
    ]
