"""Protobuf for the workers: which reader a schema's values need, with and without a registry.

Values are always read with the wanted message; the schema that wrote them only says whether it is that message. It is
compared by name, so that a topic with several messages does not end in the wrong columns.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2

from moldau.spark.values.arrow_types import arrow_type
from moldau.spark.values.errors import MismatchError
from moldau.spark.values.framing import SchemaId
from moldau.spark.values.protobuf_reading import ProtobufReader
from moldau.spark.values.protobuf_schema import (
    descriptor_set_of_registered,
    file_of_registered,
    layout_of,
    message_at,
    message_descriptor,
)
from moldau.spark.values.protobuf_writing import ProtobufWriter
from moldau.spark.values.registry import PROTOBUF, Reference, RegisteredSchema, Registry


@dataclass(slots=True, frozen=True)
class ProtobufSource:
    """The wanted message, and where writers' schemas are."""

    files: bytes
    message: str
    registry: Registry | None

    @property
    def is_framed(self) -> bool:
        return self.registry is not None

    @property
    def has_messages(self) -> bool:
        return True

    @property
    def arrow_type(self) -> Any:
        return arrow_type(layout_of(self.files, self.message).spark)

    def reader(self, schema: SchemaId | None) -> ProtobufReader:
        if schema is not None and self.registry is not None:
            self._check(schema, self.registry)
        return ProtobufReader(message_descriptor(self.files, self.message), layout_of(self.files, self.message))

    def _check(self, schema: SchemaId, registry: Registry) -> None:
        if schema.guid is not None:
            found = registry.by_guid(schema.guid, serialized=True)
        else:
            found = registry.by_id(schema.number or 0, serialized=True)
        if found.kind != PROTOBUF:
            raise MismatchError(f"it was written with a schema for {found.kind}, not for Protobuf")
        written = message_at(file_of_registered("written.proto", found.text), schema.message)
        if written is None:
            raise MismatchError(f"its schema has no message at {list(schema.message)}")
        if written != self.message:
            raise MismatchError(f"it is a {written}, not a {self.message}")


@dataclass(slots=True, frozen=True)
class ProtobufWriterSource:
    """The message to write, and what stands in front of every value."""

    files: bytes
    message: str
    prefix: bytes

    def writer(self) -> ProtobufWriter:
        descriptor = message_descriptor(self.files, self.message)
        return ProtobufWriter(descriptor, layout_of(self.files, self.message), self.prefix)


def registered_files(schema: RegisteredSchema, registry: Registry, message: str | None) -> tuple[bytes, str]:
    """(serialized FileDescriptorSet, full name of the message) of a schema of the registry."""
    files: dict[str, Any] = {}

    def visit(name: str, each: RegisteredSchema) -> None:
        if name not in files:
            files[name] = None
            for reference in each.references:
                visit(reference.name, registry.by_version(reference.subject, reference.version, serialized=True))
            files[name] = file_of_registered(name, each.text)

    visit("schema.proto", schema)
    return descriptor_set_of_registered(files, "schema.proto", message)


def register_files(files: bytes, message: str, registry: Registry, subject: str, *, register: bool) -> RegisteredSchema:
    """Register (or look up) the file of a message, and first those that it imports, each under its own name."""
    by_name = {each.name: each for each in descriptor_pb2.FileDescriptorSet.FromString(files).file}
    done: dict[str, RegisteredSchema] = {}

    def put(name: str, under: str) -> RegisteredSchema:
        if name not in done:
            references = []
            for imported in by_name[name].dependency:
                if not imported.startswith("google/protobuf/"):
                    version = put(imported, imported).version
                    references.append(Reference(imported, imported, version or -1))
            text = base64.b64encode(by_name[name].SerializeToString(deterministic=True)).decode()
            schema = RegisteredSchema(PROTOBUF, text, tuple(references))
            found = registry.register(under, schema) if register else registry.look_up(under, schema)
            if found.version is None and under != subject:
                found = registry.look_up(under, schema)
            done[name] = found
        return done[name]

    return put(message_descriptor(files, message).file.name, subject)
