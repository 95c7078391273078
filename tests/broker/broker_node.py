"""A whole node without sockets, clock or disk of its own: requests go in as frames, answers come out decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

from moldau.broker.broker import Broker
from moldau.broker.context import ClientConnection
from moldau.broker.controller_api import ControllerApi
from moldau.broker.local_controller import LocalController
from moldau.broker.services import BrokerServices
from moldau.config.node_config import NodeConfig
from moldau.config.one_node import defaults_for_one_node
from moldau.config.topic_config import TopicConfig
from moldau.controller.controller import Controller
from moldau.log.config import LogConfig
from moldau.log.manager import LogManager, LogManagerSettings
from moldau.metadata.features import supported_features
from moldau.metadata.publisher import MetadataLoader
from moldau.ports import Pending
from moldau.protocol.api import API_TABLE, ApiKey
from moldau.protocol.frames import decode_response, encode_request
from moldau.protocol.generated.wire import broker_registration_request as registration
from moldau.protocol.generated.wire.broker_heartbeat_request import BrokerHeartbeatRequest
from moldau.protocol.generated.wire.controller_registration_request import ControllerRegistrationRequest
from moldau.protocol.generated.wire.controller_registration_request import Listener as ControllerListener
from moldau.protocol.generated.wire.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.protocol.generated.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.generated.wire.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
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
from moldau.replication.partition_table import PartitionTable
from moldau.testing.clock import LifeClock, VirtualClock
from moldau.testing.disk import SimulatedDisk

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
HOST, PORT = "broker.example", 9092
HEARTBEAT_MS = 2000
CONTROLLER = ("controller.example", 9093)


class ImmediateBackground:
    """`ports.Background` that runs every job to its end at once."""

    def run(self, steps: Iterator[None], done: Callable[[BaseException | None], None] | None = None) -> None:
        for _ in steps:
            pass
        if done is not None:
            done(None)


class Refused(Exception):
    """The connection would have been closed."""


class SimulatedNode:
    """Broker and controller of one node on a simulated disk, under a virtual clock."""

    def __init__(self, *, directories: int = 1, seed: int = 7, **settings: str) -> None:
        self.clock = VirtualClock()
        self.disk = SimulatedDisk(self.clock)
        self.random = Random(seed)
        self.directories = [f"/data{number}" for number in range(directories)]
        properties = defaults_for_one_node(host=HOST, port=PORT)
        properties["listeners"] = f"PLAINTEXT://{HOST}:{PORT},OTHER://{HOST}:9094,CONTROLLER://{HOST}:9093"
        properties["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,CONTROLLER:PLAINTEXT"
        properties["log.dirs"] = ",".join(self.directories)
        properties.update({name.replace("_", "."): value for name, value in settings.items()})
        self.config = NodeConfig.load(properties)
        self._format()
        self._start()

    # ---- wiring, as a node does it

    def _format(self) -> None:
        self.directory_id = new_uuid(self.random)
        endpoint = VoterEndpoint("CONTROLLER", *CONTROLLER)
        self.voter = Voter(1, self.directory_id, (endpoint,), own_kraft_versions())
        request = FormatRequest(
            node_id=1,
            cluster_id=CLUSTER_ID,
            directories=self.directories,
            metadata_directory=self.directories[0],
            dynamic=True,
            initial_voters={1: self.voter},
        )
        format_storage(self.disk, request, now_ms=self.clock.now_ms(), random=self.random)

    def _start(self) -> None:
        clock, random = LifeClock(self.clock), self.random
        self._life = clock
        found = existing_directories(self.disk, self.directories, cluster_id=CLUSTER_ID, node_id=1)
        self.directory_ids = {path: properties.directory_id for path, properties in found.items()}
        log = MetadataLog(self.disk, clock, self.directories[0], MetadataLogSettings(), failed=self._fail)
        self.voter = self.voter._replace(directory_id=self.directory_ids[self.directories[0]])
        self.quorum = Quorum(disk=self.disk, clock=clock, log=log, own=self.voter, static_voters=None)
        self.loader = MetadataLoader()
        controller = Controller(
            node_id=1,
            cluster_id=CLUSTER_ID,
            quorum=self.quorum,
            loader=self.loader,
            clock=clock,
            random=random,
            config=lambda: self.services.config,
            bootstrap=read_bootstrap(self.disk, self.directories[0]),
        )
        background = ImmediateBackground()
        self.logs = LogManager(
            self.disk,
            clock,
            background,
            self.directory_ids,
            LogManagerSettings.of(self.config),
            configs=self._topic_settings,
            random=random,
            directory_failed=self._directory_failed,
            moved=self._log_moved,
        )
        self.logs.load()
        partitions = PartitionTable(1, self.logs, lambda: self.services.config)
        self.channel = LocalController(controller, self.quorum, clock)
        self.services = BrokerServices(
            node_id=1,
            cluster_id=CLUSTER_ID,
            clock=clock,
            background=background,
            random=random,
            config=self.config,
            partitions=partitions,
            logs=self.logs,
            disk=self.disk,
            controller=self.channel,
            kraft_version=lambda: self.quorum.kraft_version,
        )
        self.broker = Broker(self.services)
        self.controller_api = ControllerApi(self.services)
        self.loader.add_publisher(self.broker.image_published)
        self.quorum.add_listener(self.loader)
        self.quorum.add_leadership_listener(controller)
        self.quorum.start()
        self._register()
        self._keep_alive()
        self.client = Client(self)

    def _directory_failed(self, directory: object, lost: list[tuple[str, int]]) -> None:
        for topic, index in lost:
            partition = self.services.partitions.find(topic, index)
            if partition is not None:
                partition.replace_log(None)
                partition.tell_data(1 << 62)

    def _log_moved(self, moved: Any) -> None:
        partition = self.services.partitions.find(moved.topic, moved.partition)
        if partition is not None:
            partition.replace_log(moved)

    def _fail(self, failure: object) -> None:
        raise AssertionError(failure)

    def _topic_settings(self, topic: str) -> LogConfig | None:
        services = self.services
        if services.image.topic(topic) is None:
            return None
        config = TopicConfig.effective(services.config, services.image.topic_config_overrides(topic))
        return log_config(config, services.config)

    def _register(self) -> None:
        features = supported_features()
        request = registration.BrokerRegistrationRequest(
            broker_id=1,
            cluster_id=CLUSTER_ID,
            incarnation_id=new_uuid(self.random),
            listeners=[
                registration.Listener(name="PLAINTEXT", host=HOST, port=PORT, security_protocol=0),
                registration.Listener(name="OTHER", host=HOST, port=9094, security_protocol=0),
            ],
            features=[
                registration.Feature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
                for name, levels in features.items()
            ],
            rack="rack-a",
            log_dirs=list(self.directory_ids.values()),
        )
        self.incarnation_id = request.incarnation_id
        answer = self.ask(request, 4)
        assert answer.error_code == 0, answer
        self.broker_epoch = answer.broker_epoch
        controller = ControllerRegistrationRequest(
            controller_id=1,
            incarnation_id=new_uuid(self.random),
            listeners=[ControllerListener(name="CONTROLLER", host=CONTROLLER[0], port=CONTROLLER[1])],
        )
        assert self.ask(controller, 0).error_code == 0
        self.heartbeat()

    def _keep_alive(self) -> None:
        incarnation_id = self.incarnation_id

        def beat() -> None:
            if self.incarnation_id == incarnation_id:
                self.heartbeat()
                self.clock.call_later(HEARTBEAT_MS, beat)

        self.clock.call_later(HEARTBEAT_MS, beat)

    def heartbeat(self) -> Any:
        request = BrokerHeartbeatRequest(
            broker_id=1,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self.services.image.offset,
            want_fence=False,
        )
        answer = self.ask(request, 1)
        assert answer.error_code == 0, answer
        return answer

    def ask(self, request: Any, version: int) -> Any:
        """What the controller answers."""
        return self.channel.ask(request, version, "User:ANONYMOUS").value

    def restart(self) -> None:
        """Stop without any preparation and start again on what is on disk."""
        self._life.alive = False
        self.disk.crash(keep_unsynced=True)
        self._start()

    # ---- shortcuts

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        answer = self.client.send(CreateTopicsRequest(topics=[topic]), 7)
        assert answer.topics[0].error_code == 0, answer
        return answer.topics[0].topic_id


class Client:
    """One connection."""

    def __init__(
        self, node: SimulatedNode, *, listener: str = "PLAINTEXT", client_id: str | None = "tests", to: Any = None
    ) -> None:
        self.node = node
        self.client_id = client_id
        self.service = to if to is not None else node.broker
        self.connection = ClientConnection(1, listener, "192.0.2.7", 51234)
        self._correlation_id = 100

    def post(self, request: Any, version: int) -> Pending[Any]:
        """Send a request; the promise holds the decoded response (None for a request without one)."""
        self._correlation_id += 1
        spec = API_TABLE[ApiKey(type(request).API_KEY)]
        frame = encode_request(spec, version, self._correlation_id, self.client_id, request)
        outcome = self.service.dispatch(memoryview(frame)[4:], self.connection)
        correlation_id = self._correlation_id
        response: Pending[Any] = Pending()

        def answered(buffers: list[Any] | None) -> None:
            response.resolve(None if buffers is None else decoded(spec, version, correlation_id, buffers))

        if isinstance(outcome, Pending):
            outcome.then(answered)
        else:
            answered(outcome)
        self.service.after_requests()
        return response

    def send(self, request: Any, version: int) -> Any:
        """Send a request that is answered at once."""
        response = self.post(request, version)
        assert response.done, f"{type(request).__name__} is not answered yet"
        return response.value

    def raw(self, frame: bytes) -> Any:
        return self.service.dispatch(memoryview(frame), self.connection)

    def disconnect(self) -> None:
        self.service.disconnected(self.connection)


def decoded(spec: Any, version: int, correlation_id: int, buffers: list[Any]) -> Any:
    whole = b"".join(bytes(buffer) for buffer in buffers)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4, "the frame's length is not that of the frame"
    answered_id, message = decode_response(spec, version, whole[4:])
    assert answered_id == correlation_id
    return message


def settings(**values: str) -> Mapping[str, str]:
    return {name.replace("_", "."): value for name, value in values.items()}


# ---- records


def batch(
    *values: bytes | tuple[bytes | None, bytes | None],
    timestamp: int = 1_700_000_000_000,
    codec: int = 0,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """One record batch as a client sends it; a value alone has no key."""
    records = [
        Record(offset, timestamp + offset, *(value if isinstance(value, tuple) else (None, value)), ())
        for offset, value in enumerate(values)
    ]
    return build_batch(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def produce_request(
    topic: str | bytes, *records: bytes | None, version: int, acks: int = -1, timeout_ms: int = 1000, first: int = 0
) -> ProduceRequest:
    """One batch for each of the topic's partitions from `first` on; the topic by id from version 13 on."""
    partitions = [PartitionProduceData(index=first + i, records=each) for i, each in enumerate(records)]
    data = TopicProduceData(partition_data=partitions)
    if version >= 13:
        assert isinstance(topic, bytes)
        data.topic_id = topic
    else:
        assert isinstance(topic, str)
        data.name = topic
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data])


def fetch_request(
    topic: str | bytes,
    *offsets: int,
    version: int,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
    isolation_level: int = 0,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    first: int = 0,
) -> FetchRequest:
    """A fetch of the topic's partitions from `first` on, each from one of the offsets."""
    partitions = [
        FetchPartition(
            partition=first + i,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_fetched_epoch,
            partition_max_bytes=partition_max_bytes,
        )
        for i, offset in enumerate(offsets)
    ]
    wanted = FetchTopic(partitions=partitions)
    if version >= 13:
        assert isinstance(topic, bytes)
        wanted.topic_id = topic
    else:
        assert isinstance(topic, str)
        wanted.topic = topic
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0] if version >= 7 else 0,
        session_epoch=session[1] if version >= 7 else -1,
        topics=[wanted] if partitions else [],
    )


def records_of(fetched: Any) -> list[Record]:
    """All records in a fetched buffer."""
    data = bytes(fetched or b"")
    found: list[Record] = []
    position = 0
    for header in iter_batches(data):
        found += read_records(data[position : position + header.size])
        position += header.size
    assert position == len(data), "a fetch gives whole batches"
    return found


def values_of(fetched: Any) -> list[bytes | None]:
    return [record.value for record in records_of(fetched)]
