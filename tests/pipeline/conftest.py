"""Fixtures: topics, and programs that are run on the Spark session of all tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moldau.testing import Cluster

pytest.importorskip("pyspark", reason="Spark is not installed: make setup")
pytest.importorskip("numba", reason="Spark's extra is not installed: make setup")

from tests.pipeline.world import Stage

_numbers = itertools.count()


@pytest.fixture
def new_topic(moldau_cluster: Cluster) -> Callable[..., str]:
    """Creates a topic on the shared node under a name nobody else has."""

    def create(partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = f"pipeline-{next(_numbers)}"
        moldau_cluster.create_topic(name, partitions, config)
        return name

    return create


@pytest.fixture
def stage(spark: Any, moldau_cluster: Cluster, tmp_path: Path) -> Stage:
    """Runs programs on the session and the node that all tests share."""
    return Stage(spark, moldau_cluster.bootstrap_servers, tmp_path)
