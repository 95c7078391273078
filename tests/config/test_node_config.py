"""A node's settings: loading, warnings, listeners, dynamic changes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from config_oracle import BROKER_ONLY, CONTROLLER_ONLY, ONE_NODE

from moldau.config.dynamic import check_overrides
from moldau.config.listeners import Listener
from moldau.config.node_config import NodeConfig
from moldau.config.one_node import defaults_for_one_node
from moldau.config.properties import parse_properties
from moldau.config.types import ConfigError


def test_a_newcomer_needs_no_properties() -> None:
    node = NodeConfig.load({})
    assert node.node_id == 1
    assert node.roles == {"broker", "controller"}
    assert node.listeners == (
        Listener("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),
        Listener("CONTROLLER", "localhost", 9093, "PLAINTEXT"),
    )
    assert [str(listener) for listener in node.advertised_listeners] == ["PLAINTEXT://localhost:9092"]
    assert [str(listener) for listener in node.advertised_controller_listeners] == ["CONTROLLER://localhost:9093"]
    assert node.log_dirs == ("./data",)
    assert node.metadata_log_dir == "./data"
    assert node.integer("offsets.topic.replication.factor") == 1
    assert node.integer("transaction.state.log.min.isr") == 1
    assert node.quorum_servers == (("localhost", 9093),)
    assert node.warnings == ()


def test_newcomer_settings_can_be_moved_elsewhere() -> None:
    node = NodeConfig.load(defaults_for_one_node(data_directory="/srv", port=1, controller_port=2))
    assert [listener.port for listener in node.listeners] == [1, 2]
    assert node.log_dirs == ("/srv",)


def test_kafkas_defaults_hold_as_soon_as_there_is_a_properties_file() -> None:
    node = NodeConfig.load(ONE_NODE)
    assert node.integer("offsets.topic.replication.factor") == 3
    assert node.log_dirs == ("/tmp/kafka-logs",)


def test_values_have_their_types() -> None:
    node = NodeConfig.load({**ONE_NODE, "log.retention.ms": "5", "log.dirs": "/a, /b", "ssl.key.password": "p"})
    assert node.integer("num.partitions") == 1
    assert node.optional_integer("log.retention.ms") == 5
    assert node.optional_integer("log.roll.ms") is None
    assert node.decimal("log.cleaner.io.buffer.load.factor") == 0.9
    assert node.flag("auto.create.topics.enable") is True
    assert node.text("compression.type") == "producer"
    assert node.optional_text("broker.rack") is None
    assert node.optional_text("ssl.key.password") == "p"
    assert node.words("log.dirs") == ("/a", "/b")
    assert node.optional_words("advertised.listeners") is None
    with pytest.raises(KeyError):
        node.integer("no.such.key")
    with pytest.raises(AssertionError):
        node.integer("auto.create.topics.enable")
    with pytest.raises(AssertionError):
        node.flag("num.partitions")


def test_node_and_broker_id_are_one_thing() -> None:
    properties = {name: value for name, value in ONE_NODE.items() if name != "node.id"}
    node = NodeConfig.load({**properties, "broker.id": "7"})
    assert (node.node_id, node.integer("broker.id")) == (7, 7)
    with pytest.raises(ConfigError, match=r"node\.id"):
        NodeConfig.load({**ONE_NODE, "broker.id": "2"})


@pytest.mark.parametrize("name", ["process.roles", "node.id", "controller.listener.names"])
def test_what_is_required_is_asked_for_with_a_hint(name: str) -> None:
    with pytest.raises(ConfigError, match=f'Missing required configuration "{name}" .* Set it to') as refused:
        NodeConfig.load({key: value for key, value in ONE_NODE.items() if key != name})
    assert refused.value.name == name


def test_errors_name_key_value_and_what_is_allowed() -> None:
    with pytest.raises(ConfigError) as refused:
        NodeConfig.load({**ONE_NODE, "listeners": "localhost:9092"})
    message = str(refused.value)
    assert "listeners" in message
    assert "localhost:9092" in message
    assert "NAME://host:port" in message


def test_a_misspelt_key_is_suggested() -> None:
    node = NodeConfig.load({**ONE_NODE, "num.partition": "3", "zookeeper.connect": "z:2181"})
    assert node.warnings == (
        "num.partition is not a known setting and is ignored; did you mean num.partitions?",
        "zookeeper.connect is no longer a setting: there is no ZooKeeper any more; controllers keep the metadata "
        "(process.roles)",
    )


def test_names_of_plugins_and_listeners_are_legal() -> None:
    properties = {
        **ONE_NODE,
        "listener.name.plaintext.max.connections": "5",
        "listener.name.plaintext.plain.sasl.jaas.config": "x",
        "rsm.config.bucket": "b",
        "remote.log.storage.manager.impl.prefix": "tier.",
        "tier.bucket": "b",
        "super.users": "User:a",
        "allow.everyone.if.no.acl.found": "true",
        "consumer.fetch.max.bytes": "1",
    }
    node = NodeConfig.load(properties)
    assert node.warnings == ()
    assert node.text("super.users") == "User:a"
    assert node.flag("allow.everyone.if.no.acl.found") is True


def test_a_setting_for_a_listener_is_checked_and_comes_first() -> None:
    node = NodeConfig.load(
        {
            **ONE_NODE,
            "sasl.jaas.config": "base",
            "listener.name.plaintext.sasl.jaas.config": "of the listener",
            "listener.name.plaintext.scram-sha-256.sasl.jaas.config": "of the mechanism",
            "listener.name.plaintext.max.connections": "5",
        }
    )
    assert node.for_listener("PLAINTEXT").integer("max.connections") == 5
    assert node.for_listener("CONTROLLER").integer("max.connections") == 2**31 - 1
    assert node.for_listener("PLAINTEXT").optional_text("sasl.jaas.config") == "of the listener"
    assert node.for_listener("PLAINTEXT", "SCRAM-SHA-256").optional_text("sasl.jaas.config") == "of the mechanism"
    assert node.for_listener("PLAINTEXT", "PLAIN").optional_text("sasl.jaas.config") == "of the listener"
    assert node.for_listener("CONTROLLER").optional_text("sasl.jaas.config") == "base"
    with pytest.raises(ConfigError, match=r"max\.connections"):
        NodeConfig.load({**ONE_NODE, "listener.name.plaintext.max.connections": "many"})


def test_settings_without_effect_are_reported_with_the_reason() -> None:
    node = NodeConfig.load({**ONE_NODE, "num.network.threads": "8", "num.partitions": "3"})
    assert node.unused_settings() == [
        ("num.network.threads", "one event loop does all the work; there is no thread pool to size")
    ]


def test_a_dynamic_only_setting_is_ignored_in_a_file() -> None:
    node = NodeConfig.load({**ONE_NODE, "leader.replication.throttled.rate": "5"})
    assert node.integer("leader.replication.throttled.rate") == 2**63 - 1
    assert "can only be set dynamically" in node.warnings[0]


def test_listeners_by_role() -> None:
    node = NodeConfig.load(
        {
            **ONE_NODE,
            "listeners": "in://10.0.0.1:1,OUT://[::]:2,CONTROLLER://:3",
            "advertised.listeners": "IN://in.example:1,OUT://out.example:2",
            "listener.security.protocol.map": "IN:PLAINTEXT, OUT:sasl_ssl, CONTROLLER:SSL",
            "inter.broker.listener.name": "IN",
            "controller.quorum.voters": "1@ctl.example:3,2@other.example:3",
        }
    )
    assert [listener.name for listener in node.broker_listeners] == ["IN", "OUT"]
    assert [listener.name for listener in node.controller_listeners] == ["CONTROLLER"]
    assert node.listeners[1] == Listener("OUT", "::", 2, "SASL_SSL")
    assert str(node.listeners[1]) == "OUT://[::]:2"
    assert node.listeners[1].encrypted
    assert node.listeners[1].authenticated
    assert node.listeners[1].config_prefix == "listener.name.out."
    assert node.advertised_controller_listeners == (Listener("CONTROLLER", "ctl.example", 3, "SSL"),)
    assert (node.inter_broker_listener, node.inter_broker_protocol) == ("IN", "PLAINTEXT")
    assert node.quorum_voters == {1: ("ctl.example", 3), 2: ("other.example", 3)}
    assert node.quorum_servers == (("localhost", 9093),)
    assert NodeConfig.load(BROKER_ONLY).quorum_servers == (("localhost", 9093),)
    assert node.early_start_listeners == {"CONTROLLER"}


def test_two_listeners_share_a_port_only_as_ipv4_and_ipv6() -> None:
    good = {**ONE_NODE, "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9092"}
    assert len(NodeConfig.load(good).listeners) == 2
    any_port = {**ONE_NODE, "listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:0"}
    assert len(NodeConfig.load(any_port).listeners) == 2
    with pytest.raises(ConfigError, match="different port"):
        NodeConfig.load({**ONE_NODE, "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://localhost:9092"})


def test_roles() -> None:
    broker, controller = NodeConfig.load(BROKER_ONLY), NodeConfig.load(CONTROLLER_ONLY)
    assert (broker.is_broker, broker.is_controller) == (True, False)
    assert (controller.is_broker, controller.is_controller) == (False, True)
    assert controller.advertised_listeners == ()


def test_cordoned_directories() -> None:
    both = {**ONE_NODE, "log.dirs": "/a,/b"}
    assert NodeConfig.load(both).cordoned_log_dirs == ()
    assert NodeConfig.load({**both, "cordoned.log.dirs": "/b"}).cordoned_log_dirs == ("/b",)
    assert NodeConfig.load({**both, "cordoned.log.dirs": "*"}).cordoned_log_dirs == ("/a", "/b")


def test_a_late_heartbeat_is_warned_about() -> None:
    node = NodeConfig.load({**ONE_NODE, "broker.heartbeat.interval.ms": "5000"})
    assert "broker.session.timeout.ms" in node.warnings[0]


def test_dynamic_settings_win_and_the_broker_wins_over_the_cluster() -> None:
    static = NodeConfig.load({**ONE_NODE, "message.max.bytes": "1", "log.retention.ms": "1", "max.connections": "1"})
    node = static.with_dynamic({"message.max.bytes": "2", "log.retention.ms": "2"}, {"message.max.bytes": "3"})
    assert node.integer("message.max.bytes") == 3
    assert node.integer("log.retention.ms") == 2
    assert node.integer("max.connections") == 1
    assert node.changes_from(static) == {"message.max.bytes", "log.retention.ms"}
    assert static.integer("message.max.bytes") == 1
    assert node.with_dynamic({}, {}).changes_from(static) == frozenset()


def test_a_dynamic_setting_silences_static_synonyms() -> None:
    static = NodeConfig.load({**ONE_NODE, "log.retention.ms": "1000"})
    assert static.log_retention_ms == 1000
    assert static.with_dynamic({"log.retention.ms": "2000"}, {}).log_retention_ms == 2000
    hours = NodeConfig.load({**ONE_NODE, "log.retention.hours": "1"})
    changed = hours.with_dynamic({}, {"log.retention.ms": "-1"})
    assert changed.log_retention_ms == -1
    assert not changed.is_set("log.retention.hours")


@pytest.mark.parametrize(
    ("overrides", "per_broker", "message"),
    [
        ({"num.partitions": "2"}, True, r"Cannot update these configs dynamically: \[num.partitions\]"),
        ({"node.id": "2", "log.dirs": "/a"}, True, r"Cannot update these configs dynamically: \[node.id, log.dirs\]"),
        ({"listeners": "PLAINTEXT://:1"}, False, r"Cannot update these configs at default cluster level"),
        ({"ssl.keystore.location": "/k"}, True, "only per-listener using the listener prefix"),
        ({"message.max.bytes": "-1"}, True, "Value must be at least 0"),
        ({"listener.name.a.ssl.keystore.location": "/k"}, False, "broker id must be specified"),
    ],
)
def test_what_cannot_be_changed_dynamically_is_refused(
    overrides: dict[str, str], per_broker: bool, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_overrides(overrides, per_broker=per_broker)
    node = NodeConfig.load(ONE_NODE)
    with pytest.raises(ConfigError, match=message):
        node.with_dynamic(*(({}, overrides) if per_broker else (overrides, {})))


def test_stored_settings_never_stop_a_node() -> None:
    node = NodeConfig.load(ONE_NODE)
    stored = {"num.partitions": "2", "message.max.bytes": "x", "max.connections": "5"}
    changed = node.with_dynamic(stored, {}, ignore_invalid=True)
    assert changed.integer("max.connections") == 5
    assert changed.integer("num.partitions") == 1
    assert len(changed.warnings) == 2
    worse = changed.with_dynamic({"log.retention.ms": "0"}, {}, ignore_invalid=True)
    assert worse.integer("max.connections") == 5
    assert "cannot be applied" in worse.warnings[0]


def test_open_listeners_keep_their_security() -> None:
    node = NodeConfig.load({**ONE_NODE, "listener.name.plaintext.connections.max.reauth.ms": "1"})
    protocols = "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"
    with pytest.raises(ConfigError, match="Security protocol cannot be updated"):
        node.with_dynamic({}, {"listener.security.protocol.map": protocols, "listeners": ONE_NODE["listeners"]})
    with pytest.raises(ConfigError, match="for existing listener PLAINTEXT"):
        node.with_dynamic({}, {"listener.name.plaintext.connections.max.reauth.ms": "2"})
    assert node.with_dynamic({}, {"listener.name.plaintext.max.connections": "2"}) is not None
    with pytest.raises(ConfigError, match="There must be at least one broker advertised listener"):
        node.with_dynamic({}, {"listeners": "CONTROLLER://localhost:9093"})
    told = NodeConfig.load({**ONE_NODE, "advertised.listeners": "PLAINTEXT://me:1"})
    with pytest.raises(ConfigError, match="listener names must be equal to or a subset of"):
        told.with_dynamic({}, {"listeners": "CONTROLLER://localhost:9093"})


def test_an_assignment_interval_is_brought_back_inside_its_limits() -> None:
    node = NodeConfig.load(ONE_NODE).with_dynamic({"group.consumer.assignment.interval.ms": "999999"}, {})
    assert node.integer("group.consumer.assignment.interval.ms") == 15_000


def test_a_properties_file_as_kafka_ships_it_is_accepted() -> None:
    text = """
    # A combined node
    process.roles=broker,controller
    node.id=1
    controller.quorum.bootstrap.servers=localhost:9093
    listeners=PLAINTEXT://:9092,CONTROLLER://:9093
    inter.broker.listener.name=PLAINTEXT
    advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
    controller.listener.names=CONTROLLER
    listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
    num.network.threads=3
    socket.send.buffer.bytes=102400
    log.dirs=/tmp/kraft-combined-logs
    num.partitions=1
    offsets.topic.replication.factor=1
    log.retention.hours=168
    log.segment.bytes=1073741824
    """
    node = NodeConfig.load(parse_properties(text))
    assert node.warnings == ()
    assert node.log_retention_ms == 168 * 3_600_000


def test_loading_a_node_loads_no_documentation() -> None:
    program = (
        "import sys; from moldau.config.node_config import NodeConfig; NodeConfig.load({}); "
        "print([name for name in sys.modules if name.startswith('moldau.config.docs') or name == 'difflib'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
