"""Arrow columns from Avro values: runs a program over the rows of a batch and makes columns of what it leaves behind.

It decides how much room the vectors get (they grow when a level is full, and the row at hand is read again) and which
Arrow buffers they become. It keeps nothing between batches but the compiled programs.
"""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import pyarrow as pa

from moldau.spark.errors import MoldauError
from moldau.spark.values import avro_kernel
from moldau.spark.values.arrow_types import arrow_type
from moldau.spark.values.avro_program import Program, compile_program
from moldau.spark.values.avro_schema import AvroSchema, Layout, Node
from moldau.spark.values.errors import MALFORMED, MISMATCH, reason

_TEXTS = {
    avro_kernel.TRUNCATED: reason(MALFORMED, "it ends in the middle of a field"),
    avro_kernel.LEFT_OVER: reason(MALFORMED, "bytes are left over after its last field: another schema wrote it"),
    avro_kernel.LONG_VARINT: reason(MALFORMED, "a number in it has more than 64 bits"),
    avro_kernel.NEGATIVE_LENGTH: reason(MALFORMED, "a length in it is negative"),
    avro_kernel.NO_SUCH_BRANCH: reason(MALFORMED, "it has a branch that its union does not have"),
    avro_kernel.NO_SUCH_SYMBOL: reason(MISMATCH, "it has a symbol that the enum does not have"),
    avro_kernel.NOT_UTF8: reason(MALFORMED, "a string in it is not UTF-8"),
    avro_kernel.NOT_AN_INT: reason(MALFORMED, "an int in it has more than 32 bits"),
    avro_kernel.NOT_A_BOOLEAN: reason(MALFORMED, "a boolean in it is neither 0 nor 1"),
    avro_kernel.TOO_MANY_ITEMS: reason(MALFORMED, "an array or a map in it says it is longer than the value"),
    avro_kernel.DECIMAL_TOO_LARGE: reason(MISMATCH, "a decimal in it has more digits than its precision"),
    avro_kernel.TOO_DEEP: reason(MALFORMED, "it is nested too deeply"),
    avro_kernel.OUT_OF_RANGE: reason(MISMATCH, "a timestamp in it is out of Spark's range"),
}

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
}


class AvroReader:
    """Reads values of one writer's schema as values of the reader's schema."""

    __slots__ = ("_layout", "_program")

    def __init__(self, writer: AvroSchema, layout: Layout) -> None:
        self._layout = layout
        self._program: Program = compile_program(writer, layout)

    def read(self, data: Any, starts: Any, ends: Any) -> tuple[Any, dict[int, str]]:
        """(column of the rows that can be read, in order; why the others cannot).

        `starts` and `ends` say where in `data` (an array of bytes) each row's value is.
        """
        vectors = _Vectors(self._layout, starts.size)
        errors = np.zeros(starts.size, dtype=np.int64)
        row = 0
        while row < starts.size:
            row, full = avro_kernel.decode_rows(
                data,
                starts,
                ends,
                row,
                self._program.code,
                self._program.table,
                vectors.base,
                vectors.room,
                vectors.slots,
                vectors.slots.view(np.float64),
                vectors.counts,
                vectors.level_of,
                vectors.stack,
                vectors.before,
                errors,
            )
            if full >= 0:
                vectors.grow(full)
        constants = np.frombuffer(self._program.constants or b"\0", dtype=np.uint8)
        column = _Columns(vectors, data, constants).column(self._layout.root)
        return column, {int(row): self._text(int(errors[row])) for row in np.flatnonzero(errors)}

    def _text(self, code: int) -> str:
        if code >= avro_kernel.FIRST_MESSAGE:
            return reason(MISMATCH, self._program.messages[code - avro_kernel.FIRST_MESSAGE])
        return _TEXTS[code]


class _Vectors:
    """The slots that the kernel fills."""

    __slots__ = ("base", "before", "counts", "level_of", "room", "slots", "stack")

    def __init__(self, layout: Layout, rows: int) -> None:
        # One vector at least, or there would be nothing to take the address of.
        self.level_of = np.array([*layout.level_of, 0], dtype=np.int64)
        self.counts = np.zeros(layout.levels, dtype=np.int64)
        self.before = np.zeros(layout.levels, dtype=np.int64)
        self.room = np.full(layout.levels, max(rows, 1), dtype=np.int64)
        self.stack = np.zeros(avro_kernel.STACK_DEPTH, dtype=np.int64)
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


class _Columns:
    """Arrow columns out of filled vectors."""

    __slots__ = ("_constants", "_data", "_vectors")

    def __init__(self, vectors: _Vectors, data: Any, constants: Any) -> None:
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
        total = int(avro_kernel.total_length(lengths))
        if total > _LARGEST_COLUMN_BYTES:
            raise MoldauError(
                f"{node.path} has {total} bytes in one batch, more than an Arrow column holds: set "
                "spark.sql.execution.arrow.maxRecordsPerBatch to a smaller number"
            )
        offsets = np.empty(count + 1, dtype=np.int32)
        out = np.empty(total, dtype=np.uint8)
        avro_kernel.gather(self._data, self._constants, starts, lengths, offsets, out)
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
