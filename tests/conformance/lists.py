"""Makes expected.csv and waiting.csv from the results of one or more runs.

    python -m tests.conformance.lists RESULTS.csv [RESULTS.csv ...]

A passed test must pass from then on. For every failed one the reason is guessed from its class and its failure; a
reason that cannot be guessed is "to be looked at", which nobody should leave standing.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The first pattern found in "class#test failure" names what the test waits for.
REASONS = (
    (r"Sasl|SASL|Scram|SCRAM|Acl|Authoriz|SecurityDisabled|DelegationToken|CREATE_ACLS", "security"),
    (r"metric not found", "a metric inside Apache Kafka's own process"),
    (r"Invalid broker logger", "Kafka's own logger names, which do not exist here"),
    (r"testCannotSendToInternalTopic", "looks for a topic's absence while it is created, and comes too late"),
    (r"Policy|PolicyTest", "policies, which are Java classes"),
)


def main(paths: list[str]) -> int:
    rows = {}
    for path in paths:
        with open(path, newline="") as file:
            rows.update({(row["class"], row["test"]): row for row in csv.DictReader(file)})
    passed = sorted(key for key, row in rows.items() if row["status"] == "passed")
    failed = sorted(key for key, row in rows.items() if row["status"] == "failed")
    _write(HERE / "expected.csv", ("class", "test"), passed)
    _write(HERE / "waiting.csv", ("class", "test", "reason"), [(*key, _reason(rows[key])) for key in failed])
    print(f"{len(passed)} passed, {len(failed)} waiting, {len(rows) - len(passed) - len(failed)} skipped")
    return 0


def _reason(row: dict[str, str]) -> str:
    text = f"{row['class']}#{row['test']} {row['failure']}"
    return next((reason for pattern, reason in REASONS if re.search(pattern, text)), "to be looked at")


def _write(path: Path, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
