"""Configurations, features and quotas: what may be stored, and what is said about what may not."""

from __future__ import annotations

import pytest
from controller_world import ControllerWorld

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire import (
    alter_client_quotas_request,
    alter_configs_request,
    incremental_alter_configs_request,
)
from moldau.protocol.generated.wire.alter_client_quotas_request import AlterClientQuotasRequest, OpData
from moldau.protocol.generated.wire.alter_client_quotas_response import AlterClientQuotasResponse, EntryData
from moldau.protocol.generated.wire.alter_configs_request import AlterConfigsRequest
from moldau.protocol.generated.wire.alter_configs_response import AlterConfigsResponse
from moldau.protocol.generated.wire.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from moldau.protocol.generated.wire.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from moldau.protocol.generated.wire.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.protocol.generated.wire.update_features_response import UpdateFeaturesResponse

TOPIC, BROKER, METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


@pytest.fixture
def world() -> ControllerWorld:
    world = ControllerWorld()
    world.join(1)
    world.create("orders", 1, 1)
    return world


def alter(
    world: ControllerWorld,
    kind: int,
    name: str,
    *ops: tuple[str, int, str | None],
    validate_only: bool = False,
) -> AlterConfigsResourceResponse:
    resource = incremental_alter_configs_request.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental_alter_configs_request.AlterableConfig(name=key, config_operation=op, value=value)
            for key, op, value in ops
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    return world.ask(request, IncrementalAlterConfigsResponse).responses[0]


def test_set_append_subtract_delete(world: ControllerWorld) -> None:
    assert (
        alter(world, TOPIC, "orders", ("retention.ms", SET, "9"), ("cleanup.policy", APPEND, "compact")).error_code == 0
    )
    assert world.image.topic_config_overrides("orders") == {"retention.ms": "9", "cleanup.policy": "delete,compact"}
    alter(world, TOPIC, "orders", ("cleanup.policy", SUBTRACT, "delete"), ("retention.ms", DELETE, None))
    assert world.image.topic_config_overrides("orders") == {"cleanup.policy": "compact"}


def test_setting_what_is_set_writes_nothing(world: ControllerWorld) -> None:
    alter(world, TOPIC, "orders", ("retention.ms", SET, "9"))
    before = world.quorum.next_offset
    alter(world, TOPIC, "orders", ("retention.ms", SET, "9"))
    assert world.quorum.next_offset == before
    alter(world, BROKER, "1", ("log.cleaner.threads", SET, "2"))
    before = world.quorum.next_offset
    alter(world, BROKER, "1", ("log.cleaner.threads", SET, "2"))
    assert world.quorum.next_offset > before


def test_validation_alone_changes_nothing(world: ControllerWorld) -> None:
    assert alter(world, TOPIC, "orders", ("retention.ms", SET, "9"), validate_only=True).error_code == 0
    assert world.image.topic_config_overrides("orders") == {}


@pytest.mark.parametrize(
    ("kind", "name", "ops", "code"),
    [
        (TOPIC, "orders", [("no.such", SET, "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "orders", [("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "orders", [("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "orders", [("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        (TOPIC, "orders", [("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        (TOPIC, "orders", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.INVALID_REQUEST),
        (TOPIC, "absent", [("retention.ms", SET, "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "b@d", [("retention.ms", SET, "1")], ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "orders", [("cleanup.policy", SET, "x" * 40_000)], ErrorCode.INVALID_CONFIG),
        (BROKER, "one", [("log.cleaner.threads", SET, "2")], ErrorCode.INVALID_REQUEST),
        (BROKER, "9", [("log.cleaner.threads", SET, "2")], ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER, "1", [("log.cleaner.threads", SET, "many")], ErrorCode.INVALID_CONFIG),
        (BROKER, "1", [("node.id", SET, "2")], ErrorCode.INVALID_CONFIG),
        (BROKER, "1", [("min.insync.replicas", SET, "2")], ErrorCode.INVALID_CONFIG),
        (BROKER, "", [("min.insync.replicas", DELETE, None)], ErrorCode.INVALID_CONFIG),
        (GROUP, "", [("consumer.session.timeout.ms", SET, "50000")], ErrorCode.INVALID_REQUEST),
        (GROUP, "g", [("no.such", SET, "1")], ErrorCode.INVALID_CONFIG),
        (METRICS, "", [("interval.ms", SET, "1000")], ErrorCode.INVALID_REQUEST),
        (METRICS, "m", [("interval.ms", SET, "1")], ErrorCode.INVALID_REQUEST),
        (3, "x", [], ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_refused(
    world: ControllerWorld, kind: int, name: str, ops: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    before = world.quorum.next_offset
    answer = alter(world, kind, name, *ops)
    assert answer.error_code == code
    assert answer.error_message
    assert world.quorum.next_offset == before


def test_groups_and_client_metrics(world: ControllerWorld) -> None:
    assert alter(world, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")).error_code == 0
    assert alter(world, METRICS, "m", ("interval.ms", SET, "1000")).error_code == 0
    assert world.image.config_overrides(GROUP, "g") == {"consumer.session.timeout.ms": "50000"}
    assert world.image.config_overrides(METRICS, "m") == {"interval.ms": "1000"}


def test_a_changed_minimum_clears_the_eligible_leaders(world: ControllerWorld) -> None:
    world.heartbeat(1, want_shut_down=True)
    assert world.partition("orders").elr == (1,)
    alter(world, TOPIC, "orders", ("min.insync.replicas", SET, "2"))
    assert world.partition("orders").elr == ()


def test_the_legacy_request_replaces_everything(world: ControllerWorld) -> None:
    def replace(configs: dict[str, str | None]) -> int:
        resource = alter_configs_request.AlterConfigsResource(
            resource_type=TOPIC,
            resource_name="orders",
            configs=[alter_configs_request.AlterableConfig(name=k, value=v) for k, v in configs.items()],
        )
        return world.ask(AlterConfigsRequest(resources=[resource]), AlterConfigsResponse).responses[0].error_code

    assert replace({"retention.ms": "9", "segment.ms": "5"}) == 0
    assert replace({"segment.ms": "6"}) == 0
    assert world.image.topic_config_overrides("orders") == {"segment.ms": "6"}
    assert replace({"segment.ms": None}) == ErrorCode.INVALID_REQUEST
    assert replace({"segment.ms": "never"}) == ErrorCode.INVALID_CONFIG
    assert replace({}) == 0
    assert world.image.topic_config_overrides("orders") == {}


def test_a_resource_named_twice(world: ControllerWorld) -> None:
    resource = incremental_alter_configs_request.AlterConfigsResource(resource_type=TOPIC, resource_name="orders")
    request = IncrementalAlterConfigsRequest(resources=[resource, resource])
    response = world.ask(request, IncrementalAlterConfigsResponse)
    assert [answer.error_code for answer in response.responses] == [0, ErrorCode.INVALID_REQUEST]


# ---- features


def update(
    world: ControllerWorld, name: str, level: int, kind: int = 1, *, validate_only: bool = False, version: int = 2
) -> UpdateFeaturesResponse:
    key = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
    request = UpdateFeaturesRequest(feature_updates=[key], validate_only=validate_only)
    return world.ask(request, UpdateFeaturesResponse, version)


def test_upgrade_and_downgrade() -> None:
    world = ControllerWorld(release="4.2")
    world.join(1)
    assert update(world, "metadata.version", 30).error_code == 0
    assert world.image.metadata_version == 30
    assert update(world, "group.version", 0, 2).error_code == 0
    assert world.image.feature_level("group.version") == 0
    assert update(world, "group.version", 1, validate_only=True).error_code == 0
    assert world.image.feature_level("group.version") == 0


@pytest.mark.parametrize(
    ("name", "level", "kind", "reason"),
    [
        ("metadata.version", 29, 1, "Can't downgrade the version of this feature without setting the upgrade type"),
        ("metadata.version", 29, 2, "might delete metadata information"),
        ("metadata.version", 29, 3, "Unsafe metadata downgrade is not supported"),
        ("metadata.version", 31, 1, "Local controller 1 only supports versions 7-30"),
        ("group.version", 2, 1, "only supports versions 0-1"),
        ("group.version", -1, 1, "cannot be less than 0"),
        ("group.version", 0, 9, "does not support the given upgrade type"),
        ("kraft.version", 0, 2, "Can't downgrade the version of this feature."),
        ("no.such.feature", 1, 1, "does not support this feature"),
    ],
)
def test_levels_that_are_refused(world: ControllerWorld, name: str, level: int, kind: int, reason: str) -> None:
    before = world.quorum.next_offset
    response = update(world, name, level, kind)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert reason in (response.error_message or "")
    assert world.quorum.next_offset == before


def test_old_versions_list_each_feature(world: ControllerWorld) -> None:
    response = update(world, "group.version", 1, version=1)
    assert [(result.feature, result.error_code) for result in response.results] == [("group.version", 0)]


def test_switching_eligible_leaders_on_pins_the_minimum() -> None:
    world = ControllerWorld(release="4.0", min_insync_replicas="2")
    world.join(1)
    alter(world, BROKER, "1", ("min.insync.replicas", SET, "3"))
    assert update(world, "eligible.leader.replicas.version", 1).error_code == 0
    assert world.image.broker_config_defaults == {"min.insync.replicas": "2"}
    assert world.image.broker_config_overrides(1) == {}


# ---- quotas


def quota(
    world: ControllerWorld, entity: dict[str, str | None], *ops: OpData, validate_only: bool = False
) -> EntryData:
    entry = alter_client_quotas_request.EntryData(
        entity=[
            alter_client_quotas_request.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
        ],
        ops=list(ops),
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
    return world.ask(request, AlterClientQuotasResponse).entries[0]


def test_quotas_are_set_and_removed(world: ControllerWorld) -> None:
    rate = OpData(key="producer_byte_rate", value=1024.0)
    assert quota(world, {"user": "alice", "client-id": None}, rate).error_code == 0
    entity = (("client-id", None), ("user", "alice"))
    assert world.image.client_quotas == {entity: {"producer_byte_rate": 1024.0}}
    before = world.quorum.next_offset
    quota(world, {"client-id": None, "user": "alice"}, rate)
    assert world.quorum.next_offset == before
    quota(world, {"user": "alice", "client-id": None}, OpData(key="producer_byte_rate", remove=True))
    assert world.image.client_quotas == {}
    assert quota(world, {"user": "bob"}, rate, validate_only=True).error_code == 0
    assert world.image.client_quotas == {}


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        ({}, "producer_byte_rate", 1.0),
        ({"planet": "mars"}, "producer_byte_rate", 1.0),
        ({"user": ""}, "producer_byte_rate", 1.0),
        ({"ip": "1.2.3.4", "user": "a"}, "connection_creation_rate", 1.0),
        ({"ip": "not an address"}, "connection_creation_rate", 1.0),
        ({"ip": "1.2.3.4"}, "producer_byte_rate", 1.0),
        ({"user": "a"}, "no_such_rate", 1.0),
        ({"user": "a"}, "producer_byte_rate", 0.0),
        ({"user": "a"}, "producer_byte_rate", 1.5),
    ],
)
def test_quotas_that_are_refused(world: ControllerWorld, entity: dict[str, str | None], key: str, value: float) -> None:
    answer = quota(world, entity, OpData(key=key, value=value))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message
    assert world.image.client_quotas == {}
