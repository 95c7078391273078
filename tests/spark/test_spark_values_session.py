"""Values through real Spark: what a user types, and what comes out; with topics on a real node where it matters."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as f

from moldau.client.errors import MoldauError
from moldau.spark.values import (
    Avro,
    Bytes,
    Json,
    Number,
    Protobuf,
    Registry,
    String,
    dead_letters,
    decode,
    encode,
)
from moldau.spark.values.registry import forget_schemas
from moldau.testing import Cluster
from tests.spark.test_spark_sessions import run_to_end
from tests.spark.values_registry import RegistryServer, registry_server

pytestmark = pytest.mark.timeout(600)

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": ["null", "string"], "default": None}],
}
PROTO = 'syntax = "proto3"; package shop; message Order { int64 id = 1; optional string item = 2; }'


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    forget_schemas()
    with registry_server() as found:
        yield found


def records(spark: Any, *rows: tuple[bytes | None, bytes | None]) -> Any:
    """A DataFrame as the source gives it."""
    columns = "key binary, value binary, topic string, partition int, offset long"
    given = [
        (key and bytearray(key), None if value is None else bytearray(value), "t", 0, offset)
        for offset, (key, value) in enumerate(rows)
    ]
    return spark.createDataFrame(given, columns).coalesce(1)


JSON_CASES: dict[bytes | None, Any] = {
    b'{"a": 1, "b": "x"}': (1, "x"),
    b' {"a": 2}\n': (2, None),
    b"null": None,
    None: None,
    b'{"a": "zz"}': "value: SchemaMismatch: it is JSON, but does not fit struct<a:int,b:string>",
    b'[{"a": 1}, {"a": 2}]': "value: SchemaMismatch: it is JSON, but does not fit struct<a:int,b:string>",
    b'{"a": 1': "value: MalformedValue: it is not JSON",
    b"": "value: MalformedValue: it is not JSON",
    b'{"a": 1} and more': "value: MalformedValue: it is not JSON",
    b'{"a": 1}{"a": 2}': "value: MalformedValue: it is not JSON",
    b'{"a": 1},{"a": 2}': "value: MalformedValue: it is not JSON",
    b'{"a": 1}}': "value: MalformedValue: it is not JSON",
    b'{"a": 1, "b": "\xff"}': "value: MalformedValue: it is not UTF-8",
}


def test_json_is_good_or_says_why_not(spark: Any) -> None:
    df = records(spark, *((b"k", value) for value in JSON_CASES))
    rows = decode(df, value=Json("a int, b string"), key=String()).collect()
    found = {
        None if row._raw.value is None else bytes(row._raw.value): row._error or (row.value and tuple(row.value))
        for row in rows
    }
    assert found == JSON_CASES
    assert {row.key for row in rows} == {"k"}
    variants = decode(df.where("offset < 2"), value=Json()).select(f.to_json("value").alias("text"), "_error").collect()
    assert [tuple(row) for row in variants] == [('{"a":1,"b":"x"}', None), ('{"a":2}', None)]


def test_strings_numbers_and_keys(spark: Any) -> None:
    df = records(spark, (b"\0\0\0\7", b"\xc3\xa9"), (b"\0", b"x"), (None, b"\xff"), (b"\0", b"\xff"))
    rows = decode(df, key=Number("int"), value=String()).collect()
    assert [(row.key, row.value) for row in rows] == [(7, "é"), (None, "x"), (None, None), (None, None)]
    key_error = "key: MalformedValue: it has 1 bytes where Kafka's int has 4"
    assert [row._error for row in rows] == [None, key_error, "value: MalformedValue: it is not UTF-8", key_error]
    numbers = spark.range(0, 3, 1, 1).selectExpr("id as key", "cast(id as double) / 2 as value")
    back = decode(
        encode(numbers, key=Number("long"), value=Number("double")), key=Number("long"), value=Number("double")
    )
    assert [(row.key, row.value) for row in back.collect()] == [(0, 0.0), (1, 0.5), (2, 1.0)]
    same = decode(encode(df.select("value"), value=Bytes()), value=Bytes(), mode="fail").collect()
    assert bytes(same[0].value) == b"\xc3\xa9"


WIDE = (
    "id long, name string, at timestamp, local timestamp_ntz, day date, price decimal(9,2), tags array<string>, "
    "counts map<string,long>, inner struct<x:double,y:struct<z:binary>>, flag boolean, small float, n int"
)
WIDE_PROTO = """
syntax = "proto3"; import "google/protobuf/timestamp.proto";
message Wide {
  message Y { bytes z = 1; }  message Inner { double x = 1; Y y = 2; }
  int64 id = 1; optional string name = 2; google.protobuf.Timestamp at = 3; repeated string tags = 4;
  map<string, int64> counts = 5; Inner inner = 6; bool flag = 7; float small = 8; int32 n = 9;
}
"""


def test_all_kinds_of_columns_through_avro_protobuf_and_json(spark: Any) -> None:
    row = (
        1,
        "é",
        datetime(2026, 1, 2, 3, 4, 5, 678901),
        datetime(1969, 1, 2, 3, 4, 5, 678901),
        datetime(2026, 1, 2).date(),
        Decimal("-12.34"),
        ["a", None, ""],
        {"k": 1, "n": None},
        (1.5, (b"\0",)),
        True,
        0.5,
        -7,
    )
    nothing = (None,) * len(row)
    df = spark.createDataFrame([row, nothing], WIDE).coalesce(1).select(f.struct("*").alias("value"))
    expected = [each.value for each in df.collect()]
    from moldau.spark.values.avro_schema import schema_for

    avro = Avro(schema_for(df.schema["value"].dataType, "Wide"))
    assert [each.value for each in decode(encode(df, value=avro), value=avro, mode="fail").collect()] == expected

    fields = ["id", "name", "at", "counts", "tags", "inner", "flag", "small", "n"]
    narrow = df.selectExpr(
        *(f"value.{each}" for each in fields if each not in ("counts", "tags")),
        "map_filter(value.counts, (k, v) -> v is not null) as counts",
        "filter(value.tags, each -> each is not null) as tags",
    )
    proto = Protobuf(WIDE_PROTO, message="Wide")
    encoded = encode(narrow.select(f.struct(*fields).alias("value")), value=proto)
    first, second = (each.value for each in decode(encoded, value=proto, mode="fail").collect())
    assert {each: first[each] for each in fields} == {
        **{each: expected[0][each] for each in fields},
        "counts": {"k": 1},
        "tags": ["a", ""],
    }
    # Fields of Protobuf that do not know whether they are set have their default.
    assert (second.id, second.name, second.at, second.flag, second.tags) == (0, None, None, False, [])

    text = Json(df.schema["value"].dataType)
    first = decode(encode(df, value=text), value=text, mode="fail").collect()[0].value
    assert (first.id, first.price, first.counts) == (1, Decimal("-12.34"), {"k": 1, "n": None})


def test_bad_records_get_the_headers_of_kafka_connect(spark: Any) -> None:
    df = records(spark, (b"k0", b"\x02\x00"), (b"k1", b"\xff"), (None, None))
    df = df.withColumn("headers", f.expr("array(named_struct('key', 'mine', 'value', cast('h' as binary)))"))
    good, bad = dead_letters(decode(df, value=Avro(ORDER)), topic="orders.dead", name="billing")
    assert good.columns == ["key", "value", "topic", "partition", "offset", "headers"]
    assert [row.offset for row in good.collect()] == [0, 2]
    (row,) = bad.collect()
    assert (bytes(row.key), bytes(row.value), row.topic) == (b"k1", b"\xff", "orders.dead")
    assert [(each.key, bytes(each.value).decode()) for each in row.headers] == [
        ("mine", "h"),
        ("__connect.errors.topic", "t"),
        ("__connect.errors.partition", "0"),
        ("__connect.errors.offset", "1"),
        ("__connect.errors.connector.name", "billing"),
        ("__connect.errors.stage", "VALUE_CONVERTER"),
        ("__connect.errors.class.name", "moldau.spark.values.decode"),
        ("__connect.errors.exception.class.name", "MalformedValue"),
        ("__connect.errors.exception.message", "it ends in the middle of a field"),
    ]
    # A check of one's own makes a record as bad as any other.
    checked = decode(df, value=Avro(ORDER)).withColumn(
        "_error", f.coalesce("_error", f.when(f.expr("value.id = 1"), "no"))
    )
    _, bad = dead_letters(checked, topic="d")
    kinds = [{each.key: bytes(each.value) for each in row.headers} for row in bad.collect()]
    assert kinds[0]["__connect.errors.exception.class.name"] == b"InvalidValue"
    assert kinds[0]["__connect.errors.exception.message"] == b"no"


def test_what_stops_a_query_says_where_and_why(spark: Any, registry: RegistryServer) -> None:
    df = records(spark, (b"k", b"\x02\x00"), (b"k", b"\x02"))
    with pytest.raises(
        Exception, match=r"The record at offset 1 of t-0 cannot be read: value: MalformedValue: it ends in"
    ):
        decode(df, value=Avro(ORDER), mode="fail").collect()
    number = registry.add("down-value", json.dumps(ORDER))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        dead = Registry(f"http://127.0.0.1:{probe.getsockname()[1]}", retries=0)
    framed = records(spark, (None, b"\0" + number.to_bytes(4, "big") + b"\x02\x00"))
    # In permissive mode as well: nothing is known about the record.
    with pytest.raises(Exception, match=r"could not be asked for schema .* is it running, and is the address right"):
        decode(framed, value=Avro(ORDER, registry=dead)).collect()


def test_mistakes_are_found_before_anything_runs(spark: Any, registry: RegistryServer) -> None:
    df = records(spark, (b"k", b"v"))
    url = Registry(registry.url)
    for mistake, complaint in (
        (lambda: decode(df, value=String(), mode="strict"), "mode='strict' is not one of permissive, fail"),
        (lambda: decode(df.drop("key"), key=String()), "There is no column 'key'"),
        (lambda: decode(df, value="json"), "is not a format: use Json"),
        (lambda: decode(decode(df, value=String()), key=String()), "There is a column _error already"),
        (lambda: decode(df.withColumn("value", f.lit("x")), value=String()), "is string where bytes are needed"),
        (lambda: dead_letters(df, topic="x"), "dead_letters takes what decode"),
        (lambda: decode(df, value=Avro(registry=url)), "needs to know the subject"),
        (lambda: decode(df, value=Avro(registry=url, subject="none")), "has no subject 'none'"),
        (lambda: Avro(), "needs a schema, or a registry"),
        (lambda: Avro(ORDER, registry=registry.url), "must be a Registry"),
        (lambda: Protobuf(PROTO, framing="x"), "framing='x' is not one of prefix, header"),
        (lambda: Number("byte"), "is not one of short, int"),
        (lambda: decode(df, value=Json("a b c")), "is not a schema in DDL"),
        (lambda: encode(df.select("key"), value=String()), "There is no column 'value' to encode"),
        (lambda: encode(df, value=Avro(ORDER)), "value is binary where the Avro schema has record"),
        (
            lambda: encode(
                df.selectExpr("named_struct('id', 1L) as value"),
                value=Avro(ORDER, registry=url, subject="new-value", register=False),
            ),
            "does not have this schema and register=False",
        ),
    ):
        with pytest.raises(MoldauError, match=complaint):
            mistake()


def test_formats_with_a_registry(spark: Any, registry: RegistryServer) -> None:
    url = Registry(registry.url)
    df = spark.range(0, 4, 1, 1).selectExpr(
        "named_struct('id', id, 'item', if(id = 1, null, concat('n', id))) as value"
    )
    expected = [(0, "n0"), (1, None), (2, "n2"), (3, "n3")]
    for name, given, magic in (
        ("made", Avro(registry=url, subject="made-value"), 0),
        ("avro", Avro(ORDER, registry=url, subject="avro-value"), 0),
        ("header", Avro(ORDER, registry=url, subject="header-value", framing="header"), None),
        ("proto", Protobuf(PROTO, registry=url, subject="proto-value"), 0),
        ("proto-header", Protobuf(PROTO, registry=url, subject="proto-header-value", framing="header"), None),
        ("json", Json(registry=url, subject="json-value"), 0),
    ):
        encoded = encode(df, value=given)
        first = encoded.collect()[0]
        assert (magic == 0) == (bytes(first.value)[:4] == b"\0\0\0\0"), name
        assert ("headers" in encoded.columns) == (magic is None), name
        # Who reads has the subject only.
        reader = type(given)(registry=url, subject=f"{name}-value")
        rows = decode(encoded, value=reader).collect()
        assert [row._error for row in rows] == [None] * 4, name
        assert [tuple(row.value) for row in rows] == expected, name
    unframed = decode(records(spark, (None, b"{}")), value=Json("id long", registry=url)).collect()
    assert unframed[0]._error.startswith("value: NotFramed")


def test_a_stream_with_its_dead_letters_is_one_query(
    spark: Any, moldau_cluster: Cluster, new_topic: Callable[..., str], registry: RegistryServer, tmp_path: Path
) -> None:
    source, target, dead = new_topic(2), new_topic(1), new_topic(1)
    servers = {"kafka.bootstrap.servers": moldau_cluster.bootstrap_servers}
    url = Registry(registry.url)
    number = registry.add(f"{source}-value", json.dumps(ORDER))
    producer = Producer({"bootstrap.servers": moldau_cluster.bootstrap_servers})
    for each in range(40):
        value = b"junk" if each % 10 == 3 else b"\0" + number.to_bytes(4, "big") + bytes([each * 2]) + b"\0"
        producer.produce(source, value=value, key=str(each), partition=each % 2)
    assert producer.flush(60) == 0

    topic = spark.readStream.format("moldau").options(**servers, subscribe=source, startingOffsets="earliest").load()
    decoded = decode(topic, key=String(), value=Avro(registry=url, subject=f"{source}-value"))
    good, bad = dead_letters(decoded, topic=dead)
    out = good.selectExpr("key", "named_struct('id', value.id, 'item', 'seen') as value")
    proto = Protobuf(PROTO, registry=url, subject=f"{target}-value")
    rows = encode(out, key=String(), value=proto).selectExpr("key", "value", f"'{target}' as topic")
    both = rows.unionByName(bad, allowMissingColumns=True)
    run_to_end(both.writeStream.format("moldau").options(**servers, checkpointLocation=str(tmp_path)))

    def read(name: str) -> Any:
        return spark.read.format("moldau").options(**servers, subscribe=name, includeHeaders="true").load()

    seen = decode(read(target), key=String(), value=proto, mode="fail").collect()
    expected = {str(each): (each, "seen") for each in range(40) if each % 10 != 3}
    assert {row.key: tuple(row.value) for row in seen} == expected
    assert len(seen) == 36
    letters = read(dead).collect()
    assert sorted(int(row.key) for row in letters) == [3, 13, 23, 33]
    for row in letters:
        headers = {each.key: bytes(each.value).decode() for each in row.headers}
        assert bytes(row.value) == b"junk"
        assert headers["__connect.errors.topic"] == source
        assert headers["__connect.errors.exception.class.name"] == "NotFramed"
        assert headers["__connect.errors.partition"] == "1"
