"""Protobuf values from Arrow columns: messages are filled field by field, and Google's library writes them.

A null is a field that is not set. What Protobuf has no place for (a null in a list, a symbol that the enum does not
have, a number that is too large) is refused. Nothing is written half: a batch succeeds or raises.
"""

from __future__ import annotations

from itertools import chain, repeat
from typing import Any

import pyarrow as pa
from google.protobuf import json_format
from pyspark.sql import types as spark_types

from moldau.client.errors import MoldauError
from moldau.spark.values.protobuf_schema import (
    DURATION,
    ENUM,
    JSON_TEXT,
    MESSAGE,
    SCALAR,
    TIMESTAMP,
    WRAPPER,
    ProtoField,
    ProtoMessage,
    message_class,
)


class ProtobufWriter:
    """Writes messages of one type, each behind the same prefix."""

    __slots__ = ("_class", "_layout", "_prefix")

    def __init__(self, descriptor: Any, layout: ProtoMessage, prefix: bytes) -> None:
        self._class = message_class(descriptor)
        self._layout = layout
        self._prefix = prefix

    def write(self, column: Any) -> Any:
        """A column of bytes; a null stays a null."""
        present = column.is_valid().to_pylist()
        messages = [self._class() for there in present if there]
        _fill_messages(self._layout, messages, column.drop_null(), "value")
        prefix = self._prefix
        written = iter([prefix + each.SerializeToString() for each in messages])
        return pa.array([next(written) if there else None for there in present], pa.binary())


def _fill_messages(layout: ProtoMessage, messages: list[Any], column: Any, path: str) -> None:
    if not pa.types.is_struct(column.type):
        raise MoldauError(f"{path} is {column.type} where the Protobuf schema has the message {layout.name}")
    parts = dict(zip((each.name for each in column.type), column.flatten(), strict=True))
    for each in layout.fields:
        if each.name in parts:
            where = f"{path}.{each.name}"
            try:
                _fill_field(each, messages, parts[each.name], where)
            except (TypeError, ValueError, OverflowError, json_format.ParseError, pa.ArrowInvalid) as error:
                raise MoldauError(
                    f"{where} cannot be written as Protobuf ({error}): cast or check the column"
                ) from error


def _fill_field(each: ProtoField, messages: list[Any], column: Any, path: str) -> None:
    name = each.name
    if each.key is None and not each.is_list:
        there = [message for message, valid in zip(messages, column.is_valid().to_pylist(), strict=True) if valid]
        _fill_values(each, there, column.drop_null(), path)
        return
    lists = [getattr(message, name) for message in messages]
    if each.key is not None:
        entries = [entry or () for entry in column.to_pylist()] if each.kind != MESSAGE else None
        if entries is not None:
            for target, entry in zip(lists, entries, strict=True):
                target.update((key, _plain(each, value, path)) for key, value in entry)
            return
        offsets = column.offsets.to_pylist()
        valid = column.is_valid().to_pylist()
        keys = column.keys.to_pylist()
        chosen, targets = [], []
        for row, target in enumerate(lists):
            if valid[row]:
                for item in range(offsets[row], offsets[row + 1]):
                    chosen.append(item)
                    targets.append(target[keys[item]])
        assert each.message is not None
        _fill_messages(each.message, targets, column.items.take(pa.array(chosen, pa.int64())), path)
        return
    items = column.flatten()
    if items.null_count:
        raise MoldauError(f"{path} has a null in a list, and Protobuf's lists have none: filter(...) them out")
    lengths = [length or 0 for length in column.value_lengths().to_pylist()]
    if each.kind in (SCALAR, ENUM):
        values = [_plain(each, value, path) for value in items.to_pylist()]
        start = 0
        for target, length in zip(lists, lengths, strict=True):
            target.extend(values[start : start + length])
            start += length
        return
    added = [target.add() for target, length in zip(lists, lengths, strict=True) for _ in repeat(None, length)]
    _fill_single(each, added, items, path)


def _fill_values(each: ProtoField, messages: list[Any], column: Any, path: str) -> None:
    name = each.name
    if each.kind in (SCALAR, ENUM):
        for message, value in zip(messages, column.to_pylist(), strict=True):
            setattr(message, name, _plain(each, value, path))
        return
    inner = [getattr(message, name) for message in messages]
    for message in inner:
        # A message that is set but has nothing in it is still there.
        message.SetInParent()
    _fill_single(each, inner, column, path)


def _fill_single(each: ProtoField, messages: list[Any], column: Any, path: str) -> None:
    """Fill messages that stand for one value each."""
    if each.kind == MESSAGE:
        assert each.message is not None
        _fill_messages(each.message, messages, column, path)
    elif each.kind in (TIMESTAMP, DURATION):
        whole = pa.timestamp("us", column.type.tz) if each.kind == TIMESTAMP else pa.duration("us")
        for message, micros in zip(messages, column.cast(whole).cast(pa.int64()).to_pylist(), strict=True):
            seconds, rest = divmod(micros, 1_000_000)
            if each.kind == DURATION and seconds < 0 and rest:
                seconds, rest = seconds + 1, rest - 1_000_000
            message.seconds, message.nanos = seconds, rest * 1000
    elif each.kind == WRAPPER:
        for message, value in zip(messages, column.to_pylist(), strict=True):
            message.value = int(value) if isinstance(each.spark, spark_types.DecimalType) else value
    else:
        assert each.kind == JSON_TEXT, each.kind
        for message, text in zip(messages, column.to_pylist(), strict=True):
            json_format.Parse(text, message)


def _plain(each: ProtoField, value: Any, path: str) -> Any:
    if value is None:
        raise MoldauError(f"{path} has a null inside, and Protobuf's lists and maps have none: filter(...) them out")
    if each.kind == ENUM:
        number = each.numbers.get(value)
        if number is None:
            if value.lstrip("-").isdigit():
                return int(value)
            symbols = ", ".join(chain(each.numbers))
            raise MoldauError(f"{path} has {value!r}, which is none of the enum's symbols {symbols}")
        return number
    return int(value) if isinstance(each.spark, spark_types.DecimalType) else value


def check_columns(layout: ProtoMessage, given: spark_types.DataType, path: str = "value") -> None:
    """Refuse, before anything runs, columns that the schema does not have. Fields are matched by name."""
    if not isinstance(given, spark_types.StructType):
        raise MoldauError(f"{path} is {given.simpleString()} where the Protobuf schema has the message {layout.name}")
    fields = {each.name: each for each in layout.fields}
    for column in given.fields:
        each = fields.get(column.name)
        if each is None:
            raise MoldauError(
                f"The DataFrame has {path}.{column.name} and the Protobuf schema has not (it has {', '.join(fields)}): "
                "drop the column, or add it to the schema"
            )
        kind = column.dataType
        if each.key is not None and isinstance(kind, spark_types.MapType):
            kind = kind.valueType
        elif each.is_list and isinstance(kind, spark_types.ArrayType):
            kind = kind.elementType
        elif each.key is not None or each.is_list:
            wanted = each.column.simpleString()
            raise MoldauError(f"{path}.{column.name} is {kind.simpleString()} where Protobuf has {wanted}")
        if each.message is not None:
            check_columns(each.message, kind, f"{path}.{column.name}")
