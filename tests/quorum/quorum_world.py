"""A node's quorum on a disk in memory: formatted, started, crashed and started again."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from moldau.metadata.publisher import MetadataLoader
from moldau.metadata.records import MetadataRecord
from moldau.protocol.generated.metadata.topic_record import TopicRecord
from moldau.quorum.encoding import encode_records
from moldau.quorum.format import FormatRequest, format_storage
from moldau.quorum.metadata_log import MetadataLog, MetadataLogSettings
from moldau.quorum.quorum import Appended, Quorum
from moldau.quorum.snapshot_emitter import SnapshotEmitter, SnapshotSettings
from moldau.quorum.voters import Voter, VoterEndpoint, VoterSet, own_kraft_versions, static_voters
from moldau.testing.clock import VirtualClock
from moldau.testing.disk import SimulatedDisk

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
DIRECTORY_ID = bytes(range(100, 116))
LEVEL = 30


class InlineBackground:
    """`ports.Background` that does the work at once."""

    def run(self, steps: Iterator[None], done: object = None) -> None:
        error: BaseException | None = None
        try:
            for _ in steps:
                pass
        except Exception as raised:
            error = raised
        if callable(done):
            done(error)


class Leadership:
    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.resigned = 0

    def lead(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def resign(self) -> None:
        self.resigned += 1


def own_voter(port: int = 9093) -> Voter:
    return Voter(1, DIRECTORY_ID, (VoterEndpoint("CONTROLLER", "localhost", port),), own_kraft_versions())


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=name.encode().ljust(16, b"."))


class QuorumWorld:
    def __init__(
        self,
        *,
        dynamic: bool = True,
        settings: MetadataLogSettings | None = None,
        snapshots: SnapshotSettings | None = None,
    ) -> None:
        self.clock = VirtualClock()
        self.disk = SimulatedDisk(self.clock)
        self.static: VoterSet | None = None if dynamic else static_voters(["1@localhost:9093"], "CONTROLLER")
        self.settings = settings or MetadataLogSettings()
        self.snapshots = snapshots or SnapshotSettings()
        self.failures: list[object] = []
        request = FormatRequest(
            node_id=1,
            cluster_id=CLUSTER_ID,
            directories=["/data"],
            metadata_directory="/data",
            dynamic=dynamic,
            initial_voters={1: own_voter()} if dynamic else None,
        )
        format_storage(self.disk, request, now_ms=self.clock.now_ms(), random=Random(1))

    def start(self, own: Voter | None = None) -> Quorum:
        log = MetadataLog(self.disk, self.clock, "/data", self.settings, failed=self.failures.append)
        self.quorum = Quorum(
            disk=self.disk, clock=self.clock, log=log, own=own or own_voter(), static_voters=self.static
        )
        self.loader = MetadataLoader()
        self.leadership = Leadership()
        self.emitter = SnapshotEmitter(
            self.quorum, self.loader, self.disk, self.clock, InlineBackground(), self.snapshots
        )
        self.quorum.add_listener(self.loader)
        self.quorum.add_listener(self.emitter)
        self.quorum.add_leadership_listener(self.leadership)
        self.quorum.start()
        return self.quorum

    def append(self, *records: MetadataRecord) -> Appended:
        return self.quorum.append(records, encode_records(records, LEVEL))

    def append_topics(self, *names: str) -> Appended:
        return self.append(*(topic(name) for name in names))

    @property
    def topics(self) -> list[str]:
        return list(self.loader.image.topics_by_name)

    def files(self) -> list[str]:
        return self.disk.list_dir("/data/__cluster_metadata-0")
