"""The voters of the quorum, and the control records and configuration text they come from.

A voter set is a value: it is replaced as a whole when a committed control record says so. This file only translates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from moldau.metadata.features import KRAFT_VERSION, VersionRange, supported_features
from moldau.ports import Address
from moldau.protocol.generated.wire.voters_record import Endpoint, KRaftVersionFeature, VotersRecord
from moldau.protocol.generated.wire.voters_record import Voter as VoterData
from moldau.protocol.uuids import ZERO_UUID, uuid_from_string, uuid_to_string


class VoterEndpoint(NamedTuple):
    name: str
    host: str
    port: int


class Voter(NamedTuple):
    """One voter. Static voters (kraft.version 0) are known by id only: their directory id is zero."""

    id: int
    directory_id: bytes
    endpoints: tuple[VoterEndpoint, ...]
    kraft_versions: VersionRange

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, self.directory_id)

    def is_replica(self, key: ReplicaKey) -> bool:
        """Whether that replica is this voter: a static voter is known by its id alone."""
        return self.id == key.id and self.directory_id in (ZERO_UUID, key.directory_id)

    def address(self, listener: str) -> Address | None:
        """Where it listens under that name, or else under its first one."""
        for endpoint in self.endpoints:
            if endpoint.name == listener:
                return Address(endpoint.host, endpoint.port)
        return Address(self.endpoints[0].host, self.endpoints[0].port) if self.endpoints else None


class ReplicaKey(NamedTuple):
    """One replica of the metadata log: a node that lost its disk comes back as another one."""

    id: int
    directory_id: bytes

    def __str__(self) -> str:
        return f"ReplicaKey(id={self.id}, directoryId={uuid_to_string(self.directory_id)})"


VoterSet: TypeAlias = Mapping[int, Voter]


def is_voter(voters: VoterSet, key: ReplicaKey) -> bool:
    voter = voters.get(key.id)
    return voter is not None and voter.is_replica(key)


def majority(voter_count: int) -> int:
    return voter_count // 2 + 1


def own_kraft_versions() -> VersionRange:
    return supported_features()[KRAFT_VERSION]


def voters_from_record(record: VotersRecord) -> VoterSet:
    return {
        voter.voter_id: Voter(
            voter.voter_id,
            voter.voter_directory_id,
            tuple(VoterEndpoint(e.name, e.host, e.port) for e in voter.endpoints),
            VersionRange(
                voter.kraft_version_feature.min_supported_version, voter.kraft_version_feature.max_supported_version
            ),
        )
        for voter in record.voters
    }


def voters_record(voters: VoterSet) -> VotersRecord:
    return VotersRecord(
        version=0,
        voters=[
            VoterData(
                voter_id=voter.id,
                voter_directory_id=voter.directory_id,
                endpoints=[Endpoint(name=e.name, host=e.host, port=e.port) for e in voter.endpoints],
                kraft_version_feature=KRaftVersionFeature(
                    min_supported_version=voter.kraft_versions.min, max_supported_version=voter.kraft_versions.max
                ),
            )
            for voter in voters.values()
        ],
    )


def static_voters(text: Iterable[str], listener: str) -> VoterSet:
    """The voters of `controller.quorum.voters`: entries `id@host:port`, reached over the first controller listener."""
    voters = {}
    for entry in text:
        number, at, address = entry.strip().partition("@")
        host, colon, port = address.rpartition(":")
        if not (at and colon and host and number.isdigit() and port.isdigit()):
            raise ValueError(f"{entry!r} is not a voter: expected id@host:port")
        endpoint = VoterEndpoint(listener, host, int(port))
        voters[int(number)] = Voter(int(number), ZERO_UUID, (endpoint,), own_kraft_versions())
    return voters


def initial_controllers(text: str, listener: str) -> VoterSet:
    """The voters of `--initial-controllers`: entries `id@host:port:directory-id`, separated by commas."""
    voters: dict[int, Voter] = {}
    for entry in text.split(","):
        address, colon, directory = entry.strip().rpartition(":")
        if not colon:
            raise ValueError(f"{entry!r} is not a controller: expected id@host:port:directory-id")
        voter = next(iter(static_voters([address], listener).values()))
        if voter.id in voters:
            raise ValueError(f"controller {voter.id} is named twice")
        voters[voter.id] = voter._replace(directory_id=uuid_from_string(directory))
    return voters
