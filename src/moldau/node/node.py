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
from moldau.broker.local_controller import LocalController
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
from moldau.metadata.publisher import MetadataLoader
from moldau.node.buffers import BufferPool
from moldau.node.clock import LoopBackground, LoopClock
from moldau.node.disk import OsDisk
from moldau.node.http import HttpServer, json_page
from moldau.node.lifecycle import BrokerLifecycle, register_controller
from moldau.node.listener import ConnectionCounts, ConnectionLimits, Listener
from moldau.node.metrics import NodeMetrics
from moldau.node.storage import DirectoryLocks, StorageError, all_directories, prepare_storage
from moldau.node.unread import UnreadAnswers, default_limit
from moldau.ports import Pending
from moldau.protocol.uuids import ZERO_UUID
from moldau.quorum.bootstrap import read_bootstrap
from moldau.quorum.meta_properties import new_uuid
from moldau.quorum.metadata_log import MetadataLog, MetadataLogSettings
from moldau.quorum.quorum import Quorum, QuorumError
from moldau.quorum.snapshot_emitter import SnapshotEmitter, SnapshotSettings
from moldau.quorum.voters import Voter, VoterEndpoint, own_kraft_versions, static_voters
from moldau.replication.log_settings import log_config
from moldau.replication.partition_table import PartitionTable

log = logging.getLogger("moldau.node")

LEAVE_SECONDS_MAX = 5.0
# Descriptors kept for connections; the rest are for files.
CONNECTION_DESCRIPTORS_MIN = 1024
FILE_DESCRIPTORS_MIN = 128
CONNECTIONS_MIN = 16
# For everything else: the loop itself, listeners, locks, files that are read as a whole.
SPARE_DESCRIPTORS = 64


class Node:
    """A broker that is its own controller."""

    def __init__(self, config: NodeConfig, failed: Callable[[], None]) -> None:
        """`failed` is called when the node can no longer keep its promises and must be stopped."""
        if not (config.is_broker and config.is_controller):
            raise ConfigError(
                "process.roles", ",".join(sorted(config.roles)), "this release runs broker and controller together"
            )
        self._config = config
        self._failed = failed
        self._random = SystemRandom()
        self._locks = DirectoryLocks()
        self._loader = MetadataLoader()
        self._listeners: list[Listener] = []
        self._http: HttpServer | None = None
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
            self._quorum.start()
            await self._join_cluster()
            self._set_strays_aside()
            for listener in self._listeners:
                await listener.accept()
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
        self._disk = OsDisk(lambda call: _post(loop, call, self._after_disk), open_files=open_files)

    def _after_disk(self) -> None:
        """A sync has ended and may have committed records: answer those who wait for them."""
        if self._running:
            self.broker.after_requests()

    def _open_storage(self) -> None:
        directories = all_directories(self._config)
        for directory in directories:
            self._disk.make_dirs(directory)
        self._locks.take(directories)
        self._storage = prepare_storage(self._disk, self._config, self._clock.now_ms(), self._random)
        self.cluster_id = self._storage.cluster_id
        if self._storage.newly_formatted:
            log.info("formatted %s for the new cluster %s", ", ".join(directories), self.cluster_id)

    def _open_quorum(self) -> None:
        config = self._config
        settings = MetadataLogSettings(
            segment_bytes=config.integer("metadata.log.segment.bytes"),
            segment_ms=config.integer("metadata.log.segment.ms"),
            retention_bytes=config.integer("metadata.max.retention.bytes"),
            retention_ms=config.integer("metadata.max.retention.ms"),
        )
        metadata_log = MetadataLog(
            self._disk, self._clock, config.metadata_log_dir, settings, failed=self._metadata_log_failed
        )
        listeners = config.controller_listeners
        own = Voter(
            config.node_id,
            self._storage.directory_ids.get(config.metadata_log_dir, ZERO_UUID),
            tuple(VoterEndpoint(each.name, each.host or "localhost", each.port) for each in listeners),
            own_kraft_versions(),
        )
        voters = config.words("controller.quorum.voters")
        self._quorum = Quorum(
            disk=self._disk,
            clock=self._clock,
            log=metadata_log,
            own=own,
            static_voters=static_voters(voters, listeners[0].name) if voters else None,
        )
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
        )
        self._quorum.add_listener(self._loader)
        self._quorum.add_listener(self._snapshot_emitter())
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
            {path: self._storage.directory_ids[path] for path in config.log_dirs},
            LogManagerSettings.of(config),
            configs=self._log_config_of,
            random=self._random,
            directory_failed=self._directory_failed,
            moved=self._log_moved,
        )
        self._logs.load()
        self._cleaner = LogCleaner(self._logs, self._disk, self._clock, self._background, CleanerSettings.of(config))

    def _log_config_of(self, topic: str) -> LogConfig | None:
        hosted = self._partitions.by_name.get(topic.encode())
        return None if hosted is None else log_config(hosted.config, self._services.config)

    def _directory_failed(self, directory: LogDirectory, partitions: list[TopicPartition]) -> None:
        for topic, index in partitions:
            partition = self._partitions.find(topic, index)
            if partition is not None:
                partition.replace_log(None)
                partition.tell_data(1 << 62)
        self._lifecycle.report_soon()

    def _log_moved(self, moved: PartitionLog) -> None:
        partition = self._partitions.find(moved.topic, moved.partition)
        if partition is not None:
            partition.replace_log(moved)

    def _open_broker(self) -> None:
        config = self._config
        self._partitions = PartitionTable(config.node_id, self._logs, lambda: self._services.config)
        channel = LocalController(self._controller, self._quorum, self._clock)
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
            kraft_version=lambda: self._quorum.kraft_version,
        )
        self.broker = Broker(self._services)
        self._controller_api = ControllerApi(self._services)
        self._loader.add_publisher(self.broker.image_published)
        self._loader.add_publisher(self._settings_published)
        self._lifecycle = BrokerLifecycle(
            config=lambda: self._services.config,
            cluster_id=self.cluster_id,
            controller=channel,
            clock=self._clock,
            random=self._random,
            metadata_offset=lambda: self._loader.image.offset,
            directories=lambda: [(each.directory_id, each.online) for each in self._logs.directories.values()],
            cordoned=self._cordoned_directories,
        )

    def _cordoned_directories(self) -> list[bytes]:
        return [each.directory_id for path, each in self._logs.directories.items() if path in self._logs.cordoned]

    def _settings_published(self, delta: ImageDelta, image: ClusterImage) -> None:
        """What the node itself takes from the broker's dynamic settings."""
        config = self._services.config
        enabled = image.metadata_version >= CORDONED_DIRECTORIES_SINCE
        cordoned = frozenset(config.cordoned_log_dirs if enabled else ())
        if cordoned != self._logs.cordoned:
            self._logs.cordoned = cordoned
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
            for each in self._config.controller_listeners
        ]

    async def _join_cluster(self) -> None:
        config = self._services.config
        previous = min(-1 if each.clean_epoch is None else each.clean_epoch for each in self._logs.directories.values())
        features = supported_features(unstable=config.flag("unstable.feature.versions.enable"))
        self._lifecycle.register(self._advertised(), features, previous)
        await _kept(self._lifecycle.unfenced)
        register_controller(
            node_id=config.node_id,
            incarnation=new_uuid(self._random),
            listeners=self._advertised_controller(),
            features=features,
            controller=self._services.controller,
            clock=self._clock,
        )

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
        """The port of the first client listener."""
        names = {listener.name for listener in self._config.broker_listeners}
        return next(listener.port for listener in self._listeners if listener.name in names)

    @property
    def addresses(self) -> list[str]:
        return [f"{name}://{host}:{port}" for name, host, port, _ in self._advertised()]

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
        if orderly:
            try:
                await asyncio.wait_for(_kept(self._lifecycle.leave()), LEAVE_SECONDS_MAX)
            except TimeoutError:
                log.warning("the controller did not let this broker go in time; stopping all the same")
        if self._running:
            self._lifecycle.close()
            self.broker.close()
        for listener in self._listeners:
            await listener.close()
        if self._http is not None:
            await self._http.close()
        if orderly:
            self._cleaner.stop()
            flushed: Pending[None] = Pending()
            self._logs.flush_all(lambda: flushed.resolve(None))
            await _kept(flushed)
            self._logs.close(self._lifecycle.epoch)
            self._quorum.shutdown()
        if self._running:
            self._disk.close()
        self._locks.release()
        self._running = False


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
