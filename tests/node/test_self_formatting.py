"""What an empty node makes of its directories: a cluster of its own, a place in one that is given, or nothing."""

from __future__ import annotations

from random import Random

import pytest

from moldau.config.node_config import NodeConfig
from moldau.node.storage import StorageError, prepare_storage
from moldau.protocol.uuids import uuid_to_string
from moldau.quorum.snapshots import read_snapshot
from moldau.testing.disk import SimulatedDisk

SNAPSHOT = "/data/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
CLUSTER = uuid_to_string(bytes(range(16)))


def format_for(**settings: str) -> SimulatedDisk:
    disk = SimulatedDisk()
    properties = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": "/data",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    prepare_storage(disk, NodeConfig.load(properties), ["/data"], 0, Random(1))
    return disk


def voters(disk: SimulatedDisk) -> list[int] | None:
    if not disk.exists(SNAPSHOT):
        return None
    return list(read_snapshot(disk.read_bytes(SNAPSHOT)).voters or ())


def test_a_controller_that_knows_of_no_other_founds_a_quorum() -> None:
    assert voters(format_for(controller_quorum_bootstrap_servers="localhost:9093")) == [1]
    assert voters(format_for(controller_quorum_bootstrap_servers="127.0.0.1:19093")) == [1]


def test_fixed_voters_need_no_founder_but_a_common_cluster_id() -> None:
    voters_of_three = "1@a:9093,2@b:9093,3@c:9093"
    with pytest.raises(StorageError, match=r"cluster\.id"):
        format_for(controller_quorum_voters=voters_of_three)
    disk = format_for(controller_quorum_voters=voters_of_three, cluster_id=CLUSTER)
    assert voters(disk) is None
    assert CLUSTER in disk.read_bytes("/data/meta.properties").decode()
    assert voters(format_for(controller_quorum_voters="1@localhost:9093")) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"controller_quorum_bootstrap_servers": "elsewhere:9093"},
        {"controller_quorum_bootstrap_servers": "localhost:9093,elsewhere:9093"},
        {"controller_quorum_bootstrap_servers": "localhost:9999", "controller_quorum_auto_join_enable": "true"},
    ],
)
def test_who_knows_of_others_founds_nothing(settings: dict[str, str]) -> None:
    with pytest.raises(StorageError, match=r"cluster\.id"):
        format_for(**settings)
    assert voters(format_for(**settings, cluster_id=CLUSTER)) is None


def test_a_broker_never_founds_a_quorum() -> None:
    broker = {
        "process_roles": "broker",
        "listeners": "PLAINTEXT://localhost:9092",
        "controller_quorum_bootstrap_servers": "localhost:9093",
    }
    with pytest.raises(StorageError, match=r"cluster\.id"):
        format_for(**broker)
    assert voters(format_for(**broker, cluster_id=CLUSTER)) is None
