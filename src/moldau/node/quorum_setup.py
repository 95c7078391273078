"""The quorum of one node over the real world: its log, its voters, its peers, as the settings say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from moldau.config.node_config import NodeConfig
from moldau.controller.suspicion import Probe
from moldau.log.errors import LogDirFailure
from moldau.metadata.image import BrokerRegistration
from moldau.node.storage import Storage
from moldau.ports import Address, Clock, Disk, Network, Unreachable
from moldau.protocol.generated.wire.api_versions_request import ApiVersionsRequest
from moldau.protocol.uuids import ZERO_UUID
from moldau.quorum.metadata_log import MetadataLog, MetadataLogSettings
from moldau.quorum.quorum import Peers, Quorum
from moldau.quorum.settings import QuorumSettings
from moldau.quorum.voters import Voter, VoterEndpoint, own_kraft_versions, static_voters

PROBE_TIMEOUT_MS = 2000


def open_quorum(
    config: NodeConfig,
    storage: Storage,
    disk: Disk,
    clock: Clock,
    random: Random,
    network: Network,
    failed: Callable[[LogDirFailure], None],
) -> Quorum:
    settings = MetadataLogSettings(
        segment_bytes=config.integer("metadata.log.segment.bytes"),
        segment_ms=config.integer("metadata.log.segment.ms"),
        retention_bytes=config.integer("metadata.max.retention.bytes"),
        retention_ms=config.integer("metadata.max.retention.ms"),
    )
    log = MetadataLog(disk, clock, config.metadata_log_dir, settings, failed=failed)
    own = Voter(
        config.node_id,
        storage.directory_ids.get(config.metadata_log_dir, ZERO_UUID),
        tuple(VoterEndpoint(each.name, each.host or "localhost", each.port) for each in config.controller_listeners),
        own_kraft_versions(),
    )
    listener = config.controller_listener_names[0].upper()
    voters = config.words("controller.quorum.voters")
    return Quorum(
        disk=disk,
        clock=clock,
        log=log,
        own=own,
        static_voters=static_voters(voters, listener) if voters else None,
        peers=Peers(
            network=network,
            random=random,
            cluster_id=storage.cluster_id,
            listener=listener,
            bootstrap=[Address(host, port) for host, port in config.quorum_servers],
            settings=QuorumSettings.of(config),
            can_vote=config.is_controller,
        ),
    )


def listens_at(quorum: Quorum, endpoints: Iterable[tuple[str, str, int, str]]) -> None:
    """Ports that the system chose are known only after binding: tell the quorum before it starts."""
    found = tuple(VoterEndpoint(name, host, port) for name, host, port, _ in endpoints)
    quorum.own = quorum.own._replace(endpoints=found)


def broker_probe(network: Network, listener: str) -> Probe:
    """Asks a broker's machine whether anybody still listens where the broker is reached by other nodes."""

    def probe(broker: BrokerRegistration, answered: Callable[[bool], None]) -> None:
        endpoint = broker.listeners.get(listener) or next(iter(broker.listeners.values()), None)
        if endpoint is None:
            answered(False)
            return
        network.send(
            Address(endpoint.host, endpoint.port),
            ApiVersionsRequest(client_software_name="moldau", client_software_version="1"),
            ApiVersionsRequest.MAX_VERSION,
            lambda answer: answered(isinstance(answer, Unreachable) and answer.nobody_listens),
            timeout_ms=PROBE_TIMEOUT_MS,
            lane="probe",
        )

    return probe
