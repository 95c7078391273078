"""Ask the Apache Kafka jars for every configuration key, for comparison with `moldau.config.table`.

`python -m codegen.dump_configs.dump` prints the facts as JSON. A new Kafka release shows here first: the test of the
table fails with the rows that differ, and the rows are then changed by hand, with words for what is new.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from codegen.kafka_jars import classpath

TIMEOUT_SECONDS = 120


def run_java(program: Path, *arguments: str) -> None:
    """Run a Java program of one source file against Kafka's jars."""
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath(), str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{program.name} failed:\n{done.stdout}{done.stderr}")


def dump() -> dict[str, Any]:
    """Every key of every family, the synonyms between them, and the order in which Kafka lists them."""
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "configs.json"
        run_java(Path(__file__).with_name("DumpConfigs.java"), str(output))
        facts: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
        return facts


if __name__ == "__main__":
    json.dump(dump(), sys.stdout, indent=1)
    print()
