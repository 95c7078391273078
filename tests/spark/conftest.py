"""Fixtures: topics on a node of one's own. The Spark session is that of `tests.spark_session`."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from moldau.testing import Cluster

pytest.importorskip("pyspark", reason="Spark is not installed: make setup")
pytest.importorskip("numba", reason="Spark's extra is not installed: make setup")

_numbers = itertools.count()


@pytest.fixture
def new_topic(moldau_cluster: Cluster) -> Callable[..., str]:
    """Creates a topic on the shared node under a name nobody else has."""

    def create(partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = f"spark-{next(_numbers)}"
        moldau_cluster.create_topic(name, partitions, config)
        return name

    return create
