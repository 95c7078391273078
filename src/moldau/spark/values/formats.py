"""What bytes in a topic mean: the formats that `decode` and `encode` are given.

A format decides, on the driver and before anything runs, which schema values are read with, and hands out two things:
an expression for Spark, and what to take from its result. JSON and strings stay in Spark's own functions; Avro,
Protobuf and numbers go through Arrow to Python's workers. Formats keep no connection and can be used for any number of
DataFrames.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from moldau.client.errors import MoldauError
from moldau.spark.values.errors import MALFORMED, MISMATCH, UNFRAMED, UnknownSchemaError, reason
from moldau.spark.values.framing import SchemaId, write_prefix
from moldau.spark.values.json_schema import json_schema_of, spark_type_of
from moldau.spark.values.registry import JSON, PROTOBUF, RegisteredSchema, Registry
from moldau.spark.values.worker import reading_function, writing_function

PREFIX, HEADER = "prefix", "header"


@dataclass(slots=True, frozen=True)
class Reading:
    """How bytes are read: first `prepare(bytes, header)`, then `take(prepared, bytes)` for (value, error)."""

    prepare: Callable[[Column, Column | None], Column]
    take: Callable[[Column, Column], tuple[Column, Column]]
    wants_header: bool = False


@dataclass(slots=True, frozen=True)
class Writing:
    """How a column is turned into bytes, and the header that says which schema did it, if any."""

    write: Callable[[Column], Column]
    header: bytes | None = None


class Format(ABC):
    """What bytes mean. `side` is "value" or "key"."""

    __slots__ = ()

    @abstractmethod
    def reading(self, side: str) -> Reading:
        """How a column of bytes is read."""

    @abstractmethod
    def writing(self, side: str, given: DataType) -> Writing:
        """How a column of a Spark type is written."""


@dataclass(slots=True, frozen=True)
class String(Format):
    """UTF-8 text.

    decode(df, value=String())
    """

    def reading(self, side: str) -> Reading:
        def take(text: Column, _: Column) -> tuple[Column, Column]:
            good = f.is_valid_utf8(text)
            return f.when(good, text), f.when(~good, f.lit(reason(MALFORMED, "it is not UTF-8")))

        return Reading(lambda raw, _: raw.cast("string"), take)

    def writing(self, side: str, given: DataType) -> Writing:
        return Writing(lambda column: column.cast("string").cast("binary"))


@dataclass(slots=True, frozen=True)
class Bytes(Format):
    """Bytes as they are."""

    def reading(self, side: str) -> Reading:
        return Reading(lambda raw, _: raw, lambda prepared, _: (prepared, f.lit(None).cast("string")))

    def writing(self, side: str, given: DataType) -> Writing:
        return Writing(lambda column: column.cast("binary"))


@dataclass(slots=True, frozen=True)
class Number(Format):
    """A number as Kafka's own serializers write it: "short", "int", "long", "float" or "double", big-endian.

    decode(df, key=Number("long"))
    """

    kind: str

    def __post_init__(self) -> None:
        if self.kind not in _NUMBERS:
            raise MoldauError(f"Number({self.kind!r}) is not one of {', '.join(_NUMBERS)}")

    def reading(self, side: str) -> Reading:
        from moldau.spark.values.numbers import NumberSource

        return _from_workers(NumberSource(self.kind), _NUMBERS[self.kind])

    def writing(self, side: str, given: DataType) -> Writing:
        from moldau.spark.values.numbers import NumberSource

        source = NumberSource(self.kind)
        return Writing(lambda column: writing_function(source)(column.cast(_NUMBERS[self.kind])))


_NUMBERS: dict[str, DataType] = {
    "short": ShortType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
}


@dataclass(slots=True, frozen=True)
class Json(Format):
    """JSON text, with the fields of a Spark schema (a StructType or its DDL, such as "id long, name string").

        decode(df, value=Json("id long, name string"))

    Without a schema the value becomes a VARIANT. With a registry, values have a schema's id in front; the Spark schema
    is then that of the subject's newest version, unless one is given. `options` are those of Spark's JSON functions.
    """

    schema: StructType | DataType | str | None = None
    registry: Registry | None = None
    subject: str | None = None
    framing: str = PREFIX
    register: bool = True
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_framing(self)

    def _wanted(self) -> DataType:
        if isinstance(self.schema, str):
            try:
                return StructType.fromDDL(self.schema)
            except Exception as error:
                raise MoldauError(
                    f"Json({self.schema!r}) is not a schema in DDL, such as 'id long, name string': {error}"
                ) from error
        if self.schema is not None:
            return self.schema
        if self.registry is None or self.subject is None:
            return VariantType()
        return spark_type_of(_latest(self.registry, self.subject, JSON).text)

    def reading(self, side: str) -> Reading:
        wanted = self._wanted()
        if self.registry is None:
            return Reading(
                lambda raw, _: _parsed_json(raw.cast("string"), wanted, self.options),
                lambda parsed, raw: _judged_json(parsed, raw.cast("string"), wanted),
            )

        def prepare(raw: Column, header: Column | None) -> Column:
            content, unframed = _unframed(raw, header)
            text = content.cast("string")
            parsed = _parsed_json(text, wanted, self.options)
            return f.struct(parsed.alias("parsed"), text.alias("text"), unframed.alias("unframed"))

        def take(prepared: Column, _: Column) -> tuple[Column, Column]:
            value, wrong = _judged_json(prepared["parsed"], prepared["text"], wanted)
            unframed = prepared["unframed"]
            return f.when(~unframed, value), f.when(unframed, f.lit(reason(UNFRAMED, _NO_ID))).otherwise(wrong)

        return Reading(prepare, take, wants_header=True)

    def writing(self, side: str, given: DataType) -> Writing:
        options = dict(self.options)
        if isinstance(given, StringType):
            # Text that is JSON already.
            def to_bytes(column: Column) -> Column:
                return column.cast("binary")
        else:

            def to_bytes(column: Column) -> Column:
                return f.to_json(column, options).cast("binary")

        if self.registry is None:
            return Writing(to_bytes)
        subject = _subject(self)
        derived = RegisteredSchema(JSON, json_schema_of(given, subject))
        prefix, header = _prefix_for(self, _agreed(self, self.registry, subject, derived))
        if header is not None:
            return Writing(to_bytes, header)
        return Writing(lambda column: f.concat(f.lit(prefix), to_bytes(column)))


_NO_ID = "it does not begin with a schema's id: no serializer of a schema registry wrote it"
# More than any value has.
_ALL = 2**31 - 1
# What is parsed is not the text itself but an object around it. Spark's parser stops after the first value and forgets
# the rest of the text; here the rest must go on to the end.
_AROUND = ('{"value":', ',"end":true}')
_CORRUPT = "corrupt"


def _unframed(raw: Column, header: Column | None) -> tuple[Column, Column]:
    """(bytes after the schema's id, whether there is none)."""
    magic = f.substring(raw, 1, 1)
    bare = f.when(magic == f.lit(b"\1"), f.substring(raw, 18, _ALL)).otherwise(f.substring(raw, 6, _ALL))
    unframed = f.length(raw) < f.when(magic == f.lit(b"\0"), 5).when(magic == f.lit(b"\1"), 17).otherwise(_ALL)
    if header is None:
        return bare, unframed
    return f.when(header.isNotNull(), raw).otherwise(bare), unframed & header.isNull()


def _parsed_json(text: Column, wanted: DataType, options: Mapping[str, str]) -> Column:
    around = StructType(
        [
            StructField("value", wanted),
            StructField("end", BooleanType()),
            StructField(_CORRUPT, StringType()),
        ]
    )
    reading = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    # Spark's parser would put something else in the place of bytes that are not UTF-8.
    whole = f.when(f.is_valid_utf8(text), f.concat(f.lit(_AROUND[0]), text, f.lit(_AROUND[1])))
    parsed = f.from_json(whole, around, reading)
    # Always true, and not deterministic in Spark's eyes: otherwise every filter on the result would parse once more.
    return f.when(f.spark_partition_id() >= 0, parsed)


def _judged_json(parsed: Column, text: Column, wanted: DataType) -> tuple[Column, Column]:
    """(value, what is wrong or null). Spark does not say why JSON is bad, so it is looked for, in bad records only."""
    good = parsed["end"].isNotNull() & parsed[_CORRUPT].isNull()
    shown = wanted.simpleString()
    unfit = f"it is JSON, but does not fit {shown if len(shown) < 200 else shown[:200] + '...'}"
    # Alone in an array and in the object around it: the one finds what comes after a value, the other several values.
    not_json = f.try_parse_json(f.concat(f.lit("["), text, f.lit("]"))).isNull()
    not_json = not_json | f.try_parse_json(f.concat(f.lit(_AROUND[0]), text, f.lit(_AROUND[1]))).isNull()
    wrong = (
        f.when(good | text.isNull(), f.lit(None).cast("string"))
        .when(~f.is_valid_utf8(text), f.lit(reason(MALFORMED, "it is not UTF-8")))
        .when(not_json, f.lit(reason(MALFORMED, "it is not JSON")))
        .otherwise(f.lit(reason(MISMATCH, unfit)))
    )
    return f.when(good, parsed["value"]), wrong


@dataclass(slots=True, frozen=True)
class Avro(Format):
    """Avro's binary encoding.

        decode(df, value=Avro(schema))                                              # values without a schema's id
        decode(df, value=Avro(registry=Registry(url), subject="orders-value"))      # read as the newest version
        decode(df, value=Avro(schema, registry=Registry(url)))                      # read as this version
        encode(df, value=Avro(registry=Registry(url), subject="orders-value"))

    `schema` is JSON or what json.loads makes of it. With a registry every value is read with the schema that wrote it
    and resolved to the wanted one, as Avro's rules are. When writing without a schema the subject's newest version is
    used, or, if there is none, one made of the DataFrame's types. `framing="header"` puts the schema's id in a header.
    With `register=False` a schema that the subject does not have is refused.
    """

    schema: str | Mapping[str, Any] | list[Any] | None = None
    registry: Registry | None = None
    subject: str | None = None
    framing: str = PREFIX
    register: bool = True

    def __post_init__(self) -> None:
        _check_framing(self)
        if self.schema is None and self.registry is None:
            raise MoldauError("Avro() needs a schema, or a registry=Registry(...) and a subject to get it from")

    def reading(self, side: str) -> Reading:
        from moldau.spark.values.avro_schema import parse, schema_text
        from moldau.spark.values.avro_values import AvroSource, layout_of, referenced_texts
        from moldau.spark.values.registry import AVRO

        if self.schema is not None:
            source = AvroSource(schema_text(parse(self.schema)), (), self.registry)
        else:
            assert self.registry is not None, "checked when it was made"
            found = _latest(self.registry, _subject(self), AVRO)
            source = AvroSource(found.text, referenced_texts(found, self.registry), self.registry)
        return _from_workers(source, layout_of(source.schema, source.references).root.spark)

    def writing(self, side: str, given: DataType) -> Writing:
        from moldau.spark.values.avro_schema import parse, schema_for, schema_text
        from moldau.spark.values.avro_values import AvroWriterSource, layout_of, referenced_texts
        from moldau.spark.values.avro_writing import check_columns
        from moldau.spark.values.registry import AVRO

        references: tuple[str, ...] = ()
        prefix, header = b"", None
        if self.registry is None:
            assert self.schema is not None, "checked when it was made"
            text = schema_text(parse(self.schema))
        else:
            wanted = schema_for(given, side.capitalize()) if self.schema is None else self.schema
            schema = RegisteredSchema(AVRO, schema_text(parse(wanted)))
            agreed = _agreed(self, self.registry, _subject(self), schema)
            text, references = agreed.text, referenced_texts(agreed, self.registry)
            prefix, header = _prefix_for(self, agreed)
        check_columns(layout_of(text, references).root, given)
        source = AvroWriterSource(text, references, prefix)
        return Writing(writing_function(source), header)


@dataclass(slots=True, frozen=True)
class Protobuf(Format):
    """Messages of Protobuf.

        decode(df, value=Protobuf(Order))                                       # a class that protoc has generated
        decode(df, value=Protobuf(text_of_proto_file, message="shop.Order"))
        decode(df, value=Protobuf(registry=Registry(url), subject="orders-value"))
        encode(df, value=Protobuf(Order, registry=Registry(url), subject="orders-value"))

    `schema` is a generated class, .proto text, {file name: text} (the last file is meant), a pathlib.Path
    to a .proto file or to a descriptor set, or a descriptor set's bytes. `message` may be left out if there is but one.
    With a registry, values have a schema's id and the message's place in it in front; `framing="header"` puts them in
    a header. A value of another message than the wanted one is a bad record.
    """

    schema: Any = None
    message: str | None = None
    registry: Registry | None = None
    subject: str | None = None
    framing: str = PREFIX
    register: bool = True

    def __post_init__(self) -> None:
        _check_framing(self)
        if self.schema is None and self.registry is None:
            raise MoldauError("Protobuf() needs a schema, or a registry=Registry(...) and a subject to get it from")

    def _files(self) -> tuple[bytes, str]:
        from moldau.spark.values.protobuf_schema import descriptor_set
        from moldau.spark.values.protobuf_values import registered_files

        if self.schema is not None:
            return descriptor_set(self.schema, self.message)
        assert self.registry is not None, "checked when it was made"
        found = _latest(self.registry, _subject(self), PROTOBUF, serialized=True)
        return registered_files(found, self.registry, self.message)

    def reading(self, side: str) -> Reading:
        from moldau.spark.values.protobuf_schema import layout_of
        from moldau.spark.values.protobuf_values import ProtobufSource

        files, message = self._files()
        return _from_workers(ProtobufSource(files, message, self.registry), layout_of(files, message).spark)

    def writing(self, side: str, given: DataType) -> Writing:
        from moldau.spark.values.protobuf_schema import index_path, layout_of, message_descriptor
        from moldau.spark.values.protobuf_values import ProtobufWriterSource, register_files
        from moldau.spark.values.protobuf_writing import check_columns

        files, message = self._files()
        check_columns(layout_of(files, message), given)
        prefix, header = b"", None
        if self.registry is not None:
            subject = _subject(self)
            path = index_path(message_descriptor(files, message))
            if self.schema is None:
                agreed = _latest(self.registry, subject, PROTOBUF)
            else:
                try:
                    agreed = register_files(files, message, self.registry, subject, register=self.register)
                except UnknownSchemaError as error:
                    raise _not_registered(subject) from error
            prefix, header = _prefix_for(self, agreed, path)
        return Writing(writing_function(ProtobufWriterSource(files, message, prefix)), header)


def _from_workers(source: Any, kind: DataType) -> Reading:
    def prepare(raw: Column, header: Column | None) -> Column:
        function = reading_function(source, kind, with_header=header is not None)
        return function(raw) if header is None else function(raw, header)

    return Reading(prepare, lambda prepared, _: (prepared["value"], prepared["error"]), wants_header=source.is_framed)


# ---- what formats with a registry have in common


def _check_framing(given: Any) -> None:
    if given.framing not in (PREFIX, HEADER):
        raise MoldauError(f"framing={given.framing!r} is not one of {PREFIX}, {HEADER}")
    if given.registry is not None and not isinstance(given.registry, Registry):
        raise MoldauError(f"registry={given.registry!r} must be a Registry: Registry('http://localhost:8081')")


def _subject(given: Any) -> str:
    if given.subject is None:
        name = type(given).__name__
        raise MoldauError(
            f"{name}(registry=...) needs to know the subject: {name}(registry=..., subject='<topic>-value')"
        )
    subject: str = given.subject
    return subject


def _latest(registry: Registry, subject: str, kind: str, *, serialized: bool = False) -> RegisteredSchema:
    try:
        found = registry.latest(subject, serialized=serialized)
    except UnknownSchemaError as error:
        raise MoldauError(
            f"The registry at {registry.url} has no subject {subject!r}: register its schema, or give one"
        ) from error
    if found.kind != kind:
        raise MoldauError(f"Subject {subject!r} has a schema for {found.kind}, not for {kind}: use that format")
    return found


def _agreed(given: Any, registry: Registry, subject: str, schema: RegisteredSchema) -> RegisteredSchema:
    """The schema to write with, as the registry knows it. A schema that was not given gives way to the newest one."""
    if given.schema is None:
        try:
            found = registry.latest(subject)
            if found.kind != schema.kind:
                raise MoldauError(f"Subject {subject!r} has a schema for {found.kind}, not for {schema.kind}")
            return found
        except UnknownSchemaError:
            if not given.register:
                raise MoldauError(
                    f"The registry at {registry.url} has no subject {subject!r} and register=False: register it first"
                ) from None
    if given.register:
        return registry.register(subject, schema)
    try:
        return registry.look_up(subject, schema)
    except UnknownSchemaError as error:
        raise _not_registered(subject) from error


def _not_registered(subject: str) -> MoldauError:
    return MoldauError(f"Subject {subject!r} does not have this schema and register=False: register it first")


def _prefix_for(given: Any, schema: RegisteredSchema, message: tuple[int, ...] = ()) -> tuple[bytes, bytes | None]:
    """(what stands in front of values, what stands in the header or None)."""
    if given.framing == PREFIX:
        assert schema.id is not None, "the registry has said it"
        return write_prefix(SchemaId(schema.id, None, message)), None
    if schema.guid is None:
        raise MoldauError(
            "framing='header' needs a registry that gives schemas a GUID (Confluent Platform 8 and newer), and "
            "this one does not: use framing='prefix'"
        )
    return b"", write_prefix(SchemaId(None, schema.guid, message))
