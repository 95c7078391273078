"""Reading and writing topics with the room's own parts, without Spark around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from moldau.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from moldau.client.settings import ClientSettings
from moldau.spark.brokers import client_settings, shared_cluster
from moldau.spark.fetching import FetchSettings, OffsetRange, read_range
from moldau.spark.write_settings import EncodingSettings, WriteSettings

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS = SCHEMA.append(pa.field("headers", pa.list_(pa.field("element", HEADER))))


def settings_for(bootstrap: str) -> ClientSettings:
    return client_settings({"bootstrap.servers": bootstrap})


def fetch_settings(client: ClientSettings, isolation: int = READ_UNCOMMITTED, **changed: Any) -> FetchSettings:
    given = {"fetch_bytes": 1 << 20, "poll_timeout": 30.0, "check_crcs": True, "fail_on_data_loss": True}
    return FetchSettings(client=client, isolation=isolation, **{**given, **changed})


def write_settings(
    client: ClientSettings, topic: str | None, codec: int = 0, batch_bytes: int = 100_000
) -> WriteSettings:
    return WriteSettings(client, EncodingSettings(topic, codec, None, batch_bytes), 60.0)


def rows(values: Sequence[Any], keys: Sequence[Any] | None = None, **columns: Any) -> Iterator[pa.RecordBatch]:
    """Rows as Spark hands them to a writer."""
    given = {"value": pa.array(values, pa.string()), **columns}
    if keys is not None:
        given["key"] = pa.array(keys, pa.string())
    return iter([pa.RecordBatch.from_pydict(given)])


def read_values(client: ClientSettings, topic: str, partitions: int, isolation: int = READ_COMMITTED) -> list[str]:
    """The values of a topic, sorted."""
    cluster = shared_cluster(client)
    parts = [(topic, partition) for partition in range(partitions)]
    starts = list_offsets(cluster, dict.fromkeys(parts, EARLIEST), isolation)
    ends = list_offsets(cluster, dict.fromkeys(parts, LATEST), isolation)
    found: list[str] = []
    for part in parts:
        wanted = OffsetRange(*part, starts[part], ends[part])
        for batch in read_range(wanted, fetch_settings(client, isolation), SCHEMA):
            found += [value.decode() for value in batch.column("value").to_pylist()]
    return sorted(found)
