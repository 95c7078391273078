"""pytest fixtures: `moldau_cluster` (one node for the whole session), `fresh_moldau_cluster` (one node for this test),
and the same with three nodes: `moldau_cluster_of_three` and `fresh_moldau_cluster_of_three`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from moldau.testing.cluster import Cluster

NODES = 3


@pytest.fixture(scope="session")
def moldau_cluster() -> Iterator[Cluster]:
    """A running node shared by the whole test session; give topics names of their own."""
    from moldau.testing.cluster import Cluster

    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def fresh_moldau_cluster() -> Iterator[Cluster]:
    """A running node for this test alone."""
    from moldau.testing.cluster import Cluster

    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def moldau_bootstrap_servers(moldau_cluster: Cluster) -> str:
    return moldau_cluster.bootstrap_servers


@pytest.fixture(scope="session")
def _shared_cluster_of_three() -> Iterator[Cluster]:
    from moldau.testing.cluster import Cluster

    with Cluster(nodes=NODES) as cluster:
        yield cluster


@pytest.fixture
def moldau_cluster_of_three(_shared_cluster_of_three: Cluster) -> Iterator[Cluster]:
    """Three running nodes shared by the whole test session. A test may kill, freeze and cut off what it likes: all is
    healed, thawed and started again behind it."""
    cluster = _shared_cluster_of_three
    try:
        yield cluster
    finally:
        cluster.heal()
        for node in cluster.nodes.values():
            if node.is_running and node.is_frozen:
                node.thaw()
        cluster.start()


@pytest.fixture
def fresh_moldau_cluster_of_three() -> Iterator[Cluster]:
    """Three running nodes for this test alone."""
    from moldau.testing.cluster import Cluster

    with Cluster(nodes=NODES) as cluster:
        yield cluster
