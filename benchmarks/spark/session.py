"""One Spark session that measures what it is told to, line by line; runs as a program of its own.

It must work on Spark 4.0 and later and import nothing of Moldau: the session with Spark's own connector has only that.

    {"do": "read", "topic": ...}                          -> {"seconds": ..., "cpu": ...}
    {"do": "write", "topic": ..., "rows": ..., ...}       -> {"seconds": ..., "cpu": ...}
    {"do": "stream", "topic": ..., "target": ..., ...}    -> {"milliseconds": [...]}, and how a micro-batch's files
        are written: as `moldau run` has Spark write them ("quick"), and with checksums or without

`cpu` is what the session's processes used, in seconds: on a machine that others use too it tells more than the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

CORES = 2
# Newer versions of Spark write a second file, a checksum, beside every file of a checkpoint.
CHECKSUMS = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
CHECKPOINT_WRITER, QUICK_WRITER = (
    "spark.sql.streaming.checkpointFileManagerClass",
    "FileSystemBasedCheckpointFileManager",
)
# What docs/spark.md advises for speed. Both sessions have it; Spark's own connector has no way to Python to shorten.
ADVISED = {
    "spark.sql.execution.arrow.maxBytesPerBatch": "1m",
    "spark.python.unix.domain.socket.enabled": "true",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("format")
    parser.add_argument("servers")
    parser.add_argument("--jars", default="")
    arguments = parser.parse_args()
    builder = (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.jars", arguments.jars)
    )
    for name, value in ADVISED.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    session = Session(spark, arguments.format, arguments.servers)
    answer({"version": spark.version})
    for line in sys.stdin:
        asked = json.loads(line)
        answer(getattr(session, asked.pop("do"))(**asked))
    spark.stop()


def answer(result: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


def timed(work: Callable[[], None]) -> dict[str, float]:
    began, used = time.perf_counter(), cpu_seconds()
    work()
    return {"seconds": time.perf_counter() - began, "cpu": cpu_seconds() - used}


def cpu_seconds() -> float:
    """Processor time of every process below this one (the virtual machine and its Python workers), living or ended."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            fields = (directory / "stat").read_text().rpartition(") ")[2].split()
        except OSError:
            continue  # it has just ended
        parents[int(directory.name)] = int(fields[1])
        ticks[int(directory.name)] = sum(map(int, fields[11:15]))
    family = {os.getpid()}
    while True:
        more = {child for child, parent in parents.items() if parent in family} - family
        if not more:
            break
        family |= more
    return sum(ticks.get(each, 0) for each in family - {os.getpid()}) / os.sysconf("SC_CLK_TCK")


class Session:
    def __init__(self, spark: SparkSession, form: str, servers: str) -> None:
        self._spark = spark
        self._format = form
        self._servers = servers

    def read(self, topic: str) -> dict[str, Any]:
        """Every row of a topic, to a sink that drops it."""
        reader = self._spark.read.format(self._format).option("kafka.bootstrap.servers", self._servers)
        frame = reader.option("subscribe", topic).load()
        return timed(frame.write.format("noop").mode("overwrite").save)

    def write(self, topic: str, rows: int, size: int, codec: str, exactly_once: bool) -> dict[str, Any]:
        value = f"concat(lpad(cast(id as string), 10, '0'), repeat('x', {size - 10}))"
        frame = self._spark.range(rows, numPartitions=CORES).selectExpr(
            "cast(id as string) as key", f"{value} as value"
        )
        writer = frame.write.format(self._format).option("kafka.bootstrap.servers", self._servers)
        writer = writer.option("topic", topic).option("kafka.compression.type", codec).mode("append")
        if exactly_once:
            writer = writer.option("deliveryGuarantee", "exactly-once")
        return timed(writer.save)

    def stream(self, topic: str, target: str, per_batch: int, quick: bool, checksums: bool) -> dict[str, Any]:
        """Copy a topic in micro-batches; how long each took, from its trigger to its commit."""
        self._spark.conf.set(CHECKSUMS, str(checksums).lower())
        if quick:
            self._spark.conf.set(CHECKPOINT_WRITER, self._quick_writer())
        else:
            self._spark.conf.unset(CHECKPOINT_WRITER)
        checkpoint = tempfile.mkdtemp(prefix="spark-benchmark-")
        try:
            reader = self._spark.readStream.format(self._format).option("kafka.bootstrap.servers", self._servers)
            reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
            frame = reader.option("maxOffsetsPerTrigger", str(per_batch)).load().select("key", "value")
            writer = frame.writeStream.format(self._format).option("kafka.bootstrap.servers", self._servers)
            writer = writer.option("topic", target).option("checkpointLocation", checkpoint)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination(600)
            batches = [each for each in query.recentProgress if each["numInputRows"]]
            return {"milliseconds": [each["durationMs"]["triggerExecution"] for each in batches]}
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)

    def _quick_writer(self) -> str:
        where = "org.apache.spark.sql.execution.streaming."
        # It has moved after 4.0.
        return where + ("" if self._spark.version.startswith("4.0.") else "checkpointing.") + QUICK_WRITER


if __name__ == "__main__":
    main()
