"""`moldau.testing.Cluster`, as users have it in their own tests."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from moldau.config.types import ConfigError
from moldau.node.storage import StorageError
from moldau.testing import Cluster
from tests.clients.python_clients import consume_confluent, produce_confluent
from tests.clients.sample import samples


@pytest.mark.parametrize("in_process", [True, False])
def test_a_restart_keeps_the_address_and_the_data(in_process: bool) -> None:
    with Cluster(in_process=in_process) as cluster:
        servers, directory = cluster.bootstrap_servers, cluster.data_dir
        assert (cluster.pid == os.getpid()) == in_process
        cluster.create_topic("kept", partitions=1, config={"retention.ms": "-1"})
        produce_confluent(servers, "kept", "none", samples())
        cluster.restart()
        assert cluster.bootstrap_servers == servers
        assert consume_confluent(servers, "kept", 20) == samples()
    assert not directory.exists()


def test_a_crash_keeps_the_data(tmp_path: Path) -> None:
    with Cluster(in_process=False, data_dir=tmp_path) as cluster:
        produce_confluent(cluster.bootstrap_servers, "kept", "none", samples())
        cluster.kill()
        cluster.start()
        assert consume_confluent(cluster.bootstrap_servers, "kept", 20) == samples()
    assert (tmp_path / "data" / "kept-0").is_dir()


def test_it_is_up_in_milliseconds() -> None:
    with Cluster():
        pass
    began = time.monotonic()
    with Cluster():
        assert time.monotonic() - began < 2.0


def test_several_at_once() -> None:
    with Cluster() as one, Cluster() as other:
        produce_confluent(one.bootstrap_servers, "only-here", "none", samples())
        produce_confluent(other.bootstrap_servers, "only-there", "none", samples())
        assert consume_confluent(one.bootstrap_servers, "only-here", 20) == samples()
        assert {each.name for each in (other.data_dir / "data").glob("only-*")} == {"only-there-0"}


def test_settings_can_be_given() -> None:
    with Cluster({"num.partitions": "4", "auto.create.topics.enable": "true"}) as cluster:
        produce_confluent(cluster.bootstrap_servers, "wide", "none", samples())
        listed = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics("wide", timeout=10)
        assert len(listed.topics["wide"].partitions) == 4


def test_a_wrong_setting_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ConfigError, match=r"num\.partitions"), Cluster({"num.partitions": "none"}):
        pass
    with pytest.raises(RuntimeError, match=r"num\.partitions"), Cluster({"num.partitions": "none"}, in_process=False):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_failed_start_does_not_keep_the_directory_locked(tmp_path: Path) -> None:
    with Cluster() as other:
        taken = f"PLAINTEXT://{other.bootstrap_servers},CONTROLLER://127.0.0.1:0"
        with pytest.raises(StorageError, match="in use"), Cluster({"listeners": taken}, data_dir=tmp_path):
            pass
    with Cluster(data_dir=tmp_path) as cluster:
        cluster.create_topic("works")


def test_two_nodes_of_one_process_cannot_share_a_directory(tmp_path: Path) -> None:
    with Cluster(data_dir=tmp_path):
        with pytest.raises(StorageError, match="in use"), Cluster(data_dir=tmp_path):
            pass
        with pytest.raises(RuntimeError, match="in use"), Cluster(data_dir=tmp_path, in_process=False):
            pass


def test_the_fixtures(moldau_cluster: Cluster, fresh_moldau_cluster: Cluster, moldau_bootstrap_servers: str) -> None:
    assert moldau_cluster.bootstrap_servers == moldau_bootstrap_servers
    assert fresh_moldau_cluster.bootstrap_servers != moldau_bootstrap_servers
