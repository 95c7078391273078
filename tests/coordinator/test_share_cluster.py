"""Share groups on three nodes: group coordinator, share coordinators and partitions are on different ones, and one of
them is killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from moldau.client.admin import Admin
from moldau.client.admin.groups import delete_groups
from moldau.client.admin.share_groups import (
    alter_share_offsets,
    delete_share_offsets,
    describe_share_groups,
    fetch_share_offsets,
)
from moldau.client.coordinators import ask_coordinator
from moldau.client.errors import failure
from moldau.protocol.errors import ApiError
from moldau.protocol.generated.wire.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from moldau.testing import Cluster

PATIENCE_SECONDS = 60.0
PARTITIONS = 6
# What an initialisation waits for when the share-state topic is new.
SETTINGS = {"share.coordinator.state.topic.num.partitions": "6", "offsets.topic.num.partitions": "6"}


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with Cluster(SETTINGS, nodes=3) as cluster:
        yield cluster


@pytest.fixture
def admin(three: Cluster) -> Iterator[Admin]:
    with Admin(three.bootstrap_servers) as admin:
        yield admin


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


class Member:
    def __init__(self, admin: Admin, group: str, topic: str) -> None:
        self._admin = admin
        self._group = group
        self._topic = topic
        self.epoch = 0
        self.has: list[int] = []

    def beat(self, **fields: Any) -> None:
        if self.epoch == 0:
            fields["subscribed_topic_names"] = [self._topic]
        request = ShareGroupHeartbeatRequest(
            **{"group_id": self._group, "member_id": "only", "member_epoch": self.epoch, **fields}
        )

        def read(answer: Any) -> Any:
            return failure(answer.error_code, answer.error_message) if answer.error_code else answer

        answer = ask_coordinator(self._admin, self._group, request, read)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.has = [index for topic in answer.assignment.topic_partitions for index in topic.partitions]

    def has_everything(self) -> bool:
        self.beat()
        return sorted(self.has) == [*range(PARTITIONS)]


def coordinator_of(admin: Admin, group: str) -> int:
    described = describe_share_groups(admin, [group])[group]
    assert not isinstance(described, ApiError), described
    return described.coordinator.node_id


def starts_of(admin: Admin, group: str) -> dict[int, tuple[int | None, int | None]]:
    found = fetch_share_offsets(admin, [group])[group]
    assert not isinstance(found, ApiError), found
    return {index: (start.offset, start.lag) for (_, index), start in found.items()}


def test_state_on_all_brokers_and_a_killed_one(three: Cluster, admin: Admin) -> None:
    three.create_topic("shared", partitions=PARTITIONS)
    three.wait_until_in_sync("shared")
    member = Member(admin, "people", "shared")
    eventually(member.has_everything)
    member.beat(member_epoch=-1)

    # Where each partition starts is known to coordinators on every broker, and how long it is to leaders on every one.
    alter_share_offsets(admin, "people", {("shared", index): index for index in range(PARTITIONS)})
    producer = Producer({"bootstrap.servers": three.bootstrap_servers})
    for index in range(PARTITIONS):
        for _ in range(10):
            producer.produce("shared", b"x", partition=index)
    assert producer.flush(PATIENCE_SECONDS) == 0
    expected: dict[int, tuple[int | None, int | None]] = {index: (index, 10 - index) for index in range(PARTITIONS)}
    eventually(lambda: starts_of(admin, "people") == expected)

    victim = coordinator_of(admin, "people")
    three.wait_until_in_sync("shared", "__share_group_state", "__consumer_offsets")
    three.kill(victim)
    try:
        eventually(lambda: starts_of(admin, "people") == expected)
        assert coordinator_of(admin, "people") != victim
        again = Member(admin, "people", "shared")
        eventually(again.has_everything)
        again.beat(member_epoch=-1)
        assert delete_share_offsets(admin, "people", ["shared"]) == {"shared": None}
        assert starts_of(admin, "people") == {}
    finally:
        three.restart(victim)
    assert delete_groups(admin, ["people"]) == {"people": None}
