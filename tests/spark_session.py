"""One Spark session for all tests of a process that need one: starting Spark takes seconds, and holds a JVM."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with two task slots; a task may fail three times before its job does."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17")
    pytest.importorskip("pyspark", reason="Spark is not installed: make setup")
    from pyspark.sql import SparkSession

    from moldau.spark.state_store import PROVIDER, ROCKSDB

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config(PROVIDER, ROCKSDB)
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("spark-warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
