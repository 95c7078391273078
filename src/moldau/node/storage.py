"""The node's directories before anything is read from them: locked against a second process, and formatted.

A node that finds an empty directory formats it by itself, so that the first start needs no other command. A
directory that belongs to another cluster or node is refused.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from moldau.config.node_config import NodeConfig
from moldau.ports import Disk
from moldau.protocol.uuids import uuid_to_string
from moldau.quorum.format import FormatError, FormatRequest, existing_directories, format_storage
from moldau.quorum.meta_properties import META_PROPERTIES, new_uuid
from moldau.quorum.voters import Voter, VoterEndpoint, VoterSet, own_kraft_versions

LOCK_FILE = ".lock"


class StorageError(Exception):
    """The node cannot use its directories; the text says why and what to do."""


class DirectoryLocks:
    """An exclusive lock in every log directory for as long as the process lives, with Kafka's file name."""

    def __init__(self) -> None:
        self._files: list[int] = []

    def take(self, directories: Iterable[str]) -> None:
        for directory in sorted(set(directories)):
            path = os.path.join(directory, LOCK_FILE)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._files.append(fd)
            try:
                # Both kinds of lock: flock also keeps out a second node in this very process, POSIX locks are
                # what a Java broker takes.
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self.release()
                raise StorageError(
                    f"{directory} is in use by another process (it holds {path}); "
                    "stop that one, or give this node other log.dirs"
                ) from None

    def release(self) -> None:
        for fd in self._files:
            os.close(fd)
        self._files.clear()


@dataclass(frozen=True, slots=True)
class Storage:
    """What the formatted directories say about this node."""

    cluster_id: str
    # Directory -> its id, for every log directory that can be used.
    directory_ids: dict[str, bytes]
    newly_formatted: bool


def all_directories(config: NodeConfig) -> list[str]:
    return sorted({*config.log_dirs, config.metadata_log_dir})


@dataclass(frozen=True, slots=True)
class UsableDirectories:
    """The directories that can be used at this start, locked, and those whose disk fails."""

    directories: list[str]
    lost: dict[str, OSError]

    @classmethod
    def of(cls, disk: Disk, config: NodeConfig, locks: DirectoryLocks) -> UsableDirectories:
        """A node starts without some of its log directories, but not without all, nor without its metadata log."""
        usable: list[str] = []
        lost: dict[str, OSError] = {}
        for directory in all_directories(config):
            try:
                disk.make_dirs(directory)
                disk.list_dir(directory)
                disk.exists(f"{directory}/{META_PROPERTIES}") and disk.read_bytes(f"{directory}/{META_PROPERTIES}")
                locks.take([directory])
            except OSError as error:
                if directory == config.metadata_log_dir:
                    raise StorageError(f"the directory of the metadata log cannot be used: {error}") from error
                lost[directory] = error
            else:
                usable.append(directory)
        if not set(usable) & set(config.log_dirs):
            reasons = "; ".join(str(error) for error in lost.values())
            raise StorageError(f"none of log.dirs can be used: {reasons}")
        return cls(usable, lost)


def prepare_storage(disk: Disk, config: NodeConfig, directories: list[str], now_ms: int, random: Random) -> Storage:
    """Check that the directories are this node's; format those that are empty."""
    try:
        existing = existing_directories(disk, directories, node_id=config.node_id)
        missing = [directory for directory in directories if directory not in existing]
        wanted = config.original("cluster.id")
        known = next(iter(existing.values())).cluster_id if existing else wanted
        if wanted and known != wanted:
            raise StorageError(f"cluster.id is {wanted}, but the directories belong to cluster {known}")
        if not known and not _stands_alone(config):
            raise StorageError(
                "several nodes form this cluster: give all of them the same cluster.id, or format their directories "
                "with kafka-storage (--cluster-id, and --initial-controllers or --no-initial-controllers)"
            )
        cluster_id = known or uuid_to_string(new_uuid(random))
        if missing:
            format_storage(disk, _format_request(config, cluster_id, missing, random), now_ms=now_ms, random=random)
        found = existing_directories(disk, directories, cluster_id=cluster_id, node_id=config.node_id)
    except FormatError as error:
        raise StorageError(str(error)) from error
    ids = {directory: properties.directory_id or bytes(16) for directory, properties in found.items()}
    return Storage(cluster_id, ids, newly_formatted=not existing)


def _format_request(config: NodeConfig, cluster_id: str, missing: list[str], random: Random) -> FormatRequest:
    metadata_directory = config.metadata_log_dir if config.metadata_log_dir in missing else None
    dynamic = not config.quorum_voters
    return FormatRequest(
        node_id=config.node_id,
        cluster_id=cluster_id,
        directories=missing,
        metadata_directory=metadata_directory,
        unstable_features=config.flag("unstable.feature.versions.enable"),
        dynamic=dynamic,
        initial_voters=_standalone_voters(config, random) if metadata_directory and _founds_quorum(config) else None,
    )


def _founds_quorum(config: NodeConfig) -> bool:
    """Whether an empty controller begins a dynamic quorum of its own: when it knows of no other controller. One that
    is to join by itself takes another port on this machine for another controller, too."""
    if not config.is_controller or config.quorum_voters:
        return False
    own = config.controller_listeners[0]
    names = {own.host, "localhost", "127.0.0.1", "::1", socket.gethostname()}
    names |= {each.host for each in config.advertised_controller_listeners}
    servers = config.quorum_servers
    if len(servers) > 1 or any(host not in names for host, _ in servers):
        return False
    joins = config.flag("controller.quorum.auto.join.enable") and own.port != 0
    return not joins or all(port == own.port for _, port in servers)


def _stands_alone(config: NodeConfig) -> bool:
    """Whether the cluster is this node alone, as far as its settings say."""
    return _founds_quorum(config) or (config.is_controller and set(config.quorum_voters) == {config.node_id})


def _standalone_voters(config: NodeConfig, random: Random) -> VoterSet:
    """This node as the only voter of a new quorum."""
    listener = config.controller_listeners[0]
    endpoint = VoterEndpoint(listener.name, listener.host or "localhost", listener.port)
    return {config.node_id: Voter(config.node_id, new_uuid(random), (endpoint,), own_kraft_versions())}
