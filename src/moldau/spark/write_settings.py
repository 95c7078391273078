"""How rows are written: what the driver reads from the options and tasks act on. Light, because every process of a
query imports it and only those that write need the compiled loops."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.client.settings import ClientSettings

SINK_COLUMNS = ("value", "key", "headers", "topic", "partition")


@dataclass(slots=True, frozen=True)
class EncodingSettings:
    """How rows become batches."""

    topic: str | None
    codec: int
    level: int | None
    batch_bytes: int


@dataclass(slots=True, frozen=True)
class WriteSettings:
    client: ClientSettings
    encoding: EncodingSettings
    delivery_timeout: float
