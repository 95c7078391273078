"""Fixtures: topics on a node of one's own, and one Spark session for all tests that need one."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

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


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session with two task slots; a task may fail three times before its job does."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
