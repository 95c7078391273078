"""What an administrator is told: sources, synonyms, secrets, words; and incremental changes."""

from __future__ import annotations

import pytest
from config_oracle import ONE_NODE
from hypothesis import given
from hypothesis import strategies as st

from moldau.config import docs, table
from moldau.config.alter import Alteration, AlterOp, apply_incremental
from moldau.config.describe import (
    DescribedConfig,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_created_topic,
    describe_group,
    describe_topic,
)
from moldau.config.key import ConfigKey
from moldau.config.node_config import NodeConfig
from moldau.config.sources import ConfigSource
from moldau.config.types import ConfigError, ConfigRequestError, ConfigType

NODE = NodeConfig.load(
    {**ONE_NODE, "log.retention.ms": "1000", "message.max.bytes": "1", "ssl.key.password": "s"}
).with_dynamic({"message.max.bytes": "2"}, {"message.max.bytes": "3"})


def one(described: list[DescribedConfig], name: str) -> DescribedConfig:
    (entry,) = [entry for entry in described if entry.name == name]
    return entry


def test_the_most_specific_source_wins_and_all_are_told() -> None:
    entry = one(describe_topic(NODE, {"max.message.bytes": "4"}), "max.message.bytes")
    assert entry == DescribedConfig(
        "max.message.bytes",
        "4",
        ConfigSource.DYNAMIC_TOPIC,
        False,
        False,
        ConfigType.INT,
        (
            ("max.message.bytes", "4", ConfigSource.DYNAMIC_TOPIC),  # type: ignore[arg-type]
            ("message.max.bytes", "3", ConfigSource.DYNAMIC_BROKER),
            ("message.max.bytes", "2", ConfigSource.DYNAMIC_DEFAULT_BROKER),
            ("message.max.bytes", "1", ConfigSource.STATIC_BROKER),
            ("message.max.bytes", "1048588", ConfigSource.DEFAULT),
        ),
    )
    assert one(describe_topic(NODE, {}), "max.message.bytes").source is ConfigSource.DYNAMIC_BROKER
    assert one(describe_topic(NODE, {}), "cleanup.policy").is_default


def test_a_topic_is_described_whole_or_in_part() -> None:
    public = {name for name, key in table.TOPIC_KEYS.items() if not key.internal}
    assert {entry.name for entry in describe_topic(NODE, {})} == public
    assert [entry.name for entry in describe_topic(NODE, {}, ["retention.ms"])] == ["retention.ms"]
    assert {entry.name for entry in describe_topic(NODE, {}, [])} == public
    assert describe_topic(NODE, {"internal.segment.bytes": "9"})[0].name == "internal.segment.bytes"


def test_secrets_are_never_told() -> None:
    password = one(describe_broker(NODE), "ssl.key.password")
    assert (password.value, password.sensitive, password.source) == (None, True, ConfigSource.STATIC_BROKER)
    assert password.synonyms[0].value is None
    custom = one(describe_broker(NodeConfig.load({**ONE_NODE, "plugin.token": "s"})), "plugin.token")
    assert (custom.value, custom.sensitive, custom.type) == (None, True, ConfigType.UNKNOWN)


def test_a_broker_says_what_can_be_changed() -> None:
    described = describe_broker(NODE)
    assert one(described, "num.partitions").read_only
    assert not one(described, "message.max.bytes").read_only
    assert one(described, "message.max.bytes").value == "3"
    assert not one(described, "listeners").read_only


def test_the_cluster_default_is_only_what_was_set_there() -> None:
    (entry,) = describe_cluster_default(NODE)
    assert (entry.name, entry.value, entry.source) == (
        "message.max.bytes",
        "2",
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
    )
    assert len(entry.synonyms) == 1


def test_groups_and_subscriptions() -> None:
    group = one(describe_group(NODE, {"share.isolation.level": "read_committed"}), "share.isolation.level")
    assert group.source is ConfigSource.GROUP
    assert [synonym.source for synonym in group.synonyms] == [ConfigSource.GROUP, ConfigSource.DEFAULT]
    subscription = one(describe_client_metrics({"interval.ms": "100"}), "interval.ms")
    assert (subscription.value, subscription.source) == ("100", ConfigSource.CLIENT_METRICS)


def test_a_created_topic_is_told_in_its_own_units() -> None:
    node = NodeConfig.load({**ONE_NODE, "log.retention.hours": "2", "log.roll.ms": "5", "log.roll.hours": "1"})
    created = describe_created_topic(node, {"cleanup.policy": "compact"})
    assert [entry.name for entry in created] == sorted(entry.name for entry in created)
    assert "internal.segment.bytes" not in {entry.name for entry in created}
    assert (one(created, "retention.ms").value, one(created, "retention.ms").source) == (
        "7200000",
        ConfigSource.STATIC_BROKER,
    )
    assert one(created, "segment.ms").value == "5"
    assert one(created, "cleanup.policy").source is ConfigSource.DYNAMIC_TOPIC
    assert one(created, "flush.ms").source is ConfigSource.DEFAULT


ALL_KEYS = [
    *table.ALL_NODE_KEYS.values(),
    *table.TOPIC_KEYS.values(),
    *table.GROUP_KEYS.values(),
    *table.CLIENT_METRICS_KEYS.values(),
    *table.USER_QUOTA_KEYS.values(),
    *table.IP_QUOTA_KEYS.values(),
]


@pytest.mark.parametrize("key", ALL_KEYS, ids=lambda key: f"{key.family}-{key.name}")
def test_every_key_is_explained(key: ConfigKey) -> None:
    assert 10 < len(key.doc) < 250
    assert key.doc[0].isupper()
    assert key.doc.endswith(".")
    assert key.effect.active == (key.effect.reason == "")


def test_nothing_is_explained_that_does_not_exist() -> None:
    known = {(key.family, key.name) for key in ALL_KEYS}
    for words in (docs.DOCS, docs.WITHOUT_EFFECT):
        assert {(family, name) for family, names in words.items() for name in names} <= known


def test_documentation_is_given_on_request() -> None:
    assert one(describe_topic(NODE, {}), "retention.ms").documentation is None
    told = one(describe_topic(NODE, {}, documentation=True), "retention.ms")
    assert told.documentation == table.TOPIC_KEYS["retention.ms"].doc


def test_synonyms_of_a_key() -> None:
    assert table.TOPIC_KEYS["retention.ms"].synonyms == (
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
    )
    assert table.GROUP_KEYS["consumer.session.timeout.ms"].synonyms == ("group.consumer.session.timeout.ms",)
    assert table.GROUP_KEYS["share.isolation.level"].synonyms == ()
    assert table.BROKER_KEYS["log.roll.ms"].synonyms == ("log.roll.hours",)


def alter(current: dict[str, str], *changes: Alteration) -> dict[str, str]:
    return apply_incremental(current, changes, table.TOPIC_KEYS)


def test_incremental_changes() -> None:
    current = {"retention.ms": "5", "cleanup.policy": "compact"}
    assert alter(current, Alteration("retention.ms", AlterOp.SET, "6"))["retention.ms"] == "6"
    assert alter(current, Alteration("retention.ms", AlterOp.DELETE)) == {"cleanup.policy": "compact"}
    assert alter(current, Alteration("flush.ms", AlterOp.DELETE)) == current
    policy = "cleanup.policy"
    assert alter(current, Alteration(policy, AlterOp.APPEND, "delete"))[policy] == "compact,delete"
    assert alter(current, Alteration(policy, AlterOp.APPEND, "compact"))[policy] == "compact"
    assert alter(current, Alteration(policy, AlterOp.SUBTRACT, "compact"))[policy] == ""
    assert alter(current, Alteration(policy, AlterOp.SUBTRACT, "delete"))[policy] == "compact"
    # A list that was never set starts from its default.
    assert alter({}, Alteration(policy, AlterOp.APPEND, "compact"))[policy] == "delete,compact"
    assert alter({}, Alteration(policy, AlterOp.SUBTRACT, "delete"))[policy] == ""
    replicas = "leader.replication.throttled.replicas"
    assert alter({}, Alteration(replicas, AlterOp.APPEND, "0:1,1:1"))[replicas] == "0:1,1:1"
    assert current == {"retention.ms": "5", "cleanup.policy": "compact"}


def test_an_operation_that_does_not_exist_is_a_malformed_request() -> None:
    assert Alteration.asked("a", 2, "x") == Alteration("a", AlterOp.APPEND, "x")
    with pytest.raises(ConfigRequestError, match="Unknown operations type 9"):
        Alteration.asked("a", 9, "x")


@pytest.mark.parametrize(
    ("changes", "message", "malformed"),
    [
        (
            [Alteration("retention.ms", AlterOp.APPEND, "6")],
            "Can't APPEND to key retention.ms because its type is not LIST.",
            False,
        ),
        (
            [Alteration("unknown", AlterOp.SUBTRACT, "6")],
            "Can't SUBTRACT to key unknown because its type is not LIST.",
            False,
        ),
        ([Alteration("a", AlterOp.SET), Alteration("b", AlterOp.APPEND)], "Null value not supported for : a, b", True),
        (
            [Alteration("a", AlterOp.SET, "1"), Alteration("a", AlterOp.DELETE)],
            "Error due to duplicate config keys",
            True,
        ),
        (
            [Alteration("a", AlterOp.SET, "x" * 32768)],
            "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.",
            False,
        ),
    ],
)
def test_impossible_changes_are_refused_in_kafkas_words(
    changes: list[Alteration], message: str, malformed: bool
) -> None:
    with pytest.raises(ConfigError) as refused:
        alter({}, *changes)
    assert str(refused.value) == message
    assert isinstance(refused.value, ConfigRequestError) is malformed


@given(st.lists(st.sampled_from(["0:1", "1:2", "2:3"]), unique=True), st.sampled_from(["0:1", "1:2", "9:9"]))
def test_appending_then_subtracting_leaves_the_rest(items: list[str], item: str) -> None:
    name = "follower.replication.throttled.replicas"
    current = {name: ",".join(items)}
    appended = alter(current, Alteration(name, AlterOp.APPEND, item))
    assert appended[name].split(",").count(item) == 1
    subtracted = alter(appended, Alteration(name, AlterOp.SUBTRACT, item))
    assert [part for part in subtracted[name].split(",") if part] == [part for part in items if part != item]
