"""Two directories on their way between Apache Kafka and Moldau, and what clients saw at every stop.

Starting Apache Kafka takes seconds, so each journey is made once; the tests look at its record.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from moldau.node.storage import StorageError
from moldau.testing import Cluster
from tests.clients.admin_tour import check_admin_tour
from tests.clients.java_tools import JavaTools
from tests.clients.python_clients import PRODUCERS
from tests.clients.sample import samples
from tests.interop.apache_kafka import ApacheKafka, shared_properties
from tests.interop.filling import SteadyProducer, append_a_little, fill, fill_segments, write_transactions
from tests.interop.observed import Observed, observe
from tests.packaging.node_process import ask_api_versions

CLUSTER_ID = "interoperation-1234-aA"


@dataclass
class Stop:
    """One broker's turn: what it served at first, and what after it was written to."""

    # API key -> the lowest and highest version it offers
    versions: dict[int, tuple[int, int]]
    found: Observed
    left: Observed


@dataclass
class Journey:
    stops: list[Stop]
    steady: SteadyProducer
    directories: list[Path]


@pytest.fixture(scope="package")
def from_kafka(tmp_path_factory: pytest.TempPathFactory, java_tools: JavaTools) -> Journey:
    """Written by Kafka, continued by Moldau, by Kafka until it is killed, by Moldau; a dynamic quorum, two disks."""
    home = tmp_path_factory.mktemp("from-kafka")
    directories = [home / "a", home / "b"]
    properties = shared_properties(directories)
    apache = ApacheKafka(properties, home)
    apache.format(java_tools, CLUSTER_ID, "--standalone")
    servers = apache.bootstrap_servers
    steady = SteadyProducer(servers)
    with apache:
        PRODUCERS["confluent-kafka"](servers, "toured", "none", samples(1))
        check_tour(java_tools, servers)
        check_that_moldau_keeps_out(properties, home)
        found = observe(servers, java_tools)
        fill(servers, java_tools)
        write_transactions(servers)
        steady.write()
        stops = [Stop(ask_api_versions(servers), found, observe(servers, java_tools))]
    stops.append(moldau_stop(properties, home, steady, java_tools))
    with apache:
        stops.append(visit(servers, steady, java_tools))
        apache.kill()
    stops.append(moldau_stop(properties, home, steady, java_tools))
    return Journey(stops, steady, directories)


def check_tour(java: JavaTools, servers: str) -> None:
    """The same questions Moldau is asked in the clients' tests: what is expected there is what Kafka says."""
    java.produce(servers, "tour", samples(10))
    check_admin_tour(json.loads(java.run("AdminTour", servers, "tour", "tour-created")), servers, directories=2)


def check_that_moldau_keeps_out(properties: dict[str, str], home: Path) -> None:
    """A running Kafka holds its directories in a way that Moldau notices."""
    with pytest.raises(StorageError, match="in use by another process"):
        Cluster(properties, data_dir=home).start()


def moldau_stop(properties: dict[str, str], home: Path, steady: SteadyProducer, java_tools: JavaTools) -> Stop:
    with Cluster(properties, data_dir=home) as cluster:
        return visit(cluster.bootstrap_servers, steady, java_tools)


def visit(servers: str, steady: SteadyProducer, java_tools: JavaTools) -> Stop:
    found = observe(servers, java_tools)
    append_a_little(servers)
    fill_segments(servers, seed=2)
    steady.write()
    return Stop(ask_api_versions(servers), found, observe(servers, java_tools))


@dataclass
class WrittenByMoldau:
    home: Path
    properties: dict[str, str]
    steady: SteadyProducer
    stop: Stop
    # A copy of the directory as Moldau left it, before anybody else touched it.
    directory: Path


@pytest.fixture(scope="package")
def written_by_moldau(tmp_path_factory: pytest.TempPathFactory, java_tools: JavaTools) -> WrittenByMoldau:
    """A directory that Moldau formatted, filled and closed, with the voters named in the properties."""
    home = tmp_path_factory.mktemp("from-moldau")
    properties = shared_properties([home / "data"])
    controller = properties.pop("controller.quorum.bootstrap.servers")
    properties["controller.quorum.voters"] = f"1@{controller}"
    properties["cluster.id"] = CLUSTER_ID
    with Cluster(properties, data_dir=home) as cluster:
        steady = SteadyProducer(cluster.bootstrap_servers)
        found = observe(cluster.bootstrap_servers, java_tools)
        fill(cluster.bootstrap_servers, java_tools)
        write_transactions(cluster.bootstrap_servers)
        steady.write()
        stop = Stop(ask_api_versions(cluster.bootstrap_servers), found, observe(cluster.bootstrap_servers, java_tools))
    shutil.copytree(home / "data", home / "copy")
    return WrittenByMoldau(home, properties, steady, stop, home / "copy")


@pytest.fixture(scope="package")
def from_moldau(written_by_moldau: WrittenByMoldau, java_tools: JavaTools) -> Journey:
    """Written by Moldau, continued by Kafka, continued by Moldau."""
    it = written_by_moldau
    stops = [it.stop]
    apache = ApacheKafka(it.properties, it.home)
    with apache:
        stops.append(visit(apache.bootstrap_servers, it.steady, java_tools))
    stops.append(moldau_stop(it.properties, it.home, it.steady, java_tools))
    return Journey(stops, it.steady, [it.home / "data"])
