"""Spark's own `format("kafka")`, unchanged, against a node of ours: it reads, it writes, it streams.

It needs Spark 4.0.0 with its connector's jars, half a gigabyte that `python -m benchmarks.spark` fetches once (or this
test, with MOLDAU_FETCH_SPARK=1 in the environment).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.spark import stock_spark

from moldau.testing import Cluster
from tests.spark.world import read_values, settings_for

pytestmark = [pytest.mark.java, pytest.mark.long]

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession

servers, source, target, streamed, checkpoint, jars = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.jars", jars)
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "2").getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
options = {"kafka.bootstrap.servers": servers}
rows = spark.range(500).selectExpr("cast(id as string) as key", "cast(id as string) as value")
rows.write.format("kafka").options(**options, topic=source).save()
read = spark.read.format("kafka").options(**options, subscribe=source, includeHeaders="true").load()
read.select("key", "value").write.format("kafka").options(**options, topic=target).save()
stream = spark.readStream.format("kafka").options(**options, subscribe=source, startingOffsets="earliest").load()
query = (
    stream.select("key", "value").writeStream.format("kafka").options(**options, topic=streamed)
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
)
query.awaitTermination(300)
partitions = sorted(row.partition for row in read.select("partition").distinct().collect())
print(json.dumps({"rows": read.count(), "partitions": partitions}))
spark.stop()
"""


def test_it_reads_writes_and_streams(moldau_cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path) -> None:
    if not stock_spark.is_there():
        if os.environ.get("MOLDAU_FETCH_SPARK") != "1":
            pytest.skip("Spark 4.0.0 with its connector is not there: python -m benchmarks.spark fetches it")
        stock_spark.fetch()
    source, target, streamed = new_topic(3), new_topic(2), new_topic(2)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    python = str(stock_spark.python())
    done = subprocess.run(
        [
            python,
            str(program),
            moldau_cluster.bootstrap_servers,
            source,
            target,
            streamed,
            str(tmp_path / "checkpoint"),
            ",".join(stock_spark.jars()),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYSPARK_PYTHON": python},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"rows": 500, "partitions": [0, 1, 2]}
    client = settings_for(moldau_cluster.bootstrap_servers)
    expected = sorted(str(number) for number in range(500))
    assert read_values(client, target, 2) == expected
    assert read_values(client, streamed, 2) == expected
