"""pytest fixtures: `moldau_cluster` (one for the whole session) and `fresh_moldau_cluster` (one for this test)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from moldau.testing.cluster import Cluster


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
