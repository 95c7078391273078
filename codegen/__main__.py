"""Writes the generated part of the protocol from Apache Kafka's published specifications.

    python -m codegen [--jars DIRECTORY]

Without --jars the jars are fetched with Maven. Run from the root of the repository; the output is committed, so that
building and installing need neither Java nor this program.
"""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path

from codegen.api_table import api_table_source
from codegen.kafka_jars import KAFKA_VERSION, fetch_jars
from codegen.modules import module_source
from codegen.schemas import schemas_source
from codegen.specification import Specification, load, snake_case

GENERATED = Path("src/moldau/protocol/generated")
SCHEMAS = Path("tests/protocol/schemas.json")

# The package that each jar's messages go to.
PACKAGES = {
    "kafka-clients": "wire",
    "kafka-metadata": "metadata",
    "kafka-group-coordinator": "group",
    "kafka-transaction-coordinator": "transaction",
    "kafka-share-coordinator": "share",
    "kafka-raft": "raft",
    "kafka-storage": "storage",
    "kafka-server-common": "common",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m codegen", description=__doc__)
    parser.add_argument("--jars", type=Path, help=f"directory with Apache Kafka {KAFKA_VERSION}'s jars")
    arguments = parser.parse_args()
    files = generate(read_specifications(arguments.jars or fetch_jars()))
    changed = 0
    for path, text in files.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            changed += 1
    for path in set(GENERATED.rglob("*.py")) - files.keys():
        path.unlink()
        changed += 1
    print(f"{len(files)} files, {changed} of them changed")


def generate(packages: dict[str, list[Specification]]) -> dict[Path, str]:
    """Every file that is generated, with its content."""
    files = {GENERATED / "__init__.py": "", GENERATED / "api_table.py": api_table_source(packages)}
    for package, specifications in packages.items():
        files[GENERATED / package / "__init__.py"] = ""
        for specification in specifications:
            files[GENERATED / package / f"{snake_case(specification.name)}.py"] = module_source(specification)
    files[SCHEMAS] = schemas_source(packages)
    return files


def read_specifications(jars: Path) -> dict[str, list[Specification]]:
    """Every specification that has a valid version, by package, in the order of names."""
    packages: dict[str, list[Specification]] = {}
    for jar, package in PACKAGES.items():
        found: list[Specification] = []
        with zipfile.ZipFile(jars / f"{jar}-{KAFKA_VERSION}.jar") as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".json"):
                    specification = load(archive.read(name).decode("utf-8"))
                    if specification is not None:
                        found.append(specification)
        if found:
            packages[package] = sorted(found, key=lambda each: each.name)
    return packages


if __name__ == "__main__":
    main()
