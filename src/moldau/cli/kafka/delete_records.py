"""`kafka-delete-records`: delete the records of partitions before given offsets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from moldau.cli.errors import CliError
from moldau.cli.kafka._common import open_admin
from moldau.cli.kafka._options import OptionParser, run

Partition = tuple[str, int]


def main(argv: Sequence[str] | None = None) -> int:
    return run(lambda: execute(argv))


def execute(argv: Sequence[str] | None) -> int:
    options = _parser().parse(argv)
    options.require("bootstrap-server", "offset-json-file")
    path = options.text("offset-json-file")
    try:
        with open(path, encoding="utf-8") as file:
            before = parse_offsets(file.read())
    except OSError as error:
        raise CliError(f"Cannot read {path}: {error.strerror}") from None

    from moldau.cli.java_errors import java_text
    from moldau.client.offsets import delete_records
    from moldau.protocol.errors import ApiError

    with open_admin(options, "kafka-delete-records") as admin:
        print("Executing records delete operation")
        results = delete_records(admin, before)
        print("Records delete operation completed:")
        for (name, index), result in results.items():
            outcome = f"error: {java_text(result)}" if isinstance(result, ApiError) else f"low_watermark: {result}"
            print(f"partition: {name}-{index}\t{outcome}")
    return 0


def _parser() -> OptionParser:
    parser = OptionParser("kafka-delete-records", "Delete the records of partitions before given offsets.")
    parser.connection()
    parser.value(
        "offset-json-file",
        "FILE",
        'Required. The offsets, as {"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}. '
        "Offset -1 deletes all records.",
    )
    return parser


def parse_offsets(text: str) -> dict[Partition, int]:
    try:
        document: Any = json.loads(text)
    except ValueError:
        raise CliError("The input string is not a valid JSON") from None
    version = document.get("version", 1) if isinstance(document, dict) else None
    if version != 1:
        raise CliError(f"Not supported version field value {version}")
    if "partitions" not in document:
        raise CliError("Missing partitions field")
    before: dict[Partition, int] = {}
    duplicates: list[str] = []
    for entry in document["partitions"]:
        try:
            topic, index, offset = entry["topic"], entry["partition"], entry["offset"]
        except (KeyError, TypeError):
            raise CliError("Every partition needs the fields topic, partition and offset") from None
        if not (isinstance(topic, str) and type(index) is int and type(offset) is int):
            raise CliError(f"topic must be text, partition and offset must be numbers: {json.dumps(entry)}")
        if (topic, index) in before:
            duplicates.append(f"{topic}-{index}")
        before[topic, index] = offset
    if duplicates:
        raise CliError(f"Offset json file contains duplicate topic partitions: {','.join(duplicates)}")
    return before


if __name__ == "__main__":
    raise SystemExit(main())
