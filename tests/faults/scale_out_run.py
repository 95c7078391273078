"""One broker grows to three and to five while clients work; everything moves, and the first broker leaves for good.

`python -m tests.faults.scale_out_run [--seconds 60] [--partitions 24]` runs it at length and prints what happened;
`test_scale_out.py` runs it briefly. Nothing may reach the clients but what they repeat by themselves: every record is
acknowledged, and read once, in order.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO

from confluent_kafka import Consumer, KafkaError, Message, Producer

from moldau.cli.kafka import cluster as cluster_tool
from moldau.cli.kafka import metadata_quorum
from moldau.cli.main import main as moldau
from moldau.client.admin import Admin
from moldau.client.admin.cluster import describe_cluster, describe_quorum
from moldau.client.admin.configs import ResourceType, alter_configs
from moldau.client.admin.reassignments import all_reassignments, reassign
from moldau.client.admin.topics import create_topic, describe_topics, list_topics
from moldau.protocol.uuids import uuid_to_string
from moldau.testing.nodes import NodeCluster

TOPIC = "orders"
GROUP = "readers"
PATIENCE_SECONDS = 120.0
SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "broker.session.timeout.ms": "9000",
    "num.recovery.threads.per.data.dir": "1",
}


@dataclass
class Report:
    acknowledged: int = 0
    read: int = 0
    longest_pause_seconds: float = 0.0
    """The longest time without an acknowledgement."""
    pause_of_step: float = 0.0
    errors: list[str] = field(default_factory=list)
    steps: list[tuple[str, float]] = field(default_factory=list)


class Load:
    """A producer and a consumer that work until they are told to stop, and note whatever they are told."""

    def __init__(self, servers: str, partitions: int, report: Report) -> None:
        self._servers = servers
        self._partitions = partitions
        self._report = report
        self._stop = threading.Event()
        self._written = [0] * partitions
        self._acknowledged: list[list[int]] = [[] for _ in range(partitions)]
        self._read: list[list[int]] = [[] for _ in range(partitions)]
        self._last_ack = 0.0
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._last_ack and time.monotonic() < deadline:
            time.sleep(0.01)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive(), "a client does not come to an end"
        self._report.acknowledged = sum(map(len, self._acknowledged))
        self._report.read = sum(map(len, self._read))

    def _complain(self, error: KafkaError) -> None:
        if error.fatal() or not (error.retriable() or error.code() < 0):
            self._report.errors.append(f"{error.name()}: {error.str()}")

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "error_cb": self._complain,
            }
        )
        while not self._stop.is_set():
            for partition in range(self._partitions):
                number = self._written[partition]
                producer.produce(TOPIC, b"%d" % number, partition=partition, on_delivery=self._delivered)
                self._written[partition] += 1
            producer.poll(0.02)
        if producer.flush(PATIENCE_SECONDS):
            self._report.errors.append("the producer could not send everything")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._report.errors.append(f"not acknowledged: {error}")
            return
        now = time.monotonic()
        report = self._report
        report.pause_of_step = max(report.pause_of_step, now - (self._last_ack or now))
        report.longest_pause_seconds = max(report.longest_pause_seconds, report.pause_of_step)
        self._last_ack = now
        self._acknowledged[message.partition()].append(int(message.value()))

    def _consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
                "error_cb": self._complain,
            }
        )
        consumer.subscribe([TOPIC])
        last_news = time.monotonic()
        # Reads to the end of what was written, then stops.
        while not (self._stop.is_set() and self._has_read_all()):
            message = consumer.poll(0.2)
            if message is None:
                if self._stop.is_set() and time.monotonic() - last_news > PATIENCE_SECONDS / 2:
                    self._report.errors.append("the consumer does not get everything")
                    break
                continue
            last_news = time.monotonic()
            error = message.error()
            if error is None:
                self._read[message.partition()].append(int(message.value()))
            else:
                self._complain(error)
        consumer.close()

    def _has_read_all(self) -> bool:
        return all(read and read[-1] >= written - 1 for read, written in zip(self._read, self._written, strict=True))

    def check(self) -> list[str]:
        """What is wrong with what was read."""
        wrong = []
        for partition, (sent, read) in enumerate(zip(self._acknowledged, self._read, strict=True)):
            if sent != sorted(set(sent)):
                wrong.append(f"partition {partition}: acknowledged out of order or twice")
            if sorted(set(read)) != sent:
                wrong.append(f"partition {partition}: {len(set(sent) - set(read))} acknowledged records were not read")
            # A consumer that commits now and then may read something again after its group has moved; never out of
            # order within what it reads in one go, and never something that is not there.
            if set(read) - set(range(self._written[partition])):
                wrong.append(f"partition {partition}: records that nobody wrote")
        return wrong


class ScaleOut:
    def __init__(self, *, partitions: int, seconds_between: float, say: Callable[[str], None]) -> None:
        self._partitions = partitions
        self._pause = seconds_between
        self._say = say
        self.report = Report()

    def run(self) -> Report:
        with NodeCluster(combined=1, dynamic=True, config=SETTINGS) as cluster:
            with self._admin(cluster) as admin:
                create_topic(admin, TOPIC, partitions=self._partitions, replication_factor=1)
            load = Load(cluster.bootstrap_servers, self._partitions, self.report)
            load.start()
            try:
                self._grow_and_shrink(cluster)
            finally:
                load.stop()
            self.report.errors += load.check()
            self._check_the_end(cluster)
        return self.report

    def _grow_and_shrink(self, cluster: NodeCluster) -> None:
        with self._step("one broker works"):
            time.sleep(self._pause)
        with self._step("two more brokers join, and the quorum is three controllers"):
            cluster.add(controller=True)
            cluster.add(controller=True)
            self._eventually(cluster, lambda admin: len(describe_quorum(admin).voters) == 3)
        with self._step("every partition gets three replicas"):
            self._replicate(cluster, [1, 2, 3])
        with self._step("two more brokers join"):
            cluster.add()
            cluster.add()
            self._eventually(cluster, lambda admin: len(describe_cluster(admin).brokers) == 5)
        with self._step("replicas and leaders are spread over five brokers"):
            self._command(cluster, "rebalance", "--execute", "--at-once", "8")
            time.sleep(self._pause)
        with self._step("the first broker is drained"):
            self._command(cluster, "drain", "1", "--execute", "--at-once", "8")
        with self._step("it leaves the quorum, stops, and is forgotten"):
            self._remove_first(cluster)
        with self._step("the others work on"):
            time.sleep(self._pause)

    @contextmanager
    def _step(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        self.report.pause_of_step = 0.0
        yield
        took = time.monotonic() - began
        self.report.steps.append((what, took))
        self._say(f"{took:6.1f} s  {what} (longest time without an acknowledgement {self.report.pause_of_step:.2f} s)")

    def _admin(self, cluster: NodeCluster) -> Admin:
        return Admin(_servers(cluster), {}, patient=True)

    def _eventually(self, cluster: NodeCluster, condition: Callable[[Admin], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._admin(cluster) as admin:
            while not condition(admin):
                assert time.monotonic() < deadline, "it did not happen in time"
                time.sleep(0.1)

    def _replicate(self, cluster: NodeCluster, nodes: list[int]) -> None:
        with self._admin(cluster) as admin:
            topics = describe_topics(admin, [each.name for each in list_topics(admin)])
            targets = {
                (topic.name, each.index): nodes[each.index % len(nodes) :] + nodes[: each.index % len(nodes)]
                for topic in topics
                for each in topic.partitions
            }
            assert reassign(admin, targets) == {}
        self._eventually(cluster, lambda admin: not all_reassignments(admin))
        with self._admin(cluster) as admin:
            alter_configs(admin, ResourceType.TOPIC, TOPIC, set_to={"min.insync.replicas": "2"})

    def _command(self, cluster: NodeCluster, *argv: str) -> None:
        output = StringIO()
        with redirect_stdout(output), redirect_stderr(output):
            code = moldau(["cluster", *argv, "-b", _servers(cluster)])
        assert code == 0, output.getvalue()

    def _remove_first(self, cluster: NodeCluster) -> None:
        with self._admin(cluster) as admin:
            [voter] = [each for each in describe_quorum(admin).voters if each.node_id == 1]
        directory = uuid_to_string(voter.directory_id)
        servers = ["--bootstrap-server", _servers(cluster)]
        with redirect_stdout(StringIO()):
            removal = ["remove-controller", "--controller-id", "1", "--controller-directory-id", directory]
            assert metadata_quorum.main([*servers, *removal]) == 0
            cluster.nodes[1].stop()
            assert cluster_tool.main(["unregister", *servers[:1], _servers(cluster), "--id", "1"]) == 0

    def _check_the_end(self, cluster: NodeCluster) -> None:
        with self._admin(cluster) as admin:
            brokers = [each.node_id for each in describe_cluster(admin, fenced=True).brokers]
            found = describe_topics(admin, [each.name for each in list_topics(admin)])
        if brokers != [2, 3, 4, 5]:
            self.report.errors.append(f"brokers at the end: {brokers}")
        for topic in found:
            for each in topic.partitions:
                if 1 in each.replicas or len(each.replicas) != 3:
                    self.report.errors.append(f"{topic.name}-{each.index} is on {each.replicas}")
        cluster.wait_until_in_sync()
        self._command(cluster, "verify")


def _servers(cluster: NodeCluster) -> str:
    """Of the brokers that run: tools shall not try those that left."""
    running = [node for node in cluster.nodes.values() if node.is_running and node.is_broker]
    return ",".join(f"{host}:{port}" for host, port in (node.addresses[0] for node in running))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="roughly how long the clients work")
    parser.add_argument("--partitions", type=int, default=24)
    arguments = parser.parse_args()
    run = ScaleOut(partitions=arguments.partitions, seconds_between=arguments.seconds / 3, say=print)
    report = run.run()
    print(
        f"{report.acknowledged} records acknowledged, {report.read} read; "
        f"longest time without an acknowledgement {report.longest_pause_seconds:.2f} s"
    )
    for error in report.errors:
        print(f"WRONG: {error}")
    return 1 if report.errors else 0


if __name__ == "__main__":
    sys.exit(main())
