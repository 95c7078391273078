"""How settings behave, side by side with Kafka: what is refused and with which words, and what is described."""

from __future__ import annotations

import random
from typing import Any, TypeAlias

import pytest
from config_oracle import BROKER_ONLY, CONTROLLER_ONLY, ONE_NODE, ask_kafka

from moldau.config.client_config import validate_client_metrics
from moldau.config.describe import (
    DescribedConfig,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from moldau.config.dynamic import check_change, check_overrides
from moldau.config.group_config import validate_group_overrides
from moldau.config.node_config import NodeConfig
from moldau.config.properties import PropertiesError, parse_properties
from moldau.config.table import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS
from moldau.config.topic_config import validate_topic_overrides
from moldau.config.types import ConfigError, ConfigType, parse, render

pytestmark = pytest.mark.java

Answers: TypeAlias = dict[str, list[tuple[dict[str, Any], dict[str, Any]]]]

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32

RETENTION = {"log.retention.hours": "48", "log.retention.minutes": "90"}
ON = {**ONE_NODE, "remote.log.storage.system.enable": "true"}

DESCRIBED: list[dict[str, Any]] = [
    {"resource": TOPIC, "name": "t"},
    {"resource": TOPIC, "name": "t", "overrides": {"cleanup.policy": "delete , compact", "retention.ms": " 5 "}},
    {"resource": TOPIC, "name": "t", "overrides": {"internal.segment.bytes": "100", "segment.bytes": "2000000"}},
    {"resource": TOPIC, "name": "t", "static": {**ONE_NODE, **RETENTION, "log.roll.hours": "3"}},
    {"resource": TOPIC, "name": "t", "static": {**ONE_NODE, **RETENTION, "log.retention.ms": "1000"}},
    {"resource": TOPIC, "name": "t", "static": ONE_NODE, "default": {"log.retention.ms": "7", "log.roll.ms": "9"}},
    {
        "resource": TOPIC,
        "name": "t",
        "static": {**ONE_NODE, **RETENTION, "message.max.bytes": "1"},
        "default": {"log.retention.ms": "60000", "message.max.bytes": "2", "log.cleaner.min.cleanable.ratio": "0.25"},
        "broker": {"message.max.bytes": "3", "compression.type": "zstd"},
        "overrides": {"max.message.bytes": "4", "min.cleanable.dirty.ratio": "1e-5"},
    },
    {"resource": BROKER, "name": "1"},
    {
        "resource": BROKER,
        "name": "1",
        "static": {
            **ONE_NODE,
            **RETENTION,
            "super.users": "User:admin",
            "ssl.keystore.password": "secret",
            "listener.name.plaintext.ssl.keystore.location": "/key",
            "listener.name.plaintext.ssl.keystore.password": "secret",
            "listener.name.plaintext.plain.sasl.jaas.config": "secret",
            "unstable.api.versions.enable": "true",
            "some.plugin.setting": "x",
            "log.cleaner.io.max.bytes.per.second": "1000000",
            "log.dirs": " /a , /b ",
        },
        "default": {"log.retention.ms": "60000", "leader.replication.throttled.rate": "5", "max.connections": "9"},
        "broker": {"log.flush.interval.ms": "11", "listener.name.plaintext.max.connections": "7"},
    },
    {"resource": BROKER, "name": "1", "default": {"group.consumer.assignment.interval.ms": "20000"}},
    {"resource": BROKER, "name": "", "default": {"log.retention.ms": "60000", "max.connections": "9"}},
    {"resource": BROKER, "name": ""},
    {"resource": GROUP, "name": "g"},
    {
        "resource": GROUP,
        "name": "g",
        "static": {**ONE_NODE, "group.consumer.session.timeout.ms": "50000"},
        "overrides": {"consumer.session.timeout.ms": "46000", "share.auto.offset.reset": "earliest"},
    },
    {"resource": GROUP, "name": "g", "default": {"group.share.assignment.interval.ms": "5"}},
    {"resource": CLIENT_METRICS, "name": "m"},
    {"resource": CLIENT_METRICS, "name": "m", "overrides": {"metrics": "a.b,c", "match": "client_id=x"}},
]


def node_of(question: dict[str, Any]) -> NodeConfig:
    node = NodeConfig.load(question.get("static", ONE_NODE))
    if "default" in question or "broker" in question:
        node = node.with_dynamic(question.get("default", {}), question.get("broker", {}))
    return node


def describe(question: dict[str, Any]) -> list[DescribedConfig]:
    node, overrides = node_of(question), question.get("overrides", {})
    match question["resource"], question["name"]:
        case (2, _):
            return describe_topic(node, overrides)
        case (4, ""):
            return describe_cluster_default(node)
        case (4, _):
            return describe_broker(node)
        case (16, _):
            return describe_client_metrics(overrides)
        case _:
            return describe_group(node, overrides)


def test_settings_are_described_as_kafka_does(kafka: Answers) -> None:
    for question, answer in kafka["describe"]:
        ours = [
            [
                entry.name,
                entry.value,
                entry.source,
                entry.read_only,
                entry.sensitive,
                entry.type,
                [list(synonym) for synonym in entry.synonyms],
            ]
            for entry in describe(question)
        ]
        theirs = answer["result"]
        ours_by_name, theirs_by_name = ({row[0]: row for row in rows} for rows in (ours, theirs))
        assert ours_by_name == theirs_by_name, question
        # Names outside the table have no order that means anything; the table has one.
        tables = (TOPIC_KEYS, BROKER_KEYS, GROUP_KEYS, CLIENT_METRICS_KEYS)
        if question["name"]:
            listed = [[row[0] for row in rows if any(row[0] in table for table in tables)] for rows in (ours, theirs)]
            assert listed[0] == listed[1], question


LOADED: list[dict[str, str]] = [
    ONE_NODE,
    BROKER_ONLY,
    CONTROLLER_ONLY,
    {**ONE_NODE, "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093", "controller.quorum.voters": "1@me:9093"},
    {**ONE_NODE, "listeners": "PLAINTEXT://:9092,CONTROLLER://0.0.0.0:9093", "controller.quorum.voters": "1@me:9094"},
    {**ONE_NODE, "listeners": "PLAINTEXT://:9092,CONTROLLER://0.0.0.0:9093"},
    {**ONE_NODE, "listeners": "plaintext://[::1]:9092,CONTROLLER://127.0.0.1:9092"},
    {**ONE_NODE, "advertised.listeners": "PLAINTEXT://example.org:1,CONTROLLER://example.org:2"},
    {**ONE_NODE, "advertised.listeners": "PLAINTEXT://example.org:1"},
    {
        **ONE_NODE,
        "listeners": "IN://:1,OUT://:2,CONTROLLER://:3",
        "listener.security.protocol.map": "IN:PLAINTEXT,OUT:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "in",
        "metadata.log.dir": "/meta",
    },
    {name: value for name, value in ONE_NODE.items() if name != "node.id"} | {"broker.id": "7"},
    {**ONE_NODE, "early.start.listeners": "PLAINTEXT"},
    {**BROKER_ONLY, "controller.listener.names": "A,B"},
]


def test_good_properties_give_kafkas_endpoints(kafka: Answers) -> None:
    for question, answer in kafka["load"]:
        static = question["static"]
        assert "error" not in answer, (static, answer)
        node = NodeConfig.load(static)
        endpoints = [
            " ".join(
                f"Endpoint(listenerName='{listener.name}', securityProtocol={listener.security_protocol}, "
                f"host='{listener.host or 'null'}', port={listener.port})"
                for listener in listeners
            )
            for listeners in (node.advertised_listeners, node.advertised_controller_listeners)
        ]
        assert {
            "advertised": endpoints[0],
            "controllers": endpoints[1],
            "between_brokers": node.inter_broker_listener,
            "metadata_log_dir": node.metadata_log_dir,
        } == answer["result"], static


def without(name: str) -> dict[str, str]:
    return {key: value for key, value in ONE_NODE.items() if key != name}


# Properties that Kafka refuses, with the key our message must name.
REFUSED: list[tuple[str, dict[str, str]]] = [
    ("process.roles", without("process.roles")),
    ("node.id", without("node.id")),
    ("controller.listener.names", without("controller.listener.names")),
    ("controller.quorum.bootstrap.servers", without("controller.quorum.bootstrap.servers")),
    ("node.id", {**ONE_NODE, "node.id": "-1"}),
    ("node.id", {**ONE_NODE, "node.id": "one"}),
    ("broker.id", {**ONE_NODE, "broker.id": "2"}),
    ("process.roles", {**ONE_NODE, "process.roles": "broker,observer"}),
    ("process.roles", {**ONE_NODE, "process.roles": ""}),
    ("listeners", {**ONE_NODE, "listeners": ""}),
    ("listeners", {**ONE_NODE, "listeners": "localhost:9092"}),
    ("listeners", {**ONE_NODE, "listeners": "PLAINTEXT://localhost:x,CONTROLLER://localhost:9093"}),
    ("listeners", {**ONE_NODE, "listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2,CONTROLLER://c:3"}),
    ("listeners", {**ONE_NODE, "listeners": "PLAINTEXT://a:1,CONTROLLER://b:1"}),
    ("listeners", {**ONE_NODE, "listeners": "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.2:1"}),
    ("listeners", {**ONE_NODE, "listeners": "OUTSIDE://a:1,CONTROLLER://b:2"}),
    ("listeners", {**ONE_NODE, "listeners": "SSL://a:1,CONTROLLER://b:2"}),
    ("listener.security.protocol.map", {**ONE_NODE, "listener.security.protocol.map": "PLAINTEXT:TLS"}),
    ("listeners", {**ONE_NODE, "controller.listener.names": "OTHER"}),
    ("listeners", {**ONE_NODE, "controller.listener.names": "controller"}),
    ("controller.listener.names", {**BROKER_ONLY, "controller.listener.names": "PLAINTEXT"}),
    ("controller.listener.names", {**BROKER_ONLY, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}),
    ("inter.broker.listener.name", {**ONE_NODE, "inter.broker.listener.name": "OTHER"}),
    ("inter.broker.listener.name", {**ONE_NODE, "inter.broker.listener.name": "CONTROLLER"}),
    (
        "inter.broker.listener.name",
        {**ONE_NODE, "inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
    ),
    ("inter.broker.listener.name", {**ONE_NODE, "security.inter.broker.protocol": "SSL"}),
    ("advertised.listeners", {**ONE_NODE, "advertised.listeners": "PLAINTEXT://0.0.0.0:1"}),
    ("listeners", {**ONE_NODE, "listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://localhost:9093"}),
    ("advertised.listeners", {**BROKER_ONLY, "advertised.listeners": "PLAINTEXT://a:1,SSL://a:2"}),
    ("advertised.listeners", {**ONE_NODE, "advertised.listeners": "CONTROLLER://a:1"}),
    ("controller.quorum.voters", {**ONE_NODE, "controller.quorum.voters": "2@localhost:9093"}),
    ("controller.quorum.voters", {**ONE_NODE, "controller.quorum.voters": "localhost:9093"}),
    ("controller.quorum.voters", {**ONE_NODE, "controller.quorum.voters": "1@localhost"}),
    ("controller.quorum.voters", {**ONE_NODE, "controller.quorum.voters": "one@localhost:9093"}),
    ("controller.quorum.voters", {**BROKER_ONLY, "controller.quorum.voters": "2@localhost:9093"}),
    ("controller.quorum.bootstrap.servers", {**ONE_NODE, "controller.quorum.bootstrap.servers": "localhost"}),
    ("controller.quorum.auto.join.enable", {**BROKER_ONLY, "controller.quorum.auto.join.enable": "true"}),
    ("listeners", {**CONTROLLER_ONLY, "listeners": "CONTROLLER://a:1,PLAINTEXT://a:2"}),
    ("controller.listener.names", {**CONTROLLER_ONLY, "inter.broker.listener.name": "CONTROLLER"}),
    ("early.start.listeners", {**ONE_NODE, "early.start.listeners": "OTHER"}),
    ("log.roll.ms", {**ONE_NODE, "log.roll.ms": "0"}),
    ("log.roll.hours", {**ONE_NODE, "log.roll.hours": "0"}),
    ("log.roll.jitter.ms", {**ONE_NODE, "log.roll.jitter.ms": "-1"}),
    ("log.retention.ms", {**ONE_NODE, "log.retention.ms": "0"}),
    ("log.retention.hours", {**ONE_NODE, "log.retention.hours": "0"}),
    ("log.dirs", {**ONE_NODE, "log.dirs": ""}),
    ("log.dirs", {**ONE_NODE, "log.dirs": "/a,,/b"}),
    ("cordoned.log.dirs", {**ONE_NODE, "log.dirs": "/a", "cordoned.log.dirs": "/b"}),
    ("cordoned.log.dirs", {**ONE_NODE, "log.dirs": "/a", "cordoned.log.dirs": "*,/a"}),
    ("log.segment.bytes", {**ONE_NODE, "log.segment.bytes": "1000"}),
    ("log.segment.bytes", {**ONE_NODE, "log.segment.bytes": "99999999999"}),
    ("log.cleanup.policy", {**ONE_NODE, "log.cleanup.policy": "squash"}),
    ("log.cleaner.min.cleanable.ratio", {**ONE_NODE, "log.cleaner.min.cleanable.ratio": "1.5"}),
    ("log.cleaner.dedupe.buffer.size", {**ONE_NODE, "log.cleaner.dedupe.buffer.size": "1000"}),
    ("replica.socket.timeout.ms", {**ONE_NODE, "replica.socket.timeout.ms": "100"}),
    ("replica.fetch.wait.max.ms", {**ONE_NODE, "replica.lag.time.max.ms": "100"}),
    ("queued.max.request.bytes", {**ONE_NODE, "queued.max.request.bytes": "100"}),
    ("max.connections.per.ip", {**ONE_NODE, "max.connections.per.ip": "0"}),
    ("max.connections.per.ip.overrides", {**ONE_NODE, "max.connections.per.ip.overrides": "a/b:1"}),
    ("connection.failed.authentication.delay.ms", {**ONE_NODE, "connections.max.idle.ms": "50"}),
    ("compression.type", {**ONE_NODE, "compression.type": "brotli"}),
    ("compression.gzip.level", {**ONE_NODE, "compression.gzip.level": "0"}),
    ("compression.zstd.level", {**ONE_NODE, "compression.zstd.level": "23"}),
    ("auto.create.topics.enable", {**ONE_NODE, "auto.create.topics.enable": "yes"}),
    ("group.coordinator.rebalance.protocols", {**ONE_NODE, "group.coordinator.rebalance.protocols": "consumer"}),
    ("group.consumer.migration.policy", {**ONE_NODE, "group.consumer.migration.policy": "sometimes"}),
    ("group.consumer.heartbeat.interval.ms", {**ONE_NODE, "group.consumer.heartbeat.interval.ms": "100"}),
    ("group.consumer.session.timeout.ms", {**ONE_NODE, "group.consumer.session.timeout.ms": "99999"}),
    ("group.share.assignors", {**ONE_NODE, "group.share.assignors": "other"}),
    ("group.consumer.assignors", {**ONE_NODE, "group.consumer.assignors": "range,other"}),
    ("group.share.max.share.sessions", {**ONE_NODE, "group.share.max.share.sessions": "100"}),
    ("group.streams.num.standby.replicas", {**ONE_NODE, "group.streams.num.standby.replicas": "3"}),
    (
        "group.share.delivery.count.limit",
        {**ONE_NODE, "group.share.delivery.count.limit": "2", "group.share.min.delivery.count.limit": "3"},
    ),
    (
        "sasl.mechanism.inter.broker.protocol",
        {
            **ONE_NODE,
            "listeners": "SASL_PLAINTEXT://a:1,CONTROLLER://b:2",
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
        },
    ),
]

# Where our text says more than Kafka's, or names the key where Kafka does not.
IN_OTHER_WORDS = (
    "configuration broker.id: Not a number",
    "Missing required configuration",
    "Error creating broker listeners",
    "If using process.roles",
    "Invalid security protocol",
    "Unable to parse a listener name",
    "must only contain values appearing in",
    "the set of voters",
    "(an explicit security mapping",
    "Disabling the 'CLASSIC' protocol",
    "early.start.listeners contains",
    "inter.broker.listener.name configuration value when process.roles=controller'",
)


def test_bad_properties_are_refused_as_kafka_refuses_them(kafka: Answers) -> None:
    for (name, static), (_, answer) in zip(REFUSED, kafka["refused"], strict=True):
        assert "error" in answer, f"Kafka accepts this: {static}"
        with pytest.raises(ConfigError) as refused:
            NodeConfig.load(static)
        assert refused.value.name == name, (static, str(refused.value), answer)
        theirs = answer["error"].removeprefix("requirement failed: ")
        if not any(words in theirs for words in IN_OTHER_WORDS):
            assert theirs in str(refused.value), static


TOPIC_OVERRIDES: list[dict[str, Any]] = [
    {"overrides": {}},
    {"overrides": {"retention.ms": "-1", "cleanup.policy": ""}},
    {"overrides": {"cleanup.policy": "compact,compact"}},
    {"overrides": {"no.such.key": "1"}},
    {"overrides": {"retention.ms": "-2"}},
    {"overrides": {"retention.ms": "ten"}},
    {"overrides": {"retention.ms": ""}},
    {"overrides": {"segment.bytes": "14"}},
    {"overrides": {"segment.bytes": "2147483648"}},
    {"overrides": {"cleanup.policy": "compact,zap"}},
    {"overrides": {"cleanup.policy": "compact,,delete"}},
    {"overrides": {"compression.type": "none"}},
    {"overrides": {"compression.gzip.level": "10"}},
    {"overrides": {"compression.lz4.level": "18"}},
    {"overrides": {"min.cleanable.dirty.ratio": "1.01"}},
    {"overrides": {"min.cleanable.dirty.ratio": "half"}},
    {"overrides": {"preallocate": "1"}},
    {"overrides": {"message.timestamp.type": "createtime"}},
    {"overrides": {"min.insync.replicas": "0"}},
    {"overrides": {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}},
    {"overrides": {"max.compaction.lag.ms": "5"}, "static": {**ONE_NODE, "log.cleaner.min.compaction.lag.ms": "6"}},
    {"overrides": {"leader.replication.throttled.replicas": "0:1,1:2"}},
    {"overrides": {"leader.replication.throttled.replicas": "*"}},
    {"overrides": {"leader.replication.throttled.replicas": "0-1,1:2"}},
    {"overrides": {"internal.segment.bytes": "1"}},
    {"overrides": {"remote.storage.enable": "true"}},
    {"overrides": {"remote.storage.enable": "true"}, "static": ON},
    {"overrides": {"remote.storage.enable": "true", "cleanup.policy": "compact"}, "static": ON},
    {"overrides": {"remote.storage.enable": "true", "local.retention.ms": "604800001"}, "static": ON},
    {"overrides": {"remote.storage.enable": "true", "local.retention.ms": "-1"}, "static": ON},
    {"overrides": {"remote.storage.enable": "true", "local.retention.bytes": "5"}, "static": ON},
    {
        "overrides": {"remote.storage.enable": "true", "local.retention.bytes": "5", "retention.bytes": "4"},
        "static": ON,
    },
    {
        "overrides": {"remote.storage.enable": "true", "remote.log.copy.disable": "true", "local.retention.ms": "5"},
        "static": ON,
    },
    {"overrides": {"remote.storage.enable": "false"}, "existing": {"remote.storage.enable": "true"}, "static": ON},
    {
        "overrides": {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"},
        "existing": {"remote.storage.enable": "true"},
        "static": ON,
    },
]


def error_of(check: Any, *arguments: Any) -> str | None:
    try:
        check(*arguments)
    except ConfigError as error:
        return str(error)
    return None


def test_topic_overrides_are_refused_in_kafkas_words(kafka: Answers) -> None:
    for question, answer in kafka["topic"]:
        node = NodeConfig.load(question["static"])
        ours = error_of(validate_topic_overrides, question["overrides"], node, question.get("existing"))
        assert ours == answer.get("error"), question


GROUP_OVERRIDES = [
    {},
    {"consumer.session.timeout.ms": "50000", "share.auto.offset.reset": "by_duration:PT1H"},
    {"no.such.key": "1"},
    {"consumer.session.timeout.ms": "44999"},
    {"consumer.session.timeout.ms": "60001"},
    {"consumer.heartbeat.interval.ms": "4999"},
    {"consumer.heartbeat.interval.ms": "15001"},
    {"consumer.assignment.interval.ms": "15001"},
    {"share.session.timeout.ms": "1"},
    {"share.record.lock.duration.ms": "14999"},
    {"share.record.lock.duration.ms": "100"},
    {"share.delivery.count.limit": "11"},
    {"share.partition.max.record.locks": "5000"},
    {"share.auto.offset.reset": "none"},
    {"share.auto.offset.reset": "by_duration:-PT1H"},
    {"share.auto.offset.reset": "by_duration:1h"},
    {"share.auto.offset.reset": "by_duration:P1DT2H3M4.5S"},
    {"share.isolation.level": "READ_COMMITTED"},
    {"share.renew.acknowledge.enable": "TRUE"},
    {"streams.num.standby.replicas": "3"},
    {"streams.num.standby.replicas": "-1"},
    {"streams.heartbeat.interval.ms": "x"},
]


def test_group_overrides_are_refused_in_kafkas_words(kafka: Answers) -> None:
    node = NodeConfig.load(ONE_NODE)
    for question, answer in kafka["group"]:
        overrides = question["overrides"]
        assert error_of(validate_group_overrides, overrides, node) == answer.get("error"), overrides


SUBSCRIPTIONS = [
    ("m", {}),
    ("", {}),
    ("m", {"metrics": "*", "interval.ms": "100", "match": "client_id=a.*, client_source_port=[0-9]+"}),
    ("m", {"metrics": "a,,b"}),
    ("m", {"interval.ms": "99"}),
    ("m", {"interval.ms": "3600001"}),
    ("m", {"match": "client_id"}),
    ("m", {"match": "client_id="}),
    ("m", {"match": "client=a"}),
    ("m", {"match": "client_id=a=b"}),
    ("m", {"match": "client_id=a="}),
    ("m", {"match": "client_id=["}),
    ("m", {"unknown": "1"}),
]


def test_subscriptions_are_refused_in_kafkas_words(kafka: Answers) -> None:
    for question, answer in kafka["metrics"]:
        name, overrides = question["name"], question["overrides"]
        assert error_of(validate_client_metrics, name, overrides) == answer.get("error"), (name, overrides)


DYNAMIC: list[tuple[bool, dict[str, str]]] = [
    (False, {"log.retention.ms": "5", "message.max.bytes": "10"}),
    (True, {"log.retention.ms": "5", "cordoned.log.dirs": "*"}),
    (False, {"num.partitions": "5"}),
    (True, {"log.retention.hours": "5"}),
    (False, {"listeners": "PLAINTEXT://:1"}),
    (True, {"ssl.keystore.location": "/a"}),
    (True, {"message.max.bytes": "-1"}),
    (True, {"listener.name.plaintext.max.connections": "x"}),
    (False, {"listener.name.plaintext.max.connections": "7"}),
    (False, {"listener.name.plaintext.ssl.keystore.location": "/a"}),
    (True, {"leader.replication.throttled.rate": "-1"}),
    (True, {"leader.replication.throttled.rate": "10"}),
    (True, {"some.plugin.setting": "10"}),
]


def check_dynamic(overrides: dict[str, str], per_broker: bool) -> None:
    node = NodeConfig.load(ONE_NODE)
    check_overrides(overrides, per_broker=per_broker)
    check_change(node, NodeConfig(node.static, {}, overrides))


def test_dynamic_changes_are_refused_in_kafkas_words(kafka: Answers) -> None:
    for question, answer in kafka["dynamic"]:
        overrides = question["overrides"]
        ours = error_of(check_dynamic, overrides, question["per_broker"])
        assert ours == answer.get("error"), overrides


def texts_to_parse() -> list[str]:
    random_source = random.Random(20261)
    texts = ["", " ", "0", "-0", "+5", "٣", "1_0", "0x10", "1e3", ".5", "5.", "1.5f", "2d", "NaN", "-Infinity", "inf"]
    texts += ["true", "TRUE ", "yes", "a , b", "a,,b", ",", " a\t,\nb ", "2147483648", "-32769", "9223372036854775808"]
    texts += ["0x1.8p3", "1e400", "-1e-400", "0.001", "0.00099", "9999999.0", "10000000", "1.0E10", "123456.789e3"]
    noise = "0123456789+-.eE ,fdxX_"
    texts += ["".join(random_source.choices(noise, k=random_source.randrange(1, 8))) for _ in range(400)]
    # Three significant digits: longer ones are not always printed shortest by every Java release.
    texts += [f"{random_source.uniform(-1, 1) * 10 ** random_source.randrange(-12, 14):.3g}" for _ in range(200)]
    return texts


def test_numbers_and_words_are_read_and_written_as_java_does(kafka: Answers) -> None:
    for question, answer in kafka["parse"]:
        try:
            ours = {"result": render(parse("key", question["text"], ConfigType[question["type"]]))}
        except ConfigError as error:
            ours = {"error": str(error)}
        assert ours == {key: answer[key] for key in answer if key != "kind"}, question


def properties_texts() -> list[str]:
    random_source = random.Random(4)
    alphabet = "ab=: \t\f\\\\\\\n\r#!u0041n\u00e9"
    return ["".join(random_source.choices(alphabet, k=random_source.randrange(14))) for _ in range(5000)]


def test_properties_are_read_as_java_reads_them(kafka: Answers) -> None:
    for question, answer in kafka["properties"]:
        text = question["text"]
        try:
            assert parse_properties(text) == answer.get("result"), repr(text)
        except PropertiesError:
            assert "error" in answer, repr(text)


@pytest.fixture(scope="module")
def kafka() -> Answers:
    """Every question of this file with Kafka's answer, asked in one go because starting Java is slow."""
    kinds = [kind for kind in ConfigType if kind not in (ConfigType.UNKNOWN, ConfigType.CLASS, ConfigType.PASSWORD)]
    asked: dict[str, list[dict[str, Any]]] = {
        "describe": [{"ask": "describe", "static": ONE_NODE, **case} for case in DESCRIBED],
        "load": [{"ask": "load", "static": static} for static in LOADED],
        "refused": [{"ask": "load", "static": static} for _, static in REFUSED],
        "topic": [{"ask": "topic", "static": ONE_NODE, **case} for case in TOPIC_OVERRIDES],
        "group": [{"ask": "group", "static": ONE_NODE, "overrides": case} for case in GROUP_OVERRIDES],
        "metrics": [{"ask": "metrics", "name": name, "overrides": case} for name, case in SUBSCRIPTIONS],
        "dynamic": [
            {"ask": "dynamic", "static": ONE_NODE, "overrides": case, "per_broker": each} for each, case in DYNAMIC
        ],
        "parse": [{"ask": "parse", "text": text, "type": kind.name} for text in texts_to_parse() for kind in kinds],
        "properties": [{"ask": "properties", "text": text} for text in properties_texts()],
    }
    answers = iter(ask_kafka([question for questions in asked.values() for question in questions]))
    return {about: [(question, next(answers)) for question in questions] for about, questions in asked.items()}
