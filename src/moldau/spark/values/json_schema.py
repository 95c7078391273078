"""JSON Schema and Spark's types: enough of it for what serializers register, which is the shape of objects.

It decides which type a schema's values have; it validates nothing (ranges, patterns, required fields). What has no
single type (several alternatives, no type at all) becomes a string with the JSON text in it.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import types as spark_types

from moldau.client.errors import MoldauError

_DEEPEST_NESTING = 50
_TYPES: dict[str, spark_types.DataType] = {
    "boolean": spark_types.BooleanType(),
    "integer": spark_types.LongType(),
    "number": spark_types.DoubleType(),
    "string": spark_types.StringType(),
    "null": spark_types.NullType(),
}
_STRINGS: dict[str, spark_types.DataType] = {
    "date": spark_types.DateType(),
    "date-time": spark_types.TimestampType(),
}


def spark_type_of(text: str) -> spark_types.DataType:
    """The Spark type for values of a JSON Schema."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise MoldauError(f"This is no JSON Schema ({error}): {text[:200]}") from error
    return _type(schema, schema, 0)


def _type(schema: Any, root: Any, depth: int) -> spark_types.DataType:
    if depth > _DEEPEST_NESTING:
        raise MoldauError("The JSON Schema is recursive, and Spark has no type for it: give Json(...) a schema")
    if not isinstance(schema, dict):
        return spark_types.StringType()
    if "$ref" in schema:
        return _type(_referred(schema["$ref"], root), root, depth + 1)
    for alternatives in ("oneOf", "anyOf"):
        if alternatives in schema:
            others = [each for each in schema[alternatives] if each.get("type") != "null"]
            return _type(others[0], root, depth + 1) if len(others) == 1 else spark_types.StringType()
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        kind = others[0] if len(others) == 1 else "number" if set(others) == {"integer", "number"} else None
    if kind == "object":
        return _object(schema, root, depth)
    if kind == "array":
        return spark_types.ArrayType(_type(schema.get("items", {}), root, depth + 1))
    if kind == "string":
        return _STRINGS.get(schema.get("format", ""), spark_types.StringType())
    return _TYPES.get(kind or "", spark_types.StringType())


def _object(schema: dict[str, Any], root: Any, depth: int) -> spark_types.DataType:
    if "properties" in schema:
        return spark_types.StructType(
            [spark_types.StructField(name, _type(each, root, depth + 1)) for name, each in schema["properties"].items()]
        )
    return spark_types.MapType(spark_types.StringType(), _type(schema.get("additionalProperties", {}), root, depth + 1))


def _referred(reference: str, root: Any) -> Any:
    found = root
    if not reference.startswith("#"):
        raise MoldauError(f"The JSON Schema refers to {reference!r}, outside of itself: give Json(...) a schema")
    for step in reference[1:].strip("/").split("/"):
        if step:
            if not isinstance(found, dict) or step not in found:
                raise MoldauError(f"The JSON Schema refers to {reference!r}, which it does not have")
            found = found[step.replace("~1", "/").replace("~0", "~")]
    return found


def json_schema_of(kind: spark_types.DataType, title: str) -> str:
    """The JSON Schema of what Spark writes for values of a type."""
    return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", "title": title, **_schema(kind)})


def _schema(kind: spark_types.DataType) -> dict[str, Any]:
    if isinstance(kind, spark_types.StructType):
        # to_json leaves out what is null.
        return {
            "type": "object",
            "properties": {each.name: _schema(each.dataType) for each in kind.fields},
            "required": [each.name for each in kind.fields if not each.nullable],
            "additionalProperties": False,
        }
    if isinstance(kind, spark_types.ArrayType):
        items = _schema(kind.elementType)
        return {"type": "array", "items": {"oneOf": [{"type": "null"}, items]} if kind.containsNull else items}
    if isinstance(kind, spark_types.MapType):
        return {"type": "object", "additionalProperties": _schema(kind.valueType)}
    if isinstance(kind, spark_types.BooleanType):
        return {"type": "boolean"}
    if isinstance(kind, spark_types.IntegralType):
        return {"type": "integer"}
    if isinstance(kind, spark_types.NumericType):
        return {"type": "number"}
    if isinstance(kind, spark_types.DateType):
        return {"type": "string", "format": "date"}
    if isinstance(kind, spark_types.TimestampType):
        return {"type": "string", "format": "date-time"}
    return {} if isinstance(kind, spark_types.VariantType) else {"type": "string"}
