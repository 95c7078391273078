"""Avro values from Arrow columns: fits a column to a schema by its fields' names and lets the compiled loop write it.

It decides how Spark's values become Avro's (a timestamp in the schema's unit, a string the symbol of an enum, a struct
of members the branch of a union) and refuses what the schema does not allow: a null where there must be a value, a
symbol it does not have, a column it does not know. Nothing is written half: a batch succeeds or raises.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark_types

from moldau.client.errors import MoldauError
from moldau.spark.values import avro_write_kernel as op
from moldau.spark.values.arrow_types import arrow_type
from moldau.spark.values.avro_schema import MICROS_BY_TIMESTAMP, Layout
from moldau.spark.values.framing import Rows
from moldau.spark.values.vectors import Node

_STACK_DEPTH = 512
_LARGEST_COLUMN_BYTES = 2**31 - 1
_ROW_BYTES_AT_FIRST = 64


class AvroWriter:
    """Writes values of one schema, each behind the same prefix."""

    __slots__ = ("_code", "_layout", "_prefix")

    def __init__(self, layout: Layout, prefix: bytes) -> None:
        self._layout = layout
        self._prefix = np.frombuffer(prefix + b"\0", dtype=np.uint8)[:-1]
        self._code = _code_of(layout)

    def write(self, column: Any) -> Any:
        """A column of bytes; a null stays a null."""
        present = np.array(column.is_valid(), dtype=np.bool_)
        vectors = _Vectors(self._layout)
        vectors.fill(self._layout.root, column, present)
        data, slots, base = vectors.together()
        level_of = np.array([*self._layout.level_of, 0], dtype=np.int64)
        at = np.zeros(self._layout.levels, dtype=np.int64)
        stack = np.zeros(_STACK_DEPTH, dtype=np.int64)
        rows = len(column)
        offsets = np.zeros(rows + 1, dtype=np.int64)
        out = np.empty(rows * (_ROW_BYTES_AT_FIRST + self._prefix.size) + data.size, dtype=np.uint8)
        row = 0
        while row < rows:
            row, problem = op.encode_rows(
                self._code, self._prefix, present, row, data, base, level_of, slots, at, stack, offsets, out
            )
            if problem == -1:
                out = np.concatenate([out, np.empty(out.size + 1024, dtype=np.uint8)])
            elif problem:
                raise MoldauError(
                    f"Row {row} of a batch cannot be written as Avro: a union in it has no member set, or a decimal is "
                    f"too large for its fixed size; it is {str(column[row].as_py())[:200]}"
                )
        if offsets[-1] > _LARGEST_COLUMN_BYTES:
            raise MoldauError(
                "The values of one batch have more bytes than an Arrow column holds: set "
                "spark.sql.execution.arrow.maxRecordsPerBatch to a smaller number"
            )
        bitmap = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
        buffers = [bitmap, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out[: offsets[-1]])]
        return pa.Array.from_buffers(pa.binary(), rows, buffers)


def _code_of(layout: Layout) -> Any:
    code: list[list[int]] = []

    def emit(operation: int, a: int = -1, b: int = 0, c: int = 0) -> int:
        code.append([operation, a, b, c])
        return len(code) - 1

    def branch(node: Node, kinds: set[str]) -> int:
        assert node.branches is not None
        return next(number for number, each in enumerate(node.branches) if each["type"] in kinds)

    def put(node: Node) -> None:
        if node.branches is None:
            value(node)
            return
        skip = None
        if node.valid >= 0:
            skip = emit(op.UNLESS, node.valid)
        if node.kind == "union":
            members(node)
        elif node.kind != "null":
            emit(op.CONSTANT, b=branch(node, {node.schema["type"]}))
            value(node)
        if skip is not None:
            over = emit(op.JUMP)
            code[skip][2] = len(code)
            emit(op.CONSTANT, b=branch(node, {"null"}))
            code[over][2] = len(code)

    def members(node: Node) -> None:
        assert node.branches is not None
        places = [number for number, each in enumerate(node.branches) if each["type"] != "null"]
        ends = []
        for child, place in zip(node.children, places, strict=True):
            unless = emit(op.UNLESS, child.valid)
            emit(op.CONSTANT, b=place)
            value(child)
            ends.append(emit(op.JUMP))
            code[unless][2] = len(code)
        emit(op.FAIL)
        for end in ends:
            code[end][2] = len(code)

    def value(node: Node) -> None:
        if node.kind == "record":
            for child in node.children:
                put(child)
        elif node.inner >= 0:
            loop = emit(op.LOOP, node.vector, 0, node.inner)
            for child in node.children:
                put(child)
            emit(op.NEXT, -1, loop + 1, node.inner)
            code[loop][2] = len(code)
        elif node.kind == "decimal":
            emit(op.DECIMAL, node.vector, node.schema.get("size", -1))
        elif node.kind != "null":
            emit(_OPERATIONS.get(node.kind, op.NUMBER), node.vector)

    put(layout.root)
    emit(op.END)
    return np.array(code, dtype=np.int64)


_OPERATIONS = {
    "boolean": op.BOOLEAN,
    "float": op.FLOAT,
    "double": op.DOUBLE,
    "bytes": op.BYTES,
    "string": op.BYTES,
    "uuid": op.BYTES,
    "fixed": op.FIXED,
    "uuid-fixed": op.FIXED,
}


@dataclass(slots=True)
class _Vectors:
    """Columns on their way to the compiled loop."""

    layout: Layout
    vectors: dict[int, Any] = field(default_factory=dict)
    pieces: list[Any] = field(default_factory=list)
    bytes: int = 0

    def together(self) -> tuple[Any, Any, Any]:
        """(all bytes, all slots, where each vector's slots begin). An array needs a second vector, for its length."""
        data = np.concatenate([*self.pieces, np.zeros(1, dtype=np.uint8)])
        ordered = [self.vectors.get(number, _NO_SLOTS) for number in range(len(self.layout.level_of))]
        sizes = np.array([0, *(each.size for each in ordered)], dtype=np.int64)
        slots = np.concatenate([*ordered, np.zeros(1, dtype=np.int64)])
        return data, slots, np.cumsum(sizes)

    def fill(self, node: Node, column: Any, parent: Any) -> None:
        """Put a column into its node's vectors. `parent` says where a value is looked for at all."""
        valid = np.array(column.is_valid(), dtype=np.bool_)
        if node.valid >= 0:
            self.vectors[node.valid] = valid.astype(np.int64)
        elif not valid[parent].all() and node.kind != "null":
            raise MoldauError(
                f"{node.path} is null and the Avro schema does not allow it: make its type "
                f'["null", {node.schema["type"] if node.schema else "..."!r}], or give the column a value'
            )
        valid &= parent
        if node.kind in ("record", "union"):
            self._fill_struct(node, column, valid)
        elif node.inner >= 0:
            self._fill_container(node, column, valid)
        elif node.kind != "null":
            self._fill_scalar(node, column)

    def _fill_struct(self, node: Node, column: Any, valid: Any) -> None:
        if not pa.types.is_struct(column.type):
            raise MoldauError(f"{node.path} is {column.type} where the Avro schema wants a record")
        parts = dict(zip((each.name for each in column.type), column.flatten(), strict=True))
        for name, child in zip(node.names, node.children, strict=True):
            part = parts.get(name)
            if part is None:
                part = _default_column(child, len(column))
            self.fill(child, part, valid)

    def _fill_container(self, node: Node, column: Any, valid: Any) -> None:
        if node.kind == "map":
            if not pa.types.is_map(column.type):
                raise MoldauError(f"{node.path} is {column.type} where the Avro schema wants a map")
            entries = pa.StructArray.from_arrays([column.keys, column.items], names=["key", "value"])
            column = pa.ListArray.from_arrays(column.offsets, entries)
        elif not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
            raise MoldauError(f"{node.path} is {column.type} where the Avro schema wants an array")
        offsets = np.array(column.offsets, dtype=np.int64)
        self.vectors[node.vector] = offsets[:-1]
        self.vectors[node.vector + 1] = np.where(valid, np.diff(offsets), 0)
        items = column.values
        # Items of arrays that are null, or that a slice does not show, may be anything.
        shown = np.zeros(len(items) + 1, dtype=np.int64)
        np.add.at(shown, offsets[:-1][valid], 1)
        np.add.at(shown, offsets[1:][valid], -1)
        inside = np.cumsum(shown[:-1]) > 0
        parts = items.flatten() if node.kind == "map" else [items]
        for child, part in zip(node.children, parts, strict=True):
            self.fill(child, part, inside)

    def _fill_scalar(self, node: Node, column: Any) -> None:
        column = _converted(node, column)
        if node.kind == "decimal":
            both = np.frombuffer(column.buffers()[1], dtype=np.int64).reshape(-1, 2)
            both = both[column.offset : column.offset + len(column)]
            self.vectors[node.vector], self.vectors[node.vector + 1] = both[:, 1].copy(), both[:, 0].copy()
        elif node.kind in ("bytes", "string", "uuid", "fixed", "uuid-fixed"):
            rows = Rows.of(column)
            lengths = np.where(rows.present, rows.ends - rows.starts, 0)
            if node.kind == "fixed" and (lengths[rows.present] != node.schema["size"]).any():
                raise MoldauError(f"{node.path} must have {node.schema['size']} bytes, and a value has not")
            self.vectors[node.vector] = rows.starts + self.bytes
            self.vectors[node.vector + 1] = lengths
            self.pieces.append(rows.data)
            self.bytes += rows.data.size
        elif node.kind == "float":
            bits = np.array(column.fill_null(0), dtype=np.float32).view(np.uint32)
            self.vectors[node.vector] = bits.astype(np.int64)
        elif node.kind == "double":
            self.vectors[node.vector] = np.array(column.fill_null(0), dtype=np.float64).view(np.int64)
        else:
            nothing = False if node.kind == "boolean" else 0
            self.vectors[node.vector] = np.array(column.fill_null(nothing), dtype=np.int64)


_NO_SLOTS = np.zeros(0, dtype=np.int64)


def _converted(node: Node, column: Any) -> Any:
    """A column as the numbers or bytes that Avro has for it, without the values changing."""
    try:
        if node.kind == "enum":
            return _symbols(node, column)
        if node.kind == "uuid-fixed":
            return pa.array(
                [None if each is None else uuid.UUID(each).bytes for each in column.to_pylist()], pa.binary()
            )
        if node.kind in ("timestamp", "local-timestamp"):
            times, over = MICROS_BY_TIMESTAMP[node.schema["logicalType"]]
            micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
            if over > 1:
                return pc.multiply_checked(micros, over)
            return _over(micros, times)
        if node.kind == "date":
            return column.cast(pa.date32()).cast(pa.int32())
        if node.kind == "fixed":
            return column.cast(pa.binary())
        return column.cast(arrow_type(node.spark))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, AttributeError) as error:
        raise MoldauError(
            f"{node.path} is {column.type} and cannot be written as Avro's {node.kind} ({error}): cast the column"
        ) from error


def _over(micros: Any, divisor: int) -> Any:
    if divisor == 1:
        return micros
    numbers = np.array(micros.fill_null(0), dtype=np.int64) // divisor
    return pa.array(numbers, mask=np.array(micros.is_null(), dtype=np.bool_))


def _symbols(node: Node, column: Any) -> Any:
    symbols = node.schema["symbols"]
    found = pc.index_in(column.cast(pa.string()), pa.array(symbols, pa.string()))
    unknown = pc.and_(found.is_null(), column.is_valid())
    if pc.any(unknown).as_py():
        bad = column.filter(unknown)[0].as_py()
        raise MoldauError(f"{node.path} has {bad!r}, which is none of the enum's symbols {', '.join(symbols)}")
    return found


def _default_column(node: Node, rows: int) -> Any:
    """A column for a field that the DataFrame does not have."""
    if node.valid >= 0:
        return pa.nulls(rows, arrow_type(node.spark))
    raise MoldauError(
        f"The Avro schema has {node.path}, which must have a value, and the DataFrame has no such column: add it"
    )


def check_columns(node: Node, given: spark_types.DataType) -> None:
    """Refuse, before anything runs, columns that the schema does not have or must have. Fields are matched by name."""
    if isinstance(given, spark_types.StructType) and node.kind in ("record", "union"):
        children = dict(zip(node.names, node.children, strict=True))
        for each in given.fields:
            child = children.get(each.name)
            if child is None:
                raise MoldauError(
                    f"The DataFrame has {node.path}.{each.name} and the Avro schema has not (it has "
                    f"{', '.join(node.names)}): drop the column, or add it to the schema"
                )
            check_columns(child, each.dataType)
        names = set(given.names)
        for name, child in children.items():
            if name not in names:
                _default_column(child, 0)
    elif isinstance(given, spark_types.ArrayType) and node.kind == "array":
        check_columns(node.children[0], given.elementType)
    elif isinstance(given, spark_types.MapType) and node.kind == "map":
        check_columns(node.children[1], given.valueType)
    elif isinstance(given, (spark_types.StructType, spark_types.ArrayType, spark_types.MapType)) or node.kind in (
        "record",
        "union",
        "array",
        "map",
    ):
        raise MoldauError(
            f"{node.path} is {given.simpleString()} where the Avro schema has {node.kind}: build the column accordingly"
        )
