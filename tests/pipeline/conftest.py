"""Fixtures: one Spark session for all tests of this room, and programs that are run on it."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.testing import Cluster

pytest.importorskip("pyspark", reason="Spark is not installed: make setup")
pytest.importorskip("numba", reason="Spark's extra is not installed: make setup")

from tests.pipeline.world import Stage

_numbers = itertools.count()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session as `moldau run` makes one."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17")
    from pyspark.sql import SparkSession

    from moldau.pipeline.spark_session import ROCKSDB

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


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
