"""Vectors of 64-bit slots, which compiled loops fill, and the Arrow columns made of them.

A `Node` is a place in the values that are read: a field, the items of an array. Each has one or two vectors, and one
more if its value may be missing. Vectors of one level (rows; items of one array) grow together: when a level is full,
the row at hand is read again after it has grown. Which format the values had is not known here.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as spark_types

from moldau.client.errors import MoldauError
from moldau.spark.values.arrow_types import arrow_type
from moldau.spark.values.gathering import STACK_DEPTH, gather, total_length

_LARGEST_COLUMN_BYTES = 2**31 - 1
# An array's items are expected to be as many as the rows at first.
_GROWTH = 2

_NUMPY = {
    "boolean": np.bool_,
    "int": np.int32,
    "date": np.int32,
    "long": np.int64,
    "timestamp": np.int64,
    "local-timestamp": np.int64,
    "duration": np.int64,
}


@dataclass(slots=True)
class Node:
    """A place in the values that are read: its kind, its vectors, and what is below it.

    `vector` is the first of its vectors, `valid` the one that says whether there is a value (-1: there always is one).
    """

    kind: str
    path: str
    schema: Any
    spark: spark_types.DataType
    level: int
    vector: int = -1
    valid: int = -1
    inner: int = -1
    children: list[Node] = field(default_factory=list)
    # Names of a record's fields; of a union's branches, what they are.
    names: list[str] = field(default_factory=list)
    # The union this node's value may come from, for defaults and for the choice of a branch.
    branches: list[Any] | None = None


# Kinds that need two vectors: where bytes begin and how many there are, or the halves of a decimal.
TWO_VECTORS = frozenset({"bytes", "string", "fixed", "enum", "uuid", "uuid-fixed", "decimal"})


class Vectors:
    """The slots that the kernel fills."""

    __slots__ = ("base", "before", "counts", "level_of", "room", "slots", "stack")

    def __init__(self, level_of: list[int], levels: int, rows: int) -> None:
        # One vector at least, or there would be nothing to take the address of.
        self.level_of = np.array([*level_of, 0], dtype=np.int64)
        self.counts = np.zeros(levels, dtype=np.int64)
        self.before = np.zeros(levels, dtype=np.int64)
        self.room = np.full(levels, max(rows, 1), dtype=np.int64)
        self.stack = np.zeros(STACK_DEPTH, dtype=np.int64)
        self.base, self.slots = self._laid_out()

    def _laid_out(self) -> tuple[Any, Any]:
        sizes = self.room[self.level_of]
        ends = np.cumsum(sizes)
        return ends - sizes, np.empty(int(ends[-1]), dtype=np.int64)

    def grow(self, level: int) -> None:
        old_base, old_slots = self.base, self.slots
        self.room[level] *= _GROWTH
        self.base, self.slots = self._laid_out()
        for vector, of in enumerate(self.level_of):
            count, old, new = self.counts[of], old_base[vector], self.base[vector]
            self.slots[new : new + count] = old_slots[old : old + count]

    def taken(self, vector: int, level: int) -> Any:
        first = self.base[vector]
        return self.slots[first : first + self.counts[level]]


class Columns:
    """Arrow columns out of filled vectors."""

    __slots__ = ("_constants", "_data", "_vectors")

    def __init__(self, vectors: Vectors, data: Any, constants: Any) -> None:
        self._vectors = vectors
        self._data = data
        self._constants = constants

    def column(self, node: Node) -> Any:
        kind = arrow_type(node.spark)
        count = int(self._vectors.counts[node.level])
        if node.kind == "null":
            return pa.nulls(count)
        bitmap, nulls = self._validity(node)
        if node.kind in ("record", "union"):
            children = [self.column(child) for child in node.children]
            return pa.Array.from_buffers(kind, count, [bitmap], nulls, children=children)
        if node.inner >= 0:
            return self._container(node, kind, count, bitmap, nulls)
        values = self._vectors.taken(node.vector, node.level)
        if node.kind == "decimal":
            both = np.empty((count, 2), dtype=np.int64)
            both[:, 0] = self._vectors.taken(node.vector + 1, node.level)
            both[:, 1] = values
            return pa.Array.from_buffers(kind, count, [bitmap, pa.py_buffer(both)], nulls)
        if node.kind in ("float", "double"):
            floats = values.view(np.float64)
            floats = floats.astype(np.float32) if node.kind == "float" else np.ascontiguousarray(floats)
            return pa.Array.from_buffers(kind, count, [bitmap, pa.py_buffer(floats)], nulls)
        if node.kind in _NUMPY:
            numbers = np.ascontiguousarray(values.astype(_NUMPY[node.kind], copy=False))
            if node.kind == "boolean":
                numbers = np.packbits(numbers, bitorder="little")
            return pa.Array.from_buffers(kind, count, [bitmap, pa.py_buffer(numbers)], nulls)
        return self._bytes(node, kind, count, bitmap, nulls)

    def _validity(self, node: Node) -> tuple[Any, int]:
        if node.valid < 0:
            return None, 0
        valid = self._vectors.taken(node.valid, node.level).astype(np.bool_)
        nulls = int(valid.size - np.count_nonzero(valid))
        return (pa.py_buffer(np.packbits(valid, bitorder="little")), nulls) if nulls else (None, 0)

    def _bytes(self, node: Node, kind: Any, count: int, bitmap: Any, nulls: int) -> Any:
        starts = self._vectors.taken(node.vector, node.level)
        lengths = self._vectors.taken(node.vector + 1, node.level)
        total = int(total_length(lengths))
        if total > _LARGEST_COLUMN_BYTES:
            raise MoldauError(
                f"{node.path} has {total} bytes in one batch, more than an Arrow column holds: set "
                "spark.sql.execution.arrow.maxRecordsPerBatch to a smaller number"
            )
        offsets = np.empty(count + 1, dtype=np.int32)
        out = np.empty(total, dtype=np.uint8)
        gather(self._data, self._constants, starts, lengths, offsets, out)
        if node.kind != "uuid-fixed":
            return pa.Array.from_buffers(kind, count, [bitmap, pa.py_buffer(offsets), pa.py_buffer(out)], nulls)
        raw = pa.Array.from_buffers(pa.binary(), count, [bitmap, pa.py_buffer(offsets), pa.py_buffer(out)], nulls)
        texts = [None if each is None else str(uuid.UUID(bytes=each)) for each in raw.to_pylist()]
        return pa.array(texts, kind)

    def _container(self, node: Node, kind: Any, count: int, bitmap: Any, nulls: int) -> Any:
        items = int(self._vectors.counts[node.inner])
        offsets = np.empty(count + 1, dtype=np.int32)
        offsets[:count] = self._vectors.taken(node.vector, node.level)
        offsets[count] = items
        children = [self.column(child) for child in node.children]
        if node.kind == "map":
            entry = pa.struct([kind.key_field, kind.item_field])
            children = [pa.Array.from_buffers(entry, items, [None], 0, children=children)]
        return pa.Array.from_buffers(kind, count, [bitmap, pa.py_buffer(offsets)], nulls, children=children)
