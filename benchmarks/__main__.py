"""`python -m benchmarks`: run the comparison, print the table, write the report, keep the record.

A full run rewrites RESULTS.md and results.svg beside this file and adds one JSON file to history/. Shorter runs only
print, unless told to record.
"""

from __future__ import annotations

import argparse
import datetime
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

from codegen import kafka_jars
from rich.console import Console

from benchmarks import chart, machine, process, report
from benchmarks.brokers import BROKERS, BrokerFailed, moldau_program
from benchmarks.results import MOLDAU, Results
from benchmarks.rows import ROWS
from benchmarks.run import Settings, run
from benchmarks.workspace import REPOSITORY

HERE = Path(__file__).resolve().parent
QUICK_SCALE = 0.15


def main() -> int:
    arguments = parser().parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    console = Console(width=None if sys.stdout.isatty() else 140)
    if arguments.list:
        for row in ROWS:
            console.print(f"{row.name:26} {row.title}")
        return 0
    settings = settings_of(arguments)
    if MOLDAU in settings.brokers and not Path(moldau_program()).exists():
        console.print("There is no `moldau` command beside this Python: run `make setup`, or use --only kafka.")
        return 2
    began = time.monotonic()
    kafka_jars.fetch_jars()
    process.set_niceness(arguments.nice)
    try:
        results = run(settings, lambda text: _progress(began, text))
    except KeyboardInterrupt:
        console.print("Interrupted; brokers are stopped and their directories removed.")
        return 130
    except BrokerFailed as error:
        console.print(f"[bold red]{error}[/]")
        return 2
    report.print_table(results, console)
    if arguments.quick:
        console.print("A quick run leaves Apache Kafka half warm: for a first look, not for judging.")
    whole = len(settings.rows) == len(ROWS) and len(settings.brokers) == len(BROKERS) and not arguments.quick
    if arguments.record if arguments.record is not None else whole:
        record = record_of(results, settings, time.monotonic() - began, arguments.nice)
        write_reports(results, record, arguments.out, console)
    return 1 if arguments.check and (results.missed or results.failed) else 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    made.add_argument("--rounds", type=int, help="how often each row is measured on each broker (default 3)")
    made.add_argument("--rows", help="only these rows, separated by commas; --list names them")
    made.add_argument("--only", choices=sorted(BROKERS), help="one broker, without comparing")
    made.add_argument("--quick", action="store_true", help="about a minute: one round of small sizes")
    made.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    made.add_argument("--record", action=argparse.BooleanOptionalAction, help="write reports and history (or not)")
    made.add_argument("--out", type=Path, default=HERE, help="where the reports and history/ go")
    made.add_argument("--nice", type=int, default=0, help="niceness of brokers and clients, on a busy machine")
    made.add_argument("--list", action="store_true", help="name the rows and end")
    return made


def settings_of(arguments: argparse.Namespace) -> Settings:
    wanted = arguments.rows.split(",") if arguments.rows else [row.name for row in ROWS]
    unknown = sorted(set(wanted) - {row.name for row in ROWS})
    if unknown:
        parser().error(f"no such row: {', '.join(unknown)} (there are {', '.join(row.name for row in ROWS)})")
    return Settings(
        rows=tuple(row for row in ROWS if row.name in wanted),
        brokers=(arguments.only,) if arguments.only else tuple(BROKERS),
        rounds=arguments.rounds or (1 if arguments.quick else 3),
        scale=QUICK_SCALE if arguments.quick else 1.0,
        warm_ups=1 if arguments.quick else 2,
        starts=1 if arguments.quick else 3,
    )


def record_of(results: Results, settings: Settings, seconds: float, nice: int) -> dict[str, Any]:
    commit, dirty = machine.commit(REPOSITORY)
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit,
        "uncommitted_changes": dirty,
        "versions": machine.versions(),
        "machine": machine.facts(),
        "settings": {"rounds": settings.rounds, "scale": settings.scale, "seconds": round(seconds), "nice": nice},
        **results.to_json(),
    }


def write_reports(results: Results, record: dict[str, Any], out: Path, console: Console) -> None:
    history = out / "history"
    history.mkdir(parents=True, exist_ok=True)
    moment = record["date"].replace(":", "").removesuffix("Z")
    kept = history / f"{moment}-{record['commit']}.json"
    kept.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (out / "results.svg").write_text(chart.svg(results), encoding="utf-8")
    (out / "RESULTS.md").write_text(report.markdown(results, record), encoding="utf-8")
    console.print(f"Wrote RESULTS.md, results.svg and history/{kept.name}.")


def _progress(began: float, text: str) -> None:
    print(f"[{time.monotonic() - began:5.0f} s] {text}", file=sys.stderr, flush=True)


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
