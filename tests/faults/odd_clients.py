"""Clients that do what no good client does, over the wire, and what each is told.

Delayed and repeated ends of transactions, zombies with old epochs, members that freeze, a leader that never syncs, and
a thousand members at once. Every scenario returns a transcript: what was done, and the answer. The same scenarios ran
against Apache Kafka; `kafka_answers.json` holds what it said, and Moldau must say the same.

    python -m tests.faults.odd_clients           # on Moldau, compared with the file
    python -m tests.faults.odd_clients --kafka   # on Apache Kafka, to write the file anew
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from moldau.protocol.generated.wire.create_topics_request import CreatableTopic, CreateTopicsRequest
from moldau.protocol.generated.wire.end_txn_request import EndTxnRequest
from moldau.protocol.generated.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.generated.wire.find_coordinator_request import FindCoordinatorRequest
from moldau.protocol.generated.wire.init_producer_id_request import InitProducerIdRequest
from moldau.protocol.generated.wire.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.records.batch import iter_batches
from moldau.records.builder import build_batch
from moldau.records.record import Record, read_records
from moldau.testing import Cluster
from tests.faults import odd_members
from tests.security.wire_client import ask

ANSWERS = Path(__file__).parent / "kafka_answers.json"
# Short sessions, which no default allows.
NODE = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "auto.create.topics.enable": "false",
}
TRANSACTION_KEY = 1
NOT_NOW = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
SECONDS_MAX = 30.0
DESCRIPTORS = 16_384

Transcript = list[str]


def patiently(attempt: Callable[[], tuple[ErrorCode, Any]]) -> tuple[ErrorCode, Any]:
    """As every client does: again, while the answer is that it is not the time yet."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        code, answer = attempt()
        if code not in NOT_NOW or time.monotonic() > deadline:
            return code, answer
        time.sleep(0.02)


class OddProducer:
    """A transactional producer that sends whatever it is told to, with any id and epoch."""

    def __init__(self, servers: str, transactional_id: str, topic: str, *, new_flow: bool) -> None:
        self._servers = servers
        self._name = transactional_id
        self._topic = topic
        self._new_flow = new_flow
        self._sequences: dict[tuple[int, int], int] = {}
        found = FindCoordinatorRequest(key_type=TRANSACTION_KEY, coordinator_keys=[transactional_id])
        patiently(lambda: self._first(ask(servers, found, 4).coordinators[0]))
        self.id, self.epoch = self.init()

    @staticmethod
    def _first(answer: Any) -> tuple[ErrorCode, Any]:
        return ErrorCode(answer.error_code), answer

    def init(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=60_000)
        code, answer = patiently(lambda: self._first(ask(self._servers, request, 5)))
        assert code is ErrorCode.NONE, code
        return answer.producer_id, answer.producer_epoch

    def add(self, epoch: int | None = None) -> ErrorCode:
        topics = [AddPartitionsToTxnTopic(name=self._topic, partitions=[0])]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch if epoch is None else epoch,
            v3_and_below_topics=topics,
        )

        def attempt() -> tuple[ErrorCode, Any]:
            answer = ask(self._servers, request, 3)
            return ErrorCode(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code), None

        return patiently(attempt)[0]

    def send(self, value: bytes, epoch: int | None = None) -> ErrorCode:
        """One record; in the old flow its partition is added first."""
        epoch = self.epoch if epoch is None else epoch
        if not self._new_flow:
            added = self.add(epoch)
            if added is not ErrorCode.NONE:
                return added
        sequence = self._sequences.setdefault((self.id, epoch), 0)
        records = build_batch(
            [Record(0, int(time.time() * 1000), None, value, ())],
            producer_id=self.id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(index=0, records=records)])
        request = ProduceRequest(transactional_id=self._name, acks=-1, timeout_ms=10_000, topic_data=[data])

        def attempt() -> tuple[ErrorCode, Any]:
            answer = ask(self._servers, request, 12 if self._new_flow else 11)
            return ErrorCode(answer.responses[0].partition_responses[0].error_code), None

        code, _ = patiently(attempt)
        if code is ErrorCode.NONE:
            self._sequences[self.id, epoch] = sequence + 1
        return code

    def end(self, *, commit: bool, epoch: int | None = None) -> tuple[ErrorCode, Any]:
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=self.id,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=commit,
        )
        return patiently(lambda: self._first(ask(self._servers, request, 5 if self._new_flow else 4)))

    def commit(self) -> ErrorCode:
        """As a good client: with transactions v2 it goes on with the epoch it is told."""
        code, answer = self.end(commit=True)
        if code is ErrorCode.NONE and self._new_flow:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return code


def create(servers: str, topic: str, partitions: int = 1) -> None:
    new = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)
    code = ask(servers, CreateTopicsRequest(topics=[new], timeout_ms=30_000), 7).topics[0].error_code
    assert ErrorCode(code) in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), ErrorCode(code)
    time.sleep(0.3)  # until every broker has heard of it


def committed(servers: str, topic: str) -> list[str]:
    """The values that a reader of committed records finds."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=200,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=1,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    data = ask(servers, request, 11).responses[0].partitions[0]
    aborted = {(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()}
    hidden: set[int] = set()
    values = []
    for header in iter_batches(data.records or b""):
        if (header.producer_id, header.base_offset) in aborted:
            hidden.add(header.producer_id)
        if header.is_control:
            hidden.discard(header.producer_id)
        elif header.producer_id not in hidden:
            values += [(each.value or b"").decode() for each in read_records(data.records, header)]
    return values


# ---- transactions


def repeated_ends(servers: str, *, new_flow: bool) -> Transcript:
    """An EndTxn that arrives twice, and its opposite after it."""
    topic = f"repeated-{new_flow}"
    create(servers, topic)
    producer = OddProducer(servers, topic, topic, new_flow=new_flow)
    said = [f"send: {producer.send(b'a').name}"]
    epoch = producer.epoch
    said.append(f"commit: {producer.commit().name}")
    said.append(f"the same commit again: {producer.end(commit=True, epoch=epoch)[0].name}")
    said.append(f"abort of what is committed: {producer.end(commit=False, epoch=epoch)[0].name}")
    said.append(f"send: {producer.send(b'b').name}")
    epoch = producer.epoch
    code, answer = producer.end(commit=False)
    if new_flow:
        producer.id, producer.epoch = answer.producer_id, answer.producer_epoch
    said.append(f"abort: {code.name}")
    said.append(f"the same abort again: {producer.end(commit=False, epoch=epoch)[0].name}")
    said.append(f"commit of what is aborted: {producer.end(commit=True, epoch=epoch)[0].name}")
    said.append(f"committed: {committed(servers, topic)}")
    return said


def delayed_ends(servers: str) -> Transcript:
    """With transactions v2, an EndTxn that was under way for long finds another transaction open."""
    topic = "delayed"
    create(servers, topic)
    producer = OddProducer(servers, topic, topic, new_flow=True)
    said = [f"send: {producer.send(b'a').name}"]
    old = producer.epoch
    said.append(f"commit: {producer.commit().name}")
    said.append(f"send in the next transaction: {producer.send(b'b').name}")
    for commit in (True, False):
        code = producer.end(commit=commit, epoch=old)[0].name
        said.append(f"delayed {'commit' if commit else 'abort'} of the first: {code}")
    said.append(f"committed before the second ends: {committed(servers, topic)}")
    said.append(f"commit: {producer.commit().name}")
    said.append(f"committed: {committed(servers, topic)}")
    return said


def zombie_producer(servers: str, *, new_flow: bool) -> Transcript:
    """A producer that was away while another took over its transactional id."""
    topic = f"zombie-{new_flow}"
    create(servers, topic)
    zombie = OddProducer(servers, topic, topic, new_flow=new_flow)
    said = [f"send: {zombie.send(b'zombie').name}"]
    successor = OddProducer(servers, topic, topic, new_flow=new_flow)
    said.append(f"the successor has a later epoch: {successor.epoch > zombie.epoch}")
    said.append(f"the successor sends: {successor.send(b'successor').name}")
    said.append(f"the zombie adds: {zombie.add().name}")
    said.append(f"the zombie sends: {zombie.send(b'late').name}")
    said.append(f"the zombie commits: {zombie.end(commit=True)[0].name}")
    said.append(f"the zombie aborts: {zombie.end(commit=False)[0].name}")
    said.append(f"the successor commits: {successor.commit().name}")
    said.append(f"committed: {committed(servers, topic)}")
    return said


SCENARIOS: dict[str, Callable[[str], Transcript]] = {
    "repeated ends, old flow": lambda servers: repeated_ends(servers, new_flow=False),
    "repeated ends, transactions v2": lambda servers: repeated_ends(servers, new_flow=True),
    "delayed ends, transactions v2": delayed_ends,
    "zombie producer, old flow": lambda servers: zombie_producer(servers, new_flow=False),
    "zombie producer, transactions v2": lambda servers: zombie_producer(servers, new_flow=True),
    "zombie member, classic": lambda servers: odd_members.classic_zombie(servers, create),
    "zombie member, KIP-848": lambda servers: odd_members.next_zombie(servers, create),
    "frozen member, classic": lambda servers: odd_members.classic_frozen(servers, create),
    "frozen member, KIP-848": lambda servers: odd_members.next_frozen(servers, create),
    "leader that never syncs": lambda servers: odd_members.leader_never_syncs(servers, create),
    "1,000 members at once, classic": lambda servers: odd_members.classic_crowd(servers, 1000),
    "1,000 members at once, KIP-848": lambda servers: odd_members.next_crowd(servers, create, 1000),
}


def allow_many_connections() -> None:
    """For this process and those it starts: a thousand members have a connection each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, DESCRIPTORS)), hard))


def run_all(servers: str, only: str = "") -> dict[str, Transcript]:
    answers = {}
    for name, scenario in SCENARIOS.items():
        if only not in name:
            continue
        began = time.monotonic()
        answers[name] = scenario(servers)
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
    return answers


def on_kafka(only: str) -> dict[str, Transcript]:
    from benchmarks.brokers import KafkaBroker

    with tempfile.TemporaryDirectory() as directory:
        broker = KafkaBroker(Path(directory) / "kafka", "".join(f"{key}={value}\n" for key, value in NODE.items()))
        try:
            broker.format()
            broker.start()
            return run_all(broker.bootstrap, only)
        finally:
            broker.remove()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--only", default="", help="scenarios with this in their names")
    options = parser.parse_args()
    allow_many_connections()
    known = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
    if options.kafka:
        ANSWERS.write_text(json.dumps({**known, **on_kafka(options.only)}, indent=1) + "\n")
        return 0
    with Cluster(NODE, in_process=False) as cluster:
        answers = run_all(cluster.bootstrap_servers, options.only)
    wrong = 0
    for name in answers:
        expected = known[name]
        if answers[name] != expected:
            wrong += 1
            print(f"{name}\n  Kafka:  {expected}\n  Moldau: {answers[name]}")
    print(Counter({"as Kafka": len(answers) - wrong, "otherwise": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
