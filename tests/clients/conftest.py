"""Fixtures: programs that are not Python, skipped with the reason where they cannot be had, and topics of one's own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import pytest

from moldau.testing import Cluster
from tests.clients.kcat import Kcat, find_kcat

_numbers = itertools.count()


@pytest.fixture(scope="session")
def kcat() -> Kcat:
    found = find_kcat()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture
def new_topic(moldau_cluster: Cluster, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Creates a topic on the shared node under a name nobody else has."""

    def create(partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = f"t{next(_numbers)}.{request.node.originalname}"
        moldau_cluster.create_topic(name, partitions, config)
        return name

    return create
