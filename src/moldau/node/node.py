"""One node: puts the rooms together over the real world, starts them in order and stops them in reverse.

Nothing is decided here but the order of things. The start reads the metadata log and the checkpoint files, joins the
cluster, and only then lets clients in.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Callable
from random import SystemRandom

from moldau.broker.broker import Broker
from moldau.broker.controller_api import ControllerApi
from moldau.broker.image_waiters import ImageWaiters
from moldau.broker.local_controller import LocalController
from moldau.broker.quorum_channel import ControllerLink, QuorumChannel
from moldau.broker.services import BrokerServices
from moldau.config.node_config import NodeConfig
from moldau.config.types import ConfigError
from moldau.controller.controller import Controller
from moldau.log.checkpoints import TopicPartition
from moldau.log.cleaner import CleanerSettings, LogCleaner
from moldau.log.config import LogConfig
from moldau.log.errors import LogDirFailure
from moldau.log.log_directory import LogDirectory
from moldau.log.manager import LogManager
from moldau.log.manager_settings import LogManagerSettings
from moldau.log.partition_log import PartitionLog
from moldau.metadata.delta import ImageDelta
from moldau.metadata.features import CORDONED_DIRECTORIES_SINCE, supported_features
from moldau.metadata.image import ClusterImage
from moldau.metadata.publisher import MetadataLoader, Publisher
from moldau.node.buffers import BufferPool
from moldau.node.clock import LoopBackground, LoopClock
from moldau.node.directory_assignments import DirectoryAssignments
from moldau.node.disk import OsDisk
from moldau.node.http import HttpServer, json_page
from moldau.node.lifecycle import NO_EPOCH, BrokerLifecycle, register_controller
from moldau.node.listener import ConnectionCounts, ConnectionLimits, Listener
from moldau.node.metrics import NodeMetrics
from moldau.node.peers import Peers
from moldau.node.quorum_setup import broker_probe, listens_at, open_quorum
from moldau.node.storage import DirectoryLocks, StorageError, UsableDirectories, prepare_storage
from moldau.node.unread import UnreadAnswers, default_limit
from moldau.ports import Pending
from moldau.protocol.uuids import ZERO_UUID
from moldau.quorum.bootstrap import read_bootstrap
from moldau.quorum.meta_properties import new_uuid
from moldau.quorum.quorum import QuorumError
from moldau.quorum.snapshot_emitter import SnapshotEmitter, SnapshotSettings
from moldau.replication.log_settings import log_config
from moldau.replication.partition import Partition
from moldau.replication.partition_table import PartitionTable

log = logging.getLogger("moldau.node")

LEAVE_SECONDS_MAX = 5.0
# For the word to reach the other controllers that this one stops leading.
RESIGN_SECONDS = 0.05
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
        self._random = SystemRandom()
        self._locks = DirectoryLocks()
        self._loader = MetadataLoader()
        self._listeners: list[Listener] = []
        self._http: HttpServer | None = None
        self._peers = Peers(f"node-{config.node_id}", self._after_event)
        self._controller: Controller | None = None
        self._lifecycle: BrokerLifecycle | None = None
        self._assignments: DirectoryAssignments | None = None
        self._running = False
        self._stopping = False
        self.has_failed = False
        self.cluster_id = ""

    # ---- starting

    async def start(self) -> None:
        """Bring the node up; returns when clients are served."""
        try:
            self._open_world()
            self._open_storage()
            self._open_quorum()
            self._open_logs()
            self._open_broker()
            await self._bind_listeners()
            listens_at(self._quorum, self._advertised_controller())
            await self._accept(controllers=True)
            self._quorum.start()
            await self._join_cluster()
            self._partitions.live = True
            self._take_lost_partitions_offline()
            self._set_strays_aside()
            await self._accept(controllers=False)
            self._logs.start()
            self._cleaner.start()
            await self._start_http()
        except (QuorumError, LogDirFailure) as error:
            raise StorageError(str(error)) from error
        self._running = True

    def _open_world(self) -> None:
        loop = asyncio.get_running_loop()
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        open_files = max(FILE_DESCRIPTORS_MIN, (soft - CONNECTION_DESCRIPTORS_MIN) // 2)
        self._connection_descriptors = max(CONNECTIONS_MIN, soft - open_files - SPARE_DESCRIPTORS)
        self._clock = LoopClock(loop)
        self._background = LoopBackground(loop, lambda error: log.error("background work failed", exc_info=error))
        self._disk = OsDisk(lambda call: _post(loop, call, self._after_event), open_files=open_files)
        self._peers.begin(loop)

    def _after_event(self) -> None:
        """A sync or an answer from a peer may have committed records: answer those who wait for them."""
        if self._running:
            self.broker.after_requests()

    def _open_storage(self) -> None:
        config = self._config
        usable = UsableDirectories.of(self._disk, config, self._locks)
        self._lost_directories = usable.lost
        self._storage = prepare_storage(self._disk, config, usable.directories, self._clock.now_ms(), self._random)
        self.cluster_id = self._storage.cluster_id
        if self._storage.newly_formatted:
            log.info("formatted %s for the new cluster %s", ", ".join(usable.directories), self.cluster_id)

    def _open_quorum(self) -> None:
        config = self._config
        self._quorum = open_quorum(
            config, self._storage, self._disk, self._clock, self._random, self._peers, self._metadata_log_failed
        )
        self._quorum.add_listener(self._loader)
        self._quorum.add_listener(self._snapshot_emitter())
        if not config.is_controller:
            return
        self._controller = Controller(
            node_id=config.node_id,
            cluster_id=self.cluster_id,
            quorum=self._quorum,
            loader=self._loader,
            clock=self._clock,
            random=self._random,
            config=lambda: self._services.config,
            bootstrap=read_bootstrap(self._disk, config.metadata_log_dir),
            unstable_features=config.flag("unstable.feature.versions.enable"),
            probe=broker_probe(self._peers),
        )
        self._quorum.add_leadership_listener(self._controller)

    def _snapshot_emitter(self) -> SnapshotEmitter:
        settings = SnapshotSettings(
            max_bytes=self._config.integer("metadata.log.max.record.bytes.between.snapshots"),
            max_interval_ms=self._config.integer("metadata.log.max.snapshot.interval.ms"),
        )
        return SnapshotEmitter(self._quorum, self._loader, self._disk, self._clock, self._background, settings)

    def _metadata_log_failed(self, failure: LogDirFailure) -> None:
        """Without its metadata log a node can promise nothing: it stops rather than guess."""
        log.critical("the metadata log failed, the node stops: %s", failure.message)
        self.has_failed = True
        self._failed()

    def _open_logs(self) -> None:
        config = self._config
        self._logs = LogManager(
            self._disk,
            self._clock,
            self._background,
            {path: self._storage.directory_ids.get(path, ZERO_UUID) for path in config.log_dirs if config.is_broker},
            LogManagerSettings.of(config),
            configs=self._log_config_of,
            random=self._random,
            directory_failed=self._directory_failed,
            moved=self._log_moved,
        )
        self._partitions = PartitionTable(config.node_id, self._logs, lambda: self._services.config)
        for path, error in self._lost_directories.items():
            if path in self._logs.directories:
                self._logs.take_offline(self._logs.directories[path], error)
        self._logs.load()
        self._cleaner = LogCleaner(self._logs, self._disk, self._clock, self._background, CleanerSettings.of(config))

    def _log_config_of(self, topic: str) -> LogConfig | None:
        hosted = self._partitions.by_name.get(topic.encode())
        return None if hosted is None else log_config(hosted.config, self._services.config)

    def _directory_failed(self, directory: LogDirectory, partitions: list[TopicPartition]) -> None:
        if not any(each.online for each in self._logs.directories.values()):
            log.critical("no log directory is left, the node stops")
            self.has_failed = True
            self._failed()
        for topic, index in partitions:
            partition = self._partitions.find(topic, index)
            if partition is not None:
                partition.go_offline()
        if self._lifecycle is not None:
            self._lifecycle.report_soon()
        # Not at once: this may be in the midst of a request, and what it wakes must not overtake its answer.
        asyncio.get_running_loop().call_soon(self._after_event)

    def _log_moved(self, moved: PartitionLog) -> None:
        partition = self._partitions.find(moved.topic, moved.partition)
        if partition is not None:
            partition.replace_log(moved)
            self._note_directory(partition)

    def _note_directory(self, partition: Partition) -> None:
        """A log was opened or has moved: make sure that the controller knows where it is."""
        directory = self._logs.directory_of(partition.topic, partition.index)
        if directory is None or self._assignments is None:
            return
        if directory.directory_id not in (partition.directory, ZERO_UUID):
            self._assignments.tell(partition.topic_id, partition.index, directory.directory_id)

    def _open_broker(self) -> None:
        config = self._config
        local = None
        if self._controller is not None:
            local = LocalController(self._controller, self._quorum, self._clock)
        timeout_ms = config.integer("request.timeout.ms")
        forwarding = ControllerLink(self._quorum, local, self._peers, timeout_ms=timeout_ms, lane="forward")
        channel = QuorumChannel(forwarding, self._clock, timeout_ms=timeout_ms)
        self._services = BrokerServices(
            node_id=config.node_id,
            cluster_id=self.cluster_id,
            clock=self._clock,
            background=self._background,
            disk=self._disk,
            random=self._random,
            config=config,
            partitions=self._partitions,
            logs=self._logs,
            controller=channel,
            network=self._peers,
            kraft_version=lambda: self._quorum.kraft_version,
        )
        self._services.when_image_reaches = ImageWaiters(self._loader, self._clock).wait
        self.broker = Broker(self._services)
        if self._controller is not None:
            self._controller_api = ControllerApi(
                self._services,
                self._quorum.handlers(),
                local=local,
                broker_lost=self._controller.broker_connection_lost,
            )
        self._loader.add_publisher(_surviving(self.broker.image_published))
        self._loader.add_publisher(_surviving(self._settings_published))
        if not config.is_broker:
            return
        heartbeats = ControllerLink(
            self._quorum,
            local,
            self._peers,
            timeout_ms=config.integer("broker.session.timeout.ms") // 2,
            lane="broker",
        )
        self._lifecycle = lifecycle = BrokerLifecycle(
            config=lambda: self._services.config,
            cluster_id=self.cluster_id,
            controller=heartbeats,
            clock=self._clock,
            random=self._random,
            metadata_offset=lambda: self._loader.image.offset,
            directories=self._known_directories,
            cordoned=self._cordoned_directories,
        )
        self._services.broker_epoch = lambda: lifecycle.epoch
        self._assignments = DirectoryAssignments(channel, self._clock, config.node_id, lambda: lifecycle.epoch)
        self._partitions.opened = self._note_directory
        # A new controller shall hear of this broker before it looks for it.
        self._quorum.add_leader_watcher(lifecycle.report_soon)
        self._loader.add_publisher(_surviving(lifecycle.image_published))

    def _known_directories(self) -> list[tuple[bytes, bool]]:
        """(id, whether it is online) of every directory; one that could not be read at the start has no id."""
        found = [(each.directory_id, each.online) for each in self._logs.directories.values()]
        return [(directory_id, online) for directory_id, online in found if directory_id != ZERO_UUID or online]

    def _cordoned_directories(self) -> list[bytes]:
        return [each.directory_id for path, each in self._logs.directories.items() if path in self._logs.cordoned]

    def _settings_published(self, delta: ImageDelta, image: ClusterImage) -> None:
        """What the node itself takes from the broker's dynamic settings."""
        config = self._services.config
        enabled = image.metadata_version >= CORDONED_DIRECTORIES_SINCE
        cordoned = frozenset(config.cordoned_log_dirs if enabled else ())
        if cordoned != self._logs.cordoned:
            self._logs.cordoned = cordoned
            if self._lifecycle is not None:
                self._lifecycle.report_soon()
        self._cleaner.reconfigure(CleanerSettings.of(config))
        if self._listeners:
            self._limits.take(config)

    # ---- listeners

    async def _bind_listeners(self) -> None:
        config = self._config
        pool = BufferPool()
        self._limits = ConnectionLimits.of(config, self._connection_descriptors)
        self._unread = UnreadAnswers(default_limit(), self.broker.fetch.memory_is_scarce)
        # Clients must not be able to take the controllers' places.
        counts = {is_controller: ConnectionCounts() for is_controller in (False, True)}
        for address in config.listeners:
            if address.security_protocol != "PLAINTEXT":
                raise ConfigError(
                    "listeners",
                    str(address),
                    f"listener {address.name} asks for {address.security_protocol}; this release serves PLAINTEXT",
                )
            is_controller = address.name in config.controller_listener_names
            service = self._controller_api if is_controller else self.broker
            listener = Listener(address.name, service, pool, self._unread, self._limits, counts[is_controller])
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

    async def _join_cluster(self) -> None:
        config = self._services.config
        features = supported_features(unstable=config.flag("unstable.feature.versions.enable"))
        if self._lifecycle is not None:
            directories = self._logs.directories.values()
            previous = min(-1 if each.clean_epoch is None else each.clean_epoch for each in directories)
            self._lifecycle.register(self._advertised(), features, previous)
            await _kept(self._lifecycle.unfenced)
        if self._controller is None:
            return
        register_controller(
            node_id=config.node_id,
            incarnation=new_uuid(self._random),
            listeners=self._advertised_controller(),
            features=features,
            controller=self._services.controller,
            clock=self._clock,
        )

    def _take_lost_partitions_offline(self) -> None:
        """Partitions whose logs cannot be found may be in a directory that is not there: better none than empty."""
        online = {each.directory_id for each in self._logs.directories.values() if each.online}
        if len(online) == len(self._logs.directories):
            return
        for partition in self._partitions:
            found = self._logs.directory_of(partition.topic, partition.index)
            if found is None and partition.directory not in online:
                partition.go_offline()

    def _set_strays_aside(self) -> None:
        """A crash between the deletion of a topic and that of its logs leaves logs that belong to nobody."""
        for topic, index in self._logs.partitions():
            directory = self._logs.directory_of(topic, index)
            if self._partitions.find(topic, index) is None and directory is not None and directory.online:
                log.warning("%s-%d is in no topic of the cluster; its log is set aside as stray", topic, index)
                self._logs.set_aside(topic, index)

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
            self._partitions,
            self.broker.fetch.sessions,
            self._listeners,
            self._unread,
            lambda: self._loader.image,
            self._config.node_id,
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
        offline = [path for path, each in self._logs.directories.items() if not each.online]
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
        if orderly and self._lifecycle is not None:
            try:
                await asyncio.wait_for(_kept(self._lifecycle.leave()), LEAVE_SECONDS_MAX)
            except TimeoutError:
                log.warning("the controller did not let this broker go in time; stopping all the same")
        if self._running:
            if self._lifecycle is not None:
                self._lifecycle.close()
            if self._assignments is not None:
                self._assignments.close()
            self.broker.close()
        if orderly and len(self._quorum.voters) > 1 and self._quorum.is_leader:
            self._quorum.resign()
            await asyncio.sleep(RESIGN_SECONDS)
        for listener in self._listeners:
            await listener.close()
        if self._http is not None:
            await self._http.close()
        if orderly:
            self._cleaner.stop()
            flushed: Pending[None] = Pending()
            self._logs.flush_all(lambda: flushed.resolve(None))
            await _kept(flushed)
            self._logs.close(NO_EPOCH if self._lifecycle is None else self._lifecycle.epoch)
            self._quorum.shutdown()
        self._peers.close()
        if self._running:
            self._disk.close()
        self._locks.release()
        self._running = False


def _surviving(publisher: Publisher) -> Publisher:
    """A mistake in what follows the metadata must not stop the metadata itself: other nodes depend on it."""

    def publish(delta: ImageDelta, image: ClusterImage) -> None:
        try:
            publisher(delta, image)
        except Exception:
            log.exception("the metadata up to offset %d could not be applied here", image.offset)

    return publish


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
