"""How the log says that something went wrong.

The peer's fault is an `ApiError` with Kafka's code. The disk's fault is `LogDirFailure`: whoever holds the log
directory must take it offline, and the peer is told KAFKA_STORAGE_ERROR meanwhile. A damaged index or snapshot is
neither: it raises `CorruptIndex` or `CorruptSnapshot` inside this room and is repaired here.
"""

from __future__ import annotations

from moldau.protocol.errors import ApiError, ErrorCode


class LogDirFailure(ApiError):
    """The file system under one log directory failed; nothing in that directory may be trusted to be written."""

    def __init__(self, directory: str, cause: OSError) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory of {directory} failed: {cause}")
        self.directory = directory
        self.cause = cause


class CorruptIndex(Exception):
    """An index file that cannot be what this broker or Apache's wrote; it is rebuilt from the segment."""


class CorruptSnapshot(Exception):
    """A producer snapshot that cannot be read; the next older one is used instead."""
