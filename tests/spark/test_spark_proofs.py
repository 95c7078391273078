"""Small versions of `python -m tests.faults.spark_run`: kills, a real Spark cluster, memory, many partitions."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from moldau.testing import Cluster
from tests.faults import spark_run

pytestmark = pytest.mark.timeout(900)

needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17")


@pytest.mark.long
@needs_java
def test_a_pipeline_survives_what_is_killed(tmp_path: Path) -> None:
    report = spark_run.run(4000, 3, seed=8, data_dir=tmp_path, seconds_max=600)
    assert report.problems == []
    assert report.kills == {spark_run.WORKER: 1, spark_run.DRIVER: 1, spark_run.BROKER: 1}


@pytest.mark.long
@pytest.mark.longest
@needs_java
@pytest.mark.slow
def test_a_spark_cluster_survives_the_loss_of_a_worker(tmp_path: Path) -> None:
    report = spark_run.run_standalone(4000, data_dir=tmp_path, seconds_max=600, batches=8)
    assert report.problems == []


def test_the_memory_of_a_reader_does_not_depend_on_the_backlog(spark: Any) -> None:
    with Cluster() as cluster:
        small, large = spark_run.memory_of_two_backlogs(spark, cluster, 6)
    assert large - small < 24e6


def test_a_thousand_partitions_are_planned_in_less_than_a_second() -> None:
    with Cluster() as cluster:
        assert max(spark_run.planning_seconds(cluster, 1000).values()) < 1


def test_every_kind_of_process_is_killed() -> None:
    order = spark_run.order_of_kills(5, random.Random(1))
    assert len(order) == 5
    assert set(order) == {spark_run.WORKER, spark_run.DRIVER, spark_run.BROKER}
