"""Messages of every package and version, read and written again by Apache Kafka's own Java classes.

Kafka must give back our bytes, and its JSON must show our values under the specification's names: bytes alone would not
notice two neighbouring numbers that changed places.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from codegen.kafka_jars import can_fetch, classpath
from hypothesis import HealthCheck, Phase, given, settings
from protocol_schemas import Case, all_cases, messages

from moldau.protocol import coordinator_records, metadata_records
from moldau.protocol.api import API_TABLE, request_header_version, response_header_version
from moldau.protocol.codec import encode
from moldau.protocol.errors import INVALID_METADATA, RETRIABLE, ErrorCode
from moldau.protocol.uuids import uuid_to_string

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(not can_fetch(), reason="needs a Java runtime, and Maven to fetch Kafka's jars"),
]

PROGRAM = Path(__file__).parent / "java" / "Reread.java"
PACKAGES = {
    "wire": "org.apache.kafka.common.message",
    "metadata": "org.apache.kafka.common.metadata",
    "group": "org.apache.kafka.coordinator.group.generated",
    "transaction": "org.apache.kafka.coordinator.transaction.generated",
    "share": "org.apache.kafka.coordinator.share.generated",
    "raft": "org.apache.kafka.raft.generated",
    "storage": "org.apache.kafka.server.log.remote.metadata.storage.generated",
}
EXAMPLES = 3


def ask_java(tmp_path: Path, lines: list[str]) -> list[str]:
    questions, answers = tmp_path / "questions", tmp_path / "answers"
    questions.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = ["java", "-Dfile.encoding=UTF-8", "-cp", classpath(), str(PROGRAM), str(questions), str(answers)]
    subprocess.run(command, check=True, timeout=110)
    # Not splitlines: names in the JSON may hold characters that count as line ends elsewhere.
    return answers.read_bytes().decode("utf-8").split("\n")[:-1]


def examples(case: Case, count: int = EXAMPLES) -> list[Any]:
    found: list[Any] = []

    @given(message=messages(case))
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def collect(message: Any) -> None:
        found.append(message)

    collect()
    return found


def java_class(case: Case) -> str:
    suffix = "Data" if case.schema["kind"] in ("request", "response", "header") else ""
    return f"{PACKAGES[case.package]}.{case.name}{suffix}"


def assert_same(case: Case, struct: str, shown: dict[str, Any], message: Any) -> None:
    """Kafka's JSON against our object; it leaves out tagged fields that have their default."""
    for field in case.fields(struct):
        name = field["name"][0].lower() + field["name"][1:]
        value = getattr(message, field["attribute"])
        if field["type"] == "records":
            continue  # shown without their content; the bytes were compared before
        if name in shown:
            assert_same_value(case, field, shown[name], value)
        else:
            assert "tag" in field, f"{case}: {struct}.{name} is missing in {shown}"
    assert len(shown) <= len(case.fields(struct))


def assert_same_value(case: Case, field: dict[str, Any], shown: Any, value: Any) -> None:
    if shown is None or value is None:
        assert shown is value
    elif field.get("array"):
        assert len(shown) == len(value)
        for each_shown, each in zip(shown, value, strict=True):
            assert_same_value(case, {**field, "array": False}, each_shown, each)
    elif field["type"] in case.schema["structs"]:
        assert_same(case, field["type"], shown, value)
    elif field["type"] == "uuid":
        assert shown == uuid_to_string(value)
    elif field["type"] == "bytes":
        assert len(shown) == 4 * ((len(value) + 2) // 3)
    elif field["type"] == "float64":
        assert float(shown) == value
    else:
        assert shown == value


def test_kafka_reads_and_writes_every_message(tmp_path: Path) -> None:
    asked = [(case, message) for case in all_cases() for message in examples(case)]
    lines = [
        f"message {java_class(case)} {case.version} {encode(message, case.version).hex()}" for case, message in asked
    ]
    answers = ask_java(tmp_path, lines)
    assert len(answers) == len(asked)
    for (case, message), answer in zip(asked, answers, strict=True):
        data, _, shown = answer.partition(" ")
        assert data == encode(message, case.version).hex(), case
        assert_same(case, case.name, json.loads(shown), message)


def test_kafka_reads_our_metadata_records(tmp_path: Path) -> None:
    records = [
        (case, metadata_records.encode_record(message, case.version))
        for case in all_cases()
        if case.package == "metadata"
        for message in examples(case)
    ]
    answers = ask_java(tmp_path, [f"metadata {data.hex()}" for _, data in records])
    assert answers == [f"{case.name} {case.version} {data.hex()}" for case, data in records]


def test_kafka_reads_our_group_records(tmp_path: Path) -> None:
    cases = {(case.name, case.version): case for case in all_cases() if case.package == "group"}
    asked = []
    for record_type in coordinator_records.record_types("group"):
        key_class = coordinator_records.key_class("group", record_type)
        value_class = coordinator_records.value_class("group", record_type)
        key = coordinator_records.encode_key(examples(cases[key_class.__name__, 0])[-1])
        for version in range(value_class.MIN_VERSION, value_class.MAX_VERSION + 1):
            for value in examples(cases[value_class.__name__, version]):
                stored = coordinator_records.encode_value(value, version)
                asked.append((key_class.__name__, value_class.__name__, key.hex(), stored.hex()))
    answers = ask_java(tmp_path, [f"group {key} {value}" for _, _, key, value in asked])
    assert answers == [" ".join(each) for each in asked]


def test_error_codes_and_header_versions_are_kafkas(tmp_path: Path) -> None:
    errors, apis = ask_java(tmp_path, ["errors", "apis"])
    ours = [
        f"{code.name},{code.value},{str(code in RETRIABLE).lower()},{str(code in INVALID_METADATA).lower()}"
        for code in ErrorCode
    ]
    assert sorted(ours) == sorted(errors.split())
    headers = [
        f"{spec.key.name},{spec.key.value},{version},"
        f"{request_header_version(spec.key, version)},{response_header_version(spec.key, version)}"
        for spec in API_TABLE.values()
        for version in range(spec.min_version, spec.max_version + 1)
    ]
    assert sorted(headers) == sorted(apis.split())
