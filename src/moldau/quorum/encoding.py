"""Metadata records in batches: what a record's value looks like, and how a list of records becomes batches.

This file decides bytes only. A list that fits one batch becomes one batch, which a crash keeps or loses as a whole;
a caller with more than that must mark it as a transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from moldau.metadata.records import MetadataRecord, record_version
from moldau.ports import Buffer
from moldau.protocol.metadata_records import decode_record, encode_record
from moldau.records.batch import BatchHeader
from moldau.records.builder import BatchBuilder
from moldau.records.record import read_records

# As Apache Kafka limits its own batches of the metadata log.
MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
MAX_BATCH_RECORDS: Final = 10_000


def encode_records(records: Iterable[MetadataRecord], metadata_version: int) -> list[bytes]:
    """The records' values, each in the version that the cluster's `metadata.version` allows."""
    return [encode_record(record, record_version(record, metadata_version)) for record in records]


def fits_one_batch(values: Sequence[bytes]) -> bool:
    return len(values) <= MAX_BATCH_RECORDS and sum(map(len, values)) <= MAX_BATCH_BYTES


def build_batches(
    values: Iterable[bytes], *, base_offset: int, epoch: int, timestamp_ms: int
) -> Iterator[tuple[bytes, int]]:
    """The batches that hold these record values one after the other, each with the number of its records."""
    builder = BatchBuilder(base_offset=base_offset, leader_epoch=epoch)
    for value in values:
        if builder.count and (builder.count == MAX_BATCH_RECORDS or builder.size + len(value) > MAX_BATCH_BYTES):
            base_offset = builder.next_offset
            yield builder.build(), builder.count
            builder = BatchBuilder(base_offset=base_offset, leader_epoch=epoch)
        builder.append(None, value, timestamp=timestamp_ms)
    if builder.count:
        yield builder.build(), builder.count


def read_batch(batch: Buffer, header: BatchHeader | None = None) -> list[MetadataRecord]:
    """The records of one data batch of the metadata log or of a snapshot."""
    return [decode_record(record.value or b"")[0] for record in read_records(batch, header)]
