"""Share groups on a directory that Moldau and Apache Kafka open in turns: each goes on where the other stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from moldau.client.admin import Admin
from moldau.client.admin.groups import delete_groups
from moldau.client.admin.share_groups import alter_share_offsets, describe_share_groups, fetch_share_offsets
from moldau.client.coordinators import ask_coordinator
from moldau.client.errors import failure
from moldau.protocol.errors import ApiError
from moldau.protocol.generated.wire.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from moldau.testing import Cluster
from tests.clients.java_tools import DUMP_LOG, JavaTools
from tests.interop.apache_kafka import ApacheKafka, shared_properties

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

GROUP, TOPIC, PARTITIONS, RECORDS = "sharers", "shared", 3, 20
PATIENCE_SECONDS = 60.0
Starts = dict[int, tuple[int | None, int | None]]


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def starts_of(admin: Admin) -> Starts:
    """(start offset, lag) of each partition."""
    found = fetch_share_offsets(admin, [GROUP])[GROUP]
    assert not isinstance(found, ApiError), found
    return {index: (start.offset, start.lag) for (_, index), start in found.items()}


def join_and_leave(admin: Admin, member_id: str) -> int:
    """A member that stays until all partitions are its own; gives the group's epoch."""
    epoch = 0
    has: list[int] = []

    def read(answer: Any) -> Any:
        return failure(answer.error_code, answer.error_message) if answer.error_code else answer

    def beat(**fields: Any) -> bool:
        nonlocal epoch
        request = ShareGroupHeartbeatRequest(
            **{"group_id": GROUP, "member_id": member_id, "member_epoch": epoch, **fields}
        )
        answer = ask_coordinator(admin, GROUP, request, read)
        epoch = answer.member_epoch
        if answer.assignment is not None:
            has[:] = [index for topic in answer.assignment.topic_partitions for index in topic.partitions]
        return sorted(has) == [*range(PARTITIONS)]

    beat(subscribed_topic_names=[TOPIC])
    eventually(beat)
    joined = epoch
    beat(member_epoch=-1)
    return joined


def test_each_goes_on_where_the_other_stopped(tmp_path: Path, java_tools: JavaTools) -> None:
    properties = shared_properties([tmp_path / "data"])
    controller = properties.pop("controller.quorum.bootstrap.servers")
    properties |= {
        "controller.quorum.voters": f"1@{controller}",
        "cluster.id": "interoperation-1234-aA",
        "share.coordinator.state.topic.num.partitions": "2",
    }
    apache = ApacheKafka(properties, tmp_path)

    with Cluster(properties, data_dir=tmp_path) as cluster, Admin(cluster.bootstrap_servers) as admin:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for index in range(PARTITIONS):
            for _ in range(RECORDS):
                producer.produce(TOPIC, b"x", partition=index)
        assert producer.flush(PATIENCE_SECONDS) == 0
        ours = join_and_leave(admin, "one")
        alter_share_offsets(admin, GROUP, {(TOPIC, index): index for index in range(PARTITIONS)})
        written: Starts = {index: (index, RECORDS - index) for index in range(PARTITIONS)}
        assert starts_of(admin) == written

    logs = sorted((tmp_path / "data").glob("__share_group_state-*/*.log"))
    dumped = java_tools.run(DUMP_LOG, "--share-group-state-decoder", "--files", ",".join(map(str, logs)))
    assert f'"groupId":"{GROUP}"' in dumped
    assert '"startOffset":2' in dumped

    with apache, Admin(apache.bootstrap_servers) as admin:
        assert starts_of(admin) == written
        described = describe_share_groups(admin, [GROUP])[GROUP]
        assert not isinstance(described, ApiError)
        assert (described.state, described.epoch) == ("Empty", ours + 1)
        theirs = join_and_leave(admin, "two")
        assert theirs > ours
        alter_share_offsets(admin, GROUP, {(TOPIC, 0): 15})
        left: Starts = {**written, 0: (15, 5)}
        assert starts_of(admin) == left

    with Cluster(properties, data_dir=tmp_path) as cluster, Admin(cluster.bootstrap_servers) as admin:
        assert starts_of(admin) == left
        assert join_and_leave(admin, "three") > theirs
        assert delete_groups(admin, [GROUP]) == {GROUP: None}
        assert starts_of(admin) == {}
