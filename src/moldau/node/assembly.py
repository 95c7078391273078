"""The rooms of one node, put together over whatever world they are given: a real one, or a simulated one.

Nothing is decided here but who knows whom and in which order the rooms are opened. No event loop, no socket, no
waiting: `node.py` brings those for a process, `moldau.testing.simulation` for many nodes in one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from moldau.broker.access_rules import authorizer_of
from moldau.broker.broker import Broker
from moldau.broker.controller_api import ControllerApi
from moldau.broker.image_waiters import ImageWaiters
from moldau.broker.local_controller import LocalController
from moldau.broker.quorum_channel import ControllerLink, QuorumChannel
from moldau.broker.services import BrokerServices
from moldau.config.node_config import NodeConfig
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
from moldau.metadata.features import CORDONED_DIRECTORIES_SINCE, VersionRange, supported_features
from moldau.metadata.image import ClusterImage
from moldau.metadata.publisher import MetadataLoader, Publisher
from moldau.node.directory_assignments import DirectoryAssignments
from moldau.node.lifecycle import NO_EPOCH, BrokerLifecycle, register_controller
from moldau.node.quorum_setup import broker_probe, open_quorum
from moldau.node.storage import UsableDirectories, prepare_storage
from moldau.ports import Background, Clock, Disk, Network, Pending
from moldau.protocol.uuids import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, ZERO_UUID
from moldau.quorum.bootstrap import read_bootstrap
from moldau.quorum.meta_properties import new_uuid
from moldau.quorum.snapshot_emitter import SnapshotEmitter, SnapshotSettings
from moldau.replication.log_settings import log_config
from moldau.replication.partition import Partition
from moldau.replication.partition_table import PartitionTable

log = logging.getLogger("moldau.node")

Listening = Iterable[tuple[str, str, int, str]]
"""(name, host, port, security protocol) of listeners, as others shall reach them."""


class World(NamedTuple):
    """What a node lives in."""

    clock: Clock
    background: Background
    disk: Disk
    network: Network
    """The way to brokers."""
    random: Random
    to_controllers: Network | None = None
    """The way to controllers, where it is another: they may ask for other proofs of who this node is."""


class Assembly:
    """A broker, a controller, or both in one, without the way in."""

    def __init__(
        self,
        config: NodeConfig,
        world: World,
        *,
        failed: Callable[[], None],
        after_event: Callable[[], None],
        reconfigured: Callable[[NodeConfig], None] | None = None,
    ) -> None:
        """`failed` is called when the node can no longer keep its promises and must be stopped; `after_event` when
        something other than a request may have brought answers; `reconfigured` with new settings of the broker."""
        self._config = config
        self._clock, self._background, self._disk, self._network, self._random, to_controllers = world
        self._to_controllers = to_controllers or self._network
        self._failed = failed
        self._after_event = after_event
        self._reconfigured = reconfigured
        self.loader = MetadataLoader()
        self.controller: Controller | None = None
        self.controller_api: ControllerApi | None = None
        self.lifecycle: BrokerLifecycle | None = None
        self.assignments: DirectoryAssignments | None = None
        self.has_failed = False
        self.cluster_id = ""

    def open(self, usable: UsableDirectories) -> None:
        """Read what the directories hold, and be ready to start: QuorumError, LogDirFailure or StorageError if not."""
        self._open_storage(usable)
        self._open_quorum()
        self._open_logs(usable)
        self._open_broker()

    def _open_storage(self, usable: UsableDirectories) -> None:
        config = self._config
        self.storage = prepare_storage(self._disk, config, usable.directories, self._clock.now_ms(), self._random)
        self.cluster_id = self.storage.cluster_id
        if self.storage.newly_formatted:
            log.info("formatted %s for the new cluster %s", ", ".join(usable.directories), self.cluster_id)

    def _open_quorum(self) -> None:
        config = self._config
        self.quorum = open_quorum(
            config, self.storage, self._disk, self._clock, self._random, self._to_controllers, self._metadata_log_failed
        )
        self.quorum.add_listener(self.loader)
        self.quorum.add_listener(self._snapshot_emitter())
        if not config.is_controller:
            return
        self.controller = Controller(
            node_id=config.node_id,
            cluster_id=self.cluster_id,
            quorum=self.quorum,
            loader=self.loader,
            clock=self._clock,
            random=self._random,
            config=lambda: self.services.config,
            bootstrap=read_bootstrap(self._disk, config.metadata_log_dir),
            unstable_features=config.flag("unstable.feature.versions.enable"),
            probe=broker_probe(self._network, config.inter_broker_listener),
        )
        self.quorum.add_leadership_listener(self.controller)

    def _snapshot_emitter(self) -> SnapshotEmitter:
        settings = SnapshotSettings(
            max_bytes=self._config.integer("metadata.log.max.record.bytes.between.snapshots"),
            max_interval_ms=self._config.integer("metadata.log.max.snapshot.interval.ms"),
        )
        return SnapshotEmitter(self.quorum, self.loader, self._disk, self._clock, self._background, settings)

    def _metadata_log_failed(self, failure: LogDirFailure) -> None:
        """Without its metadata log a node can promise nothing: it stops rather than guess."""
        log.critical("the metadata log failed, the node stops: %s", failure.message)
        self.has_failed = True
        self._failed()

    def _open_logs(self, usable: UsableDirectories) -> None:
        config = self._config
        self.logs = LogManager(
            self._disk,
            self._clock,
            self._background,
            {path: self.storage.directory_ids.get(path, ZERO_UUID) for path in config.log_dirs if config.is_broker},
            LogManagerSettings.of(config),
            configs=self._log_config_of,
            random=self._random,
            directory_failed=self._directory_failed,
            moved=self._log_moved,
        )
        self.partitions = PartitionTable(config.node_id, self.logs, lambda: self.services.config)
        for path, error in usable.lost.items():
            if path in self.logs.directories:
                self.logs.take_offline(self.logs.directories[path], error)
        self.logs.load()
        self.cleaner = LogCleaner(self.logs, self._disk, self._clock, self._background, CleanerSettings.of(config))

    def _log_config_of(self, topic: str) -> LogConfig | None:
        hosted = self.partitions.by_name.get(topic.encode())
        return None if hosted is None else log_config(hosted.config, self.services.config)

    def _directory_failed(self, directory: LogDirectory, partitions: list[TopicPartition]) -> None:
        if not any(each.online for each in self.logs.directories.values()):
            log.critical("no log directory is left, the node stops")
            self.has_failed = True
            self._failed()
        for topic, index in partitions:
            partition = self.partitions.find(topic, index)
            if partition is not None:
                partition.go_offline()
        if self.lifecycle is not None:
            self.lifecycle.report_soon()
        # Not at once: this may be in the midst of a request, and what it wakes must not overtake its answer.
        self._clock.call_later(0, self._after_event)

    def _log_moved(self, moved: PartitionLog) -> None:
        partition = self.partitions.find(moved.topic, moved.partition)
        if partition is not None:
            partition.replace_log(moved)
            self._note_directory(partition)

    def _note_directory(self, partition: Partition) -> None:
        """A log was opened or has moved: make sure that the controller knows where it is."""
        directory = self.logs.directory_of(partition.topic, partition.index)
        if directory is None or self.assignments is None:
            return
        if directory.directory_id not in (partition.directory, ZERO_UUID):
            self.assignments.tell(partition.topic_id, partition.index, directory.directory_id)

    def _open_broker(self) -> None:
        config = self._config
        local = None
        if self.controller is not None:
            local = LocalController(self.controller, self.quorum, self._clock)
        timeout_ms = config.integer("request.timeout.ms")
        forwarding = ControllerLink(self.quorum, local, self._to_controllers, timeout_ms=timeout_ms, lane="forward")
        channel = QuorumChannel(forwarding, self._clock, timeout_ms=timeout_ms)
        self.services = BrokerServices(
            node_id=config.node_id,
            cluster_id=self.cluster_id,
            clock=self._clock,
            background=self._background,
            disk=self._disk,
            random=self._random,
            config=config,
            partitions=self.partitions,
            logs=self.logs,
            controller=channel,
            network=self._network,
            kraft_version=lambda: self.quorum.kraft_version,
            authorizer=authorizer_of(config, lambda: self.services.image),
        )
        self.services.when_image_reaches = ImageWaiters(self.loader, self._clock).wait
        self.broker = Broker(self.services)
        if self.controller is not None:
            self.controller_api = ControllerApi(
                self.services,
                self.quorum.handlers(),
                local=local,
                broker_lost=self.controller.broker_connection_lost,
            )
        self.loader.add_publisher(_surviving(self.broker.image_published))
        self.loader.add_publisher(_surviving(self._settings_published))
        if not config.is_broker:
            return
        heartbeats = ControllerLink(
            self.quorum,
            local,
            self._to_controllers,
            timeout_ms=config.integer("broker.session.timeout.ms") // 2,
            lane="broker",
        )
        self.lifecycle = lifecycle = BrokerLifecycle(
            config=lambda: self.services.config,
            cluster_id=self.cluster_id,
            controller=heartbeats,
            clock=self._clock,
            random=self._random,
            metadata_offset=lambda: self.loader.image.offset,
            directories=self._known_directories,
            cordoned=self._cordoned_directories,
        )
        self.services.broker_epoch = lambda: lifecycle.epoch
        self.partitions.may_lead = lifecycle.is_known_in
        self.assignments = DirectoryAssignments(channel, self._clock, config.node_id, lambda: lifecycle.epoch)
        self.partitions.opened = self._note_directory
        # A new controller shall hear of this broker before it looks for it.
        self.quorum.add_leader_watcher(lifecycle.report_soon)
        self.loader.add_publisher(_surviving(lifecycle.image_published))

    def _known_directories(self) -> list[tuple[bytes, bool]]:
        """(id, whether it is online) of every directory; one that could not be read at the start has no id."""
        found = [(each.directory_id, each.online) for each in self.logs.directories.values()]
        return [(directory_id, online) for directory_id, online in found if directory_id != ZERO_UUID or online]

    def _cordoned_directories(self) -> list[bytes]:
        return [each.directory_id for path, each in self.logs.directories.items() if path in self.logs.cordoned]

    def _settings_published(self, delta: ImageDelta, image: ClusterImage) -> None:
        """What the node itself takes from the broker's dynamic settings."""
        config = self.services.config
        enabled = image.metadata_version >= CORDONED_DIRECTORIES_SINCE
        cordoned = frozenset(config.cordoned_log_dirs if enabled else ())
        if cordoned != self.logs.cordoned:
            self.logs.cordoned = cordoned
            if self.lifecycle is not None:
                self.lifecycle.report_soon()
        self.cleaner.reconfigure(CleanerSettings.of(config))
        if self._reconfigured is not None:
            self._reconfigured(config)

    # ---- joining

    def join(self, listeners: Listening) -> Pending[None]:
        """Make the broker known to the cluster; kept when it takes part. The quorum must have been started."""
        if self.lifecycle is None:
            return Pending.of(None)
        directories = self.logs.directories.values()
        previous = min(-1 if each.clean_epoch is None else each.clean_epoch for each in directories)
        self.lifecycle.register(listeners, self._features(), previous)
        return self.lifecycle.unfenced

    def joined(self, controller_listeners: Listening) -> None:
        """The node takes part: what it found on its disks is compared with what the cluster believes."""
        if self.controller is not None:
            register_controller(
                node_id=self._config.node_id,
                incarnation=new_uuid(self._random),
                listeners=controller_listeners,
                features=self._features(),
                controller=self.services.controller,
                clock=self._clock,
            )
        self.partitions.live = True
        self._take_lost_partitions_offline()
        self._bring_found_partitions_back()
        self._set_strays_aside()

    def _features(self) -> dict[str, VersionRange]:
        return supported_features(unstable=self.services.config.flag("unstable.feature.versions.enable"))

    def work(self) -> None:
        """Begin with what goes on beside the requests: flushing, retention, compaction."""
        self.logs.start()
        self.cleaner.start()

    # ---- leaving

    def leave(self) -> Pending[None]:
        """Tell the controller what it must know and ask it to move leadership away; kept when this node may go."""
        lifecycle, assignments = self.lifecycle, self.assignments
        if lifecycle is None or assignments is None:
            return Pending.of(None)
        left: Pending[None] = Pending()
        assignments.tell_now().then(lambda _: lifecycle.leave().then(left.resolve))
        return left

    def close(self) -> None:
        """Nothing happens here on its own any more; the logs are still open."""
        if self.lifecycle is not None:
            self.lifecycle.close()
        if self.assignments is not None:
            self.assignments.close()
        self.broker.close()

    def close_logs(self) -> Pending[None]:
        """Flush and close everything in good order, so that the next start need not recover; kept when it is done."""
        self.cleaner.stop()
        closed: Pending[None] = Pending()

        def flushed() -> None:
            self.logs.close(NO_EPOCH if self.lifecycle is None else self.lifecycle.epoch)
            self.quorum.shutdown()
            closed.resolve(None)

        self.logs.flush_all(flushed)
        return closed

    # ---- what was found on disk
    def _take_lost_partitions_offline(self) -> None:
        """Partitions whose logs cannot be found may be in a directory that is not there: better none than empty."""
        online = {each.directory_id for each in self.logs.directories.values() if each.online}
        if len(online) == len(self.logs.directories):
            return
        for partition in self.partitions:
            found = self.logs.directory_of(partition.topic, partition.index)
            if found is None and partition.directory not in online:
                partition.go_offline()
                if self.assignments is not None and not self._is_of_a_known_directory(partition):
                    # A crash came before the controller was told where it is; it must not believe that all is well.
                    self.assignments.tell(partition.topic_id, partition.index, LOST_DIRECTORY)

    def _is_of_a_known_directory(self, partition: Partition) -> bool:
        """Whether the controller knows a directory for it: that it is not among the online ones then says enough."""
        return partition.directory not in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)

    def _bring_found_partitions_back(self) -> None:
        """What was reported as lost is led by nobody, so nobody else would find out that it is here again."""
        all_online = all(each.online for each in self.logs.directories.values())
        for partition in self.partitions:
            if partition.directory != LOST_DIRECTORY:
                continue
            if self.logs.directory_of(partition.topic, partition.index) is not None:
                self._note_directory(partition)
            elif all_online:
                _ = partition.log  # there was no log yet when it was reported: it begins now

    def _set_strays_aside(self) -> None:
        """A crash between the deletion of a topic and that of its logs leaves logs that belong to nobody."""
        for topic, index in self.logs.partitions():
            directory = self.logs.directory_of(topic, index)
            if self.partitions.find(topic, index) is None and directory is not None and directory.online:
                log.warning("%s-%d is in no topic of the cluster; its log is set aside as stray", topic, index)
                self.logs.set_aside(topic, index)


def _surviving(publisher: Publisher) -> Publisher:
    """A mistake in what follows the metadata must not stop the metadata itself: other nodes depend on it."""

    def publish(delta: ImageDelta, image: ClusterImage) -> None:
        try:
            publisher(delta, image)
        except Exception:
            log.exception("the metadata up to offset %d could not be applied here", image.offset)

    return publish
