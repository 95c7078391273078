"""Settings of groups, of client-metrics subscriptions and of quotas."""

from __future__ import annotations

from dataclasses import fields

import pytest
from config_oracle import ONE_NODE

from moldau.config.client_config import (
    ClientMetricsConfig,
    quota_keys,
    validate_client_metrics,
    validate_quota,
)
from moldau.config.group_config import GroupConfig, validate_group_overrides
from moldau.config.node_config import NodeConfig
from moldau.config.table import GROUP_KEYS, IP_QUOTA_KEYS, USER_QUOTA_KEYS
from moldau.config.types import ConfigError, ConfigRequestError

NODE = NodeConfig.load(ONE_NODE)


def test_every_group_key_has_a_field_with_kafkas_default() -> None:
    assert [field.name.replace("_", ".") for field in fields(GroupConfig)] == list(GROUP_KEYS)
    assert GroupConfig.effective(NODE, {}) == GroupConfig()


def test_a_group_takes_its_defaults_from_its_node() -> None:
    node = NodeConfig.load({**ONE_NODE, "group.consumer.session.timeout.ms": "50000"})
    assert GroupConfig.effective(node, {}).consumer_session_timeout_ms == 50_000
    overrides = {"consumer.session.timeout.ms": "46000", "share.isolation.level": "read_committed"}
    group = GroupConfig.effective(node, overrides)
    assert group.consumer_session_timeout_ms == 46_000
    assert group.share_isolation_level == "read_committed"


def test_limits_tightened_later_bring_a_group_back() -> None:
    overrides = {"consumer.session.timeout.ms": "60000", "streams.num.standby.replicas": "2"}
    validate_group_overrides(overrides, NODE)
    tighter = NodeConfig.load(
        {
            **ONE_NODE,
            "group.consumer.max.session.timeout.ms": "55000",
            "group.streams.max.standby.replicas": "1",
        }
    )
    group = GroupConfig.effective(tighter, overrides)
    assert group.consumer_session_timeout_ms == 55_000
    assert group.streams_num_standby_replicas == 1
    with pytest.raises(ConfigError, match=r"must be less than or equal to group\.consumer\.max\.session\.timeout\.ms"):
        validate_group_overrides(overrides, tighter)


def test_a_session_must_outlast_a_heartbeat() -> None:
    node = NodeConfig.load(
        {
            **ONE_NODE,
            "group.share.min.session.timeout.ms": "10000",
            "group.share.max.heartbeat.interval.ms": "20000",
        }
    )
    with pytest.raises(ConfigError, match=r"share\.session\.timeout\.ms must be greater than share\.heartbeat"):
        validate_group_overrides({"share.session.timeout.ms": "12000", "share.heartbeat.interval.ms": "12000"}, node)


def test_an_unknown_group_key_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Unknown group config name: retention\.ms"):
        validate_group_overrides({"retention.ms": "1"}, NODE)


def test_a_subscription() -> None:
    overrides = {"metrics": "org.apache.", "interval.ms": "1000", "match": "client_id=app-.*,client_software_name=x"}
    validate_client_metrics("s", overrides)
    subscription = ClientMetricsConfig.effective(overrides)
    assert subscription.metrics == ("org.apache.",)
    assert subscription.interval_ms == 1000
    assert subscription.match["client_id"].fullmatch("app-1")
    assert not subscription.match["client_id"].fullmatch("other")
    assert ClientMetricsConfig.effective({}) == ClientMetricsConfig(match={})


@pytest.mark.parametrize(
    ("name", "overrides", "malformed"),
    [
        ("", {}, True),
        ("s", {"unknown": "1"}, True),
        ("s", {"interval.ms": "99"}, True),
        ("s", {"match": "client_id"}, False),
        ("s", {"match": "color=red"}, False),
        ("s", {"match": "client_id=["}, False),
    ],
)
def test_bad_subscriptions(name: str, overrides: dict[str, str], malformed: bool) -> None:
    with pytest.raises(ConfigError) as refused:
        validate_client_metrics(name, overrides)
    assert isinstance(refused.value, ConfigRequestError) is malformed


def test_quota_keys_depend_on_the_entity() -> None:
    assert quota_keys(frozenset({"user"})) is USER_QUOTA_KEYS
    assert quota_keys(frozenset({"user", "client-id"})) is USER_QUOTA_KEYS
    assert quota_keys(frozenset({"ip"})) is IP_QUOTA_KEYS
    for entity in (frozenset[str](), frozenset({"ip", "user"})):
        with pytest.raises(ConfigRequestError):
            quota_keys(entity)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("producer_byte_rate", 1024.0, None),
        ("request_percentage", 0.5, None),
        ("producer_byte_rate", 0.5, "producer_byte_rate cannot be a fractional value."),
        ("producer_byte_rate", 0.0, "Quota producer_byte_rate must be greater than 0"),
        ("producer_byte_rate", float("nan"), "Quota producer_byte_rate must be greater than 0"),
        ("producer_byte_rate", 1e300, "Proposed value for producer_byte_rate is too large for a LONG."),
        ("connection_creation_rate", 5.0, "Invalid configuration key connection_creation_rate"),
    ],
)
def test_quota_values(name: str, value: float, message: str | None) -> None:
    if message is None:
        validate_quota(USER_QUOTA_KEYS, name, value)
        return
    with pytest.raises(ConfigRequestError) as refused:
        validate_quota(USER_QUOTA_KEYS, name, value)
    assert str(refused.value) == message


def test_an_address_quota_is_an_int() -> None:
    validate_quota(IP_QUOTA_KEYS, "connection_creation_rate", 5.0)
    with pytest.raises(ConfigRequestError, match="too large for an INT"):
        validate_quota(IP_QUOTA_KEYS, "connection_creation_rate", 2.0**31)
