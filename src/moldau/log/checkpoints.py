"""Kafka's text checkpoint files: a version, a count, then one line per entry.

    0
    2
    orders 0 1042
    orders 1 977

Used for offsets per partition of a log directory (recovery points, log start offsets, high watermarks, cleaner
positions) and for leader epochs of a partition. A file that does not follow the form raises `CheckpointError`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from moldau.ports import Disk

_VERSION = 0

TopicPartition = tuple[str, int]


class CheckpointError(ValueError):
    """A checkpoint file that cannot be read as one."""


def render_lines(version: int, entries: Sequence[Iterable[object]]) -> bytes:
    lines = [str(version), str(len(entries))]
    lines += [" ".join(map(str, entry)) for entry in entries]
    return ("\n".join(lines) + "\n").encode()


def parse_lines(data: bytes, fields: int) -> list[list[str]]:
    """The entries, each split into exactly `fields` words. An empty file has none."""
    if not data:
        return []
    try:
        lines = data.decode().splitlines()
        if int(lines[0]) != _VERSION:
            raise CheckpointError(f"unknown checkpoint version {lines[0]}")
        count = int(lines[1])
        entries = [line.split() for line in lines[2 : 2 + count]]
    except (ValueError, IndexError) as error:
        raise CheckpointError(f"malformed checkpoint: {error}") from error
    if len(entries) != count or any(len(entry) != fields for entry in entries):
        raise CheckpointError(f"expected {count} entries of {fields} words")
    return entries


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """The offset checkpoint of a log directory; empty when there is none."""
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return {}
    try:
        return {(topic, int(partition)): int(offset) for topic, partition, offset in parse_lines(data, 3)}
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"malformed checkpoint {path}: {error}") from error


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int], *, sync: bool = True) -> None:
    entries = [(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    disk.write_atomically(path, render_lines(_VERSION, entries), sync=sync)


def write_clean_shutdown(disk: Disk, path: str, broker_epoch: int) -> None:
    """Say that every log of this directory was closed properly, and under which broker epoch."""
    content = json.dumps({"version": _VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    disk.write_atomically(path, content.encode())


def read_clean_shutdown(disk: Disk, path: str) -> int | None:
    """The broker epoch of the clean shutdown (-1 when the marker does not tell); None when there was none."""
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        content = json.loads(data)
        return int(content["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return -1
