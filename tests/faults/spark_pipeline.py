"""The pipeline that `spark_run` breaks: counts and sums of a topic by key and window, written to another exactly once.

    python -m tests.faults.spark_pipeline --servers ... --checkpoint ... [--master spark://...]

It runs until it is stopped or a query fails, whichever comes first: whoever started it starts it again.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

SOURCE, TARGET = "measurements", "sums"
PARTITIONS = 4
WINDOW_SECONDS = 10
# Event time between two records.
STEP_MS = 10
KEYS = 50
# How far micro-batches may run ahead of each other's event time without losing anything.
WATERMARK = "60 seconds"


def event_time_ms(number: int) -> int:
    return number * STEP_MS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.spark_pipeline", description=__doc__)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--master", default="local[2,8]")
    parser.add_argument("--per-batch", type=int, default=20_000)
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    query = start(new_session(arguments.master), arguments.servers, arguments.checkpoint, arguments.per_batch)
    query.awaitTermination()


def new_session(master: str) -> Any:
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.executor.memory", "600m")
        .config("spark.executor.cores", "1")
        .config("spark.cores.max", "2")
        .config("spark.task.maxFailures", "8")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
    )
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def start(spark: Any, servers: str, checkpoint: str, per_batch: int) -> Any:
    """The streaming query; its records are `<event time in ms>,<number>`."""
    options = {"kafka.bootstrap.servers": servers}
    records = (
        spark.readStream.format("moldau")
        .options(**options, subscribe=SOURCE, startingOffsets="earliest", maxOffsetsPerTrigger=str(per_batch))
        .load()
        .selectExpr(
            "cast(key as string) as name",
            "timestamp_millis(cast(split_part(cast(value as string), ',', 1) as bigint)) as at",
            "cast(split_part(cast(value as string), ',', 2) as bigint) as number",
        )
    )
    from pyspark.sql.functions import count, window
    from pyspark.sql.functions import sum as total_of

    sums = (
        records.withWatermark("at", WATERMARK)
        .groupBy(window("at", f"{WINDOW_SECONDS} seconds"), "name")
        .agg(count("*").alias("records"), total_of("number").alias("total"))
    )
    results = sums.selectExpr(
        "concat(unix_seconds(window.start), '/', name) as key",
        "concat(unix_seconds(window.start), '/', name, '=', records, '/', total) as value",
    )
    writer = results.writeStream.format("moldau").options(**options, topic=TARGET, checkpointLocation=checkpoint)
    return writer.outputMode("append").start()


if __name__ == "__main__":
    main()
