"""One node: puts its rooms (`assembly.py`) into the real world, starts them in order and stops them in reverse.

Nothing is decided here but the order of things. The start reads the metadata log and the checkpoint files, joins the
cluster, and only then lets clients in.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
from collections.abc import Callable
from random import SystemRandom
from typing import TYPE_CHECKING

from moldau.broker.broker import Broker
from moldau.config.node_config import NodeConfig
from moldau.config.types import ConfigError
from moldau.log.errors import LogDirFailure
from moldau.node.alertness import Alertness
from moldau.node.assembly import Assembly, World
from moldau.node.buffers import BufferPool
from moldau.node.clock import LoopBackground, LoopClock
from moldau.node.disk import OsDisk
from moldau.node.http import HttpServer, json_page
from moldau.node.listener import ConnectionCounts, ConnectionLimits, Listener
from moldau.node.metrics import NodeMetrics
from moldau.node.peers import FAULTS_VARIABLE, Peers
from moldau.node.protection import OPEN
from moldau.node.quorum_setup import listens_at
from moldau.node.storage import DirectoryLocks, StorageError, UsableDirectories
from moldau.node.unread import UnreadAnswers, default_limit
from moldau.ports import Clock, Pending
from moldau.quorum.quorum import QuorumError

if TYPE_CHECKING:
    from moldau.metadata.image import ScramCredential
    from moldau.node.node_security import NodeSecurity

log = logging.getLogger("moldau.node")

LEAVE_SECONDS_MAX = 5.0
# For the word to reach the other controllers that this one stops leading.
RESIGN_SECONDS = 0.05
# Clients of a broker that leaves are told who leads now instead of finding a broken connection.
FAREWELL_SECONDS = 0.25
# Descriptors kept for connections; the rest are for files.
CONNECTION_DESCRIPTORS_MIN = 1024
FILE_DESCRIPTORS_MIN = 128
CONNECTIONS_MIN = 16
# For everything else: the loop itself, listeners, locks, files that are read as a whole.
SPARE_DESCRIPTORS = 64


class Node:
    """A broker, a controller, or both in one."""

    def __init__(self, config: NodeConfig, failed: Callable[[], None]) -> None:
        """`failed` is called when the node can no longer keep its promises and must be stopped."""
        self._config = config
        self._failed = failed
        self._locks = DirectoryLocks()
        self._listeners: list[Listener] = []
        self._http: HttpServer | None = None
        self._alertness = Alertness.of(config)
        self._peers = Peers(f"node-{config.node_id}", self._after_event, self._alertness)
        self._controllers = Peers(f"node-{config.node_id}", self._after_event)
        self._security: NodeSecurity | None = None
        self._opened = False
        self._running = False
        self._stopping = False

    # ---- starting

    async def start(self) -> None:
        """Bring the node up; returns when clients are served."""
        try:
            self._rooms = rooms = self._open_world()
            self._opened = True
            rooms.open(UsableDirectories.of(self._disk, self._config, self._locks))
            await self._bind_listeners()
            listens_at(rooms.quorum, self._advertised_controller())
            await self._accept(controllers=True)
            rooms.quorum.start()
            await _kept(rooms.join(self._advertised()))
            rooms.joined(self._advertised_controller())
            await self._accept(controllers=False)
            rooms.work()
            await self._start_http()
        except (QuorumError, LogDirFailure) as error:
            raise StorageError(str(error)) from error
        self._running = True

    def waits_for(self) -> str:
        """What a node that is not up yet waits for, and what to do about it: others, once its own disks are read."""
        quorum = self._rooms.quorum
        if quorum.leader_id >= 0:
            return f"controller {quorum.leader_id}, which has not let it in yet; that one's log says more"
        servers = ", ".join(f"{host}:{port}" for host, port in self._config.quorum_servers)
        hint = ""
        if self._config.is_controller and not quorum.voters:
            hint = (
                "; this controller is no voter yet: if the cluster is new, one of its controllers must have been "
                "formatted with `moldau storage format --standalone`"
            )
        return f"a leader of the controllers at {servers}: most of them must be running and reachable{hint}"

    def _open_world(self) -> Assembly:
        loop = asyncio.get_running_loop()
        self._alertness.begin(loop)
        self._read_security()
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        open_files = max(FILE_DESCRIPTORS_MIN, (soft - CONNECTION_DESCRIPTORS_MIN) // 2)
        self._connection_descriptors = max(CONNECTIONS_MIN, soft - open_files - SPARE_DESCRIPTORS)
        background = LoopBackground(loop, lambda error: log.error("background work failed", exc_info=error))
        self._disk = OsDisk(lambda call: _post(loop, call, self._after_event), open_files=open_files)
        clock = self._begin_outside(loop)
        return Assembly(
            self._config,
            World(clock, background, self._disk, self._peers, SystemRandom(), self._controllers),
            failed=self._failed,
            after_event=self._after_event,
            reconfigured=self._take_settings,
        )

    def _read_security(self) -> None:
        """A node whose listeners are all open, as those it connects to, needs to know nothing about security."""
        config = self._config
        protocols = {config.inter_broker_protocol, *(listener.security_protocol for listener in config.listeners)}
        protocols.update(config.security_protocols.get(name.upper(), "") for name in config.controller_listener_names)
        if protocols <= {"PLAINTEXT", ""}:
            return
        from moldau.node.node_security import NodeSecurity

        self._security = security = NodeSecurity(config, self._scram_credential)
        self._secured = config
        self._peers.security = security.towards_brokers()
        self._controllers.security = security.towards_controllers()

    def _renew_security(self, security: NodeSecurity, config: NodeConfig) -> None:
        """Certificates are renewed by changing a setting, as in Kafka. What cannot be used changes nothing."""
        if config is self._secured:
            return
        self._secured = config
        security.reread(config)
        try:
            # The listeners that are open, with the protocols they were opened with.
            renewed = {each.name: security.of_listener(each) for each in self._config.listeners}
            self._peers.security, self._controllers.security = (
                security.towards_brokers(),
                security.towards_controllers(),
            )
        except ConfigError as error:
            log.error("the changed settings of security are not used: %s", error)
            return
        for listener in self._listeners:
            listener.secure_with(renewed[listener.name])

    def _scram_credential(self, mechanism: int, user: str) -> ScramCredential | None:
        return self._rooms.services.image.scram.get((mechanism, user))

    def _begin_outside(self, loop: asyncio.AbstractEventLoop) -> Clock:
        """The clock, and the way to other nodes; a test may have its hand in both."""
        if FAULTS_VARIABLE not in os.environ:
            self._peers.begin(loop)
            self._controllers.begin(loop)
            return LoopClock(loop)
        from moldau.node.link_faults import LinkFaults, ShiftedClock

        clock = ShiftedClock(loop)
        faults = LinkFaults(clock)
        self._peers.begin(loop, faults)
        self._controllers.begin(loop, faults)
        self._orders = loop.create_task(faults.listen(os.environ[FAULTS_VARIABLE]))
        return clock

    @property
    def broker(self) -> Broker:
        return self._rooms.broker

    @property
    def cluster_id(self) -> str:
        return self._rooms.cluster_id

    @property
    def has_failed(self) -> bool:
        return self._opened and self._rooms.has_failed

    def _take_settings(self, config: NodeConfig) -> None:
        if self._listeners:
            self._limits.take(config)
            if self._security is not None:
                self._renew_security(self._security, config)

    def _after_event(self) -> None:
        """A sync or an answer from a peer may have committed records: answer those who wait for them."""
        if self._running:
            self.broker.after_requests()

    # ---- listeners

    async def _bind_listeners(self) -> None:
        config = self._config
        pool = BufferPool()
        self._limits = ConnectionLimits.of(config, self._connection_descriptors)
        self._unread = UnreadAnswers(default_limit(), self.broker.fetch.memory_is_scarce)
        # Clients must not be able to take the controllers' places.
        counts = {is_controller: ConnectionCounts() for is_controller in (False, True)}
        for address in config.listeners:
            is_controller = address.name in config.controller_listener_names
            service = self._rooms.controller_api if is_controller else self.broker
            assert service is not None, "a controller's listener without a controller"
            security = OPEN if self._security is None else self._security.of_listener(address)
            listener = Listener(
                address.name,
                service,
                pool,
                self._unread,
                self._limits,
                counts[is_controller],
                self._alertness,
                security,
            )
            try:
                await listener.bind(address.host, address.port)
            except OSError as error:
                reason = error.strerror or str(error)
                raise StorageError(f"cannot listen on {address.host or '*'}:{address.port}: {reason}") from error
            self._listeners.append(listener)

    async def _accept(self, *, controllers: bool) -> None:
        """Let others in: the other controllers before this node can know who leads, clients at the very end."""
        names = self._config.controller_listener_names
        for listener in self._listeners:
            if (listener.name in names) == controllers:
                await listener.accept()

    def _advertised(self) -> list[tuple[str, str, int, str]]:
        """How others reach the client listeners; a port chosen by the system is known only after binding."""
        bound = {listener.name: listener.port for listener in self._listeners}
        names = {listener.name for listener in self._config.broker_listeners}
        return [
            (each.name, each.host or socket.gethostname(), each.port or bound[each.name], each.security_protocol)
            for each in self._config.advertised_listeners
            if each.name in names
        ]

    def _advertised_controller(self) -> list[tuple[str, str, int, str]]:
        bound = {listener.name: listener.port for listener in self._listeners}
        return [
            (each.name, each.host or socket.gethostname(), each.port or bound[each.name], each.security_protocol)
            for each in self._config.advertised_controller_listeners
        ]

    # ---- what people see

    @property
    def client_port(self) -> int:
        """The port of the first client listener; of the first one, where no clients are served."""
        names = {listener.name for listener in self._config.broker_listeners}
        ports = [listener.port for listener in self._listeners if listener.name in names]
        return ports[0] if ports else self._listeners[0].port

    @property
    def addresses(self) -> list[str]:
        """How clients reach this node; a node that is only a controller tells where that listens."""
        found = self._advertised() or self._advertised_controller()
        return [f"{name}://{host}:{port}" for name, host, port, _ in found]

    @property
    def data_directories(self) -> list[str]:
        return list(self._config.log_dirs)

    @property
    def metrics_url(self) -> str | None:
        return None if self._http is None else f"http://localhost:{self._http.port}/metrics"

    async def _start_http(self) -> None:
        where = self._config.original("moldau.http.listener")
        if not where:
            return
        metrics = NodeMetrics(
            self.broker.metrics,
            self._rooms.partitions,
            self.broker.fetch.sessions,
            self._listeners,
            self._unread,
            lambda: self._rooms.loader.image,
            self._config.node_id,
            share=lambda: self.broker.share_fetch,
            quorum=self._rooms.quorum,
            controller=self._rooms.controller,
            groups=lambda: self.broker.groups,
        )
        host, _, port = where.rpartition(":")
        http = HttpServer({"/metrics": metrics.page, "/health": self._health, "/ready": self._ready})
        try:
            await http.start(host or "localhost", int(port))
        except OSError as error:
            log.warning("no metrics: cannot listen on %s (moldau.http.listener): %s", where, error.strerror or error)
            return
        self._http = http

    def _health(self) -> tuple[int, str, bytes]:
        offline = [path for path, each in self._rooms.logs.directories.items() if not each.online]
        return json_page(200, {"status": "degraded" if offline else "ok", "offline_log_dirs": offline})

    def _ready(self) -> tuple[int, str, bytes]:
        serving = self._running and not self._stopping
        return json_page(200 if serving else 503, {"ready": serving, "node": self._config.node_id})

    # ---- stopping

    async def stop(self) -> None:
        """Leave the cluster, close every log properly and release the directories.

        A node that has failed, or that never came up, only lets go of what it holds: the next start recovers.
        """
        self._stopping = True
        orderly = self._running and not self.has_failed
        if orderly and self._config.flag("controlled.shutdown.enable"):
            try:
                await asyncio.wait_for(_kept(self._rooms.leave()), LEAVE_SECONDS_MAX)
                await self._say_farewell()
            except TimeoutError:
                log.warning("the controller did not let this broker go in time; stopping all the same")
        if self._running:
            self._rooms.close()
        if orderly and len(self._rooms.quorum.voters) > 1 and self._rooms.quorum.is_leader:
            self._rooms.quorum.resign()
            await asyncio.sleep(RESIGN_SECONDS)
        for listener in self._listeners:
            await listener.close()
        if self._http is not None:
            await self._http.close()
        if orderly:
            await _kept(self._rooms.close_logs())
        self._peers.close()
        self._controllers.close()
        if self._running:
            self._disk.close()
        self._locks.release()
        self._running = False

    async def _say_farewell(self) -> None:
        """Tell clients where to go while they can still ask, and let the other brokers learn that this one has gone."""
        if self._rooms.lifecycle is None:
            return
        own = self._config.node_id
        if any(not each.fenced for each in self._rooms.loader.image.brokers.values() if each.id != own):
            await asyncio.sleep(FAREWELL_SECONDS)


def _post(loop: asyncio.AbstractEventLoop, call: Callable[[], None], after: Callable[[], None]) -> None:
    """Hand a call from another thread to the loop's; a loop that has ended needs no more calls."""

    def run() -> None:
        call()
        after()

    if not loop.is_closed():
        loop.call_soon_threadsafe(run)


async def _kept(promise: Pending[None]) -> None:
    """Wait for a promise of the core."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def keep(_: None) -> None:
        if not done.done():
            done.set_result(None)

    promise.then(keep)
    await done
