"""Kafka's message specifications, read from JSON into a small model with every version question already answered.

This file decides what a specification means: which versions a field lives in, when it may be null, what its default is.
It knows nothing of Python source; the emitters do.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

NO_END = 32767
FIXED_TYPES = {  # the letter and size with which `struct` reads it
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
# Arrays of these have their own compiled formats for the first few lengths.
FEW_TYPES = ("int8", "int32")
VARIABLE_TYPES = ("string", "bytes", "records")


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, both ends included; empty when low is above high."""

    low: int
    high: int

    @staticmethod
    def parse(text: str) -> Versions:
        text = text.strip()
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return Versions(int(text[:-1]), NO_END)
        low, _, high = text.partition("-")
        return Versions(int(low), int(high or low))

    def __bool__(self) -> bool:
        return self.low <= self.high

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def __and__(self, other: Versions) -> Versions:
        return Versions(max(self.low, other.low), min(self.high, other.high))

    def covers(self, other: Versions) -> bool:
        return self.low <= other.low and other.high <= self.high

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.low, self.high + 1))

    def __reversed__(self) -> Iterator[int]:
        return iter(range(self.high, self.low - 1, -1))


NO_VERSIONS = Versions(1, 0)
ALL_VERSIONS = Versions(0, NO_END)


@dataclass(slots=True)
class Field:
    name: str
    attribute: str
    type: str  # a primitive's name, or a struct's; of the elements if it is an array
    is_array: bool
    struct: Struct | None
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int | None
    default: Any  # None, a number, a bool, a str; "empty" kinds are given by has_null_default and type
    ignorable: bool
    flexible: Versions | None  # where the field overrides the message

    @property
    def is_fixed(self) -> bool:
        return not self.is_array and self.type in FIXED_TYPES

    @property
    def has_null_default(self) -> bool:
        return self.default is None and (self.is_array or self.struct is not None or self.type in VARIABLE_TYPES)

    @property
    def annotation(self) -> str:
        base = python_type(self.type)
        if self.is_array:
            base = f"list[{base}]"
        return f"{base} | None" if self.nullable or self.has_null_default else base


@dataclass(slots=True)
class Struct:
    name: str
    versions: Versions
    fields: list[Field] = field(default_factory=list)


@dataclass(slots=True)
class Specification:
    name: str
    kind: str  # request, response, header, metadata, coordinator-key, coordinator-value, data
    api_key: int | None
    versions: Versions
    flexible: Versions
    listeners: tuple[str, ...]
    latest_unstable: bool
    root: Struct
    structs: list[Struct]  # nested ones, each before those that use it

    def minimal_size(self, struct: Struct, version: int) -> int:
        """The fewest bytes a struct can take in a version."""
        flexible = version in self.flexible
        size = 1 if flexible else 0
        for each in struct.fields:
            if version in each.versions and version not in each.tagged:
                size += self.minimal_field_size(each, version)
        return size

    def minimal_field_size(self, each: Field, version: int) -> int:
        if each.is_array:
            return 1 if version in self.flexible else 4
        if each.struct is not None and version in each.nullable:
            return 1
        return self.minimal_element_size(each, version)

    def minimal_element_size(self, each: Field, version: int) -> int:
        if each.type in FIXED_TYPES:
            return FIXED_TYPES[each.type][1]
        if each.struct is not None:
            return self.minimal_size(each.struct, version)
        if version in (self.flexible if each.flexible is None else each.flexible):
            return 1
        return 2 if each.type == "string" else 4


def python_type(kind: str) -> str:
    if kind in FIXED_TYPES:
        return {"bool": "bool", "float64": "float", "uuid": "bytes"}.get(kind, "int")
    return {"string": "str", "bytes": "bytes", "records": "Buffer"}.get(kind, kind)


def snake_case(name: str) -> str:
    name = name.replace("KRaft", "Kraft")
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return name.lower()


def attribute_name(name: str) -> str:
    attribute = snake_case(name)
    return f"{attribute}_" if keyword.iskeyword(attribute) or attribute == "type" else attribute


def load(text: str) -> Specification | None:
    """A specification from its JSON (with // comments); None when no version of it is valid any more."""
    raw = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    versions = Versions.parse(raw["validVersions"])
    if not versions:
        return None
    loader = _Loader(raw, versions)
    specification = Specification(
        name=raw["name"],
        kind=raw["type"],
        api_key=raw.get("apiKey"),
        versions=versions,
        flexible=Versions.parse(raw["flexibleVersions"]),
        listeners=tuple(raw.get("listeners", ())),
        latest_unstable=raw.get("latestVersionUnstable", False),
        root=loader.root,
        structs=loader.ordered,
    )
    _check_elements_have_size(specification)
    return specification


class _Loader:
    """Resolves struct names: a field either brings its struct's fields along or names a common struct."""

    def __init__(self, raw: dict[str, Any], valid: Versions) -> None:
        self.valid = valid
        self.common = {each["name"]: each for each in raw.get("commonStructs", ())}
        self.known: dict[str, Struct] = {}
        self.ordered: list[Struct] = []
        self.root = Struct(raw["name"], valid)
        self.root.fields = self._fields(raw["fields"])

    def _fields(self, raw_fields: list[dict[str, Any]]) -> list[Field]:
        fields = (self._field(raw) for raw in raw_fields)
        return [each for each in fields if each.versions & self.valid]

    def _field(self, raw: dict[str, Any]) -> Field:
        tagged = Versions.parse(raw.get("taggedVersions", "none"))
        versions = Versions.parse(raw["versions"]) if "versions" in raw else tagged
        kind = raw["type"]
        is_array = kind.startswith("[]")
        kind = kind.removeprefix("[]")
        struct = None
        if kind not in FIXED_TYPES and kind not in VARIABLE_TYPES:
            struct = self._struct(kind, raw.get("fields"))
        return Field(
            name=raw["name"],
            attribute=attribute_name(raw["name"]),
            type=kind,
            is_array=is_array,
            struct=struct,
            versions=versions,
            nullable=Versions.parse(raw.get("nullableVersions", "none")) & versions & self.valid,
            tagged=tagged & versions,
            tag=raw.get("tag"),
            default=_default(kind, is_array, raw.get("default")),
            ignorable=raw.get("ignorable", False),
            flexible=Versions.parse(raw["flexibleVersions"]) if "flexibleVersions" in raw else None,
        )

    def _struct(self, name: str, raw_fields: list[dict[str, Any]] | None) -> Struct:
        if name in self.known:
            return self.known[name]
        if raw_fields is None:
            raw_fields = self.common[name]["fields"]
        struct = Struct(name, self.valid)
        struct.fields = self._fields(raw_fields)
        self.known[name] = struct
        self.ordered.append(struct)
        return struct


def _default(kind: str, is_array: bool, raw: Any) -> Any:
    """The default as a Python value. A JSON null means none was given, the string "null" means null."""
    text = "" if raw is None else str(raw).lower() if isinstance(raw, bool) else str(raw)
    if text == "null":
        return None
    if is_array:
        return []
    if kind == "records":
        return None
    if kind == "bool":
        return text == "true"
    if kind == "float64":
        return float(text or 0)
    if kind == "uuid":
        return bytes(16)
    if kind in FIXED_TYPES:
        return int(text or "0", 0)
    if kind == "bytes":
        return b""
    if kind == "string":
        return text
    return {}  # a struct of defaults


def _check_elements_have_size(specification: Specification) -> None:
    """Counts are bounded by what is left in the buffer, which needs every element to take at least a byte."""
    for struct in (specification.root, *specification.structs):
        for each in struct.fields:
            if each.is_array:
                for version in each.versions & specification.versions:
                    assert specification.minimal_element_size(each, version) > 0, (specification.name, each.name)
