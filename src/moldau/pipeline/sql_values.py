"""Values of SQL streams: from bytes to columns and back, by the formats of `moldau.spark.values`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moldau.pipeline.sql_statements import AVRO, JSON, Relation, TopicInsert
from moldau.pipeline.sql_text import SqlError

# Beside the record's own columns: why a value could not be read, and its bytes.
UNREAD_COLUMNS = ("_error", "_raw")


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
        common["registry"] = values.Registry(options["registry"])
        common["subject"] = options.get("subject", f"{topic}-value")
    if name == JSON:
        return values.Json(columns, **common)
    schema = _schema(options.get("schema"), directory, line)
    if schema is None and not common:
        raise SqlError(f"format '{name}' needs a schema", line, hint="Add schema = '...' or registry = 'http://...'.")
    if name == AVRO:
        return values.Avro(schema, **common)
    if "message" in options:
        common["message"] = options["message"]
    return values.Protobuf(schema, **common)


def _schema(given: str | None, directory: Path, line: int) -> str | None:
    """The text of a schema, which is given as it is or as the name of a file beside the program."""
    if given is None or given.lstrip().startswith(("{", "[", '"', "syntax")):
        return given
    try:
        return (directory / given).read_text(encoding="utf-8")
    except OSError as error:
        raise SqlError(f"schema = '{given}' is no schema, and no file: {error.strerror}", line) from None
