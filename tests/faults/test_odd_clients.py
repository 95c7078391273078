"""What odd clients are told is what Apache Kafka tells them. `odd_clients.py` says how its answers were taken."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from moldau.testing import Cluster
from tests.faults.odd_clients import ANSWERS, NODE, SCENARIOS, allow_many_connections
from tests.security.wire_client import complaints

KAFKA = json.loads(ANSWERS.read_text())


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    allow_many_connections()
    with Cluster(NODE, in_process=False) as running:
        yield running
        assert complaints(running) == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_as_kafka(cluster: Cluster, name: str) -> None:
    assert SCENARIOS[name](cluster.bootstrap_servers) == KAFKA[name]
