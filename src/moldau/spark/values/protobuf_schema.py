"""Protobuf's descriptors: where they come from, and which Spark type each message becomes.

Descriptors travel as a serialized FileDescriptorSet in which every file comes after those it imports, because that can
be compared and sent to workers. Fields that know whether they are set are null when they are not; the others have
their default. Unsigned numbers become the next wider type that holds them, enums strings, Google's wrappers, Timestamp
and Duration what they stand for, and its Struct and Value, which may nest without end, JSON text. Recursive messages
have no Spark type. Messages without any field, for which Spark has no type either, are left out.
"""

from __future__ import annotations

import base64
import binascii
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from pyspark.sql import types as spark_types

from moldau.client.errors import MoldauError
from moldau.spark.values.proto_text import parse_proto

_GOOGLE = "google/protobuf/"
_TEXT_NAME = "schema.proto"

_SCALARS: dict[int, spark_types.DataType] = {
    FieldDescriptor.CPPTYPE_INT32: spark_types.IntegerType(),
    FieldDescriptor.CPPTYPE_INT64: spark_types.LongType(),
    FieldDescriptor.CPPTYPE_UINT32: spark_types.LongType(),
    FieldDescriptor.CPPTYPE_UINT64: spark_types.DecimalType(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: spark_types.DoubleType(),
    FieldDescriptor.CPPTYPE_FLOAT: spark_types.FloatType(),
    FieldDescriptor.CPPTYPE_BOOL: spark_types.BooleanType(),
    FieldDescriptor.CPPTYPE_ENUM: spark_types.StringType(),
}
_JSON_MESSAGES = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})
_WRAPPERS = frozenset(
    f"google.protobuf.{each}Value"
    for each in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
# Kinds of messages that are a single value for Spark.
TIMESTAMP, DURATION, WRAPPER, JSON_TEXT = "timestamp", "duration", "wrapper", "json"
# Kinds of fields.
SCALAR, ENUM, MESSAGE = "scalar", "enum", "message"


@dataclass(slots=True)
class ProtoField:
    """A field of a message: its kind, and for what it is repeated, whether as a list or as a map."""

    name: str
    kind: str
    spark: spark_types.DataType
    has_presence: bool = False
    is_list: bool = False
    # A map's keys; the field itself describes its values.
    key: ProtoField | None = None
    message: ProtoMessage | None = None
    names: dict[int, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)

    @property
    def column(self) -> spark_types.DataType:
        """The type of the whole field."""
        if self.key is not None:
            return spark_types.MapType(self.key.spark, self.spark)
        return spark_types.ArrayType(self.spark) if self.is_list else self.spark


@dataclass(slots=True)
class ProtoMessage:
    name: str
    fields: list[ProtoField]

    @property
    def spark(self) -> spark_types.StructType:
        return spark_types.StructType([spark_types.StructField(each.name, each.column) for each in self.fields])


# ---- descriptors


def descriptor_set(given: Any, message: str | None) -> tuple[bytes, str]:
    """(serialized FileDescriptorSet, full name of the message) of what a user may give as a schema: a generated class,
    a descriptor set, a path to either of its forms, or .proto text."""
    if hasattr(given, "DESCRIPTOR") and hasattr(given.DESCRIPTOR, "fields_by_name"):
        return _set_of_file(given.DESCRIPTOR.file), given.DESCRIPTOR.full_name
    directory = None
    if isinstance(given, Path):
        directory = given.parent
        given = given.read_text() if given.suffix == ".proto" else given.read_bytes()
    if isinstance(given, (bytes, bytearray)):
        try:
            files = list(descriptor_pb2.FileDescriptorSet.FromString(bytes(given)).file)
        except DecodeError as error:
            raise MoldauError(f"This is no descriptor set of Protobuf ({error}): make one with protoc") from error
        return _checked(files, message)
    if isinstance(given, str):
        given = {_TEXT_NAME: given}
    if not isinstance(given, Mapping):
        raise MoldauError(
            f"Protobuf({type(given).__name__}) is not a schema: give a generated class, .proto text, a "
            "descriptor set's bytes, or a Path"
        )
    texts = dict(given)

    def source(name: str) -> Any:
        if name not in texts and directory is not None and (directory / name).is_file():
            texts[name] = (directory / name).read_text()
        return parse_proto(name, texts[name]) if name in texts else None

    return _checked(_with_imports(list(texts)[-1:], source), message)


def _with_imports(names: list[str], source: Any) -> list[Any]:
    """Files with all that they import, each after what it imports itself."""
    ordered: dict[str, Any] = {}
    opened: list[str] = []

    def visit(name: str) -> None:
        if name in ordered:
            return
        if name in opened:
            raise MoldauError(f"{name} imports itself")
        opened.append(name)
        file = source(name)
        if file is None and name.startswith(_GOOGLE):
            file = _google_file(name)
        if file is None:
            raise MoldauError(
                f"{opened[-2] if len(opened) > 1 else 'The schema'} imports {name}, which is not here: give all files "
                "as Protobuf({name: text, ...}), or a descriptor set"
            )
        for imported in file.dependency:
            visit(imported)
        opened.pop()
        ordered[name] = file

    for each in names:
        visit(each)
    return list(ordered.values())


def _google_file(name: str) -> Any:
    try:
        module = importlib.import_module(f"google.protobuf.{name.removeprefix(_GOOGLE).removesuffix('.proto')}_pb2")
    except ImportError:
        return None
    return descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def _set_of_file(file: Any) -> bytes:
    ordered: dict[str, Any] = {}

    def visit(each: Any) -> None:
        if each.name not in ordered:
            for imported in each.dependencies:
                visit(imported)
            ordered[each.name] = descriptor_pb2.FileDescriptorProto.FromString(each.serialized_pb)

    visit(file)
    return bytes(descriptor_pb2.FileDescriptorSet(file=ordered.values()).SerializeToString(deterministic=True))


def descriptor_set_of_registered(files: Mapping[str, Any], root: str, message: str | None) -> tuple[bytes, str]:
    """Files by the names under which they import each other, as a registry refers to them."""
    first = files[root].message_type[:1]
    if message is None and first:
        # What the wire format's usual path, [0], means.
        message = message_at(files[root], (0,))
    return _checked(_with_imports([root], files.get), message)


def _checked(files: list[Any], message: str | None) -> tuple[bytes, str]:
    """Files that fit together, and the message that is meant: the named one, or the first one of the last file."""
    by_name = {each.name: each for each in files}
    files = _with_imports([each.name for each in files], by_name.get)
    pool = _pool(files)
    if not files:
        raise MoldauError("The descriptor set is empty")
    last = pool.FindFileByName(files[-1].name)
    if message is None:
        tops = list(last.message_types_by_name.values())
        if len(tops) != 1:
            names = ", ".join(sorted(each.name for each in tops)) or "none"
            raise MoldauError(f"Which message is meant must be said, as Protobuf(..., message=...): there are {names}")
        return _set_of_file(tops[0].file), tops[0].full_name
    for full_name in (message, f"{last.package}.{message}" if last.package else message):
        try:
            found = pool.FindMessageTypeByName(full_name)
        except KeyError:
            continue
        return _set_of_file(found.file), found.full_name
    raise MoldauError(f"The schema has no message {message!r}")


def _pool(files: list[Any]) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        try:
            pool.Add(file)
            # A pool may look at a file only when it is asked for.
            pool.FindFileByName(file.name)
        except (TypeError, KeyError, ValueError) as error:
            raise MoldauError(f"{file.name} is no valid Protobuf schema: {error}") from error
    return pool


@lru_cache(maxsize=100)
def message_descriptor(files: bytes, message: str) -> Any:
    """The descriptor of a message, in a pool of its own."""
    return _pool(list(descriptor_pb2.FileDescriptorSet.FromString(files).file)).FindMessageTypeByName(message)


def message_class(descriptor: Any) -> Any:
    return message_factory.GetMessageClass(descriptor)


def index_path(descriptor: Any) -> tuple[int, ...]:
    """Where a message is in its file, as the wire format says it."""
    path: list[int] = []
    while descriptor.containing_type is not None:
        names = [each.name for each in descriptor.containing_type.nested_types]
        path.insert(0, names.index(descriptor.name))
        descriptor = descriptor.containing_type
    return (list(descriptor.file.message_types_by_name).index(descriptor.name), *path)


def message_at(file: Any, path: tuple[int, ...]) -> str | None:
    """The full name of the message at a place of a FileDescriptorProto, or None if there is none."""
    found, names = file.message_type, [file.package] if file.package else []
    for index in path:
        if not 0 <= index < len(found):
            return None
        names.append(found[index].name)
        found = found[index].nested_type
    return ".".join(names)


def file_of_registered(name: str, text: str) -> Any:
    """The file that a registry gave: serialized and in base64, as asked for, or as text."""
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        file.name = name
        return file
    except (binascii.Error, DecodeError, ValueError):
        return parse_proto(name, text)


# ---- types


@lru_cache(maxsize=100)
def layout_of(files: bytes, message: str) -> ProtoMessage:
    return _message(message_descriptor(files, message), "value", ())


def _message(descriptor: Any, path: str, opened: tuple[str, ...]) -> ProtoMessage:
    if descriptor.full_name in opened:
        raise MoldauError(
            f"The Protobuf schema is recursive ({path} is a {descriptor.full_name} inside another): Spark has no type "
            "for it; give Protobuf(...) a schema without that field, it will be skipped"
        )
    fields = [_field(each, f"{path}.{each.name}", (*opened, descriptor.full_name)) for each in descriptor.fields]
    return ProtoMessage(descriptor.full_name, [each for each in fields if not _is_empty(each)])


def _is_empty(each: ProtoField) -> bool:
    return each.kind == MESSAGE and each.message is not None and not each.message.fields


def _field(descriptor: Any, path: str, opened: tuple[str, ...]) -> ProtoField:
    kind = descriptor.message_type
    if kind is not None and kind.GetOptions().map_entry:
        found = _single(kind.fields_by_name["value"], path, opened)
        found.name, found.key = descriptor.name, _single(kind.fields_by_name["key"], path, opened)
        found.has_presence = False
        return found
    found = _single(descriptor, path, opened)
    found.is_list = _is_repeated(descriptor)
    found.has_presence = descriptor.has_presence and not found.is_list
    return found


def _is_repeated(descriptor: Any) -> bool:
    """Protobuf 7 has renamed the property."""
    if hasattr(descriptor, "is_repeated"):
        return bool(descriptor.is_repeated)
    return bool(descriptor.label == FieldDescriptor.LABEL_REPEATED)


def _single(descriptor: Any, path: str, opened: tuple[str, ...]) -> ProtoField:
    name, kind = descriptor.name, descriptor.message_type
    if kind is None:
        if descriptor.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            text = descriptor.type == FieldDescriptor.TYPE_STRING
            return ProtoField(name, SCALAR, spark_types.StringType() if text else spark_types.BinaryType())
        found = ProtoField(name, SCALAR, _SCALARS[descriptor.cpp_type])
        if descriptor.enum_type is not None:
            found.kind = ENUM
            found.names = {each.number: each.name for each in reversed(descriptor.enum_type.values)}
            found.numbers = {each.name: each.number for each in descriptor.enum_type.values}
        return found
    if kind.full_name == "google.protobuf.Timestamp":
        return ProtoField(name, TIMESTAMP, spark_types.TimestampType())
    if kind.full_name == "google.protobuf.Duration":
        return ProtoField(name, DURATION, spark_types.DayTimeIntervalType())
    if kind.full_name in _JSON_MESSAGES:
        return ProtoField(name, JSON_TEXT, spark_types.StringType())
    if kind.full_name in _WRAPPERS:
        return ProtoField(name, WRAPPER, _single(kind.fields_by_name["value"], path, opened).spark)
    message = _message(kind, path, opened)
    return ProtoField(name, MESSAGE, message.spark, message=message)
