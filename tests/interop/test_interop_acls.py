"""Access control entries with a real client: made, listed, obeyed, and taken back."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from moldau.broker.access_rules import STANDARD_AUTHORIZER
from moldau.metadata.access import ANY
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.describe_acls_request import DescribeAclsRequest
from moldau.testing import Cluster
from moldau.testing.asking import ask

SECONDS = 30
ANYTHING = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    # Everybody is anonymous on this listener: open until an entry says otherwise.
    with Cluster({"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}) as cluster:
        yield cluster


def written(cluster: Cluster, topic: str) -> KafkaError | None:
    told: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": SECONDS * 1000})
    producer.produce(topic, b"v", on_delivery=lambda error, _: told.append(error))
    producer.flush(SECONDS)
    (error,) = told
    return error


def binding(topic: str, operation: AclOperation, permission: AclPermissionType) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission
    )


def test_an_entry_is_obeyed_until_it_is_taken_back(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    cluster.create_topic("orders")
    assert written(cluster, "orders") is None
    denial = binding("orders", AclOperation.WRITE, AclPermissionType.DENY)
    for future in admin.create_acls([denial]).values():
        assert future.result(SECONDS) is None
    assert admin.describe_acls(ANYTHING).result(SECONDS) == [denial]
    error = written(cluster, "orders")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    cluster.restart()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    deadline = time.monotonic() + SECONDS
    while (found := admin.describe_acls(ANYTHING).result(SECONDS)) != [denial]:
        assert time.monotonic() < deadline, found
    ((_, future),) = admin.delete_acls([ANYTHING]).items()
    assert future.result(SECONDS) == [denial]
    assert admin.describe_acls(ANYTHING).result(SECONDS) == []
    assert written(cluster, "orders") is None


def test_without_an_authorizer_there_is_no_list() -> None:
    with Cluster() as cluster:
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        everything = DescribeAclsRequest(
            resource_type_filter=ANY, pattern_type_filter=ANY, operation=ANY, permission_type=ANY
        )
        assert ask(host, int(port), everything, 3).error_code == ErrorCode.SECURITY_DISABLED
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        (future,) = admin.create_acls([binding("orders", AclOperation.READ, AclPermissionType.ALLOW)]).values()
        with pytest.raises(KafkaException) as refused:
            future.result(SECONDS)
        assert refused.value.args[0].code() == KafkaError.SECURITY_DISABLED
