"""The tables that `protobuf_kernel` follows, made of a message's descriptor, and the nodes its columns come from.

It decides for which messages there are tables at all: not for those with JSON in them (`google.protobuf.Struct` and its
like) or with very large field numbers, which Google's library reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from moldau.spark.values import protobuf_kernel as kernel
from moldau.spark.values.protobuf_schema import (
    DURATION,
    ENUM,
    JSON_TEXT,
    MESSAGE,
    TIMESTAMP,
    WRAPPER,
    ProtoField,
    ProtoMessage,
)
from moldau.spark.values.vectors import TWO_VECTORS, Node

_LARGEST_FIELD_NUMBER = 4096

# For each type: what the loop does, and which kind of column it fills.
_SCALARS = {
    FieldDescriptor.TYPE_INT32: (kernel.INT32, "int"),
    FieldDescriptor.TYPE_INT64: (kernel.INT64, "long"),
    FieldDescriptor.TYPE_UINT32: (kernel.UINT32, "long"),
    FieldDescriptor.TYPE_UINT64: (kernel.UINT64, "decimal"),
    FieldDescriptor.TYPE_SINT32: (kernel.SINT32, "int"),
    FieldDescriptor.TYPE_SINT64: (kernel.SINT64, "long"),
    FieldDescriptor.TYPE_BOOL: (kernel.BOOL, "boolean"),
    FieldDescriptor.TYPE_ENUM: (kernel.ENUM, "enum"),
    FieldDescriptor.TYPE_FIXED32: (kernel.FIXED32, "long"),
    FieldDescriptor.TYPE_SFIXED32: (kernel.SFIXED32, "int"),
    FieldDescriptor.TYPE_FLOAT: (kernel.FLOAT, "float"),
    FieldDescriptor.TYPE_FIXED64: (kernel.FIXED64, "decimal"),
    FieldDescriptor.TYPE_SFIXED64: (kernel.SFIXED64, "long"),
    FieldDescriptor.TYPE_DOUBLE: (kernel.DOUBLE, "double"),
    FieldDescriptor.TYPE_STRING: (kernel.STRING, "string"),
    FieldDescriptor.TYPE_BYTES: (kernel.BYTES, "bytes"),
}


class _Unsuitable(Exception):
    """There are no tables for this message."""


@dataclass(slots=True)
class _Item:
    """A single value that has been laid out: its node, and what its field's row in the table says about it."""

    node: Node
    kind: int
    message: int = -1
    symbols: int = 0
    symbol_count: int = 0
    # What its vectors get when there is no value: (vector, value, level or -1).
    defaults: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass(slots=True)
class ProtobufTables:
    """A message, laid out."""

    level_of: list[int] = field(default_factory=list)
    levels: int = 1
    messages: list[list[int]] = field(default_factory=list)
    fields: list[list[int]] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    defaults: list[tuple[int, int, int]] = field(default_factory=list)
    table: list[int] = field(default_factory=list)
    constants: bytearray = field(default_factory=bytearray)
    root: Node | None = None

    def arrays(self) -> tuple[Any, ...]:
        """As the kernel takes them; none is empty."""
        return (
            np.array(self.messages, dtype=np.int64),
            np.array(self.fields or [[0] * 10], dtype=np.int64),
            np.array(self.index or [-1], dtype=np.int64),
            np.array(self.defaults or [(0, 0, -1)], dtype=np.int64),
            np.array(self.table or [0], dtype=np.int64),
        )

    def _vectors(self, level: int, count: int) -> int:
        first = len(self.level_of)
        self.level_of += [level] * count
        return first

    def _message(self, descriptor: Any, layout: ProtoMessage, level: int) -> _Item:
        number = len(self.messages)
        self.messages.append([0] * 6)
        rows: dict[int, list[int]] = {}
        defaults: list[tuple[int, int, int]] = []
        node = Node("record", layout.name, None, layout.spark, level)
        oneofs: dict[str, int] = {}
        for each in layout.fields:
            spec = descriptor.fields_by_name[each.name]
            row, child, own = self._field(spec, each, level)
            defaults += own
            group = spec.containing_oneof
            if group is not None and len(group.fields) > 1:
                if group.name not in oneofs:
                    oneofs[group.name] = self._vectors(level, 1)
                    defaults.append((oneofs[group.name], 0, -1))
                row[kernel.ONEOF], row[kernel.MEMBER] = oneofs[group.name], spec.number
            rows[spec.number] = row
            node.names.append(each.name)
            node.children.append(child)
        self._put_message(number, rows, defaults)
        return _Item(node, kernel.MESSAGE, number, defaults=defaults)

    def _put_message(self, number: int, rows: dict[int, list[int]], defaults: list[tuple[int, int, int]]) -> None:
        largest = max(rows, default=0)
        if largest > _LARGEST_FIELD_NUMBER:
            raise _Unsuitable
        message = self.messages[number]
        message[kernel.DEFAULTS] = len(self.defaults)
        self.defaults += defaults
        message[kernel.DEFAULTS_END] = len(self.defaults)
        message[kernel.INDEX], message[kernel.LARGEST] = len(self.index), largest
        places = [-1] * (largest + 1)
        for field_number, row in rows.items():
            places[field_number] = len(self.fields)
            self.fields.append(row)
        self.index += places

    def _field(self, spec: Any, each: ProtoField, level: int) -> tuple[list[int], Node, list[tuple[int, int, int]]]:
        """(the field's row, its node, its defaults)."""
        if each.key is not None or each.is_list:
            return self._container(spec, each, level)
        item = self._single(spec, each, level)
        if each.has_presence:
            item.node.valid = self._vectors(level, 1)
            item.defaults.append((item.node.valid, 0, -1))
        return self._row(item, item.node.vector, item.node.valid, -1), item.node, item.defaults

    def _row(self, item: _Item, vector: int, valid: int, inner: int) -> list[int]:
        return [item.kind, vector, valid, inner, item.message, item.symbols, item.symbol_count, -1, 0, 0]

    def _container(self, spec: Any, each: ProtoField, level: int) -> tuple[list[int], Node, list[tuple[int, int, int]]]:
        inner = self.levels
        self.levels += 1
        starts = self._vectors(level, 1)
        node = Node("array" if each.key is None else "map", each.name, None, each.column, level, starts, inner=inner)
        if each.key is None:
            item = self._single(spec, each, inner)
            node.children = [item.node]
            # The vector of a message's field is only looked at for maps.
            return self._row(item, item.node.vector, -1, inner), node, [(starts, 0, inner)]
        entry = spec.message_type
        number = len(self.messages)
        self.messages.append([0] * 6)
        key = self._single(entry.fields_by_name["key"], each.key, inner)
        value = self._single(entry.fields_by_name["value"], each, inner)
        rows = {
            1: self._row(key, key.node.vector, -1, -1),
            2: self._row(value, value.node.vector, -1, -1),
        }
        if value.kind == kernel.MESSAGE:
            # A value in two parts would have to be merged: a slot for having seen one.
            seen = self._vectors(inner, 1)
            value.defaults.append((seen, 0, -1))
            rows[2][kernel.VALID] = seen
        self._put_message(number, rows, key.defaults + value.defaults)
        self.messages[number][kernel.KEY] = key.node.vector + (1 if key.node.kind == "decimal" else 0)
        self.messages[number][kernel.KEY_IS_TEXT] = int(key.node.kind == "string")
        node.children = [key.node, value.node]
        row = self._row(_Item(node, kernel.MESSAGE, number), starts, -1, inner)
        row[kernel.IS_MAP] = 1
        return row, node, [(starts, 0, inner)]

    def _single(self, spec: Any, each: ProtoField, level: int) -> _Item:
        if each.kind == JSON_TEXT:
            raise _Unsuitable
        if each.kind == MESSAGE:
            assert each.message is not None
            return self._message(spec.message_type, each.message, level)
        if each.kind == WRAPPER:
            return self._wrapper(spec.message_type.fields_by_name["value"], each, level)
        if each.kind in (TIMESTAMP, DURATION):
            vector = self._vectors(level, 1)
            node = Node(
                "timestamp" if each.kind == TIMESTAMP else "duration", each.name, None, each.spark, level, vector
            )
            return _Item(node, kernel.TIME, defaults=[(vector, 0, -1)])
        kind, column = _SCALARS[spec.type]
        vector = self._vectors(level, 2 if column in TWO_VECTORS else 1)
        item = _Item(Node(column, each.name, None, each.spark, level, vector), kind)
        if each.kind == ENUM:
            self._symbols(each, item, vector)
        else:
            item.defaults = [(at, 0, -1) for at in range(vector, vector + (2 if column in TWO_VECTORS else 1))]
        return item

    def _symbols(self, each: ProtoField, item: _Item, vector: int) -> None:
        item.symbols, item.symbol_count = len(self.table), len(each.names)
        places = {}
        for number, name in each.names.items():
            places[number] = (-1 - len(self.constants), len(name))
            self.constants += name.encode()
            self.table += [number, *places[number]]
        # An enum of proto2 may have no symbol for 0; then the field has presence and this is never seen.
        start, length = places.get(0, (0, 0))
        item.defaults = [(vector, start, -1), (vector + 1, length, -1)]

    def _wrapper(self, value: Any, each: ProtoField, level: int) -> _Item:
        inside = ProtoField(each.name, "scalar", each.spark)
        item = self._single(value, inside, level)
        number = len(self.messages)
        self.messages.append([0] * 6)
        self._put_message(number, {1: self._row(item, item.node.vector, -1, -1)}, item.defaults)
        return _Item(item.node, kernel.MESSAGE, number, defaults=list(item.defaults))


def tables_for(descriptor: Any, layout: ProtoMessage) -> ProtobufTables | None:
    """The tables, or None for a message that Google's library has to read."""
    tables = ProtobufTables()
    try:
        tables.root = tables._message(descriptor, layout, 0).node
    except _Unsuitable:
        return None
    return tables
