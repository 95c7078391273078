"""Writes the shapes of log records for the tools that show them as JSON.

    python -m codegen.record_shapes [--jars DIRECTORY]

A shape is what Kafka's own JSON form of a record needs and the generated classes do not keep: the fields' original
names, their types and the versions they live in. Run from the root of the repository; the output is committed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from codegen.__main__ import read_specifications
from codegen.kafka_jars import KAFKA_VERSION, fetch_jars
from codegen.specification import Field, Specification, Struct, snake_case

OUTPUT = Path("src/moldau/cli/kafka/record_shapes.json")
WHOLE_PACKAGES = ("group", "metadata", "share", "storage", "transaction")
# Control records, and what classic groups keep inside their records, are specified among the wire messages.
FROM_WIRE = (
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "KRaftVersionRecord",
    "LeaderChangeMessage",
    "SnapshotFooterRecord",
    "SnapshotHeaderRecord",
    "VotersRecord",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m codegen.record_shapes", description=__doc__)
    parser.add_argument("--jars", type=Path, help=f"directory with Apache Kafka {KAFKA_VERSION}'s jars")
    packages = read_specifications(parser.parse_args().jars or fetch_jars())
    rows = [
        f'"{each.name}":{json.dumps(_shape(package, each), separators=(",", ":"))}'
        for package in (*WHOLE_PACKAGES, "wire")
        for each in packages[package]
        if package != "wire" or each.name in FROM_WIRE
    ]
    OUTPUT.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    print(f"{len(rows)} shapes in {OUTPUT}")


def _shape(package: str, specification: Specification) -> dict[str, Any]:
    return {
        "module": f"{package}.{snake_case(specification.name)}",
        "type": specification.api_key,
        "structs": {each.name: _fields(each) for each in (specification.root, *specification.structs)},
    }


def _fields(struct: Struct) -> list[dict[str, Any]]:
    return [_field(each) for each in struct.fields]


def _field(field: Field) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": field.name[0].lower() + field.name[1:],
        "attribute": field.attribute,
        "type": field.type,
        "versions": [field.versions.low, field.versions.high],
    }
    if field.is_array:
        facts["array"] = True
    if field.tagged:
        facts["tagged"] = [field.tagged.low, field.tagged.high]
    return facts


if __name__ == "__main__":
    main()
