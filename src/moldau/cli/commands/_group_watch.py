"""`moldau group describe --watch`: a group's lag, looked at again and again, with how fast it is read and written.

Rates are taken over the last few looks, so that commits that come in bursts do not make them jump. On a terminal the
table is drawn in place; elsewhere every look is printed after the one before.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from moldau.cli.output import Column, text_of

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

View = dict[str, Any]
Look = tuple[float, View]

RATE_SECONDS = 15.0
# Lines that are not rows: facts, headings, what was left out.
FRAME_LINES = 9
COLUMNS = (
    Column("topic", "TOPIC", style="bold"),
    Column("partition", "PARTITION", number=True),
    Column("committed", "COMMITTED", number=True),
    Column("end", "END", number=True),
    Column("lag", "LAG", number=True, style="yellow"),
    Column("readRate", "READ/S", number=True),
    Column("writeRate", "WRITTEN/S", number=True),
    Column("clientId", "CLIENT"),
    Column("host", "HOST"),
)
PLAIN_KEYS = ("time", "group", "topic", "partition", "committed", "end", "lag", "readRate", "writeRate", "clientId")


class Rates:
    """The last looks at a group, and how fast offsets moved between the first and the last of them."""

    def __init__(self, window: float = RATE_SECONDS) -> None:
        self._window = window
        self._looks: deque[tuple[float, dict[tuple[str, int], View]]] = deque()

    def add(self, moment: float, view: View) -> View:
        """The view with rates of every partition and of the group, and when the group will have caught up."""
        rows = {(each["topic"], each["partition"]): each for each in view["partitions"]}
        self._looks.append((moment, rows))
        while len(self._looks) > 2 and self._looks[1][0] < moment - self._window:
            self._looks.popleft()
        before, first = self._looks[0]
        seconds = moment - before
        partitions = [
            {
                **each,
                "readRate": _rate(first.get(place, {}).get("committed"), each["committed"], seconds),
                "writeRate": _rate(first.get(place, {}).get("end"), each["end"], seconds),
            }
            for place, each in rows.items()
        ]
        read, written = _sum(partitions, "readRate"), _sum(partitions, "writeRate")
        return {
            **view,
            "partitions": partitions,
            "readRate": read,
            "writeRate": written,
            "secondsToCatchUp": _catch_up(view["lag"], read, written),
        }


def _rate(before: int | None, now: int | None, seconds: float) -> float | None:
    if before is None or now is None or seconds <= 0:
        return None
    return round((now - before) / seconds, 1)


def _sum(rows: list[View], key: str) -> float | None:
    known = [row[key] for row in rows if row[key] is not None]
    return round(sum(known), 1) if known else None


def _catch_up(lag: int | None, read: float | None, written: float | None) -> float | None:
    """Seconds until the lag is gone at the present rates; None if it does not shrink or is not known."""
    if lag is None or read is None:
        return None
    if lag == 0:
        return 0.0
    gain = read - (written or 0.0)
    return round(lag / gain, 1) if gain > 0 else None


def watch(look: Callable[[], View], output: str, interval: float, times: int | None) -> None:
    """Show what `look` sees every `interval` seconds, `times` times or until interrupted."""
    rates = Rates()
    if output == "table" and sys.stdout.isatty():
        _watch_in_place(look, rates, interval, times)
        return

    def show(view: View) -> None:
        now = datetime.now().isoformat(timespec="seconds")
        if output == "json":
            print(json.dumps({"time": now, **view}, ensure_ascii=False), flush=True)
        elif output == "plain":
            for each in view["partitions"]:
                row = {"time": now, "group": view["group"], **each}
                print("\t".join(text_of(row.get(key)) for key in PLAIN_KEYS), flush=True)
        else:
            from rich.console import Console

            from moldau.cli.output import UNLIMITED_WIDTH

            Console(highlight=False, width=UNLIMITED_WIDTH).print(frame(view, None))
            sys.stdout.flush()

    _repeat(look, rates, show, interval, times)


def _repeat(
    look: Callable[[], View], rates: Rates, show: Callable[[View], None], interval: float, times: int | None
) -> None:
    count = 0
    due = time.monotonic()
    while True:
        view = look()
        show(rates.add(time.monotonic(), view))
        count += 1
        if times is not None and count >= times:
            return
        due = max(due + interval, time.monotonic())
        time.sleep(due - time.monotonic())


def _watch_in_place(look: Callable[[], View], rates: Rates, interval: float, times: int | None) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False) as live:

        def show(view: View) -> None:
            live.update(frame(view, max(1, console.height - FRAME_LINES)), refresh=True)

        try:
            _repeat(look, rates, show, interval, times)
        except KeyboardInterrupt:
            # This is how one stops watching; it is no failure.
            return


def frame(view: View, limit: int | None) -> Group:
    """One look: the group in two lines, then its partitions, the farthest behind first."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    rows = sorted(view["partitions"], key=lambda each: -(each["lag"] or 0))
    shown = rows if limit is None else rows[:limit]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in COLUMNS:
        table.add_column(column.title, justify="right" if column.number else "left", style=column.style)
    for row in shown:
        table.add_row(*(escape(text_of(row.get(column.key))) for column in COLUMNS))
    members = len(view["members"])
    state = f"{view['group']}  {view['state']}  {members} member{'s' * (members != 1)}"
    speed = (
        f"lag {text_of(view['lag'])}  read {_per_second(view['readRate'])}  written {_per_second(view['writeRate'])}"
    )
    parts: list[RenderableType] = [
        Text(f"{state}  {datetime.now():%H:%M:%S}", style="bold"),
        Text(f"{speed}{_outlook(view)}"),
        Text(),
        table,
    ]
    if len(shown) < len(rows):
        parts.append(Text(f"… and {len(rows) - len(shown)} partitions more, less far behind", style="dim"))
    return Group(*parts)


def _per_second(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.1f}/s"


def _outlook(view: View) -> str:
    seconds = view["secondsToCatchUp"]
    if seconds is None:
        return "  falling behind" if (view["writeRate"] or 0) > (view["readRate"] or 0) else ""
    return "  caught up" if seconds == 0 else f"  caught up in {duration_text(seconds)}"


def duration_text(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} days"
