"""The whole table against Kafka itself: no key missing, none invented, every fact the same."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from moldau.config import validators
from moldau.config.describe import java_map_order
from moldau.config.key import ConfigKey
from moldau.config.node_config import NodeConfig
from moldau.config.table import (
    BROKER_KEYS,
    BROKER_SYNONYMS,
    CLIENT_METRICS_KEYS,
    DYNAMIC_ONLY_KEYS,
    GROUP_KEYS,
    GROUP_SYNONYMS,
    IP_QUOTA_KEYS,
    TOPIC_KEYS,
    TOPIC_SYNONYMS,
    USER_QUOTA_KEYS,
)
from moldau.config.topic_config import effective_values
from moldau.config.types import render

pytestmark = pytest.mark.java

FAMILIES = {
    "broker": BROKER_KEYS,
    "broker_dynamic_only": DYNAMIC_ONLY_KEYS,
    "topic": TOPIC_KEYS,
    "group": GROUP_KEYS,
    "client_metrics": CLIENT_METRICS_KEYS,
    "user_quota": USER_QUOTA_KEYS,
    "ip_quota": IP_QUOTA_KEYS,
}


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    dump = pytest.importorskip("codegen.dump_configs.dump")
    if shutil.which("java") is None or not pytest.importorskip("codegen.kafka_jars").can_fetch():
        pytest.skip("needs a Java runtime and Kafka's jars")
    result: dict[str, Any] = dump.dump()
    return result


def validator_as_data(validator: validators.Validator | None) -> object:
    """In the words of the dump, as far as both sides have the fact."""
    match validator:
        case None:
            return None
        case validators.Range():
            return "Range", validator.minimum, validator.maximum
        case validators.OneOf():
            return "ValidString", validator.choices
        case validators.OneOfAnyCase():
            return "CaseInsensitiveValidString", validator.choices
        case validators.Words():
            return "ValidList", validator.choices, validator.empty, validator.null
        case _:
            return OTHER_VALIDATORS[type(validator)], validator.describe()


OTHER_VALIDATORS = {
    validators.NonEmpty: "NonEmptyString",
    validators.NotNull: "NonNullValidator",
    validators.GzipLevel: "LambdaValidator",
    validators.QuorumVoters: "ControllerQuorumVotersValidator",
    validators.QuorumServers: "ControllerQuorumBootstrapServersValidator",
    validators.ThrottledReplicas: "ThrottledReplicaListValidator",
    validators.ShareOffsetReset: "Validator",
}


def dumped_validator(data: dict[str, Any] | None) -> object:
    if data is None:
        return None
    match data["class"]:
        case "Range":
            return "Range", data["min"], data["max"]
        case "ValidString" | "CaseInsensitiveValidString" as kind:
            return kind, tuple(data["validStrings"])
        case "ValidList":
            return (
                "ValidList",
                tuple(data["validString"]["validStrings"]),
                data["isEmptyAllowed"],
                data["isNullAllowed"],
            )
        case kind:
            return kind, data["says"]


def as_row(key: ConfigKey) -> dict[str, object]:
    return {
        "name": key.name,
        "type": key.type.name,
        "required": key.required,
        "default": render(key.default),
        "validator": validator_as_data(key.validator),
        "importance": key.importance.upper(),
        "internal": key.internal,
        "update_mode": key.update_mode,
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_every_key_has_kafkas_facts(facts: dict[str, Any], family: str) -> None:
    kafkas = [
        {**row, "validator": dumped_validator(row["validator"]), "update_mode": row.get("update_mode", "cluster-wide")}
        for row in facts[family]
    ]
    ours = [as_row(key) for key in FAMILIES[family].values()]
    assert [row["name"] for row in ours] == [row["name"] for row in kafkas]
    for our_row, kafka_row in zip(ours, kafkas, strict=True):
        assert our_row == kafka_row


def test_topic_synonyms_are_kafkas(facts: dict[str, Any]) -> None:
    ours = {name: [list(synonym) for synonym in synonyms] for name, synonyms in TOPIC_SYNONYMS.items()}
    assert ours == facts["topic_synonyms"]


def test_group_synonyms_are_kafkas(facts: dict[str, Any]) -> None:
    assert dict(GROUP_SYNONYMS) == {name: broker for name, broker in facts["group_synonyms"].items() if broker}


def test_broker_synonyms_are_kafkas(facts: dict[str, Any]) -> None:
    assert {name: list(synonyms) for name, synonyms in BROKER_SYNONYMS.items()} == facts["broker_synonyms"]


def test_no_name_is_dynamic_outside_the_table(facts: dict[str, Any]) -> None:
    assert facts["unlisted_dynamic"] == {}


@pytest.mark.parametrize("family", ["broker", "topic", "group", "client_metrics"])
def test_keys_are_listed_in_kafkas_order(facts: dict[str, Any], family: str) -> None:
    assert list(java_map_order(tuple(public(FAMILIES[family])))) == facts[f"{family}_order"]


def public(table: Mapping[str, ConfigKey]) -> Iterable[str]:
    return (name for name, key in table.items() if not key.internal)


def test_a_topic_on_a_default_node_has_kafkas_settings(facts: dict[str, Any]) -> None:
    values = effective_values(NodeConfig.load({}), {})
    ours = {name: render(values[name]) for name in public(TOPIC_KEYS)}
    assert ours == facts["topic_defaults_of_a_default_node"]
