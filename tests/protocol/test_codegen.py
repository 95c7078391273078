"""The generator: what it makes of a specification, and that the committed output is what it makes today."""

from __future__ import annotations

from pathlib import Path

import pytest
from codegen.__main__ import GENERATED, generate, read_specifications
from codegen.kafka_jars import can_fetch, fetch_jars
from codegen.specification import Versions, attribute_name, load, snake_case

ROOT = Path(__file__).parents[2]

SPECIFICATION = """
// A comment before anything else.
{
  "apiKey": 7, "type": "request", "listeners": ["broker"], "name": "SampleRequest",
  "validVersions": "1-3", "flexibleVersions": "2+",
  "fields": [
    { "name": "Gone", "type": "int32", "versions": "0" },
    { "name": "Id", "type": "int32", "versions": "0+", "default": "0x10", "about": "Not copied." },
    // A comment between fields.
    { "name": "Type", "type": "string", "versions": "0+", "nullableVersions": "2+", "default": "null" },
    { "name": "Extra", "type": "int64", "taggedVersions": "2+", "tag": 0, "default": null },
    { "name": "Items", "type": "[]Item", "versions": "3+", "fields": [
      { "name": "IsISRWide", "type": "bool", "versions": "3+", "default": "true" }
    ]}
  ]
}
"""


@pytest.mark.parametrize(
    ("text", "low", "high"), [("0+", 0, 32767), ("3", 3, 3), ("1-4", 1, 4), (" 12 ", 12, 12), ("none", 1, 0)]
)
def test_version_ranges(text: str, low: int, high: int) -> None:
    assert Versions.parse(text) == Versions(low, high)
    assert bool(Versions.parse(text)) == (text != "none")


def test_names() -> None:
    names = ["TopicName", "ISR", "IsrWithEpochs", "KRaftVersion", "LastKnownElr", "ThrottleTimeMs"]
    assert [snake_case(name) for name in names] == [
        "topic_name",
        "isr",
        "isr_with_epochs",
        "kraft_version",
        "last_known_elr",
        "throttle_time_ms",
    ]
    assert attribute_name("Type") == "type_"
    assert attribute_name("From") == "from_"


def test_a_specification_is_understood() -> None:
    specification = load(SPECIFICATION)
    assert specification is not None
    by_name = {field.name: field for field in specification.root.fields}
    assert list(by_name) == ["Id", "Type", "Extra", "Items"]  # Gone lives in no valid version
    assert by_name["Id"].default == 16
    assert by_name["Type"].annotation == "str | None"
    assert by_name["Type"].has_null_default
    assert by_name["Extra"].versions == by_name["Extra"].tagged == Versions.parse("2+")
    assert by_name["Extra"].default == 0
    (item,) = specification.structs
    assert item.fields[0].default is True
    assert specification.minimal_size(specification.root, 1) == 4 + 2
    assert specification.minimal_size(specification.root, 3) == 4 + 1 + 1 + 1


def test_a_specification_without_valid_versions_is_dropped() -> None:
    assert load('{"name": "X", "type": "request", "validVersions": "none", "fields": []}') is None


@pytest.mark.java
@pytest.mark.skipif(not can_fetch(), reason="needs Kafka's jars, and Maven to fetch them")
def test_the_committed_output_is_current() -> None:
    files = generate(read_specifications(fetch_jars()))
    for path, text in files.items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, f"{path} differs: run python -m codegen"
    committed = {path.relative_to(ROOT) for path in (ROOT / GENERATED).rglob("*.py")}
    assert committed <= files.keys()
