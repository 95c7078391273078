"""`make demo`: a node, made-up orders, and examples/orders_with_customers.py on them, with the results as they come.

Everything is in a temporary directory and gone afterwards.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer
from feed import create_topics, feed
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from moldau.testing import Cluster

EXAMPLE = "orders_with_customers"
HERE = Path(__file__).resolve().parent
RATE = 20.0
FIRST_RESULT_SECONDS_MAX = 300.0
SHOWN = 8
BAR = 40

NEXT = """
That was a node, a feed, and {program} on Spark. To do it yourself, each in a terminal of its own:

  {bin}moldau start
  {bin}python {feed} {example}
  {bin}moldau run {program}

(Ctrl-C stops the program, and when it is started again it goes on from there), and while they run:

  {bin}moldau consume revenue-by-city --from-beginning
  {bin}moldau sql --format json 'SELECT value.item, sum(value.amount) FROM orders GROUP BY 1'

The other examples are in examples/, how to write your own in docs/running.md."""


@dataclass
class Board:
    """What is to be seen: the last orders, what each city has bought, and how the query is doing."""

    orders: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=SHOWN))
    cities: dict[str, dict[str, Any]] = field(default_factory=dict)
    queries: dict[str, dict[str, Any]] = field(default_factory=dict)
    results: int = 0

    def take(self, topic: str, key: str, value: dict[str, Any]) -> None:
        if topic == "revenue-by-city":
            self.cities[key] = value
        else:
            self.orders.append({"order": key, **value})
            self.results += 1

    def lines(self) -> str:
        """For an output that is no terminal."""
        cities = "  ".join(f"{city} {found['revenue']:,.2f}" for city, found in sorted(self.cities.items()))
        return f"{self.results} orders with customers  {cities}"

    def tables(self) -> Group:
        orders = Table(title="orders-with-customers", title_justify="left", box=None, pad_edge=False)
        for name in ("order", "item", "amount", "name", "city"):
            orders.add_column(name.upper(), justify="right" if name == "amount" else "left", min_width=8)
        for each in self.orders:
            orders.add_row(
                each["order"],
                each["item"],
                f"{each['amount']:.2f}",
                each.get("customer_name") or "-",
                each.get("customer_city") or "-",
            )
        cities = Table(title="revenue-by-city", title_justify="left", box=None, pad_edge=False, show_header=False)
        most = max((each["revenue"] for each in self.cities.values()), default=1.0)
        for city, found in sorted(self.cities.items()):
            bar = "█" * max(1, round(BAR * found["revenue"] / most))
            cities.add_row(city, Text(bar, style="cyan"), f"{found['revenue']:,.2f}", f"{found['orders']} orders")
        return Group(orders, Text(), cities, Text(), *[Text(self._state(each)) for each in self.queries.values()])

    def _state(self, query: dict[str, Any]) -> str:
        took = "-" if query["batchSeconds"] is None else f"{query['batchSeconds']:.1f} s"
        return (
            f"{query['query']}: {query['state']}, {query['inputRowsPerSecond']:.0f} rows/s in, "
            f"{query['outputRowsPerSecond']:.0f} out, lag {query['lag'] if query['lag'] is not None else '-'}, "
            f"batches of {took}"
        )


def read_results(bootstrap: str, board: Board, over: threading.Event) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.subscribe(["orders-with-customers", "revenue-by-city"])
    while not over.is_set():
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            board.take(message.topic(), message.key().decode(), json.loads(message.value()))
    consumer.close()


def read_progress(runner: subprocess.Popen[str], board: Board) -> None:
    assert runner.stdout is not None
    for line in runner.stdout:
        status = json.loads(line)
        board.queries[status["query"]] = status


def show(board: Board, seconds: float, runner: subprocess.Popen[str]) -> bool:
    """Show what comes, for so long after the first result; whether one came."""
    console = Console(highlight=False)
    begun = time.monotonic()
    first: float | None = None
    with Live(console=console, auto_refresh=False) as live:
        while runner.poll() is None:
            now = time.monotonic()
            first = first or (now if board.results else None)
            if first is not None and now - first >= seconds:
                return True
            if first is None and now - begun >= FIRST_RESULT_SECONDS_MAX:
                return False
            if not console.is_terminal:
                print(board.lines(), flush=True)
            elif first is None:
                what = "The first orders are on their way" if board.queries else "Spark is starting"
                live.update(Text(f"{what} ... {now - begun:.0f} s"), refresh=True)
            else:
                live.update(board.tables(), refresh=True)
            time.sleep(0.5 if console.is_terminal else 5.0)
    return False


def commands_prefix() -> str:
    """What stands before our commands for those who have not put them on their path."""
    return "" if shutil.which("moldau") else f"{os.path.relpath(Path(sys.executable).parent)}/"


def main() -> int:
    parser = argparse.ArgumentParser(description="Orders joined with customers, live.")
    parser.add_argument("--seconds", type=float, default=25.0, help="how long to show results (default: 25)")
    given = parser.parse_args()
    for each in (signal.SIGTERM, signal.SIGHUP):
        # Also when the terminal is closed nothing stays behind.
        signal.signal(each, lambda *_: sys.exit(1))
    over = threading.Event()
    board = Board()
    with tempfile.TemporaryDirectory(prefix="moldau-demo-") as directory, Cluster(in_process=False) as cluster:
        bootstrap = cluster.bootstrap_servers
        print(f"A node is running on {bootstrap}.")
        create_topics(EXAMPLE, bootstrap)
        program = HERE / f"{EXAMPLE}.py"
        shown_path = os.path.relpath(program)
        prefix = commands_prefix()
        print(f"{prefix}moldau run {shown_path} --bootstrap-server {bootstrap}")
        command = [sys.executable, "-m", "moldau", "run", str(program), "-b", bootstrap, "-o", "json"]
        log = Path(directory) / "run.log"
        with log.open("w") as errors:
            runner = subprocess.Popen(
                [*command, "--checkpoints", directory, "--interval", "1"],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                # Ctrl-C is ours: it ends the demo, which then ends the runner.
                start_new_session=True,
            )
        helpers = [
            threading.Thread(target=feed, args=(EXAMPLE, bootstrap), kwargs={"rate": RATE, "until": over.is_set}),
            threading.Thread(target=read_results, args=(bootstrap, board, over)),
            threading.Thread(target=read_progress, args=(runner, board)),
        ]
        for each in helpers:
            each.start()
        shown = False
        try:
            shown = show(board, given.seconds, runner)
        except KeyboardInterrupt:
            shown = True
        finally:
            over.set()
            runner.terminate()
            runner.wait()
            for each in helpers:
                each.join()
        if not shown:
            print(log.read_text(), end="")
            print("No results came; above is what 'moldau run' said.")
            return 1
    print(NEXT.format(program=shown_path, feed=os.path.relpath(HERE / "feed.py"), example=EXAMPLE, bin=prefix))
    return 0


if __name__ == "__main__":
    sys.exit(main())
