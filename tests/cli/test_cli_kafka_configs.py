"""`kafka-configs` on a live cluster, and how its options name entities."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.cli.errors import CliError
from moldau.cli.kafka._config_actions import java_double, parse_credential
from moldau.cli.kafka.configs import parse_configs
from tests.cli.conftest import Done

Kafka = Callable[..., Done]


def test_settings_of_a_topic(kafka: Kafka, topic: str) -> None:
    kafka("topics", "--create", "--topic", topic)
    changed = kafka(
        "configs", "--alter", "--topic", topic, "--add-config", "cleanup.policy=[compact,delete],retention.ms=9"
    )
    assert changed.out == f"Completed updating config for topic {topic}.\n"
    described = kafka("configs", "--describe", "--topic", topic)
    assert described.lines == [
        f"Dynamic configs for topic {topic} are:",
        "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}",
        "  retention.ms=9 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=9}",
    ]
    by_type = kafka("configs", "--describe", "--entity-type", "topics", "--entity-name", topic)
    assert by_type.out == described.out
    kafka("configs", "--alter", "--topic", topic, "--delete-config", "cleanup.policy,retention.ms")
    assert kafka("configs", "--describe", "--topic", topic).lines == described.lines[:1]


def test_all_settings_include_the_defaults(kafka: Kafka, topic: str) -> None:
    kafka("topics", "--create", "--topic", topic)
    described = kafka("configs", "--describe", "--topic", topic, "--all")
    assert described.lines[0] == f"All configs for topic {topic} are:"
    names = [line.strip().partition("=")[0] for line in described.lines[1:]]
    assert names == sorted(names)
    assert {"segment.bytes", "retention.ms", "min.insync.replicas"} <= set(names)


def test_settings_from_a_file(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    kafka("topics", "--create", "--topic", topic)
    file = tmp_path / "add.properties"
    file.write_text("retention.ms = 77\n# a comment\nsegment.ms=8\n")
    assert kafka("configs", "--alter", "--topic", topic, "--add-config-file", file).code == 0
    shown = kafka("configs", "--describe", "--topic", topic).out
    assert "retention.ms=77 " in shown
    assert "segment.ms=8 " in shown


def test_brokers_and_their_defaults(kafka: Kafka) -> None:
    kafka("configs", "--alter", "--broker-defaults", "--add-config", "log.cleaner.threads=2")
    try:
        lines = kafka("configs", "--describe", "--entity-type", "brokers").lines
        assert lines[0] == "Dynamic configs for broker 1 are:"
        assert "Default configs for brokers in the cluster are:" in lines
        assert any(line.startswith("  log.cleaner.threads=2 sensitive=false") for line in lines)
    finally:
        done = kafka("configs", "--alter", "--broker-defaults", "--delete-config", "log.cleaner.threads")
    assert done.out == "Completed updating default config for brokers in the cluster.\n"
    every = kafka("configs", "--describe", "--broker", 1, "--all").out
    assert "  node.id=1 sensitive=false synonyms={STATIC_BROKER_CONFIG:" in every


def test_quotas_of_clients(kafka: Kafka) -> None:
    added = kafka("configs", "--alter", "--client", "cli-test", "--add-config", "producer_byte_rate=1024")
    assert added.out == "Completed updating config for client cli-test.\n"
    shown = kafka("configs", "--describe", "--client", "cli-test")
    assert shown.out == "Quota configs for client-id 'cli-test' are producer_byte_rate=1024.0\n"
    kafka("configs", "--alter", "--client", "cli-test", "--delete-config", "producer_byte_rate")
    assert kafka("configs", "--describe", "--client", "cli-test").out == ""
    unknown = kafka("configs", "--alter", "--client", "cli-test", "--delete-config", "producer_byte_rate")
    assert (unknown.code, unknown.err) == (1, "Invalid config(s): producer_byte_rate\n")


def test_what_does_not_exist(kafka: Kafka) -> None:
    for flag, name in (("--topic", "topic"), ("--group", "group"), ("--client-metrics", "client-metric")):
        shown = kafka("configs", "--describe", flag, "cli-none")
        assert shown == Done(0, f"The {name} 'cli-none' doesn't exist and doesn't have dynamic config.\n", "")


def test_the_broker_refuses_an_unknown_setting(kafka: Kafka, topic: str) -> None:
    kafka("topics", "--create", "--topic", topic)
    refused = kafka("configs", "--alter", "--topic", topic, "--add-config", "no.such=1")
    assert (refused.code, refused.err) == (1, "Unknown topic config name: no.such\n")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--describe",), "At least one entity type must be specified"),
        (("--topic", "t"), "Command must include exactly one action: --describe, --alter"),
        (("--describe", "--topic", "t", "--group", "g"), "Only 'users' and 'clients' entity types may be specified"),
        (("--describe", "--entity-type", "topics", "--topic", "t"), "should not be used in conjunction"),
        (("--describe", "--entity-type", "things"), "Invalid entity type things"),
        (("--describe", "--broker", "one"), "must be a valid integer broker id, but it is: one"),
        (("--alter", "--topic", "t"), "At least one of --add-config, --add-config-file, or --delete-config"),
        (
            ("--alter", "--entity-type", "topics", "--add-config", "a=b"),
            "An entity name must be specified with --alter",
        ),
        (("--alter", "--entity-type", "users", "--add-config", "a=b"), "An entity-name or default entity"),
        (("--alter", "--user", "u", "--add-config", "a=1"), "Only quota and SCRAM credential configs can be added"),
        (("--alter", "--topic", "t", "--add-config", "a"), "Invalid entity config"),
        (("--alter", "--topic", "t", "--add-config", "a b=1"), "Invalid character found for config key: a b"),
        (("--describe", "--topic", "t", "--add-config", "a=1"), "can't be used with option"),
    ],
)
def test_options_that_do_not_go_together(kafka: Kafka, argv: tuple[str, ...], message: str) -> None:
    done = kafka("configs", *argv)
    assert done.code == 1
    assert message in done.err


def test_lists_in_brackets() -> None:
    assert parse_configs("a=1,b=[x,y=z], c = ") == {"a": "1", "b": "x,y=z", "c": ""}


def test_credentials() -> None:
    assert parse_credential("SCRAM-SHA-256", "password=a,b=c") == (4096, "a,b=c")
    assert parse_credential("SCRAM-SHA-256", "iterations=8192,password=x") == (8192, "x")
    for wrong in ("iterations=1,password=x", "secret"):
        with pytest.raises(CliError) as refused:
            parse_credential("SCRAM-SHA-256", wrong)
        assert "secret" not in refused.value.message


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1024.0, "1024.0"),
        (0.5, "0.5"),
        (1e7, "1.0E7"),
        (1.5e10, "1.5E10"),
        (12345678.0, "1.2345678E7"),
        (1e-4, "1.0E-4"),
    ],
)
def test_numbers_as_java_prints_them(value: float, text: str) -> None:
    assert java_double(value) == text
