"""Emits the facts of every specification as JSON, for tests that build arbitrary messages of any version."""

from __future__ import annotations

import json
from typing import Any

from codegen.specification import Field, Specification, Struct, Versions


def schemas_source(packages: dict[str, list[Specification]]) -> str:
    schemas = {
        package: [_message(each) for each in specifications] for package, specifications in sorted(packages.items())
    }
    # One line a message keeps the file small and its differences readable.
    lines = []
    for package, messages in schemas.items():
        rows = ",\n".join(json.dumps(message, separators=(",", ":")) for message in messages)
        lines.append(f'"{package}": [\n{rows}\n]')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _message(specification: Specification) -> dict[str, Any]:
    structs = {struct.name: _struct(struct) for struct in (*specification.structs, specification.root)}
    return {
        "name": specification.name,
        "kind": specification.kind,
        "versions": _range(specification.versions),
        "flexible": _range(specification.flexible),
        "structs": structs,
    }


def _struct(struct: Struct) -> list[dict[str, Any]]:
    return [_field(field) for field in struct.fields]


def _field(field: Field) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": field.name, "attribute": field.attribute, "type": field.type}
    facts["versions"] = _range(field.versions)
    if field.is_array:
        facts["array"] = True
    if field.nullable:
        facts["nullable"] = _range(field.nullable)
    if field.tag is not None:
        facts["tag"] = field.tag
    if field.ignorable:
        facts["ignorable"] = True
    if field.has_null_default:
        facts["default"] = None
    elif field.default not in ([], {}, b"", bytes(16)):
        facts["default"] = field.default
    return facts


def _range(versions: Versions) -> list[int] | None:
    return [versions.low, versions.high] if versions else None
