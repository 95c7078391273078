"""Runs Apache Kafka's own published tests against this broker and compares the outcome with what is expected.

    python -m tests.conformance.run --harness DIR [--suite smoke|clients|tools|core|server|all] [--class PATTERN]

The harness (its README explains it) starts one process a node from a properties file. `expected.csv` beside this file
names the tests that must pass; `waiting.csv` names every other one with what it waits for. A test that must pass and
does not makes this fail; one that waits and passes is reported, so that the lists can follow.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
EXPECTED = HERE / "expected.csv"
WAITING = HERE / "waiting.csv"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--harness", type=Path, required=True)
    parser.add_argument("--suite", default="all")
    parser.add_argument("--class", dest="classes", help="part of a class name, or Class#method; several with commas")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "conformance")
    parser.add_argument("--everything", action="store_true", help="also run what is known to be waiting")
    parser.add_argument("--timeout-per-test", default="90")
    args = parser.parse_args()
    must = _read(EXPECTED)
    classes = args.classes or (None if args.everything else ",".join(_methods(must)))
    results = _run(args, classes)
    return _judge(results, must, _read(WAITING))


def _methods(must: dict[tuple[str, str], str]) -> list[str]:
    """Class#method of every test that must pass; the harness takes them as its selection."""
    return sorted({f"{name.rsplit('.', 1)[-1]}#{test.split(' ', 1)[0]}" for name, test in must})


def _run(args: argparse.Namespace, classes: str | None) -> dict[tuple[str, str], str]:
    args.out.mkdir(parents=True, exist_ok=True)
    python = Path(sys.executable).parent
    env = dict(
        os.environ,
        BROKER_START=f"{python}/moldau start",
        BROKER_FORMAT=str(args.harness.resolve() / "storage-format"),
        KAFKA_STORAGE=f"{python}/kafka-storage",
    )
    command = [str(args.harness.resolve() / "run"), "--suite", args.suite, "--out", str(args.out)]
    command += ["--timeout-per-test", args.timeout_per_test]
    if classes:
        command += ["--class", classes]
    subprocess.run(command, env=env, check=False)
    with (args.out / "results.csv").open(newline="") as file:
        return {(row["class"], row["test"]): row["status"] for row in csv.DictReader(file)}


def _judge(
    results: dict[tuple[str, str], str], must: dict[tuple[str, str], str], waiting: dict[tuple[str, str], str]
) -> int:
    broken = sorted(key for key in must if results.get(key, "passed") == "failed")
    news = sorted(key for key, status in results.items() if status == "passed" and key not in must)
    unknown = sorted(k for k, status in results.items() if status == "failed" and k not in must and k not in waiting)
    count = Counter(results.values())
    for title, keys in (("must pass, failed", broken), ("failed, in no list", unknown), ("newly passing", news)):
        for name, test in keys:
            print(f"{title}: {name}#{test}")
    print(
        f"{count['passed']} passed, {len(broken) + len(unknown)} failed, {count['skipped'] + count['aborted']} skipped"
    )
    return 1 if broken or unknown or not count["passed"] else 0


def _read(path: Path) -> dict[tuple[str, str], str]:
    with path.open(newline="") as file:
        return {(row["class"], row["test"]): row.get("reason", "") for row in csv.DictReader(file)}


if __name__ == "__main__":
    sys.exit(main())
