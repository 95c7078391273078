"""A controller on a quorum of one, and brokers that are nothing but their requests."""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

from moldau.config.node_config import NodeConfig
from moldau.controller.controller import Controller
from moldau.metadata.delta import ImageDelta
from moldau.metadata.features import VersionRange, supported_features
from moldau.metadata.image import ClusterImage, PartitionRegistration
from moldau.metadata.publisher import MetadataLoader
from moldau.protocol.generated.wire import assign_replicas_to_dirs_request
from moldau.protocol.generated.wire.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from moldau.protocol.generated.wire.assign_replicas_to_dirs_response import AssignReplicasToDirsResponse
from moldau.protocol.generated.wire.broker_heartbeat_request import BrokerHeartbeatRequest
from moldau.protocol.generated.wire.broker_heartbeat_response import BrokerHeartbeatResponse
from moldau.protocol.generated.wire.broker_registration_request import BrokerRegistrationRequest, Feature, Listener
from moldau.protocol.generated.wire.broker_registration_response import BrokerRegistrationResponse
from moldau.protocol.generated.wire.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.protocol.generated.wire.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from moldau.protocol.wire import WireMessage
from moldau.quorum.bootstrap import read_bootstrap
from moldau.quorum.format import FormatRequest, format_storage
from moldau.quorum.metadata_log import MetadataLog, MetadataLogSettings
from moldau.quorum.quorum import Quorum
from moldau.quorum.voters import Voter, VoterEndpoint, own_kraft_versions
from moldau.testing.clock import VirtualClock
from moldau.testing.disk import SimulatedDisk

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
R = TypeVar("R", bound=WireMessage)


class ControllerWorld:
    def __init__(self, *, release: str | None = None, features: dict[str, int] | None = None, **config: str) -> None:
        self.clock = VirtualClock()
        self.disk = SimulatedDisk(self.clock)
        self.random = Random(7)
        self.config = NodeConfig.load(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": "localhost:9093",
                "log.dirs": "/data",
                **{name.replace("_", "."): value for name, value in config.items()},
            }
        )
        self.own = Voter(
            1, bytes(range(50, 66)), (VoterEndpoint("CONTROLLER", "localhost", 9093),), own_kraft_versions()
        )
        request = FormatRequest(
            node_id=1,
            cluster_id=CLUSTER_ID,
            directories=["/data"],
            metadata_directory="/data",
            release_version=release,
            features=features or {},
            dynamic=True,
            initial_voters={1: self.own},
        )
        format_storage(self.disk, request, now_ms=self.clock.now_ms(), random=self.random)
        self.epochs: dict[int, int] = {}
        self.directories: dict[int, list[bytes]] = {}
        self.deltas: list[ImageDelta] = []
        self.start()

    def start(self) -> None:
        log = MetadataLog(self.disk, self.clock, "/data", MetadataLogSettings(), failed=self._failed)
        self.quorum = Quorum(disk=self.disk, clock=self.clock, log=log, own=self.own, static_voters=None)
        self.loader = MetadataLoader()
        self.loader.add_publisher(lambda delta, image: self.deltas.append(delta))
        self.controller = Controller(
            node_id=1,
            cluster_id=CLUSTER_ID,
            quorum=self.quorum,
            loader=self.loader,
            clock=self.clock,
            random=self.random,
            config=lambda: self.config,
            bootstrap=read_bootstrap(self.disk, "/data"),
        )
        self.quorum.add_listener(self.loader)
        self.quorum.add_leadership_listener(self.controller)
        self.quorum.start()

    def restart(self) -> None:
        self.quorum.shutdown()
        self.start()

    def crash(self, random: Random) -> None:
        """The process dies, and with it its timers and an arbitrary part of what was not synced."""
        self.controller.resign()
        self.disk.crash(random)
        self.start()

    @staticmethod
    def _failed(failure: Exception) -> None:
        raise failure

    @property
    def image(self) -> ClusterImage:
        return self.loader.image

    def partition(self, topic: str, index: int = 0) -> PartitionRegistration:
        found = self.image.partition(topic, index)
        assert found is not None, f"{topic}-{index} does not exist"
        return found

    def ask(self, request: WireMessage, response_class: type[R], version: int | None = None) -> R:
        pending = self.controller.handle(request, type(request).MAX_VERSION if version is None else version, "User:a")
        assert pending.done, "the disk syncs at once, so the answer is there"
        assert isinstance(pending.value, response_class)
        return pending.value

    # ---- brokers

    def register(
        self,
        broker: int,
        *,
        incarnation: int = 0,
        rack: str | None = None,
        features: dict[str, VersionRange] | None = None,
        previous_epoch: int = -1,
        cluster_id: str = CLUSTER_ID,
        directories: list[bytes] | None = None,
    ) -> BrokerRegistrationResponse:
        directories = directories or [bytes([broker]) * 16]
        response = self.ask(
            BrokerRegistrationRequest(
                broker_id=broker,
                cluster_id=cluster_id,
                incarnation_id=bytes([broker, incarnation]) * 8,
                listeners=[Listener(name="PLAINTEXT", host=f"host-{broker}", port=9092, security_protocol=0)],
                features=[
                    Feature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
                    for name, levels in (supported_features() if features is None else features).items()
                ],
                rack=rack,
                log_dirs=directories,
                previous_broker_epoch=previous_epoch,
            ),
            BrokerRegistrationResponse,
        )
        if response.error_code == 0:
            self.epochs[broker] = response.broker_epoch
            self.directories[broker] = directories
        return response

    def heartbeat(self, broker: int, *, offset: int | None = None, **wishes: Any) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=broker,
            broker_epoch=self.epochs[broker],
            current_metadata_offset=self.image.offset if offset is None else offset,
            **wishes,
        )
        return self.ask(request, BrokerHeartbeatResponse)

    def join(self, *brokers: int, **how: Any) -> None:
        for broker in brokers:
            assert self.register(broker, **how).error_code == 0
            assert not self.heartbeat(broker).is_fenced

    # ---- topics

    def create(
        self,
        name: str,
        partitions: int = -1,
        factor: int = -1,
        *,
        configs: dict[str, str | None] | None = None,
        assignments: dict[int, list[int]] | None = None,
        validate_only: bool = False,
    ) -> CreatableTopicResult:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
                for index, brokers in (assignments or {}).items()
            ],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        request = CreateTopicsRequest(topics=[topic], validate_only=validate_only)
        return self.ask(request, CreateTopicsResponse).topics[0]

    # ---- directories

    def assign(self, broker: int, directory: bytes, topic: str, index: int) -> int:
        request = AssignReplicasToDirsRequest(
            broker_id=broker,
            broker_epoch=self.epochs[broker],
            directories=[
                assign_replicas_to_dirs_request.DirectoryData(
                    id=directory,
                    topics=[
                        assign_replicas_to_dirs_request.TopicData(
                            topic_id=self.image.topics_by_name[topic].id,
                            partitions=[assign_replicas_to_dirs_request.PartitionData(partition_index=index)],
                        )
                    ],
                )
            ],
        )
        response = self.ask(request, AssignReplicasToDirsResponse)
        return response.directories[0].topics[0].partitions[0].error_code
