"""`decode`, `encode` and `dead_letters`: DataFrames of records to DataFrames of values and back.

It decides what becomes of a record that cannot be read: in "permissive" mode its value is null and its column `_error`
says why, in "fail" mode the query stops and says which record it was. A registry that does not answer stops the query
in either mode, because then nothing is known about the records. Everything works on batch and on streaming DataFrames
alike, and nothing runs before Spark runs it, except for asking the registry for the schema to read or write with.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType

from moldau.client.errors import MoldauError
from moldau.spark.values.formats import Bytes, Format
from moldau.spark.values.framing import KEY_HEADER, VALUE_HEADER

PERMISSIVE, FAIL = "permissive", "fail"
ERROR, RAW = "_error", "_raw"

_SIDES = ("key", "value")
_HEADER_NAMES = {"key": KEY_HEADER, "value": VALUE_HEADER}
_PREPARED = "_moldau_prepared_"
_HEADERS_TYPE = "array<struct<key:string,value:binary>>"

# The names that Kafka Connect gives to the headers of records in its dead-letter topics.
_CONNECT = "__connect.errors."


def decode(df: DataFrame, value: Format | None = None, key: Format | None = None, mode: str = PERMISSIVE) -> DataFrame:
    """Read the bytes in the columns `value` and `key`, which are replaced by what they mean.

        orders = decode(topic, value=Json("id long, total double"), key=String())
        orders.select("key", "value.id", "value.total").where("_error is null")

    In mode "permissive" two columns are added: `_error` (null for good records, otherwise what is wrong) and `_raw`
    (the original `key` and `value`); `dead_letters` needs both. In mode "fail" the first bad record stops the query.
    A null (a tombstone) stays null and is good. If there is a column `headers`, a schema's id is looked for there, too.
    """
    formats = {"key": key, "value": value}
    if mode not in (PERMISSIVE, FAIL):
        raise MoldauError(f"mode={mode!r} is not one of {PERMISSIVE}, {FAIL}")
    _check_decodable(df, formats)
    headers = "headers" in df.columns
    prepared = df
    takes: dict[str, Any] = {}
    for side, format_ in formats.items():
        if format_ is None:
            continue
        reading = format_.reading(side)
        header = _header(_HEADER_NAMES[side]) if headers and reading.wants_header else None
        prepared = prepared.withColumn(_PREPARED + side, reading.prepare(f.col(side), header))
        takes[side] = reading.take
    values: dict[str, Column] = {}
    error: Column = f.lit(None).cast("string")
    for side in reversed(_SIDES):
        if side in takes:
            values[side], why = takes[side](f.col(_PREPARED + side), f.col(side))
            # Keys are read first, as everywhere in Kafka.
            error = f.when(why.isNotNull(), f.concat(f.lit(f"{side}: "), why)).otherwise(error)
    columns = [values.get(name, f.col(_quoted(name))).alias(name) for name in df.columns]
    if mode == PERMISSIVE:
        raw = [f.col(side).alias(side) for side in _SIDES if side in df.columns]
        return prepared.select(*columns, error.alias(ERROR), f.struct(*raw).alias(RAW))
    checked = f.when(error.isNotNull(), f.raise_error(_complaint(df, error)))
    return prepared.select(
        *(
            (checked.otherwise(values[name]) if name in values else f.col(_quoted(name))).alias(name)
            for name in df.columns
        )
    )


def encode(df: DataFrame, value: Format | None = None, key: Format | None = None) -> DataFrame:
    """Turn the columns `value` and `key` into bytes, as `format("moldau")` writes them.

        rows = orders.select(f.col("id").cast("string").alias("key"), f.struct("id", "total").alias("value"))
        encode(rows, value=Avro(registry=registry, subject="orders-value"), key=String())

    A null stays null. A value that cannot be written stops the query. Other columns (`topic`, `headers`, `partition`)
    stay as they are; a schema's id in a header is added to `headers`.
    """
    out = df
    added: list[Column] = []
    for side, format_ in (("key", key), ("value", value)):
        if format_ is None:
            continue
        if side not in df.columns:
            raise MoldauError(
                f"There is no column {side!r} to encode: put its fields together with "
                f"select(struct('a', 'b').alias({side!r}))"
            )
        writing = format_.writing(side, df.schema[side].dataType)
        out = out.withColumn(side, writing.write(f.col(side)))
        if writing.header is not None:
            added.append(_new_header(_HEADER_NAMES[side], f.lit(writing.header)))
    if not added:
        return out
    return out.withColumn("headers", _with_headers(df, added))


def dead_letters(df: DataFrame, topic: str, *, name: str | None = None) -> tuple[DataFrame, DataFrame]:
    """Split what `decode` has read in permissive mode: (good records, bad ones as they go to a dead-letter topic).

        good, bad = dead_letters(decode(topic, value=Avro(schema)), topic="orders.dead")
        bad.write.format("moldau").options(...).mode("append").save()

    Bad records have their original key and value, a column `topic`, and headers in the manner of Kafka Connect that say
    where they came from and what is wrong. `name` goes into the header `__connect.errors.connector.name`.
    """
    missing = [each for each in (ERROR, RAW) if each not in df.columns]
    if missing:
        raise MoldauError(
            f"There is no column {missing[0]}: dead_letters takes what decode(..., mode='permissive') returns"
        )
    error = f.col(ERROR)
    good = df.where(error.isNull()).drop(ERROR, RAW)
    side, kind, message = _parts(error)
    found: list[Column] = [
        _new_header(f"{_CONNECT}{each}", f.col(each).cast("string").cast("binary"))
        for each in ("topic", "partition", "offset")
        if each in df.columns
    ]
    if name is not None:
        found.append(_new_header(f"{_CONNECT}connector.name", f.lit(name).cast("binary")))
    found += [
        _new_header(f"{_CONNECT}stage", f.concat(f.upper(side), f.lit("_CONVERTER")).cast("binary")),
        _new_header(f"{_CONNECT}class.name", f.lit(f"{decode.__module__.rpartition('.')[0]}.decode").cast("binary")),
        _new_header(f"{_CONNECT}exception.class.name", kind.cast("binary")),
        _new_header(f"{_CONNECT}exception.message", message.cast("binary")),
    ]
    raw = df.schema[RAW].dataType.names
    columns = [f.col(f"{RAW}.{each}").alias(each) for each in raw]
    bad = df.where(error.isNotNull()).select(
        *columns, _with_headers(df, found).alias("headers"), f.lit(topic).alias("topic")
    )
    return good, bad


def _parts(error: Column) -> tuple[Column, Column, Column]:
    """(side, kind, message) of `_error`. One that its user has written in another form is a message as a whole."""
    pattern = r"^(key|value): ([A-Za-z]+): (?s:(.*))$"
    ours = error.rlike(pattern)
    side = f.when(ours, f.regexp_extract(error, pattern, 1)).otherwise(f.lit("value"))
    kind = f.when(ours, f.regexp_extract(error, pattern, 2)).otherwise(f.lit("InvalidValue"))
    return side, kind, f.when(ours, f.regexp_extract(error, pattern, 3)).otherwise(error)


def _check_decodable(df: DataFrame, formats: dict[str, Format | None]) -> None:
    for side, format_ in formats.items():
        if format_ is None:
            continue
        if not isinstance(format_, Format):
            raise MoldauError(
                f"{side}={format_!r} is not a format: use Json(...), Avro(...), Protobuf(...) or String()"
            )
        if side not in df.columns:
            raise MoldauError(f"There is no column {side!r} to decode; there are {', '.join(df.columns)}")
        kind = df.schema[side].dataType
        if not isinstance(kind, BinaryType) and not isinstance(format_, Bytes):
            raise MoldauError(
                f"Column {side!r} is {kind.simpleString()} where bytes are needed: decode what format('moldau') reads"
            )
    for name in (ERROR, RAW):
        if name in df.columns:
            raise MoldauError(f"There is a column {name} already: decode the value and the key in one call")


def _complaint(df: DataFrame, error: Column) -> Column:
    place: list[Column] = [f.lit("A record cannot be read")]
    if {"topic", "partition", "offset"} <= set(df.columns):
        place = [
            f.lit("The record at offset "),
            f.col("offset").cast("string"),
            f.lit(" of "),
            f.col("topic"),
            f.lit("-"),
            f.col("partition").cast("string"),
            f.lit(" cannot be read"),
        ]
    advice = f.lit("; to set such records aside, decode with mode='permissive' and split with dead_letters(...)")
    return f.concat(*place, f.lit(": "), error, advice)


def _header(name: str) -> Column:
    """The value of a record's header, or null."""
    return f.get(f.filter(f.col("headers"), lambda each: each["key"] == name), f.lit(0))["value"]


def _new_header(name: str, value: Column) -> Column:
    return f.struct(f.lit(name).alias("key"), value.alias("value"))


def _with_headers(df: DataFrame, added: list[Column]) -> Column:
    new = f.array(*added).cast(_HEADERS_TYPE)
    if "headers" not in df.columns:
        return new
    return f.concat(f.coalesce(f.col("headers"), f.array().cast(_HEADERS_TYPE)), new)


def _quoted(name: str) -> str:
    return f"`{name}`"
