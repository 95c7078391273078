"""Client quotas, and the ACL requests of a cluster without an authorizer."""

from __future__ import annotations

from typing import Any

import pytest
from broker_node import SimulatedNode

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire import alter_client_quotas_request as alter
from moldau.protocol.generated.wire.create_acls_request import AclCreation, CreateAclsRequest
from moldau.protocol.generated.wire.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from moldau.protocol.generated.wire.describe_acls_request import DescribeAclsRequest
from moldau.protocol.generated.wire.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest

EXACT, DEFAULT, ANY = 0, 1, 2
RATE = "producer_byte_rate"


def set_quota(node: SimulatedNode, value: float | None, version: int = 1, **entity: str | None) -> Any:
    entry = alter.EntryData(
        entity=[
            alter.EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()
        ],
        ops=[alter.OpData(key=RATE, value=value or 0.0, remove=value is None)],
    )
    (answer,) = node.client.send(alter.AlterClientQuotasRequest(entries=[entry]), version).entries
    return answer


def describe(
    node: SimulatedNode, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> Any:
    request = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=k, match_type=m, match=name) for k, m, name in components], strict=strict
    )
    return node.client.send(request, version)


def entities(answer: Any) -> set[tuple[tuple[str, str | None], ...]]:
    assert answer.error_code == 0, answer
    return {tuple((e.entity_type, e.entity_name) for e in entry.entity) for entry in answer.entries}


@pytest.mark.parametrize("version", [0, 1])
def test_nothing_is_set_at_first(node: SimulatedNode, version: int) -> None:
    answer = describe(node, version=version)
    assert (answer.error_code, answer.error_message, answer.entries) == (0, None, [])


@pytest.mark.parametrize("version", [0, 1])
def test_a_quota_is_stored_and_shown(node: SimulatedNode, version: int) -> None:
    assert set_quota(node, 1024.0, version, user="alice").error_code == 0
    (entry,) = describe(node, version=version).entries
    assert [(e.entity_type, e.entity_name) for e in entry.entity] == [("user", "alice")]
    assert [(v.key, v.value) for v in entry.values] == [(RATE, 1024.0)]
    assert set_quota(node, None, version, user="alice").error_code == 0
    assert describe(node, version=version).entries == []


def test_filters(node: SimulatedNode) -> None:
    for entity in (
        {"user": "alice"},
        {"user": None},
        {"user": "alice", "client_id": "app"},
        {"client_id": "app"},
    ):
        assert set_quota(node, 10.0, **entity).error_code == 0
    alice, everyone = (("user", "alice"),), (("user", None),)
    both = (("client-id", "app"), ("user", "alice"))
    app = (("client-id", "app"),)
    assert entities(describe(node)) == {alice, everyone, both, app}
    assert entities(describe(node, ("user", EXACT, "alice"))) == {alice, both}
    assert entities(describe(node, ("user", EXACT, "alice"), strict=True)) == {alice}
    assert entities(describe(node, ("user", DEFAULT, None))) == {everyone}
    assert entities(describe(node, ("user", ANY, None), strict=True)) == {alice, everyone}
    assert entities(describe(node, ("user", ANY, None), ("client-id", ANY, None))) == {both}
    assert entities(describe(node, strict=True)) == set()


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("planet", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 7, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("ip", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_make_no_sense(
    node: SimulatedNode, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    answer = describe(node, *components)
    assert (answer.error_code, answer.entries) == (code, None)
    assert answer.error_message


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_say_that_security_is_disabled(node: SimulatedNode, version: int) -> None:
    described = node.client.send(
        DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1), version
    )
    assert described.error_code == ErrorCode.SECURITY_DISABLED
    assert described.error_message
    creation = AclCreation(resource_type=2, resource_name="t", principal="User:a", host="*", operation=3)
    created = node.client.send(CreateAclsRequest(creations=[creation, creation]), version)
    assert [result.error_code for result in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
    acl_filter = DeleteAclsFilter(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    deleted = node.client.send(DeleteAclsRequest(filters=[acl_filter]), version)
    assert [result.error_code for result in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]
    assert deleted.filter_results[0].matching_acls == []
