"""Three brokers and a controller in one process: virtual time, a bad network, crashes, and a client that remembers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from tests.broker.broker_node import CLUSTER_ID, ImmediateBackground

from moldau.broker.broker import Broker
from moldau.broker.context import ClientConnection
from moldau.broker.local_controller import LocalController
from moldau.broker.services import BrokerServices
from moldau.config.node_config import NodeConfig
from moldau.config.topic_config import TopicConfig
from moldau.controller.controller import Controller
from moldau.log.config import LogConfig
from moldau.log.manager import LogManager, LogManagerSettings
from moldau.log.partition_log import PartitionLog
from moldau.metadata.delta import ImageDelta
from moldau.metadata.features import supported_features
from moldau.metadata.image import ClusterImage, PartitionRegistration
from moldau.metadata.publisher import MetadataLoader
from moldau.ports import Address, Pending
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.frames import decode_response, encode_request
from moldau.protocol.generated.wire import broker_registration_request as registration
from moldau.protocol.generated.wire.broker_heartbeat_request import BrokerHeartbeatRequest
from moldau.protocol.generated.wire.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.quorum.bootstrap import read_bootstrap
from moldau.quorum.format import FormatRequest, existing_directories, format_storage
from moldau.quorum.meta_properties import new_uuid
from moldau.quorum.metadata_log import MetadataLog, MetadataLogSettings
from moldau.quorum.quorum import Quorum
from moldau.quorum.voters import Voter, VoterEndpoint, own_kraft_versions
from moldau.records.batch import iter_batches
from moldau.records.builder import build_batch
from moldau.records.record import Record, read_records
from moldau.replication.log_settings import log_config
from moldau.replication.partition import Partition
from moldau.replication.partition_table import PartitionTable
from moldau.testing.clock import LifeClock, VirtualClock
from moldau.testing.disk import SimulatedDisk
from moldau.testing.network import NetworkFaults, VirtualNetwork

BROKERS = (1, 2, 3)
CONTROLLER_ID = 100
HEARTBEAT_MS = 100
TOPIC = "t"
BETWEEN_BROKERS = (ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.WRITE_TXN_MARKERS, ApiKey.ADD_PARTITIONS_TO_TXN)


class WorldController:
    """One active controller that never fails."""

    def __init__(self, clock: VirtualClock, random: Random, overrides: Mapping[str, str]) -> None:
        disk, directory = SimulatedDisk(clock), "/metadata"
        voter = Voter(CONTROLLER_ID, new_uuid(random), (VoterEndpoint("CONTROLLER", "c", 9093),), own_kraft_versions())
        request = FormatRequest(
            node_id=CONTROLLER_ID,
            cluster_id=CLUSTER_ID,
            directories=[directory],
            metadata_directory=directory,
            dynamic=True,
            initial_voters={CONTROLLER_ID: voter},
        )
        format_storage(disk, request, now_ms=clock.now_ms(), random=random)
        found = existing_directories(disk, [directory], cluster_id=CLUSTER_ID, node_id=CONTROLLER_ID)
        voter = voter._replace(directory_id=found[directory].directory_id)
        log = MetadataLog(disk, clock, directory, MetadataLogSettings(), failed=lambda failure: None)
        quorum = Quorum(disk=disk, clock=clock, log=log, own=voter, static_voters=None)
        self.loader = MetadataLoader()
        config = settings(CONTROLLER_ID, overrides)
        controller = Controller(
            node_id=CONTROLLER_ID,
            cluster_id=CLUSTER_ID,
            quorum=quorum,
            loader=self.loader,
            clock=clock,
            random=random,
            config=lambda: config,
            bootstrap=read_bootstrap(disk, directory),
        )
        self.channel = LocalController(controller, quorum, clock)
        quorum.add_listener(self.loader)
        quorum.add_leadership_listener(controller)
        quorum.start()


def settings(node_id: int, overrides: Mapping[str, str] | None = None) -> NodeConfig:
    is_controller = node_id == CONTROLLER_ID
    return NodeConfig.load(
        {
            "node.id": str(node_id),
            "process.roles": "controller" if is_controller else "broker",
            "listeners": "CONTROLLER://c:9093" if is_controller else f"PLAINTEXT://b{node_id}:9092",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "c:9093",
            "log.dirs": "/data",
            "broker.session.timeout.ms": "1000",
            "broker.heartbeat.interval.ms": str(HEARTBEAT_MS),
            "replica.lag.time.max.ms": "800",
            "replica.fetch.backoff.ms": "100",
            "replica.fetch.wait.max.ms": "200",
            **(overrides or {}),
        }
    )


class WorldBroker:
    """One broker through all its lives."""

    def __init__(self, world: ReplicatedWorld, node_id: int) -> None:
        self.world = world
        self.id = node_id
        self.address = Address(f"b{node_id}", 9092)
        self.disk = SimulatedDisk(world.clock)
        self.directory_id = new_uuid(world.random)
        self.config = settings(node_id, world.overrides)
        self.rack = f"rack-{node_id}"
        self.alive = False

    def start(self, *, register: bool = True) -> None:
        world = self.world
        self.alive = True
        self.clock = clock = LifeClock(world.clock)
        self.epoch = -1
        background = ImmediateBackground()
        self.logs = LogManager(
            self.disk,
            clock,
            background,
            {"/data": self.directory_id},
            LogManagerSettings.of(self.config),
            configs=self._topic_settings,
            random=world.random,
        )
        self.logs.load()
        self.services = BrokerServices(
            node_id=self.id,
            cluster_id=CLUSTER_ID,
            clock=clock,
            background=background,
            random=world.random,
            config=self.config,
            partitions=PartitionTable(self.id, self.logs, lambda: self.services.config),
            logs=self.logs,
            disk=self.disk,
            controller=world.controller.channel,
            network=world.network.of(self.address),
            broker_epoch=lambda: self.epoch,
        )
        self.services.partitions.may_lead = self._is_known_in
        self.broker = Broker(self.services)
        self._connection = ClientConnection(1, "PLAINTEXT", "peer", 1)
        self._news: deque[tuple[ImageDelta, ClusterImage]] = deque()
        world.network.listen(self.address, {key: self._handler(key) for key in BETWEEN_BROKERS})
        world.controller.loader.add_publisher(lambda delta, image: self._hear(clock, delta, image))
        if register:
            self.register()

    def _is_known_in(self, image: ClusterImage) -> bool:
        registration = image.brokers.get(self.id)
        return registration is not None and registration.epoch == self.epoch

    def crash(self) -> None:
        """kill -9: what was written is in the page cache, everything else is gone."""
        self.alive = self.clock.alive = False
        self.world.network.crash(self.address)
        self.disk.crash(keep_unsynced=True)

    def _topic_settings(self, topic: str) -> LogConfig | None:
        image = self.services.image
        if image.topic(topic) is None:
            return None
        return log_config(TopicConfig.effective(self.config, image.topic_config_overrides(topic)), self.config)

    def _handler(self, key: int) -> Callable[[Any, int], Any]:
        broker, connection = self.broker, self._connection

        def handle(request: Any, version: int) -> Any:
            frame = encode_request(key, version, 1, "peer", request)[4:]
            outcome = broker.dispatch(memoryview(bytearray(frame)), connection)
            broker.after_requests()
            answer: Pending[Any] = Pending()

            def answered(buffers: Any) -> None:
                data = b"".join(bytes(each) for each in buffers)
                answer.resolve(decode_response(key, version, data[4:])[1])

            if isinstance(outcome, Pending):
                outcome.then(answered)
            else:
                answered(outcome)
            return answer

        return handle

    def ask(self, request: Any, version: int) -> Pending[Any]:
        """What a client that is connected to this broker gets; nothing when the broker dies meanwhile."""
        answer: Pending[Any] = self._handler(request.API_KEY)(request, version)
        return answer

    # ---- membership

    def _hear(self, clock: LifeClock, delta: ImageDelta, image: ClusterImage) -> None:
        """News of the cluster come in order, each some time after it happened."""
        if clock.alive:
            self._news.append((delta, image))
            clock.call_later(self.world.random.randrange(20), self._take_news)

    def _take_news(self) -> None:
        delta, image = self._news.popleft()
        self.broker.image_published(delta, image)

    def register(self) -> None:
        request = registration.BrokerRegistrationRequest(
            broker_id=self.id,
            cluster_id=CLUSTER_ID,
            incarnation_id=new_uuid(self.world.random),
            listeners=[registration.Listener(name="PLAINTEXT", host=self.address.host, port=9092, security_protocol=0)],
            features=[
                registration.Feature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
                for name, levels in supported_features().items()
            ],
            rack=self.rack,
            log_dirs=[self.directory_id],
        )
        answer = self.world.ask(request, 4)
        if answer.error_code:  # its former life is not over yet for the controller
            self.clock.call_later(HEARTBEAT_MS, self.register)
            return
        self.epoch = answer.broker_epoch
        self._beat()

    def _beat(self) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=self.id,
            broker_epoch=self.epoch,
            current_metadata_offset=self.services.image.offset,
            want_fence=False,
        )
        self.world.ask(request, 1)
        self.clock.call_later(HEARTBEAT_MS, self._beat)

    def partition(self, index: int) -> Partition | None:
        return self.services.partitions.find(TOPIC, index) if self.alive else None


class ReplicatedWorld:
    def __init__(
        self,
        seed: int,
        *,
        partitions: int = 2,
        faults: NetworkFaults | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        self.overrides = overrides or {}
        self.random = Random(seed)
        self.clock = VirtualClock()
        self.network = VirtualNetwork(self.clock, self.random, faults or NetworkFaults())
        self.controller = WorldController(self.clock, self.random, self.overrides)
        self.brokers = {node_id: WorldBroker(self, node_id) for node_id in BROKERS}
        self.partitions = partitions
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self._written = 0
        for broker in self.brokers.values():
            broker.start()
        self.run(500)
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=partitions,
            replication_factor=3,
            configs=[CreatableTopicConfig(name="min.insync.replicas", value="2")],
        )
        answer = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
        assert answer.topics[0].error_code == 0, answer
        self.run(100)

    def ask(self, request: Any, version: int) -> Any:
        return self.controller.channel.ask(request, version, "User:ANONYMOUS").value

    # ---- time

    def run(self, milliseconds: int) -> None:
        """Let time pass in steps, and look after each whether everything is as it must be."""
        left = milliseconds
        while left > 0:
            due = self.clock.next_due_ms()
            step = left if due is None else min(due, left)
            self.clock.advance(step)
            left -= step
            self.check_watermarks()

    def until(self, promise: Pending[Any], milliseconds: int = 5000) -> Any:
        """Let time pass until a promise is kept; None when that takes too long."""
        for _ in range(milliseconds):
            if promise.done:
                return promise.value
            self.run(1)
        return None

    def leader(self, index: int, topic: str = TOPIC) -> WorldBroker:
        """The broker that leads a partition, for those who know everything."""
        known = self.controller.loader.image.partition(topic, index)
        assert known is not None, f"there is no {topic}-{index}"
        return self.brokers[known.leader]

    # ---- the client

    def write(self, index: int) -> None:
        """One record with acks=all to whoever believes to lead the partition."""
        believers = [
            each for broker in self.brokers.values() if (each := broker.partition(index)) is not None and each.is_leader
        ]
        if not believers:
            return
        partition = self.random.choice(believers)
        self._written += 1
        value = f"{self._written}".encode() * self.random.randrange(1, 20)
        batch = build_batch([Record(0, self.clock.now_ms(), None, value, ())])
        try:
            info = partition.append(memoryview(batch), -1)
        except ApiError as error:
            if error.code not in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER):
                raise
            return

        def committed() -> None:
            before = self.acknowledged.setdefault((index, info.first_offset), value)
            assert before == value, f"two records are acknowledged at offset {info.first_offset} of {index}"

        if partition.is_committed(info.last_offset + 1):
            committed()
        else:
            partition.when_committed(info.last_offset + 1, committed)

    # ---- what must be true

    def registration(self, index: int) -> PartitionRegistration | None:
        topic = self.controller.loader.image.topic(TOPIC)
        return None if topic is None else topic.partitions[index]

    def logs(self, index: int) -> dict[int, PartitionLog]:
        found = {node_id: broker.partition(index) for node_id, broker in self.brokers.items()}
        return {node_id: each.log for node_id, each in found.items() if each is not None and each.opened}

    def check_watermarks(self) -> None:
        """What the true leader calls committed, every in-sync replica has."""
        for index in range(self.partitions):
            truth = self.registration(index)
            if truth is None:
                continue
            logs = self.logs(index)
            leader = logs.get(truth.leader)
            partition = self.brokers[truth.leader].partition(index) if leader is not None else None
            if leader is None or partition is None or partition.leader_epoch != truth.leader_epoch:
                continue
            for replica in truth.isr:
                copy = logs.get(replica)
                if copy is not None:
                    assert leader.high_watermark <= copy.log_end_offset, (
                        f"{index}: {leader.high_watermark} is committed, replica {replica} of {truth.isr} ends at "
                        f"{copy.log_end_offset}"
                    )

    def check_contents(self) -> None:
        """After healing: nothing acknowledged is lost, and all copies are the same."""
        for index in range(self.partitions):
            truth = self.registration(index)
            assert truth is not None
            assert set(truth.isr) == set(BROKERS), f"{index} has {truth.isr} in sync"
            contents = {node_id: content(log) for node_id, log in self.logs(index).items()}
            assert set(contents) == set(BROKERS)
            assert contents[1] == contents[2] == contents[3], f"the copies of {index} differ"
            records = dict(read(contents[1]))
            lost = {
                offset: value
                for (of, offset), value in self.acknowledged.items()
                if of == index and records.get(offset) != value
            }
            assert not lost, f"acknowledged and lost in {index}: {sorted(lost)[:5]}"


def content(log: PartitionLog) -> bytes:
    parts = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, 1 << 20, max_offset=log.log_end_offset)
        parts += [bytes(each) for each in found.buffers]
        offset = found.next_offset
    return b"".join(parts)


def read(data: bytes) -> list[tuple[int, bytes]]:
    return [
        (record.offset, bytes(record.value or b""))
        for header in iter_batches(memoryview(data))
        for record in read_records(data[header.position : header.end])
    ]
