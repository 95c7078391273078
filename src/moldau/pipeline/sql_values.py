"""Values of SQL streams: from bytes to columns and back, by the formats of `moldau.spark.values`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moldau.pipeline.sql_statements import AVRO, JSON, REGISTRY_SETTINGS, Relation, TopicInsert
from moldau.pipeline.sql_text import SqlError

# Beside the record's own columns: why a value could not be read, and its bytes.
UNREAD_COLUMNS = ("_error", "_raw")
# What every schema has in its text, of Avro (JSON) and of Protobuf, and no file in its name.
_OF_A_SCHEMA = re.compile(r'[{["\n]')


def decoded(records: Any, relation: Relation, directory: Path) -> Any:
    """Records whose column `value` is what its bytes mean, with `UNREAD_COLUMNS` unless errors are to fail."""
    from moldau.spark.values import decode

    form = _format(
        relation.format, relation.columns or None, relation.options, relation.topic, relation.line, directory
    )
    mode = "fail" if relation.options.get("errors") == "fail" else "permissive"
    return decode(records, value=form, mode=mode)


def encoded(frame: Any, insert: TopicInsert, values: list[str], places: list[str], directory: Path) -> Any:
    """Columns `value` and what `places` says, from a SELECT's rows."""
    from moldau.spark.values import encode

    columns = ", ".join(f"`{name}`" for name in values)
    rows = frame.selectExpr(f"struct({columns}) as value", *places)
    form = _format(insert.format, None, insert.options, insert.topic, insert.line, directory)
    return encode(rows, value=form)


def _format(name: str, columns: str | None, options: Mapping[str, str], topic: str, line: int, directory: Path) -> Any:
    from moldau.spark import values

    common: dict[str, Any] = {}
    if "registry" in options:
        settings: dict[str, Any] = {
            each: options[f"registry.{each}"] for each in REGISTRY_SETTINGS if f"registry.{each}" in options
        }
        common["registry"] = values.Registry(options["registry"], **settings)
        common["subject"] = options.get("subject", f"{topic}-value")
    if name == JSON:
        return values.Json(columns, **common)
    schema = _schema(options.get("schema"), directory, line)
    if schema is None and not common:
        raise SqlError(f"format '{name}' needs a schema", line, hint="Add schema = '...' or registry = 'http://...'.")
    if name == AVRO:
        return values.Avro(schema.read_text(encoding="utf-8") if isinstance(schema, Path) else schema, **common)
    return values.Protobuf(schema, message=options.get("message"), **common)


def _schema(given: str | None, directory: Path, line: int) -> str | Path | None:
    """A schema's text, or the file beside the program whose name is given in its place."""
    if given is None or _OF_A_SCHEMA.search(given):
        return given
    path = directory / given
    if not path.is_file():
        raise SqlError(f"schema = '{given}' is no schema, and there is no file {path}", line)
    return path
