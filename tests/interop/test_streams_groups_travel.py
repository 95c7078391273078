"""Streams groups on Moldau and on Apache Kafka: the same words get the same answers, and each goes on with the other's.

One conversation is held with each broker, on one directory that they open in turns; then each is asked about the
group of the other one, whose members are still there and carry on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moldau.client.admin import Admin
from moldau.client.coordinators import ask_coordinator
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire import streams_group_heartbeat_request as wire
from moldau.protocol.generated.wire.streams_group_describe_request import StreamsGroupDescribeRequest
from moldau.testing import Cluster
from tests.clients.java_tools import DUMP_LOG, JavaTools
from tests.interop.apache_kafka import ApacheKafka, shared_properties

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

PATIENCE_SECONDS = 60.0
TOPIC, PARTITIONS = "orders", 4
STARTING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


def topology(group: str, epoch: int = 3) -> wire.Topology:
    """Read, repartition, count in a store."""
    between = wire.TopicInfo(name=f"{group}-by-word-repartition", topic_configs=[wire.KeyValue("retention.ms", "-1")])
    store = wire.TopicInfo(
        name=f"{group}-counts-changelog",
        replication_factor=1,
        topic_configs=[wire.KeyValue("cleanup.policy", "compact")],
    )
    return wire.Topology(
        epoch,
        [
            wire.Subtopology(subtopology_id="0", source_topics=[TOPIC], repartition_sink_topics=[between.name]),
            wire.Subtopology(
                subtopology_id="1",
                repartition_source_topics=[between],
                state_changelog_topics=[store],
                copartition_groups=[wire.CopartitionGroup(repartition_source_topics=[0])],
            ),
        ],
    )


class Member:
    """Speaks for one client with whichever broker there is."""

    def __init__(self, name: str, group: str, heard: list[Any]) -> None:
        self.name = name
        self.group = group
        self.heard = heard
        self.admin: Admin | None = None
        self.epoch = 0
        self.active: list[wire.TaskIds] = []
        self.standby: list[wire.TaskIds] = []

    def send(self, *, note: bool = True, **fields: Any) -> Any:
        assert self.admin is not None
        said = {"member_epoch": self.epoch, "endpoint_information_epoch": -1, **fields}
        request = wire.StreamsGroupHeartbeatRequest(group_id=self.group, member_id=self.name, **said)
        answer = asked(self.admin, self.group, request, lambda reply: reply)
        if note:
            self.heard.append(self._told(answer))
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.active_tasks is not None:
                self.active = [wire.TaskIds(*task) for task in _tasks(answer.active_tasks)]
                self.standby = [wire.TaskIds(*task) for task in _tasks(answer.standby_tasks)]
        return answer

    def _told(self, answer: Any) -> Any:
        """Everything but when to come back, which Moldau has its own mind about."""
        endpoints = answer.partitions_by_user_endpoint
        return (
            self.name,
            ErrorCode(answer.error_code).name,
            (answer.error_message or "").replace(self.group, "GROUP"),
            (answer.member_id, answer.member_epoch, answer.endpoint_information_epoch),
            [(each.status_code, each.status_detail.replace(self.group, "GROUP")) for each in answer.status or ()],
            None if answer.active_tasks is None else _tasks(answer.active_tasks),
            None if answer.standby_tasks is None else _tasks(answer.standby_tasks),
            None
            if endpoints is None
            else sorted(
                (
                    (each.user_endpoint.host, each.user_endpoint.port),
                    _partitions(each.active_partitions, self.group),
                    _partitions(each.standby_partitions, self.group),
                )
                for each in endpoints
            ),
        )

    def join(self, **fields: Any) -> Any:
        self.epoch = 0
        return self.send(
            **{
                "rebalance_timeout_ms": 60_000,
                "topology": topology(self.group),
                "active_tasks": [],
                "standby_tasks": [],
                "warmup_tasks": [],
                "process_id": f"process-{self.name}",
                "client_tags": [wire.KeyValue("zone", "z")],
                "user_endpoint": wire.Endpoint(self.name, 7),
                **fields,
            }
        )

    def acknowledge(self, **fields: Any) -> Any:
        return self.send(active_tasks=self.active, standby_tasks=self.standby, warmup_tasks=[], **fields)


def _tasks(listed: list[Any]) -> list[tuple[str, list[int]]]:
    return sorted((each.subtopology_id, sorted(each.partitions)) for each in listed)


def _partitions(listed: list[Any], group: str) -> list[tuple[str, list[int]]]:
    return sorted((each.topic.replace(group, "GROUP"), sorted(each.partitions)) for each in listed)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def asked(admin: Admin, group: str, request: Any, read: Callable[[Any], Any]) -> Any:
    """What the coordinator says once it knows its groups."""
    found: list[Any] = []

    def answers() -> bool:
        found[:] = [ask_coordinator(admin, group, request, read)]
        return found[0].error_code not in STARTING

    eventually(answers)
    return found[0]


def described(admin: Admin, group: str) -> Any:
    def read(answer: Any) -> Any:
        (found,) = answer.groups
        found.members.sort(key=lambda member: member.member_id)
        for member in found.members:
            # It says where it connected from, which is never the same port.
            assert member.client_host.startswith("/127.0.0.1")
        return found

    return asked(admin, group, StreamsGroupDescribeRequest(group_ids=[group]), read)


class Conversation:
    """Two members of one group, and all they were told."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.heard: list[Any] = []
        self.first = Member("a", group, self.heard)
        self.second = Member("b", group, self.heard)
        self.left: Any = None

    def at(self, admin: Admin) -> Conversation:
        self.first.admin = self.second.admin = admin
        return self

    def begin(self) -> None:
        first, second = self.first, self.second
        first.send(member_epoch=5)
        first.join(topology=None)
        first.join(active_tasks=None)
        first.join(instance_id="i")
        first.join(topology=wire.Topology(0, [wire.Subtopology("0", ["__consumer_offsets"])]))
        first.join(topology=wire.Topology(0, [wire.Subtopology("0", [])]))
        first.join()
        eventually(lambda: not first.send(note=False).status)
        self.heard.append(("first", first.epoch, _tasks(first.active), _tasks(first.standby)))
        first.send(member_epoch=99)
        first.send(active_tasks=[wire.TaskIds("9", [0])], standby_tasks=[], warmup_tasks=[])
        first.send(active_tasks=[wire.TaskIds("0", [9])], standby_tasks=[], warmup_tasks=[])
        first.send(active_tasks=[])
        second.join(topology=topology(self.group, epoch=4))
        second.join(topology=topology(self.group, epoch=2))
        second.join()
        self.settle()
        second.send(shutdown_application=True)
        first.send()

    def settle(self) -> None:
        """Four rounds are enough for two members, and no round more than needed changes anything."""
        for _ in range(4):
            for member in (self.first, self.second):
                member.send()
                member.acknowledge()

    def carry_on(self) -> None:
        """With another broker: it knows everybody, and one of them leaves."""
        self.heard.clear()
        self.settle()
        self.second.send(member_epoch=-1)
        self.settle_alone()

    def settle_alone(self) -> None:
        for _ in range(2):
            self.first.send()
            self.first.acknowledge()


def test_each_says_the_same_and_goes_on_with_the_group_of_the_other(tmp_path: Path, java_tools: JavaTools) -> None:
    properties = shared_properties([tmp_path / "data"])
    controller = properties.pop("controller.quorum.bootstrap.servers")
    properties |= {
        "controller.quorum.voters": f"1@{controller}",
        "cluster.id": "interoperation-1234-aA",
        "group.streams.initial.rebalance.delay.ms": "0",
        "group.streams.assignment.interval.ms": "0",
        "group.streams.num.standby.replicas": "1",
    }
    apache = ApacheKafka(properties, tmp_path)
    ours, theirs = Conversation("ours"), Conversation("theirs")

    with Cluster(properties, data_dir=tmp_path) as cluster, Admin(cluster.bootstrap_servers) as admin:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        ours.at(admin).begin()
        ours.left = described(admin, "ours")

    logs = sorted((tmp_path / "data").glob("__consumer_offsets-*/*.log"))
    dumped = java_tools.run(DUMP_LOG, "--offsets-decoder", "--files", ",".join(map(str, logs)))
    assert '"groupId":"ours"' in dumped

    with apache, Admin(apache.bootstrap_servers) as admin:
        found = described(admin, "ours")
        theirs.at(admin).begin()
        theirs.left = described(admin, "theirs")
        assert ours.heard == theirs.heard
        assert same(found, ours.left)
        ours.at(admin).carry_on()
        assert described(admin, "ours").group_state == "Stable"

    with Cluster(properties, data_dir=tmp_path) as cluster, Admin(cluster.bootstrap_servers) as admin:
        assert same(described(admin, "theirs"), theirs.left)
        theirs.at(admin).carry_on()
        assert theirs.heard == ours.heard
        assert described(admin, "theirs").group_state == "Stable"
        alone = described(admin, "ours")
        assert [member.member_id for member in alone.members] == ["a"]


def same(found: Any, left: Any) -> bool:
    """Nothing is lost on the way, but for the partitions of internal topics, which nobody has looked at again yet."""
    assert found.topology.epoch == left.topology.epoch
    assert found.members == left.members
    assert (found.group_epoch, found.assignment_epoch, found.group_state) == (
        left.group_epoch,
        left.assignment_epoch,
        left.group_state,
    )
    return True
