"""Rows to record batches: which topic and partition each row goes to, and the bytes that are sent there.

It takes the columns of Spark's own Kafka sink (value, and if present key, headers, topic, partition), puts rows of one
partition together in their order, and packs them. Rows without partition go where Kafka's murmur2 of their key says;
rows without a key go to one partition together, the next time to the next one. It never sends anything.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moldau.client.cluster import TopicPartition
from moldau.client.errors import MoldauError
from moldau.records.batch import HEADER, HEADER_SIZE, MAGIC, TRANSACTIONAL_BIT, seal
from moldau.records.compression import compress
from moldau.spark import kernels
from moldau.spark.buffers import POOL
from moldau.spark.write_settings import EncodingSettings


def _read_only(array: Any) -> Any:
    """The same array, not to be written to. For compiled code that is a type of its own: with all arrays of one type,
    wherever they come from, it is compiled once."""
    view = array[:]
    view.flags.writeable = False
    return view


# Numbers of two bytes are sorted in one pass over each byte.
_FEW_TARGETS = 1 << 16
_NO_BYTES = _read_only(np.zeros(1, dtype=np.uint8))
_NO_ENDS = _read_only(np.zeros(1, dtype=np.int32))


@dataclass(slots=True, frozen=True)
class ProducerIdentity:
    """Who a batch is from; `transactional` batches count only when their transaction is committed."""

    producer_id: int
    epoch: int
    transactional: bool


@dataclass(slots=True)
class EncodedBatch:
    topic: str
    partition: int
    records: memoryview
    count: int


@dataclass(slots=True, frozen=True)
class _Bytes:
    """A binary column as plain arrays."""

    ends: Any
    valid: Any
    data: Any


class _Room:
    """Memory for the batches of some rows, one behind the other."""

    __slots__ = ("data", "used")

    def __init__(self, data: Any) -> None:
        self.data = data
        self.used = 0


class RowEncoder:
    """Encodes the rows of one task."""

    def __init__(
        self,
        settings: EncodingSettings,
        identity: ProducerIdentity,
        partition_count: Callable[[str], int],
        first_sticky: int,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._partition_count = partition_count
        self._sticky = first_sticky
        self._sequences: dict[tuple[str, int], int] = {}

    def encode(self, rows: pa.Table) -> tuple[list[TopicPartition], Iterator[EncodedBatch]]:
        """The partitions these rows go to, and their batches, for each partition in the rows' order.

        A batch is made when it is asked for, so that the ones before it can be on their way.
        """
        count = rows.num_rows
        if count == 0:
            return [], iter(())
        key, value = key_and_value(rows)
        headers = _headers_of(rows)
        names, topic_of_row = self._topics(rows)
        counts = np.array([self._partition_count(name) for name in names], dtype=np.int64)
        partitions = _partition_column(rows, count)
        counts_by_row = counts[topic_of_row]
        if (partitions >= counts_by_row).any():
            row = int(np.argmax(partitions >= counts_by_row))
            raise MoldauError(
                f"The partition column says {partitions[row]}, but topic '{names[topic_of_row[row]]}' has only "
                f"{counts_by_row[row]} partitions"
            )
        kernels.choose_partitions(key.ends, key.valid, key.data, counts_by_row, self._sticky, partitions)
        self._sticky += 1
        first_of_topic = np.concatenate(([0], np.cumsum(counts)))
        targets = first_of_topic[topic_of_row] + partitions
        if first_of_topic[-1] <= _FEW_TARGETS:
            targets = targets.astype(np.uint16)
        order = np.argsort(targets, kind="stable")
        sorted_targets = targets[order]
        edges = np.concatenate(([0], np.flatnonzero(np.diff(sorted_targets)) + 1, [count]))
        room = int(key.data.size + value.data.size + kernels.RECORD_OVERHEAD_BYTES * count) + headers[-1]
        # Two batches that follow each other are together larger than one may be.
        batches_max = len(edges) + 2 * room // self._settings.batch_bytes
        out = _Room(POOL.take(room + HEADER_SIZE * batches_max))
        now = int(time.time() * 1000)
        reached = [(names[topic_of_row[row]], int(partitions[row])) for row in order[edges[:-1]]]
        runs = zip(pairwise(edges.tolist()), reached, strict=True)
        columns = (key, value, headers)
        return reached, _in_turns(
            self._run(order, first, last, columns, out, topic, partition, now)
            for (first, last), (topic, partition) in runs
        )

    def _run(
        self, order: Any, first: int, last: int, columns: Any, out: _Room, topic: str, partition: int, now: int
    ) -> Iterator[EncodedBatch]:
        """The batches of one partition's rows."""
        key, value, headers = columns
        result = np.zeros(2, dtype=np.int64)
        while first < last:
            kernels.encode_records(
                order,
                first,
                last,
                self._settings.batch_bytes,
                key.ends,
                key.valid,
                key.data,
                value.ends,
                value.valid,
                value.data,
                *headers[:-1],
                out.data[out.used + HEADER_SIZE :],
                result,
            )
            count = int(result[kernels.NEXT_INDEX]) - first
            batch = self._batch(out, int(result[kernels.BYTES_WRITTEN]), count, topic, partition, now)
            yield EncodedBatch(topic, partition, batch, count)
            first += count

    def _batch(self, out: _Room, size: int, count: int, topic: str, partition: int, now: int) -> memoryview:
        """The batch whose records stand behind the room for its header; where they are, unless they are packed."""
        settings, identity = self._settings, self._identity
        sequence = self._sequences.get((topic, partition), 0)
        self._sequences[topic, partition] = (sequence + count) & 0x7FFFFFFF
        batch = memoryview(out.data)[out.used : out.used + HEADER_SIZE + size]
        if settings.codec:
            packed = compress(settings.codec, batch[HEADER_SIZE:], settings.level)
            batch = memoryview(bytearray(HEADER_SIZE + len(packed)))
            batch[HEADER_SIZE:] = packed
        else:
            out.used += HEADER_SIZE + size
        attributes = settings.codec | (TRANSACTIONAL_BIT if identity.transactional else 0)
        HEADER.pack_into(
            batch,
            0,
            0,
            0,
            -1,
            MAGIC,
            0,
            attributes,
            count - 1,
            now,
            now,
            identity.producer_id,
            identity.epoch,
            sequence,
            count,
        )
        seal(batch)
        return batch

    def _topics(self, rows: pa.Table) -> tuple[list[str], Any]:
        """Names of the topics, and for each row which of them it goes to; the option wins over the column."""
        if self._settings.topic is not None:
            return [self._settings.topic], np.zeros(rows.num_rows, dtype=np.int64)
        column = rows.column("topic").combine_chunks()
        if column.null_count:
            raise MoldauError("The topic column is null in some row: every row needs a topic, or set the option topic")
        coded = pc.dictionary_encode(column.cast(pa.string()))
        return coded.dictionary.to_pylist(), coded.indices.to_numpy().astype(np.int64)


def _in_turns(runs: Iterable[Iterator[EncodedBatch]]) -> Iterator[EncodedBatch]:
    """A batch of each partition, then the next of each: a request takes one batch for a partition, and many of them."""
    waiting = deque(runs)
    while waiting:
        run = waiting.popleft()
        batch = next(run, None)
        if batch is not None:
            yield batch
            waiting.append(run)


def key_and_value(rows: pa.Table) -> tuple[_Bytes, _Bytes]:
    value = _bytes_of(rows.column("value"))
    if "key" in rows.column_names:
        return _bytes_of(rows.column("key")), value
    count = rows.num_rows
    no_keys = _Bytes(
        _read_only(np.zeros(count + 1, dtype=np.int32)), _read_only(np.zeros(count, dtype=np.uint8)), _NO_BYTES
    )
    return no_keys, value


def _partition_column(rows: pa.Table, count: int) -> Any:
    if "partition" not in rows.column_names:
        return np.full(count, -1, dtype=np.int64)
    column = rows.column("partition").combine_chunks().cast(pa.int64())
    partitions = column.fill_null(-1).to_numpy().copy()
    if (partitions < 0).any() and pc.any(pc.less(column, 0)).as_py():
        raise MoldauError("The partition column is negative in some row; null lets the key decide")
    return partitions


def _bytes_of(column: Any) -> _Bytes:
    """The buffers of a binary or string column, as one piece that starts at its beginning."""
    array = column
    if isinstance(column, pa.ChunkedArray):
        # Combining copies, even a single chunk.
        array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    if array.type not in (pa.binary(), pa.string()):
        array = array.cast(pa.binary())
    count = len(array)
    _, ends, data = array.buffers()
    all_ends = np.frombuffer(ends, dtype=np.int32)[array.offset : array.offset + count + 1]
    bytes_ = _NO_BYTES if data is None or data.size == 0 else np.frombuffer(data, dtype=np.uint8)
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)
    else:
        valid = np.ones(count, dtype=np.uint8)
    return _Bytes(_read_only(all_ends), _read_only(valid), _read_only(bytes_))


def _headers_of(rows: pa.Table) -> tuple[Any, ...]:
    """The arrays `encode_records` wants for headers, and at the end how many bytes they need at most."""
    if "headers" not in rows.column_names:
        return (_NO_ENDS, _NO_ENDS, _NO_BYTES, _NO_ENDS, _NO_BYTES, _NO_BYTES, 0)
    array = rows.column("headers").combine_chunks()
    if array.null_count:
        # A null list must not have entries: what Arrow leaves below a null is anybody's guess.
        array = pc.fill_null(array, pa.scalar([], array.type))
    entries = array.flatten()
    lengths = pc.list_value_length(array).to_numpy(zero_copy_only=False)
    ends = _read_only(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
    key, value = _bytes_of(entries.field(0)), _bytes_of(entries.field(1))
    if not key.valid.all():
        raise MoldauError("The headers column has a header without a key")
    room = int(key.data.size + value.data.size + kernels.HEADER_OVERHEAD_BYTES * len(entries))
    return (ends, key.ends, key.data, value.ends, value.valid, value.data, room)
