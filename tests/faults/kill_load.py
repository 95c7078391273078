"""Load for a node that is killed again and again, and the judgement afterwards.

Writers number their records per partition and remember what was acknowledged and at which offset; a reader looks on
all the time. In the end everything is read back and compared: with what was acknowledged, with what the reader was
shown on the way, and with the files themselves.
"""

from __future__ import annotations

import random
import threading
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka
from confluent_kafka import TopicPartition

from moldau.testing import Cluster
from tests.faults.raw_logs import DamagedLog, partition_directories, read_batches

DRAIN_SECONDS_MAX = 60.0


@dataclass(frozen=True)
class Stream:
    """One topic, how it is written to, and with which settings it was created."""

    topic: str
    codec: str = "none"
    idempotent: bool = True
    acks: str = "all"
    partitions: int = 3
    # 0: records have no key; otherwise keys repeat after that many records, for compaction.
    keys: int = 0
    # The largest value; the smallest is a few bytes.
    bytes_max: int = 1500
    # A producer without idempotence may overtake itself when the leader changes: two connections, a request on each.
    in_order: bool = True
    config: dict[str, str] = field(default_factory=dict, hash=False)

    @property
    def compacted(self) -> bool:
        return "compact" in self.config.get("cleanup.policy", "")


def value_of(stream: Stream, partition: int, number: int) -> bytes:
    """The record's value: its number, and padding that anybody can compute again."""
    head = f"{stream.topic}/{partition}/{number}/".encode()
    size = zlib.crc32(head) % stream.bytes_max
    return head + (head * (size // len(head) + 1))[:size]


def number_of(value: bytes) -> int:
    return int(value.split(b"/", 3)[2])


class History:
    """What one writer was told: per partition, the number of each acknowledged record and its offset."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(stream.partitions)]
        self.failures: list[str] = []


class Writer:
    """Writes numbered records to one stream until told to stop."""

    def __init__(self, servers: str, stream: Stream, rate: float, seed: int) -> None:
        self.stream = stream
        self.history = History(stream)
        self.sent = [0] * stream.partitions
        self._rate = rate
        self._random = random.Random(seed)
        self._stop = threading.Event()
        settings: dict[str, object] = {
            "bootstrap.servers": servers,
            "compression.type": stream.codec,
            "enable.idempotence": stream.idempotent,
            "acks": stream.acks,
            "linger.ms": 3,
            "message.timeout.ms": 120_000,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            "socket.timeout.ms": 10_000,
            "log_level": 2,
            "enable.metrics.push": False,
        }
        if not stream.idempotent:
            # Retries of several requests in flight may overtake each other; one at a time keeps the order.
            settings["max.in.flight.requests.per.connection"] = 1
        self._producer = confluent_kafka.Producer(settings)
        self._thread = threading.Thread(target=self._run, name=f"writer-{stream.topic}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        pause = 0.01
        each = max(1, int(self._rate * pause))
        while not self._stop.is_set():
            for _ in range(each):
                self._send(self._random.randrange(self.stream.partitions))
            self._producer.poll(pause)

    def _send(self, partition: int) -> None:
        number = self.sent[partition]
        key = None if not self.stream.keys else str(number % self.stream.keys)
        try:
            self._producer.produce(
                self.stream.topic,
                value=value_of(self.stream, partition, number),
                key=key,
                partition=partition,
                on_delivery=lambda error, message: self._delivered(partition, number, error, message),
            )
        except BufferError:
            return
        self.sent[partition] = number + 1

    def _delivered(self, partition: int, number: int, error: object, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.history.failures.append(f"{self.stream.topic}-{partition} record {number}: {error}")
        else:
            self.history.acknowledged[partition][number] = message.offset()

    def stop(self) -> None:
        """Stop sending and wait until everything sent was answered."""
        self._stop.set()
        self._thread.join(10)
        try:
            left = self._producer.flush(DRAIN_SECONDS_MAX)
        except (confluent_kafka.KafkaException, SystemError) as error:
            # A producer that has given up for good says so whenever it is asked.
            self.history.failures.append(f"{self.stream.topic}: {error.__cause__ or error}")
            return
        if left:
            self.history.failures.append(f"{self.stream.topic}: {left} records were never answered")


class Onlooker:
    """Reads every stream from the beginning while the node comes and goes, and remembers what it was shown."""

    def __init__(self, servers: str, streams: list[Stream]) -> None:
        self.seen: dict[tuple[str, int], dict[int, bytes]] = {
            (stream.topic, index): {} for stream in streams for index in range(stream.partitions)
        }
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._consumer = _consumer(servers)
        self._consumer.assign([TopicPartition(topic, index, 0) for topic, index in self.seen])
        self._thread = threading.Thread(target=self._run, name="onlooker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(1000, timeout=0.1):
                if message.error() is not None:
                    if message.error().code() == confluent_kafka.KafkaError._BAD_MSG:
                        self.failures.append(f"the reader was given damaged records: {message.error()}")
                    continue
                shown = self.seen[message.topic(), message.partition()]
                before = shown.setdefault(message.offset(), message.value())
                if before != message.value():
                    self.failures.append(f"two values at offset {message.offset()} of {message.topic()}")

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10)
        self._consumer.close()


def _consumer(servers: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
            "auto.offset.reset": "error",
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "fetch.wait.max.ms": 50,
            "log_level": 2,
            "enable.metrics.push": False,
        }
    )


@dataclass
class Verdict:
    """What one run showed."""

    acknowledged: int = 0
    duplicates: int = 0
    # Without compacted topics, where less is stored than was written.
    stored: int = 0
    problems: list[str] = field(default_factory=list)


def judge(cluster: Cluster, histories: list[History], onlooker: Onlooker) -> Verdict:
    """Read everything back from the running node and compare."""
    verdict = Verdict()
    for history in histories:
        verdict.problems += history.failures
        stream = history.stream
        for index in range(stream.partitions):
            stored = read_partition(cluster.bootstrap_servers, stream.topic, index)
            compare(verdict, history, index, stored, onlooker.seen[stream.topic, index])
    verdict.problems += onlooker.failures
    return verdict


def read_partition(servers: str, topic: str, index: int) -> dict[int, bytes]:
    """Every record of a partition by its offset, with its checksum verified by the client."""
    consumer = _consumer(servers)
    try:
        start, end = consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=20)
        consumer.assign([TopicPartition(topic, index, start)])
        stored: dict[int, bytes] = {}
        deadline = time.monotonic() + 30
        position = start
        while position < end and time.monotonic() < deadline:
            for message in consumer.consume(5000, timeout=0.2):
                assert message.error() is None, message.error()
                assert message.offset() not in stored, "one offset was served twice"
                stored[message.offset()] = message.value()
            position = max(position, *(p.offset for p in consumer.position([TopicPartition(topic, index)])))
        assert position >= end, f"{topic}-{index} ends at {end}, but nothing more than {position} could be read"
        return stored
    finally:
        consumer.close()


def compare(verdict: Verdict, history: History, index: int, stored: dict[int, bytes], seen: dict[int, bytes]) -> None:
    """One partition: what is stored against what was acknowledged and against what a reader was shown on the way."""
    stream = history.stream
    name = f"{stream.topic}-{index}"
    verdict.stored += 0 if stream.compacted else len(stored)
    verdict.acknowledged += len(history.acknowledged[index])
    offsets = sorted(stored)
    if not stream.compacted and offsets != list(range(len(offsets))):
        verdict.problems.append(f"{name}: offsets have gaps")
    changed = [o for o in offsets if stored[o] != value_of(stream, index, number_of(stored[o]))]
    if changed:
        verdict.problems.append(f"{name}: {len(changed)} records are not what was sent, e.g. at {changed[:5]}")
    if stream.compacted:
        _compare_newest(verdict, name, history, index, stored)
        gone = [offset for offset, value in seen.items() if stored.get(offset, value) != value]
    else:
        _compare_all(verdict, name, history, index, stored)
        gone = [offset for offset, value in seen.items() if stored.get(offset) != value]
    if gone:
        verdict.problems.append(f"{name}: {len(gone)} records that were served are gone or others, e.g. {gone[:5]}")


def _compare_all(verdict: Verdict, name: str, history: History, index: int, stored: dict[int, bytes]) -> None:
    acknowledged = history.acknowledged[index]
    lost = [n for n, offset in acknowledged.items() if offset not in stored or number_of(stored[offset]) != n]
    if lost:
        verdict.problems.append(f"{name}: {len(lost)} acknowledged records are not where they were, e.g. {lost[:5]}")
    numbers = [number_of(stored[offset]) for offset in sorted(stored)]
    first_seen = list(dict.fromkeys(numbers))
    duplicates = len(numbers) - len(first_seen)
    verdict.duplicates += duplicates
    if history.stream.in_order and first_seen != sorted(first_seen):
        verdict.problems.append(f"{name}: records are out of order")
    if sorted(first_seen) != list(range(len(first_seen))):
        verdict.problems.append(f"{name}: there are records missing in between")
    if history.stream.idempotent and duplicates:
        verdict.problems.append(f"{name}: {duplicates} duplicates of an idempotent producer")


def _compare_newest(verdict: Verdict, name: str, history: History, index: int, stored: dict[int, bytes]) -> None:
    """Of a compacted topic at least the newest acknowledged record of every key must be there, or a newer one."""
    keys = history.stream.keys
    newest: dict[int, int] = {}
    for offset in sorted(stored):
        number = number_of(stored[offset])
        if number < newest.get(number % keys, -1):
            verdict.problems.append(f"{name}: an older record of a key comes after a newer one")
        newest[number % keys] = number
    wanted: dict[int, int] = {}
    for number in history.acknowledged[index]:
        wanted[number % keys] = max(number, wanted.get(number % keys, -1))
    lost = [key for key, number in wanted.items() if newest.get(key, -1) < number]
    if lost:
        verdict.problems.append(f"{name}: the newest acknowledged record of {len(lost)} keys is missing")


def judge_files(data_dir: Path, streams: list[Stream], verdict: Verdict) -> None:
    """Read the files of the stopped node: whole batches in order and nothing else."""
    on_disk = 0
    for stream in streams:
        for directory in partition_directories(data_dir, stream.topic):
            try:
                batches = read_batches(directory, compacted=stream.compacted)
            except DamagedLog as error:
                verdict.problems.append(str(error))
                continue
            on_disk += 0 if stream.compacted else sum(batch.records for batch in batches)
    if on_disk != verdict.stored:
        verdict.problems.append(f"the files hold {on_disk} records, {verdict.stored} were served")
