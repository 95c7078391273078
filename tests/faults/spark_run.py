"""A pipeline on Spark that must not care what dies: `python -m tests.faults.spark_run --records 1000000 --kills 20`.

Records go from a topic through a windowed aggregation to another topic while Python workers, the driver and brokers are
killed with -9 at random. What a reader of committed records finds in the end must be what is computed without any of
it: nothing missing, nothing twice. Ends with 1 otherwise.

    --standalone        a real Spark cluster (a master, two workers) runs it, and one worker is killed with all it runs
    --memory            how much a reader's Python worker takes for some backlog, and for ten times as much
    --partitions 1000   how long it takes to plan a read of that many partitions
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.testing import Cluster
from tests.faults.spark_pipeline import KEYS, PARTITIONS, SOURCE, TARGET, WINDOW_SECONDS, event_time_ms

WORKER, DRIVER, BROKER = "a Python worker", "the driver", "a broker"
# So many micro-batches for each thing that is killed: some go through between two kills, and the last thing, too, must
# be killed in the middle of something.
BATCHES_PER_KILL = 5
# A driver that ends by itself again and again has another problem than what was killed.
STARTS_MAX = 100
FAR_FUTURE_MS = 10**11
POLL_SECONDS = 0.2
NODE = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 200}


@dataclass
class Report:
    seconds: float = 0.0
    results: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    driver_starts: int = 0
    problems: list[str] = field(default_factory=list)


# ---- processes


def children_of(root: int) -> dict[int, str]:
    """Every process below one, with its command line."""
    parents: dict[int, int] = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(directory.name)] = int((directory / "stat").read_text().rpartition(") ")[2].split()[1])
        except OSError:
            continue  # it has just ended
    family = {root}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    found = {}
    for each in family - {root}:
        try:
            found[each] = Path(f"/proc/{each}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
    return found


def kill_with_children(root: int) -> None:
    """kill -9, the top first so that nothing is started again in between."""
    for each in [root, *children_of(root)]:
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            continue


class Driver:
    """The pipeline's process, started again when it has ended."""

    def __init__(self, servers: str, checkpoint: Path, per_batch: int, master: str | None) -> None:
        self._command = [sys.executable, "-m", "tests.faults.spark_pipeline", "--servers", servers]
        self._command += ["--checkpoint", str(checkpoint), "--per-batch", str(per_batch)]
        self._command += ["--master", master] if master else []
        self._checkpoint = checkpoint
        self._log = checkpoint.with_name("driver.log")
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def keep_running(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.starts += 1
            assert self.starts <= STARTS_MAX, f"the driver does not stay up: {self.last_words()}"
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            kill_with_children(self._process.pid)
            self._process.wait()
            self._process = None

    def kill_a_worker(self, chance: random.Random) -> bool:
        """One of the Python processes that run tasks; False when there is none at the moment."""
        if self._process is None:
            return False
        family = children_of(self._process.pid)
        daemons = {each for each, command in family.items() if "pyspark.daemon pyspark.worker" in command}
        workers = sorted(each for each in daemons if _parent_of(each) in daemons)
        if not workers:
            return False
        try:
            os.kill(chance.choice(workers), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    @property
    def batches(self) -> int:
        """How many micro-batches Spark has noted as done."""
        return len(list((self._checkpoint / "commits").glob("[0-9]*")))

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-3000:] if self._log.exists() else ""


def _parent_of(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()[1])
    except OSError:
        return -1


# ---- input and output


def name_of(number: int) -> str:
    return f"k{number % KEYS}"


def produce(servers: str, records: int) -> None:
    """Records in order of their event time, and in each partition a last one that closes every window before it."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "enable.idempotence": True, **QUIET})

    def put(partition: int, key: str, value: str) -> None:
        while True:
            try:
                producer.produce(SOURCE, value=value, key=key, partition=partition)
                return
            except BufferError:
                producer.poll(0.5)

    for number in range(records):
        put(number % PARTITIONS, name_of(number), f"{event_time_ms(number)},{number}")
        if number % 10_000 == 0:
            producer.poll(0)
    for partition in range(PARTITIONS):
        put(partition, "end", f"{FAR_FUTURE_MS},0")
    left = producer.flush(120)
    assert left == 0, f"{left} records were not written"


def compute_offline(records: int) -> Counter[str]:
    """What the pipeline has to write."""
    counts: Counter[tuple[int, str]] = Counter()
    totals: Counter[tuple[int, str]] = Counter()
    for number in range(records):
        seconds = event_time_ms(number) // 1000
        place = (seconds - seconds % WINDOW_SECONDS, name_of(number))
        counts[place] += 1
        totals[place] += number
    return Counter(f"{at}/{name}={count}/{totals[at, name]}" for (at, name), count in counts.items())


class Reader:
    """What a reader of committed records has found so far."""

    def __init__(self, servers: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "judge", "isolation.level": "read_committed", **QUIET}
        )
        self._consumer.assign([TopicPartition(TARGET, partition, 0) for partition in range(PARTITIONS)])
        self.found: Counter[str] = Counter()

    def read_on(self, seconds: float) -> int:
        """Read for at most this long, or until nothing comes; how many were new."""
        deadline, new = time.monotonic() + seconds, 0
        while time.monotonic() < deadline:
            messages = self._consumer.consume(5000, timeout=min(1.0, seconds))
            values = [each.value().decode() for each in messages if each.error() is None]
            self.found.update(values)
            new += len(values)
            if not messages:
                break
        return new

    def close(self) -> None:
        self._consumer.close()


# ---- a Spark cluster


class SparkCluster:
    """A master and two workers, from the scripts and jars that come with PySpark."""

    def __init__(self, directory: Path) -> None:
        import pyspark

        self._home = Path(pyspark.__file__).parent
        self._directory = directory
        self._port = _free_port()
        self.master = f"spark://127.0.0.1:{self._port}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        master = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0"]
        self._spawn("master", "master.Master", master)
        deadline = time.monotonic() + 120
        while not _listens(self._port):
            assert time.monotonic() < deadline, "the master did not start"
            time.sleep(POLL_SECONDS)
        for name in ("worker-1", "worker-2"):
            options = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            self._spawn(name, "worker.Worker", [*options, "--work-dir", str(self._directory / name), self.master])

    def _spawn(self, name: str, what: str, options: list[str]) -> None:
        command = [str(self._home / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", *options]
        environment = {**os.environ, "SPARK_HOME": str(self._home), "PYSPARK_PYTHON": sys.executable}
        environment |= {"SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH", "")]))
        with (self._directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def kill(self, name: str) -> None:
        """A machine is gone: the worker and everything it runs."""
        process = self._processes.pop(name)
        kill_with_children(process.pid)
        process.wait()

    def executors(self, name: str) -> int:
        if name not in self._processes:
            return 0
        below = children_of(self._processes[name].pid).values()
        return sum("CoarseGrainedExecutorBackend" in command for command in below)

    def stop(self) -> None:
        for name in list(self._processes):
            self.kill(name)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# ---- the runs


class Run:
    """One pipeline and what happens to it."""

    def __init__(self, cluster: Cluster, driver: Driver, *, say: bool, seconds_max: float) -> None:
        self.cluster = cluster
        self.driver = driver
        self.report = Report()
        self._say = say
        self._began = time.monotonic()
        self._deadline = self._began + seconds_max

    def say(self, what: str) -> None:
        if self._say:
            print(f"{time.monotonic() - self._began:7.1f} s  batch {self.driver.batches:4}  {what}", flush=True)

    def wait_for_batches(self, more: int) -> bool:
        """Until Spark has done so many more micro-batches; False when time is up."""
        goal = self.driver.batches + more
        while self.driver.batches < goal:
            if time.monotonic() > self._deadline:
                self.report.problems.append(f"no progress in time; the driver's last words: {self.driver.last_words()}")
                return False
            self.driver.keep_running()
            time.sleep(POLL_SECONDS)
        return True

    def kill(self, what: str, chance: random.Random) -> None:
        if what == WORKER:
            while not self.driver.kill_a_worker(chance):
                if time.monotonic() > self._deadline:
                    return
                self.driver.keep_running()
                time.sleep(POLL_SECONDS)
        elif what == DRIVER:
            self.driver.kill()
        else:
            nodes = self.cluster.node_ids
            victim = chance.choice(nodes) if len(nodes) > 1 else None
            self.cluster.kill(victim)
            time.sleep(chance.random())
            self.cluster.start(victim)
        self.report.kills[what] += 1
        self.say(f"killed {what}")

    def finish(self, expected: Counter[str]) -> Report:
        """Wait for the last result, stop the pipeline, and compare."""
        reader = Reader(self.cluster.bootstrap_servers)
        try:
            while len(reader.found) < len(expected) and time.monotonic() < self._deadline:
                self.driver.keep_running()
                reader.read_on(5.0)
            # What would come twice may come late: the pipeline goes through some more (empty) triggers.
            self.driver.keep_running()
            reader.read_on(5.0)
            self.driver.kill()
            while reader.read_on(5.0):
                pass
        finally:
            reader.close()
        report = self.report
        report.results = reader.found.total()
        report.driver_starts = self.driver.starts
        report.seconds = time.monotonic() - self._began
        missing, extra = expected - reader.found, reader.found - expected
        if missing:
            report.problems.append(f"{missing.total()} results are missing, such as {list(missing)[:3]}")
        if extra:
            report.problems.append(f"{extra.total()} results are wrong or there twice, such as {list(extra)[:3]}")
        if report.problems:
            report.problems.append(f"the driver's last words: {self.driver.last_words()}")
        return report


@contextmanager
def prepared(records: int, batches: int, nodes: int, master: str | None, data_dir: Path) -> Iterator[tuple]:
    """(cluster, driver) with the input written."""
    with Cluster(config=NODE, nodes=nodes, in_process=False, data_dir=data_dir / "nodes") as cluster:
        for topic in (SOURCE, TARGET):
            cluster.create_topic(topic, PARTITIONS)
        produce(cluster.bootstrap_servers, records)
        driver = Driver(cluster.bootstrap_servers, data_dir / "checkpoint", max(100, records // batches), master)
        try:
            yield cluster, driver
        finally:
            driver.kill()


def order_of_kills(count: int, chance: random.Random) -> list[str]:
    """What is killed one after the other: each kind once, if there are enough, and else at random."""
    kinds = [WORKER, DRIVER, BROKER]
    chosen = kinds[:count] + chance.choices(kinds, k=max(0, count - len(kinds)))
    chance.shuffle(chosen)
    return chosen


def run(
    records: int,
    kills: int,
    *,
    seed: int,
    data_dir: Path,
    nodes: int = 1,
    seconds_max: float = 1800.0,
    say: bool = False,
) -> Report:
    """Kill things at random while the pipeline runs."""
    chance = random.Random(seed)
    expected = compute_offline(records)
    with prepared(records, kills * BATCHES_PER_KILL + 3, nodes, None, data_dir) as (cluster, driver):
        life = Run(cluster, driver, say=say, seconds_max=seconds_max)
        driver.keep_running()
        for what in order_of_kills(kills, chance):
            if not life.wait_for_batches(1):
                break
            time.sleep(chance.random() * 2)
            life.kill(what, chance)
        return life.finish(expected)


def run_standalone(
    records: int, *, data_dir: Path, seconds_max: float = 900.0, batches: int = 12, say: bool = False
) -> Report:
    """The same pipeline on a Spark cluster of two workers, one of which dies in the middle."""
    expected = compute_offline(records)
    spark = SparkCluster(data_dir)
    try:
        spark.start()
        with prepared(records, batches, 1, spark.master, data_dir) as (cluster, driver):
            life = Run(cluster, driver, say=say, seconds_max=seconds_max)
            driver.keep_running()
            if life.wait_for_batches(2):
                life.say(f"executors: {spark.executors('worker-1')} and {spark.executors('worker-2')}")
                if not spark.executors("worker-1") or not spark.executors("worker-2"):
                    life.report.problems.append("not every worker had an executor")
                spark.kill("worker-1")
                life.report.kills["a Spark worker"] += 1
                life.say("killed a Spark worker with its executor")
            return life.finish(expected)
    finally:
        spark.stop()


def measure_memory(spark, servers: str, topic: str) -> int:
    """The most memory (in bytes) any Python worker of a session has taken after it has read a topic to its end."""
    reader = spark.read.format("moldau").options(**{"kafka.bootstrap.servers": servers, "subscribe": topic})
    reader.load().write.format("noop").mode("overwrite").save()
    most = 0
    for process, command in children_of(os.getpid()).items():
        if "pyspark.daemon pyspark.worker" in command:
            try:
                lines = Path(f"/proc/{process}/status").read_text().splitlines()
            except OSError:
                continue
            most = max(most, *(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)
    return most


def fill(servers: str, topic: str, megabytes: int) -> None:
    """Records of a kilobyte, compressed well, so that a reader that unpacks too much at once would be seen."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "compression.type": "lz4", **QUIET})
    value = b"x" * 1000
    for number in range(megabytes * 1000):
        while True:
            try:
                producer.produce(topic, value=value, partition=0)
                break
            except BufferError:
                producer.poll(0.5)
        if number % 1000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    assert left == 0, f"{left} records were not written"


def memory_of_two_backlogs(spark, cluster: Cluster, megabytes: int) -> tuple[int, int]:
    """What a worker takes at most for some megabytes, and for ten times as many."""
    cluster.create_topic("backlog", 1)
    fill(cluster.bootstrap_servers, "backlog", megabytes)
    small = measure_memory(spark, cluster.bootstrap_servers, "backlog")
    fill(cluster.bootstrap_servers, "backlog", 9 * megabytes)
    return small, measure_memory(spark, cluster.bootstrap_servers, "backlog")


def planning_seconds(cluster: Cluster, partitions: int, rounds: int = 3) -> dict[str, float]:
    """How long planning takes for a topic of so many partitions."""
    from moldau.spark.source import SCHEMA, MoldauDataSource

    cluster.create_topic("wide", partitions)
    source = MoldauDataSource({"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "wide"})
    batch, stream = source.reader(SCHEMA), source.streamReader(SCHEMA)
    start = stream.initialOffset()  # every leader is known from here on, and every connection open
    assert len(start["wide"]) == partitions
    moved = {"wide": {number: offset + 10 for number, offset in start["wide"].items()}}

    def micro_batch() -> None:
        stream.latestOffset(start, stream.getDefaultReadLimit())
        stream.partitions(start, moved)

    return {"batch": _quickest(batch.partitions, rounds), "micro-batch": _quickest(micro_batch, rounds)}


def _quickest(work: Callable[[], object], rounds: int) -> float:
    """The best of some rounds: what else the machine does is not what is measured."""
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return min(taken)


# ---- the program


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.spark_run", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=1, help="brokers; with three, topics have three copies")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--seconds", type=float, default=3600.0, help="give up after this long")
    parser.add_argument("--standalone", action="store_true")
    parser.add_argument("--memory", type=int, nargs="?", const=50, metavar="MEGABYTES")
    parser.add_argument("--partitions", type=int)
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="spark-run-"))
    # Ended by somebody: nothing that was started may outlive it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        if arguments.memory:
            return _main_memory(arguments.memory)
        if arguments.partitions:
            return _main_partitions(arguments.partitions)
        if arguments.standalone:
            report = run_standalone(arguments.records, data_dir=directory, seconds_max=arguments.seconds, say=True)
        else:
            print(f"seed {arguments.seed}")
            report = run(
                arguments.records,
                arguments.kills,
                seed=arguments.seed,
                data_dir=directory,
                nodes=arguments.nodes,
                seconds_max=arguments.seconds,
                say=True,
            )
        print(
            f"{arguments.records:,} records became {report.results:,} results in {report.seconds:.0f} s; killed "
            f"{', '.join(f'{what} {count} times' for what, count in report.kills.items())}; "
            f"the driver was started {report.driver_starts} times"
        )
        print("\n".join(report.problems) or "equal to what was computed offline: nothing missing, nothing twice")
        return 1 if report.problems else 0
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _main_memory(megabytes: int) -> int:
    from tests.faults.spark_pipeline import new_session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = new_session("local[1]")
    try:
        with Cluster(in_process=False) as cluster:
            small, large = memory_of_two_backlogs(spark, cluster, megabytes)
    finally:
        spark.stop()
    print(f"a reader's Python worker took at most {small / 1e6:.0f} MB for {megabytes} MB of records")
    print(f"and at most {large / 1e6:.0f} MB for {10 * megabytes} MB")
    return 0 if large - small < 32e6 else 1


def _main_partitions(partitions: int) -> int:
    with Cluster(in_process=False) as cluster:
        seconds = planning_seconds(cluster, partitions)
    for what, took in seconds.items():
        print(f"{partitions} partitions of a {what} planned in {took * 1000:.0f} ms")
    return 0 if max(seconds.values()) < 1 else 1


if __name__ == "__main__":
    sys.exit(main())
