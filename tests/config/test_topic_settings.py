"""A topic's settings: what wins, what is refused."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import pytest
from config_oracle import ONE_NODE

from moldau.config.node_config import NodeConfig
from moldau.config.table import TOPIC_KEYS
from moldau.config.topic_config import TopicConfig, validate_topic_overrides
from moldau.config.types import ConfigError

NODE = NodeConfig.load(ONE_NODE)


def test_every_key_has_a_field_and_every_field_kafkas_default() -> None:
    names = {field.name.replace("_", ".") for field in fields(TopicConfig)}
    assert names - {"cleanup.policy.compact", "cleanup.policy.delete"} == set(TOPIC_KEYS) - {
        "cleanup.policy",
        "internal.segment.bytes",
    }
    assert TopicConfig.effective(NODE, {}) == TopicConfig()
    defaults = {name: key.default for name, key in TOPIC_KEYS.items()}
    assert TopicConfig.from_values(defaults) == TopicConfig()


def test_a_topic_config_cannot_change() -> None:
    with pytest.raises(FrozenInstanceError):
        TopicConfig().retention_ms = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("static", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "1"}, 60_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "1", "log.retention.ms": "1"}, 1),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-5"}, -1),
    ],
)
def test_retention_comes_from_the_finest_unit(static: dict[str, str], retention_ms: int) -> None:
    node = NodeConfig.load({**ONE_NODE, **static})
    assert TopicConfig.effective(node, {}).retention_ms == retention_ms
    assert TopicConfig.effective(node, {"retention.ms": "77"}).retention_ms == 77


def test_broker_synonyms_give_the_defaults() -> None:
    node = NodeConfig.load(
        {
            **ONE_NODE,
            "log.roll.hours": "2",
            "log.roll.jitter.hours": "1",
            "log.flush.scheduler.interval.ms": "9",
            "message.max.bytes": "10",
            "log.cleaner.min.cleanable.ratio": "0.25",
            "log.cleanup.policy": "compact",
            "compression.type": "zstd",
            "min.insync.replicas": "2",
            "log.preallocate": "true",
        }
    )
    topic = TopicConfig.effective(node, {})
    assert topic.segment_ms == 7_200_000
    assert topic.segment_jitter_ms == 3_600_000
    assert topic.flush_ms == 9
    assert topic.max_message_bytes == 10
    assert topic.min_cleanable_dirty_ratio == 0.25
    assert (topic.cleanup_policy_compact, topic.cleanup_policy_delete) == (True, False)
    assert topic.compression_type == "zstd"
    assert topic.min_insync_replicas == 2
    assert topic.preallocate is True
    flushed = node.with_dynamic({"log.flush.interval.ms": "4"}, {})
    assert TopicConfig.effective(flushed, {}).flush_ms == 4


@pytest.mark.parametrize(
    ("policy", "compact", "delete"),
    [("delete", False, True), ("compact", True, False), ("delete,compact", True, True), ("", False, False)],
)
def test_cleanup_policies(policy: str, compact: bool, delete: bool) -> None:
    topic = TopicConfig.effective(NODE, {"cleanup.policy": policy})
    assert (topic.cleanup_policy_compact, topic.cleanup_policy_delete) == (compact, delete)


def test_what_is_derived_from_several_settings() -> None:
    topic = TopicConfig.effective(NODE, {"cleanup.policy": "compact", "max.compaction.lag.ms": "5"})
    assert topic.max_segment_ms == 5
    assert TopicConfig.effective(NODE, {"max.compaction.lag.ms": "5"}).max_segment_ms == 604_800_000
    assert TopicConfig(retention_ms=7, retention_bytes=8).effective_local_retention_ms == 7
    assert TopicConfig(retention_ms=7, retention_bytes=8).effective_local_retention_bytes == 8
    assert TopicConfig(local_retention_ms=3, local_retention_bytes=4).effective_local_retention_bytes == 4
    assert TopicConfig(message_timestamp_type="LogAppendTime").log_append_time
    assert TopicConfig.effective(NODE, {"internal.segment.bytes": "100"}).segment_bytes == 100


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"retention.hours": "1"}, "Unknown topic config name: retention.hours"),
        ({"retention.ms": "-2"}, "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        ({"segment.bytes": "1"}, "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576"),
        (
            {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"},
            "conflict topic config setting min.compaction.lag.ms (9) > max.compaction.lag.ms (8)",
        ),
    ],
)
def test_bad_overrides_are_refused_with_and_without_a_node(overrides: dict[str, str], message: str) -> None:
    for node in (None, NODE):
        with pytest.raises(ConfigError) as refused:
            validate_topic_overrides(overrides, node)
        assert str(refused.value) == message


def test_good_overrides_pass() -> None:
    validate_topic_overrides({"cleanup.policy": "compact", "retention.ms": "-1"})
    validate_topic_overrides({"cleanup.policy": "compact", "retention.ms": "-1"}, NODE)


def test_tiering_cannot_be_left_halfway() -> None:
    tiered = NodeConfig.load({**ONE_NODE, "remote.log.storage.system.enable": "true"})
    with pytest.raises(ConfigError, match="Tiered Storage functionality is disabled"):
        validate_topic_overrides({"remote.storage.enable": "true"}, NODE)
    validate_topic_overrides({"remote.storage.enable": "true"}, tiered)
    with pytest.raises(ConfigError, match="without deleting remote data"):
        validate_topic_overrides({}, tiered, {"remote.storage.enable": "true"})
    validate_topic_overrides({"remote.log.delete.on.disable": "true"}, tiered, {"remote.storage.enable": "true"})
