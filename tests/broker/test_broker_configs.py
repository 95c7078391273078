"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from broker_node import SimulatedNode, batch, produce_request
from test_broker_topics import Unreachable

from moldau.config.sources import ConfigSource
from moldau.config.types import ConfigType
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire import alter_configs_request as legacy
from moldau.protocol.generated.wire import incremental_alter_configs_request as incremental
from moldau.protocol.generated.wire.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.generated.wire.list_config_resources_request import ListConfigResourcesRequest

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def describe(
    node: SimulatedNode, kind: int, name: str, *keys: str, version: int = 4, synonyms: bool = False, docs: bool = False
) -> Any:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) if keys else None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)
    if version >= 3:
        request.include_documentation = docs
    (result,) = node.client.send(request, version).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def described(node: SimulatedNode, kind: int, name: str, key: str, **how: Any) -> Any:
    result = describe(node, kind, name, key, **how)
    assert result.error_code == 0, result
    (config,) = result.configs
    assert config.name == key
    return config


def alter(
    node: SimulatedNode,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    version: int = 1,
    check: bool = False,
) -> Any:
    configs = [incremental.AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes]
    resource = incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=check)
    (response,) = node.client.send(request, version).responses
    assert (response.resource_type, response.resource_name) == (kind, name)
    return response


def replace(node: SimulatedNode, kind: int, name: str, version: int = 2, **values: str) -> Any:
    configs = [legacy.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in values.items()]
    resource = legacy.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    (response,) = node.client.send(legacy.AlterConfigsRequest(resources=[resource]), version).responses
    return response


# ---- describing


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topics_settings(node: SimulatedNode, version: int) -> None:
    node.create_topic("state", cleanup_policy="compact")
    result = describe(node, TOPIC, "state", version=version, synonyms=True, docs=version >= 3)
    assert result.error_code == 0
    configs = {config.name: config for config in result.configs}
    assert len(configs) >= 33
    policy = configs["cleanup.policy"]
    assert (policy.value, policy.config_source, policy.read_only, policy.is_sensitive) == (
        "compact",
        ConfigSource.DYNAMIC_TOPIC,
        False,
        False,
    )
    assert [(s.name, s.value, s.source) for s in policy.synonyms] == [
        ("cleanup.policy", "compact", ConfigSource.DYNAMIC_TOPIC),
        ("log.cleanup.policy", "delete", ConfigSource.DEFAULT),
    ]
    assert configs["retention.ms"].config_source == ConfigSource.DEFAULT
    if version >= 3:
        assert policy.config_type == ConfigType.LIST
        assert all(config.documentation for config in configs.values())


def test_without_being_asked_there_are_no_synonyms_and_no_documentation(node: SimulatedNode) -> None:
    node.create_topic("orders")
    config = described(node, TOPIC, "orders", "retention.ms")
    assert (config.synonyms, config.documentation) == ([], None)


def test_topics_that_cannot_be_described(node: SimulatedNode) -> None:
    assert describe(node, TOPIC, "nowhere").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert describe(node, TOPIC, "in valid").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", range(1, 5))
def test_the_brokers_settings(version: int) -> None:
    node = SimulatedNode(num_partitions="7")
    result = describe(node, BROKER, "1", version=version, synonyms=True)
    configs = {config.name: config for config in result.configs}
    assert len(configs) > 200
    partitions = configs["num.partitions"]
    assert (partitions.value, partitions.config_source, partitions.read_only) == ("7", ConfigSource.STATIC_BROKER, True)
    assert [(s.name, s.value, s.source) for s in partitions.synonyms] == [
        ("num.partitions", "7", ConfigSource.STATIC_BROKER),
        ("num.partitions", "1", ConfigSource.DEFAULT),
    ]
    assert configs["default.replication.factor"].value == "1"
    secret = configs["ssl.key.password"]
    assert (secret.value, secret.is_sensitive) == (None, True)


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        (BROKER, "2", "Unexpected broker id, expected 1 or empty string, but received 2"),
        (BROKER, "x", "Broker id must be an integer, but it is: x"),
        (LOGGER, "", "Broker id must not be empty"),
        (LOGGER, "3", "Unexpected broker id, expected 1 but received 3"),
        (CLIENT_METRICS, "", "Client metrics subscription name must not be empty"),
        (GROUP, "", "Group name must not be empty"),
    ],
)
def test_resources_that_are_not_here(node: SimulatedNode, kind: int, name: str, says: str) -> None:
    result = describe(node, kind, name)
    assert (result.error_code, result.error_message, result.configs) == (ErrorCode.INVALID_REQUEST, says, [])


def test_unknown_kinds_of_resources(node: SimulatedNode) -> None:
    result = describe(node, 3, "x")
    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_the_default_of_all_brokers(node: SimulatedNode) -> None:
    before = {config.name for config in describe(node, BROKER, "").configs}
    assert "log.retention.ms" not in before
    assert alter(node, BROKER, "", ("log.retention.ms", SET, "5000")).error_code == 0
    config = described(node, BROKER, "", "log.retention.ms", synonyms=True)
    assert (config.value, config.config_source) == ("5000", ConfigSource.DYNAMIC_DEFAULT_BROKER)


def test_groups_and_client_metrics(node: SimulatedNode) -> None:
    session = described(node, GROUP, "g", "consumer.session.timeout.ms")
    assert (session.value, session.config_source) == ("45000", ConfigSource.DEFAULT)
    alter(node, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
    session = described(node, GROUP, "g", "consumer.session.timeout.ms")
    assert (session.value, session.config_source) == ("50000", ConfigSource.GROUP)
    alter(node, CLIENT_METRICS, "all", ("interval.ms", SET, "1000"))
    interval = described(node, CLIENT_METRICS, "all", "interval.ms")
    assert (interval.value, interval.config_source) == ("1000", ConfigSource.CLIENT_METRICS)


# ---- altering, one by one


@pytest.mark.parametrize("version", range(2))
def test_incremental_changes_to_a_topic(node: SimulatedNode, version: int) -> None:
    node.create_topic("orders", retention_ms="1000")
    changes = [("segment.bytes", SET, "1048576"), ("retention.ms", DELETE, None)]
    response = alter(node, TOPIC, "orders", *changes, version=version)
    assert (response.error_code, response.error_message) == (0, None)
    assert described(node, TOPIC, "orders", "segment.bytes").value == "1048576"
    assert described(node, TOPIC, "orders", "retention.ms").value == "604800000"


def test_append_and_subtract(node: SimulatedNode) -> None:
    node.create_topic("orders")
    assert alter(node, TOPIC, "orders", ("cleanup.policy", APPEND, "compact")).error_code == 0
    assert described(node, TOPIC, "orders", "cleanup.policy").value == "delete,compact"
    assert alter(node, TOPIC, "orders", ("cleanup.policy", SUBTRACT, "delete")).error_code == 0
    assert described(node, TOPIC, "orders", "cleanup.policy").value == "compact"
    assert alter(node, TOPIC, "orders", ("retention.ms", APPEND, "1")).error_code == ErrorCode.INVALID_CONFIG


def test_a_changed_setting_takes_effect_on_the_running_log(node: SimulatedNode) -> None:
    node.create_topic("orders")

    def produce() -> int:
        answer = node.client.send(produce_request("orders", batch(b"x" * 300), version=8), 8)
        code: int = answer.responses[0].partition_responses[0].error_code
        return code

    assert produce() == 0
    alter(node, TOPIC, "orders", ("max.message.bytes", SET, "100"))
    assert produce() == ErrorCode.MESSAGE_TOO_LARGE
    alter(node, TOPIC, "orders", ("max.message.bytes", DELETE, None))
    assert produce() == 0
    alter(node, BROKER, "1", ("message.max.bytes", SET, "100"))
    assert produce() == ErrorCode.MESSAGE_TOO_LARGE, "topics inherit the broker's setting"


def test_validate_only_changes_nothing(node: SimulatedNode) -> None:
    node.create_topic("orders")
    assert alter(node, TOPIC, "orders", ("retention.ms", SET, "1"), check=True).error_code == 0
    assert described(node, TOPIC, "orders", "retention.ms").value == "604800000"


@pytest.mark.parametrize(
    ("kind", "name", "change", "code"),
    [
        (TOPIC, "orders", ("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "orders", ("no.such.key", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "nowhere", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "orders", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "orders", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("log.retention.ms", SET, "soon"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("node.id", SET, "2"), ErrorCode.INVALID_REQUEST),
        (BROKER, "2", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("log.retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (BROKER, "1", ("log.retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (3, "x", ("a", SET, "1"), ErrorCode.INVALID_REQUEST),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "-4"), ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_changes_that_are_refused(
    node: SimulatedNode, kind: int, name: str, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    node.create_topic("orders")
    response = alter(node, kind, name, change)
    assert response.error_code == code, response
    assert response.error_message


def test_a_key_or_a_resource_named_twice(node: SimulatedNode) -> None:
    node.create_topic("orders")
    response = alter(node, TOPIC, "orders", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None))
    assert (response.error_code, response.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Error due to duplicate config keys",
    )
    twice = incremental.AlterConfigsResource(resource_type=TOPIC, resource_name="orders")
    request = incremental.IncrementalAlterConfigsRequest(resources=[twice, twice])
    answer = node.client.send(request, 1)
    assert [r.error_code for r in answer.responses] == [ErrorCode.INVALID_REQUEST] * 2


def test_the_brokers_own_settings_change_at_run_time(node: SimulatedNode) -> None:
    assert alter(node, BROKER, "1", ("log.retention.ms", SET, "9000")).error_code == 0
    config = described(node, BROKER, "1", "log.retention.ms", synonyms=True)
    assert (config.value, config.config_source) == ("9000", ConfigSource.DYNAMIC_BROKER)
    assert node.services.config.integer("log.retention.ms") == 9000
    node.create_topic("orders")
    assert described(node, TOPIC, "orders", "retention.ms").config_source == ConfigSource.DYNAMIC_BROKER
    node.restart()
    assert node.services.config.integer("log.retention.ms") == 9000, "it is remembered by the cluster"
    assert alter(node, BROKER, "1", ("log.retention.ms", DELETE, None)).error_code == 0
    assert node.services.config["log.retention.ms"] is None


def test_a_controller_that_cannot_be_reached(node: SimulatedNode) -> None:
    node.create_topic("orders")
    node.services.controller = Unreachable()
    assert alter(node, TOPIC, "orders", ("retention.ms", SET, "1")).error_code == ErrorCode.NOT_CONTROLLER
    assert alter(node, LOGGER, "1", ("root", SET, "INFO")).error_code == 0, "log levels need no controller"


# ---- altering all at once


@pytest.mark.parametrize("version", range(3))
def test_the_legacy_request_replaces_everything(node: SimulatedNode, version: int) -> None:
    node.create_topic("orders", retention_ms="1000", segment_bytes="1048576")
    assert replace(node, TOPIC, "orders", version, retention_ms="2000").error_code == 0
    assert described(node, TOPIC, "orders", "retention.ms").value == "2000"
    assert described(node, TOPIC, "orders", "segment.bytes").config_source == ConfigSource.DEFAULT


def test_the_legacy_request_refused(node: SimulatedNode) -> None:
    assert replace(node, TOPIC, "nowhere", retention_ms="1").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replace(node, LOGGER, "1", root="INFO").error_code == ErrorCode.INVALID_REQUEST
    assert replace(node, BROKER, "1", node_id="4").error_code == ErrorCode.INVALID_REQUEST
    null = legacy.AlterableConfig(name="retention.ms", value=None)
    resource = legacy.AlterConfigsResource(resource_type=TOPIC, resource_name="orders", configs=[null])
    answer = node.client.send(legacy.AlterConfigsRequest(resources=[resource]), 2)
    assert answer.responses[0].error_code == ErrorCode.INVALID_REQUEST


# ---- log levels


@pytest.fixture
def restored_levels() -> Iterator[None]:
    loggers = [logging.getLogger("moldau"), logging.getLogger("moldau.broker")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.mark.usefixtures("restored_levels")
def test_log_levels_are_read_and_changed(node: SimulatedNode) -> None:
    names = {config.name for config in describe(node, LOGGER, "1").configs}
    assert names >= {"root", "moldau.broker"}
    assert alter(node, LOGGER, "1", ("moldau.broker", SET, "TRACE")).error_code == 0
    level = described(node, LOGGER, "1", "moldau.broker")
    assert (level.value, level.config_source) == ("TRACE", ConfigSource.DYNAMIC_BROKER_LOGGER)
    assert logging.getLogger("moldau.broker").isEnabledFor(5)
    assert alter(node, LOGGER, "1", ("moldau.broker", DELETE, None), ("root", SET, "ERROR")).error_code == 0
    assert described(node, LOGGER, "1", "moldau.broker").value == "ERROR"
    assert alter(node, LOGGER, "1", ("moldau.broker", SET, "OFF"), check=True).error_code == 0
    assert described(node, LOGGER, "1", "moldau.broker").value == "ERROR"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("no.such.logger", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (("root", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        (("root", SET, "info"), ErrorCode.INVALID_CONFIG),
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        (("root", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (("root", 17, "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
@pytest.mark.usefixtures("restored_levels")
def test_log_levels_that_cannot_be(node: SimulatedNode, change: tuple[str, int, str | None], code: ErrorCode) -> None:
    before = logging.getLogger("moldau").level
    response = alter(node, LOGGER, "1", ("root", SET, "FATAL"), check=True)
    assert response.error_code == 0
    response = alter(node, LOGGER, "1", change)
    assert response.error_code == code
    assert logging.getLogger("moldau").level == before


def test_log_levels_of_another_node(node: SimulatedNode) -> None:
    assert alter(node, LOGGER, "2", ("root", SET, "INFO")).error_code == ErrorCode.INVALID_REQUEST


# ---- listing


def test_only_client_metrics_in_version_0(node: SimulatedNode) -> None:
    node.create_topic("orders")
    assert node.client.send(ListConfigResourcesRequest(), 0).config_resources == []
    alter(node, CLIENT_METRICS, "all", ("interval.ms", SET, "1000"))
    answer = node.client.send(ListConfigResourcesRequest(), 0)
    assert [r.resource_name for r in answer.config_resources] == ["all"]


def test_every_kind_in_version_1(node: SimulatedNode) -> None:
    node.create_topic("orders")
    alter(node, CLIENT_METRICS, "all", ("interval.ms", SET, "1000"))
    alter(node, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))

    def listed(*kinds: int) -> list[tuple[int, str]]:
        answer = node.client.send(ListConfigResourcesRequest(resource_types=list(kinds)), 1)
        assert answer.error_code == 0
        return [(r.resource_type, r.resource_name) for r in answer.config_resources]

    everything = [(GROUP, "g"), (CLIENT_METRICS, "all"), (LOGGER, "1"), (BROKER, "1"), (TOPIC, "orders")]
    assert listed() == everything
    assert listed(TOPIC, GROUP) == [everything[0], everything[-1]]
    unknown = node.client.send(ListConfigResourcesRequest(resource_types=[TOPIC, 77]), 1)
    assert (unknown.error_code, unknown.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])
