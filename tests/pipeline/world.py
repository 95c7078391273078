"""Topics from outside, and runs of programs on a session that is there already."""

from __future__ import annotations

import json
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.pipeline.progress import Board, QueryStatus
from moldau.pipeline.runner import Run, RunSettings
from moldau.pipeline.supervision import RestartPolicy

PATIENCE = 90.0
# Spark gives a Python process ten seconds to start, which can be too little on a busy machine: then a query is started
# again, as it should be.
QUICK = RestartPolicy(first_seconds=0.1, longest_seconds=1.0, most_attempts=20)


@dataclass
class Outcome:
    """What a run said, how it ended, and its queries at the end."""

    code: int
    said: list[str]
    queries: dict[str, QueryStatus]

    @property
    def words(self) -> str:
        return "\n".join(self.said)


@dataclass
class Stage:
    """A session, a cluster, and a directory for programs and checkpoints."""

    spark: Any
    bootstrap: str
    directory: Path
    options: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.options = {"kafka.bootstrap.servers": self.bootstrap}

    def program(self, text: str, name: str = "app.py") -> Path:
        path = self.directory / name
        path.write_text(textwrap.dedent(text))
        return path

    def run(
        self,
        program: Path,
        *arguments: str,
        name: str | None = None,
        listen: Callable[[str], None] = lambda _: None,
    ) -> Outcome:
        """Run a program until nothing is left to read; `listen` hears what it says."""
        said: list[str] = []

        def say(text: str) -> None:
            said.append(text)
            print(text)
            listen(text)

        settings = RunSettings(
            program=program,
            options=self.options,
            # Ids of transactions are the cluster's, which all tests share.
            name=name or f"{self.directory.name}-{program.stem}",
            checkpoints=str(self.directory / "checkpoints"),
            once=True,
            policy=QUICK,
            arguments=arguments,
        )
        run = Run(settings, say, self.spark)
        # A program takes the place of the one that started it; here that is pytest, which goes on afterwards.
        kept = sys.modules["__main__"], list(sys.argv), list(sys.path)
        try:
            code = run.execute(_wait)
        finally:
            sys.modules["__main__"], sys.argv[:], sys.path[:] = kept
        return Outcome(code, said, {each.name: each for each in run.board.snapshot()})


def _wait(_: Board, over: threading.Event) -> None:
    over.wait()


def produce(bootstrap: str, topic: str, records: Iterable[tuple[Any, Any]], **more: Any) -> None:
    """Send (key, value) pairs; dictionaries as JSON."""
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for key, value in records:
        data = json.dumps(value) if isinstance(value, dict) else value
        producer.produce(topic, key=key, value=data, **more)
    assert producer.flush(60) == 0


def consume(bootstrap: str, topic: str) -> list[tuple[str | None, Any]]:
    """All committed records of a topic as (key, value), partition after partition; JSON values as what they mean."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tests-pipeline",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = sorted(consumer.list_topics(topic, 30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
        found: dict[int, list[tuple[str | None, Any]]] = {index: [] for index in partitions}
        at_end: set[int] = set()
        deadline = time.monotonic() + PATIENCE
        while len(at_end) < len(partitions):
            assert time.monotonic() < deadline, f"{topic} could not be read to its end"
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error():
                at_end.add(message.partition())
                continue
            key, value = message.key(), message.value()
            found[message.partition()].append((key.decode() if key else None, _meaning(value)))
        return [record for index in partitions for record in found[index]]
    finally:
        consumer.close()


def _meaning(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return json.loads(value)
    except ValueError:
        return value.decode()
