"""The node's directories before anything is read from them: locked against a second process, and formatted.

A node that finds an empty directory formats it by itself, so that the first start needs no other command. A
directory that belongs to another cluster or node is refused.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from moldau.config.node_config import NodeConfig
from moldau.ports import Disk
from moldau.protocol.uuids import uuid_to_string
from moldau.quorum.format import FormatError, FormatRequest, existing_directories, format_storage
from moldau.quorum.meta_properties import new_uuid
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


def prepare_storage(disk: Disk, config: NodeConfig, now_ms: int, random: Random) -> Storage:
    """Check that the directories are this node's; format those that are empty."""
    directories = all_directories(config)
    try:
        existing = existing_directories(disk, directories, node_id=config.node_id)
        missing = [directory for directory in directories if directory not in existing]
        wanted = config.original("cluster.id")
        known = next(iter(existing.values())).cluster_id if existing else wanted
        if wanted and known != wanted:
            raise StorageError(f"cluster.id is {wanted}, but the directories belong to cluster {known}")
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
        initial_voters=_standalone_voters(config, random) if dynamic and metadata_directory else None,
    )


def _standalone_voters(config: NodeConfig, random: Random) -> VoterSet:
    """This node as the only voter of a new quorum."""
    listener = config.controller_listeners[0]
    endpoint = VoterEndpoint(listener.name, listener.host or "localhost", listener.port)
    return {config.node_id: Voter(config.node_id, new_uuid(random), (endpoint,), own_kraft_versions())}
