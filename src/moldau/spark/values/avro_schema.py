"""Avro schemas: how they are parsed, which Spark type each becomes, and which vectors its values need.

It follows the mapping of Spark's own Avro functions: unions with null are nullable, unions of numbers are the wider
number, other unions become a struct with one member for each branch, enums and UUIDs become strings. Every type comes
out as nullable, because a record that cannot be read must have a place, too. Recursive schemas have no Spark type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastavro import parse_schema
from fastavro.schema import SchemaParseException, UnknownType
from pyspark.sql import types as spark_types

from moldau.client.errors import MoldauError
from moldau.spark.values.vectors import TWO_VECTORS, Node

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})

MICROS_BY_TIMESTAMP = {
    "timestamp-millis": (1000, 1),
    "timestamp-micros": (1, 1),
    "timestamp-nanos": (1, 1000),
    "local-timestamp-millis": (1000, 1),
    "local-timestamp-micros": (1, 1),
    "local-timestamp-nanos": (1, 1000),
}
_LARGEST_PRECISION = 38

_SPARK_PRIMITIVES: dict[str, spark_types.DataType] = {
    "null": spark_types.NullType(),
    "boolean": spark_types.BooleanType(),
    "int": spark_types.IntegerType(),
    "long": spark_types.LongType(),
    "float": spark_types.FloatType(),
    "double": spark_types.DoubleType(),
    "bytes": spark_types.BinaryType(),
    "string": spark_types.StringType(),
    "date": spark_types.DateType(),
    "timestamp": spark_types.TimestampType(),
    "local-timestamp": spark_types.TimestampNTZType(),
    "enum": spark_types.StringType(),
    "fixed": spark_types.BinaryType(),
    "uuid": spark_types.StringType(),
    "uuid-fixed": spark_types.StringType(),
}


@dataclass(slots=True)
class AvroSchema:
    """A parsed schema and the named types that it refers to."""

    root: Any
    names: dict[str, Any]

    def resolve(self, schema: Any) -> Any:
        """A schema without indirection: a list for a union, otherwise a dictionary with `type`."""
        while True:
            if isinstance(schema, str):
                if schema in PRIMITIVES:
                    return {"type": schema}
                schema = self.names[schema]
            elif isinstance(schema, list):
                return schema
            elif isinstance(schema["type"], (dict, list)) or schema["type"] in self.names:
                schema = schema["type"]
            else:
                return schema


def parse(text: str | Mapping[str, Any] | Sequence[Any], references: Sequence[str] = ()) -> AvroSchema:
    """Parse a schema given as JSON or as Python objects. `references` are schemas whose types it uses, in order."""
    names: dict[str, Any] = {}
    try:
        for reference in references:
            parse_schema(_loaded(reference), named_schemas=names)
        root = parse_schema(_loaded(text), named_schemas=names)
    except (SchemaParseException, UnknownType, KeyError, TypeError, ValueError) as error:
        raise MoldauError(f"This is no Avro schema ({error}): {str(text)[:200]}") from error
    return AvroSchema(root, names)


def _loaded(text: Any) -> Any:
    if not isinstance(text, str) or text in PRIMITIVES:
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise MoldauError(f"An Avro schema must be JSON ({error}): {text[:200]}") from error


class Layout:
    """The nodes of a schema, and how many vectors on which level they need. Level 0 is the rows."""

    def __init__(self, schema: AvroSchema) -> None:
        self.schema = schema
        self.level_of: list[int] = []
        self.levels = 1
        self._open: list[str] = []
        self.root = self._node(schema.root, "value", 0, nullable=False)

    def _vectors(self, level: int, count: int) -> int:
        first = len(self.level_of)
        self.level_of += [level] * count
        return first

    def _node(self, given: Any, path: str, level: int, *, nullable: bool) -> Node:
        schema = self.schema.resolve(given)
        valid = self._vectors(level, 1) if nullable else -1
        if isinstance(schema, list):
            return self._union(schema, path, level, valid)
        kind = kind_of(schema)
        if kind == "record":
            node = self._record(schema, path, level)
        elif kind in ("array", "map"):
            node = self._container(kind, schema, path, level)
        else:
            spark = spark_types.DecimalType(*decimal_of(schema, path)) if kind == "decimal" else _SPARK_PRIMITIVES[kind]
            vectors = 2 if kind in TWO_VECTORS else 0 if kind == "null" else 1
            node = Node(kind, path, schema, spark, level, self._vectors(level, vectors))
        node.valid = valid
        return node

    def _record(self, schema: Any, path: str, level: int) -> Node:
        name = schema["name"]
        if name in self._open:
            raise MoldauError(
                f"The Avro schema is recursive ({path} is a {name} inside a {name}): Spark has no type for it; give "
                "Avro(schema=...) a schema without that field, it will be skipped"
            )
        self._open.append(name)
        node = Node("record", path, schema, spark_types.StructType(), level)
        node.names = [each["name"] for each in schema["fields"]]
        node.children = [
            self._node(each["type"], f"{path}.{each['name']}", level, nullable=False) for each in schema["fields"]
        ]
        self._open.pop()
        node.spark = _struct(node)
        return node

    def _container(self, kind: str, schema: Any, path: str, level: int) -> Node:
        inner = self.levels
        self.levels += 1
        # Where its items begin; and, for writing, how many they are.
        node = Node(kind, path, schema, spark_types.NullType(), level, self._vectors(level, 2), inner=inner)
        if kind == "map":
            text = {"type": "string"}
            node.children = [
                Node("string", f"{path} key", text, spark_types.StringType(), inner, self._vectors(inner, 2)),
                self._node(schema["values"], f"{path}[]", inner, nullable=False),
            ]
            node.spark = spark_types.MapType(spark_types.StringType(), node.children[1].spark)
        else:
            node.children = [self._node(schema["items"], f"{path}[]", inner, nullable=False)]
            node.spark = spark_types.ArrayType(node.children[0].spark)
        return node

    def _union(self, branches: list[Any], path: str, level: int, valid: int) -> Node:
        resolved = [self.schema.resolve(each) for each in branches]
        others = [each for each in resolved if each["type"] != "null"]
        if len(others) < len(branches) and valid < 0:
            valid = self._vectors(level, 1)
        kinds = {kind_of(each) for each in others}
        if not others:
            node = Node("null", path, resolved[0], spark_types.NullType(), level)
        elif len(others) == 1:
            node = self._node(others[0], path, level, nullable=False)
        elif kinds <= {"int", "long"} or kinds <= {"float", "double"}:
            wide = "long" if "long" in kinds else "double"
            node = Node(wide, path, {"type": wide}, _SPARK_PRIMITIVES[wide], level, self._vectors(level, 1))
        else:
            node = Node("union", path, None, spark_types.StructType(), level)
            node.names = [f"member{number}" for number in range(len(others))]
            node.children = [
                self._node(each, f"{path}.{name}", level, nullable=True)
                for each, name in zip(others, node.names, strict=True)
            ]
            node.spark = _struct(node)
        node.valid = valid
        node.branches = resolved
        return node


def _struct(node: Node) -> spark_types.StructType:
    return spark_types.StructType(
        [spark_types.StructField(name, child.spark) for name, child in zip(node.names, node.children, strict=True)]
    )


def kind_of(schema: Any) -> str:
    """What a schema that is no union means, its logical type included."""
    base: str = schema["type"]
    logical = schema.get("logicalType")
    if base == "int" and logical == "date":
        return "date"
    if base == "long" and logical in MICROS_BY_TIMESTAMP:
        return "local-timestamp" if logical.startswith("local") else "timestamp"
    if base in ("bytes", "fixed") and logical == "decimal":
        return "decimal"
    if base == "string" and logical == "uuid":
        return "uuid"
    if base == "fixed" and logical == "uuid" and schema["size"] == 16:
        return "uuid-fixed"
    return "record" if base == "error" else base


def decimal_of(schema: Any, path: str) -> tuple[int, int]:
    precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
    if not 0 <= scale <= precision <= _LARGEST_PRECISION:
        raise MoldauError(
            f"{path} is a decimal({precision}, {scale}) and Spark's have {_LARGEST_PRECISION} digits at most: give "
            "Avro(schema=...) a schema in which it is plain bytes"
        )
    return precision, scale


def schema_for(kind: spark_types.DataType, name: str) -> Any:
    """The Avro schema of a Spark type, as Spark's own functions derive it: what may be null is a union with null."""
    return _schema_for(kind, name, "")


def _schema_for(kind: spark_types.DataType, name: str, namespace: str) -> Any:
    if isinstance(kind, spark_types.StructType):
        inside = f"{namespace}.{name}" if namespace else name
        fields = []
        for each in kind.fields:
            schema = _schema_for(each.dataType, each.name, inside)
            if each.nullable:
                fields.append({"name": each.name, "type": ["null", schema], "default": None})
            else:
                fields.append({"name": each.name, "type": schema})
        record: dict[str, Any] = {"type": "record", "name": name, "fields": fields}
        return {**record, "namespace": namespace} if namespace else record
    if isinstance(kind, spark_types.ArrayType):
        items = _schema_for(kind.elementType, name, namespace)
        return {"type": "array", "items": ["null", items] if kind.containsNull else items}
    if isinstance(kind, spark_types.MapType):
        if not isinstance(kind.keyType, spark_types.StringType):
            raise MoldauError(f"{name} is {kind.simpleString()}, and the keys of Avro's maps are strings: cast them")
        values = _schema_for(kind.valueType, name, namespace)
        return {"type": "map", "values": ["null", values] if kind.valueContainsNull else values}
    if isinstance(kind, spark_types.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if isinstance(kind, (spark_types.ByteType, spark_types.ShortType)):
        return "int"
    if isinstance(kind, spark_types.DateType):
        return {"type": "int", "logicalType": "date"}
    if isinstance(kind, spark_types.TimestampType):
        return {"type": "long", "logicalType": "timestamp-micros"}
    if isinstance(kind, spark_types.TimestampNTZType):
        return {"type": "long", "logicalType": "local-timestamp-micros"}
    for avro in ("boolean", "int", "long", "float", "double", "bytes", "string"):
        if isinstance(kind, type(_SPARK_PRIMITIVES[avro])):
            return avro
    raise MoldauError(f"{name} is {kind.simpleString()}, for which Avro has no type: cast the column")


def schema_text(schema: AvroSchema) -> str:
    """The schema as JSON, without what the parser has added."""

    def plain(each: Any) -> Any:
        if isinstance(each, dict):
            return {name: plain(value) for name, value in each.items() if not name.startswith("__")}
        return [plain(value) for value in each] if isinstance(each, list) else each

    return json.dumps(plain(schema.root))
