"""What `moldau run` shows of its queries: a table that is drawn in place, or a line for each look."""

from __future__ import annotations

import json
import sys
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from moldau.cli.output import Column, bytes_text, text_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from moldau.pipeline.progress import Board, QueryStatus

COLUMNS = (
    Column("query", "QUERY", style="bold"),
    Column("state", "STATE"),
    Column("batch", "BATCH", number=True),
    Column("in", "IN/S", number=True),
    Column("out", "OUT/S", number=True),
    Column("lag", "LAG", number=True, style="yellow"),
    Column("took", "BATCH TIME", number=True),
    Column("rows", "STATE ROWS", number=True),
    Column("size", "STATE SIZE", number=True),
    Column("watermark", "WATERMARK"),
)
REDRAW_SECONDS = 0.5


class RunView:
    """Shows a board until it is told that the run is over, and says sentences in between."""

    def __init__(self, output: str, interval: float) -> None:
        self._output = output
        self._interval = interval
        self._console: Console | None = None

    def say(self, text: str) -> None:
        """A sentence for people, above a table that is being drawn."""
        if self._console is not None:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def show(self, board: Board, over: threading.Event) -> None:
        if self._output == "table" and sys.stdout.isatty():
            self._draw(board, over)
            return
        while not over.wait(self._interval):
            self._print(board)
        self._print(board)

    def _print(self, board: Board) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        for status in board.snapshot():
            if self._output == "json":
                print(json.dumps({"time": now, **status.as_json()}, ensure_ascii=False), flush=True)
            else:
                print(line_of(status), flush=True)

    def _draw(self, board: Board, over: threading.Event) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(highlight=False)
        with Live(console=console, auto_refresh=False) as live:
            self._console = console
            try:
                while not over.wait(REDRAW_SECONDS):
                    live.update(table_of(board.snapshot()), refresh=True)
                live.update(table_of(board.snapshot()), refresh=True)
            finally:
                self._console = None


def row_of(status: QueryStatus) -> dict[str, Any]:
    """A query's status in words."""
    watermark = None
    if status.watermark is not None:
        watermark = datetime.fromtimestamp(status.watermark, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return {
        "query": status.name,
        "state": f"{status.state} ({status.restarts} restarts)" if status.restarts else status.state,
        "batch": status.batch,
        "in": _rate(status.rows_in_per_second),
        "out": _rate(status.rows_out_per_second),
        "lag": None if status.lag is None else f"{status.lag:,}",
        "took": None if status.batch_seconds is None else f"{status.batch_seconds:.2f} s",
        "rows": None if status.state_rows is None else f"{status.state_rows:,}",
        "size": None if status.state_bytes is None else bytes_text(status.state_bytes),
        "watermark": watermark,
    }


def line_of(status: QueryStatus) -> str:
    """The same in one line, without what the query does not have."""
    row = row_of(status)
    facts = [f"{row['query']}  {row['state']}"]
    if status.batch is not None:
        facts.append(f"batch {row['batch']} in {row['took']}")
    facts.append(f"in {row['in']}/s  out {row['out']}/s  rows {status.rows_in:,} -> {status.rows_out:,}")
    facts += [f"lag {row['lag']}"] if row["lag"] is not None else []
    facts += [f"state {row['rows']} rows, {row['size']}"] if row["rows"] is not None else []
    facts += [f"watermark {row['watermark']}"] if row["watermark"] is not None else []
    return "  ".join(facts)


def table_of(queries: list[QueryStatus]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in COLUMNS:
        table.add_column(column.title, justify="right" if column.number else "left", style=column.style, no_wrap=True)
    for status in queries:
        row = row_of(status)
        table.add_row(*(escape(text_of(row[column.key])) for column in COLUMNS))
    return table


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"
