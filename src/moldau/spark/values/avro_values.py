"""Avro for the workers: which reader a schema's values need, with and without a registry."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from moldau.client.errors import MoldauError
from moldau.spark.values.arrow_types import arrow_type
from moldau.spark.values.avro_reading import AvroReader
from moldau.spark.values.avro_schema import AvroSchema, Layout, parse
from moldau.spark.values.avro_writing import AvroWriter
from moldau.spark.values.errors import MismatchError
from moldau.spark.values.framing import SchemaId
from moldau.spark.values.registry import AVRO, RegisteredSchema, Registry


@dataclass(slots=True, frozen=True)
class AvroSource:
    """The reader's schema (with the schemas whose types it uses), and where writers' schemas are."""

    schema: str
    references: tuple[str, ...]
    registry: Registry | None

    @property
    def is_framed(self) -> bool:
        return self.registry is not None

    @property
    def has_messages(self) -> bool:
        return False

    @property
    def arrow_type(self) -> Any:
        return arrow_type(layout_of(self.schema, self.references).root.spark)

    def reader(self, schema: SchemaId | None) -> AvroReader:
        layout = layout_of(self.schema, self.references)
        if schema is None or self.registry is None:
            return AvroReader(layout.schema, layout)
        found = (
            self.registry.by_guid(schema.guid) if schema.guid is not None else self.registry.by_id(schema.number or 0)
        )
        if found.kind != AVRO:
            raise MismatchError(f"it was written with a schema for {found.kind}, not for Avro")
        return AvroReader(parse_registered(found, self.registry), layout)


@lru_cache(maxsize=100)
def layout_of(schema: str, references: tuple[str, ...]) -> Layout:
    return Layout(parse(schema, references))


def parse_registered(schema: RegisteredSchema, registry: Registry) -> AvroSchema:
    return parse(schema.text, referenced_texts(schema, registry))


def referenced_texts(schema: RegisteredSchema, registry: Registry) -> tuple[str, ...]:
    """The schemas that a schema uses, directly or not, each after those it uses itself."""
    found: dict[tuple[str, int], str] = {}

    def visit(each: RegisteredSchema, depth: int) -> None:
        if depth > _DEEPEST_REFERENCES:
            raise MoldauError("The registry's schemas refer to each other in a circle")
        for reference in each.references:
            if (reference.subject, reference.version) not in found:
                used = registry.by_version(reference.subject, reference.version)
                visit(used, depth + 1)
                found[reference.subject, reference.version] = used.text

    visit(schema, 0)
    return tuple(found.values())


_DEEPEST_REFERENCES = 50


@dataclass(slots=True, frozen=True)
class AvroWriterSource:
    """The schema to write with, and what stands in front of every value."""

    schema: str
    references: tuple[str, ...]
    prefix: bytes

    def writer(self) -> AvroWriter:
        return AvroWriter(layout_of(self.schema, self.references), self.prefix)
