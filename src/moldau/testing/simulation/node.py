"""One simulated node through all its lives: the rooms of a real one over a virtual clock, disk and network.

Decides what belongs to a life and dies with it, and what a freeze holds back. The rooms themselves are put together by
`moldau.node.assembly`, exactly as in a process of its own.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING

from moldau.config.node_config import NodeConfig
from moldau.log.errors import LogDirFailure
from moldau.node.assembly import Assembly, World
from moldau.node.storage import StorageError, UsableDirectories
from moldau.ports import Address, Timer
from moldau.quorum.format import FormatRequest, format_storage
from moldau.quorum.quorum import QuorumError
from moldau.quorum.voters import VoterSet
from moldau.testing.clock import VirtualTimer
from moldau.testing.disk import SimulatedDisk
from moldau.testing.simulation.network import Service

if TYPE_CHECKING:
    from moldau.testing.simulation.world import Simulation

BROKER_PORT = 9092
CONTROLLER_PORT = 9093
DATA = "/data"
LEAVE_MS_MAX = 1500
CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZQ"


class PowerCut(BaseException):
    """The machine stops in the midst of whatever it does; nothing may catch it on the way."""


class NodeTimer(VirtualTimer):
    """A call that a node has planned; one that came while the node was frozen can still be taken back."""

    __slots__ = ("_life", "_node", "_run")

    def __init__(self, node: SimulatedNode, life: int, run: Callable[[], None]) -> None:
        self.cancelled = False
        self._node = node
        self._life = life
        self._run = run

    def is_due(self) -> None:
        self._node.execute(self._life, self._fire)

    def _fire(self) -> None:
        if not self.cancelled:
            self._run()


class NodeClock:
    """`ports.Clock` of one life of a node."""

    __slots__ = ("_ahead_ms", "_life", "_node", "_world")

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._life = node.life
        self._world = node.world.clock
        self._ahead_ms = 7_000 * node.id

    def now_ms(self) -> int:
        return self._world.now_ms() + self._node.clock_error_ms

    def monotonic_ms(self) -> int:
        return self._world.monotonic + self._ahead_ms

    def call_later(self, delay_ms: int, run: Callable[[], None]) -> Timer:
        timer = NodeTimer(self._node, self._life, run)
        world = self._world
        world.plan(world.monotonic + delay_ms, timer.is_due, timer)
        return timer


class NodeBackground:
    """`ports.Background`: a few steps at a time, between other events."""

    __slots__ = ("_clock", "_failed")

    def __init__(self, clock: NodeClock, failed: Callable[[BaseException], None]) -> None:
        self._clock = clock
        self._failed = failed

    def run(self, steps: Iterator[None], done: Callable[[BaseException | None], None] | None = None) -> None:
        def some() -> None:
            try:
                for _ in range(4):
                    next(steps)
            except StopIteration:
                if done is not None:
                    done(None)
            except Exception as error:
                if done is None:
                    self._failed(error)
                else:
                    done(error)
            else:
                self._clock.call_later(1, some)

        self._clock.call_later(0, some)


class NodeDisk(SimulatedDisk):
    """A disk whose syncs take time, and which may be what the power cut comes through."""

    def __init__(self, node: SimulatedNode) -> None:
        super().__init__(node.world.clock)
        self._node = node
        self.sync_ms_max = 1
        # The machine stops after so many more operations.
        self.stops_after: int | None = None
        # Somebody looks from outside: that is no operation of the node's, and does not fail.
        self.observed = False

    def count(self, operation: str, path: str) -> None:
        if self.observed:
            return
        if self.stops_after is not None:
            self.stops_after -= 1
            if self.stops_after < 0:
                self.stops_after = None
                if self._node.world.may_lose_data(self._node):
                    raise PowerCut
        if self._faults:
            super().count(operation, path)

    def paths(self) -> list[str]:
        """Every file there is."""
        return sorted(self._names)

    def sync_later(self, finish: Callable[[], None]) -> None:
        node = self._node
        delay = int(node.random.random() * (self.sync_ms_max + 1))
        clock, life = node.world.clock, node.life
        clock.plan(clock.monotonic + delay, lambda: node.execute(life, finish))


@lru_cache(maxsize=256)
def settings(
    node_id: int, role: str, voters: tuple[int, ...], dynamic: bool, overrides: tuple[tuple[str, str], ...]
) -> NodeConfig:
    """Kafka's timeouts at a fraction, so that a few virtual seconds hold many of them. `dynamic` voters are known from
    the metadata log, not from settings."""
    if dynamic:
        quorum = {"controller.quorum.bootstrap.servers": ",".join(f"n{voter}:{CONTROLLER_PORT}" for voter in voters)}
    else:
        quorum = {"controller.quorum.voters": ",".join(f"{voter}@n{voter}:{CONTROLLER_PORT}" for voter in voters)}
    listeners = [f"PLAINTEXT://n{node_id}:{BROKER_PORT}"]
    if "controller" in role:
        listeners.append(f"CONTROLLER://n{node_id}:{CONTROLLER_PORT}")
    return NodeConfig.load(
        {
            "node.id": str(node_id),
            "process.roles": role,
            "cluster.id": CLUSTER_ID,
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            **quorum,
            "controller.quorum.election.timeout.ms": "400",
            "controller.quorum.fetch.timeout.ms": "800",
            "controller.quorum.election.backoff.max.ms": "300",
            "controller.quorum.request.timeout.ms": "600",
            "log.dirs": DATA,
            "auto.create.topics.enable": "false",
            "min.insync.replicas": "2",
            "broker.session.timeout.ms": "1000",
            "broker.heartbeat.interval.ms": "450",
            "request.timeout.ms": "1500",
            "replica.lag.time.max.ms": "600",
            "replica.fetch.backoff.ms": "100",
            "replica.fetch.wait.max.ms": "500",
            "replica.high.watermark.checkpoint.interval.ms": "1500",
            # Clocks jump by a day: a producer that is forgotten may write again what it has written before.
            "producer.id.expiration.ms": "604800000",
            # Nothing but events in a cluster that has enough of them.
            "metadata.max.idle.interval.ms": "3000",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "500",
            "group.consumer.min.session.timeout.ms": "500",
            "group.consumer.session.timeout.ms": "1500",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.heartbeat.interval.ms": "200",
            "group.streams.min.session.timeout.ms": "500",
            "group.streams.session.timeout.ms": "1500",
            "group.streams.min.heartbeat.interval.ms": "100",
            "group.streams.heartbeat.interval.ms": "200",
            "group.streams.assignment.interval.ms": "0",
            "group.streams.initial.rebalance.delay.ms": "0",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "3",
            "share.coordinator.state.topic.min.isr": "2",
            "group.share.min.session.timeout.ms": "500",
            "group.share.session.timeout.ms": "1500",
            "group.share.min.heartbeat.interval.ms": "100",
            "group.share.heartbeat.interval.ms": "200",
            "group.share.assignment.interval.ms": "0",
            "group.share.initialize.retry.interval.ms": "500",
            "group.share.min.record.lock.duration.ms": "1000",
            "group.share.record.lock.duration.ms": "1000",
            "group.share.delivery.count.limit": "10",
            **dict(overrides),
        }
    )


class SimulatedNode:
    def __init__(
        self,
        world: Simulation,
        node_id: int,
        role: str,
        voters: tuple[int, ...],
        overrides: dict[str, str],
        *,
        dynamic: bool = False,
    ) -> None:
        self.world = world
        self.id = node_id
        self.host = f"n{node_id}"
        self.random = Random(f"{world.seed} node {node_id}")
        self.config = settings(node_id, role, voters, dynamic, tuple(sorted(overrides.items())))
        self.disk = NodeDisk(self)
        self.life = 0
        self.alive = False
        self.is_up = True
        self.frozen = False
        self.stopping = False
        self.clock_error_ms = 0
        self.rooms: Assembly | None = None
        # Takes part in the cluster: its broker is unfenced and serves clients.
        self.joined = False
        self._ports: dict[int, Service] = {}
        self._backlog: list[tuple[int, Callable[[], None]]] = []
        self._failing = False
        # It is killed after so many more events: those come close together when much happens.
        self.dies_after: int | None = None

    @property
    def address(self) -> Address:
        return Address(self.host, BROKER_PORT)

    def format(self, voters: VoterSet) -> None:
        """What an operator does before the first start of a node of a quorum whose voters may change."""
        initial = voters if self.id in voters else None
        request = FormatRequest(self.id, CLUSTER_ID, [DATA], DATA, dynamic=True, initial_voters=initial)
        format_storage(self.disk, request, now_ms=self.world.clock.now_ms(), random=self.random)

    # ---- network.Machine

    def service_at(self, port: int) -> Service | None:
        return self._ports.get(port) if self.alive else None

    def execute(self, life: int, run: Callable[[], None]) -> None:
        """Let one thing happen in this process: everything a node ever does goes through here."""
        if life != self.life or not self.alive:
            return
        if self.frozen:
            self._backlog.append((life, run))
            return
        try:
            run()
            if self.rooms is not None and self.joined:
                self.rooms.broker.after_requests()
        except PowerCut:
            self.world.tell(f"{self.host} loses power in the midst of a disk operation")
            self.world.rules.look_for_the_last_time(self)
            self.crash(power=True)
        except LogDirFailure:
            # Nobody was left to be told: a process logs that and goes on to stop.
            if not self._failing:
                raise
        if self._failing:
            self.world.tell(f"{self.host} stops itself: a disk failed")
            self.crash()
        self.world.happened(self)
        if self.dies_after is not None:
            self.dies_after -= 1
            if self.dies_after < 0 and self.alive:
                self._die()

    def _die(self) -> None:
        self.dies_after = None
        if self.world.may_end(self):
            self.world.tell(f"{self.host} is killed")
            self.crash()

    # ---- life

    def start(self) -> None:
        assert not self.alive, f"{self.host} runs already"
        self.life += 1
        self.alive = self.is_up = True
        self._failing = False
        self.execute(self.life, self._start)

    def _start(self) -> None:
        clock = NodeClock(self)
        background = NodeBackground(clock, self.world.unexpected)
        world = World(clock, background, self.disk, self.world.network.of(self), self.random)
        rooms = self.rooms = Assembly(self.config, world, failed=self._fail, after_event=lambda: None)
        try:
            self.disk.make_dirs(DATA)
            rooms.open(UsableDirectories([DATA], {}))
            if rooms.controller_api is not None:
                self._ports[CONTROLLER_PORT] = rooms.controller_api
            rooms.quorum.start()
        except (QuorumError, LogDirFailure, StorageError, OSError) as error:
            self.world.tell(f"{self.host} cannot start: {error}")
            self.world.could_not_start(self, error)
            self._fail()
            return
        life = self.life
        listeners = [("PLAINTEXT", self.host, BROKER_PORT, "PLAINTEXT")]
        rooms.join(listeners).then(lambda _: self._joined(rooms) if life == self.life else None)

    def _joined(self, rooms: Assembly) -> None:
        controllers = [("CONTROLLER", self.host, CONTROLLER_PORT, "PLAINTEXT")]
        rooms.joined(controllers if rooms.controller is not None else [])
        self._ports[BROKER_PORT] = rooms.broker
        rooms.work()
        self.joined = True

    def _fail(self) -> None:
        self._failing = True

    def crash(self, *, power: bool = False, machine: bool = False) -> None:
        """End the process: kill -9, or (`power`) with all that no sync has covered. With `machine` nobody is told."""
        self.alive = self.frozen = self.joined = self.stopping = self._failing = False
        self.is_up = not machine
        self.life += 1
        self._ports.clear()
        self._backlog.clear()
        self.world.ended(self, lost_data=power)
        self.rooms = None
        self.disk.stops_after = self.dies_after = None
        self.disk.crash(self.random if power else None, keep_unsynced=not power)
        self.world.network.process_ended(self.host, machine=machine)

    def stop(self) -> None:
        """Leave in good order: SIGTERM. What the controller does not allow in time is done all the same."""
        rooms, life = self.rooms, self.life
        if rooms is None or not self.joined:
            self.crash()
            return
        if self.stopping:
            return
        self.stopping = True
        left = False

        def leave(_: None) -> None:
            nonlocal left
            if not left:
                left = True
                rooms.close()
                if rooms.quorum.is_leader:
                    rooms.quorum.resign()
                rooms.close_logs().then(closed)

        def closed(_: None) -> None:
            # Not from within: whoever closes is still at work.
            self.world.clock.call_later(0, lambda: self._stopped(life))

        self.world.clock.call_later(LEAVE_MS_MAX, lambda: self.execute(life, lambda: leave(None)))
        self.execute(life, lambda: rooms.leave().then(leave))

    def _stopped(self, life: int) -> None:
        if self.life == life:
            self.world.tell(f"{self.host} has stopped")
            self.crash()

    # ---- faults

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        """Everything that came meanwhile happens now, in order."""
        self.frozen = False
        backlog, self._backlog = self._backlog, []
        for life, run in backlog:
            self.execute(life, run)

    def fail_disk(self, operation: str, *, full: bool = False) -> None:
        self.disk.fail(operation, errno.ENOSPC if full else errno.EIO)
