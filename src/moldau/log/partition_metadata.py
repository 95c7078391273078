"""`partition.metadata`: the topic id a partition's directory belongs to, as two lines of text."""

from __future__ import annotations

from moldau.log.checkpoints import CheckpointError
from moldau.ports import Disk
from moldau.protocol.uuids import uuid_from_string, uuid_to_string

_VERSION = 0


def write_partition_metadata(disk: Disk, path: str, topic_id: bytes, *, sync: bool = True) -> None:
    disk.write_atomically(path, f"version: {_VERSION}\ntopic_id: {uuid_to_string(topic_id)}".encode(), sync=sync)


def read_partition_metadata(disk: Disk, path: str) -> bytes | None:
    """The topic id; None when the file is missing (a directory made before topics had ids)."""
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        fields = dict(line.split(":", 1) for line in data.decode().splitlines() if line.strip())
        if int(fields["version"]) != _VERSION:
            raise CheckpointError(f"{path} has version {fields['version'].strip()}")
        return uuid_from_string(fields["topic_id"].strip())
    except (ValueError, KeyError) as error:
        raise CheckpointError(f"{path} is malformed") from error
