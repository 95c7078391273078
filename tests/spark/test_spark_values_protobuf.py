"""Protobuf without protoc: schemas from text, messages to columns and back, compared with Google's own library."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as spark_types

from moldau.client.errors import MoldauError
from moldau.spark.values.batches import read_batch
from moldau.spark.values.framing import Rows
from moldau.spark.values.proto_text import parse_proto
from moldau.spark.values.protobuf_reading import ProtobufReader
from moldau.spark.values.protobuf_schema import (
    descriptor_set,
    index_path,
    layout_of,
    message_class,
    message_descriptor,
)
from moldau.spark.values.protobuf_tables import tables_for
from moldau.spark.values.protobuf_values import ProtobufSource, ProtobufWriterSource
from moldau.spark.values.protobuf_writing import check_columns

TEXT = """
syntax = "proto3";  // what comes first
package shop.v1;

import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/empty.proto";

option java_package = "org.example; {not a block}";

/* An order;
   with everything. */
message Order {
  enum State { NEW = 0; PAID = 5 [deprecated = true, (my.option) = {a: "}"}]; reserved 9 to 12; LOST = -1; }
  message Item {
    string sku = 1;
    int32 count = 0x2;
    map<string, Price> prices = 3;
  }
  message Price { repeated sint64 cents = 1 [packed = false]; }

  int64 id = 1;
  string name = 2 [json_name = "theName"];
  optional int32 weight = 3;
  State state = 4;
  repeated Item items = 5;
  map<int32, string> notes = 6;
  map<string, bool> flags = 7;
  google.protobuf.Timestamp at = 8;
  google.protobuf.Duration took = 9;
  google.protobuf.StringValue coupon = 10;
  google.protobuf.UInt64Value points = 11;
  oneof payment {
    string card = 12;
    bytes token = 13;
    Item barter = 14;
  }
  uint64 large = 15;
  fixed32 medium = 16;
  repeated State history = 17;
  repeated string tags = 18;
  float ratio = 19;
  double exact = 20;
  bool gift = 21;
  bytes raw = 22;
  google.protobuf.Struct extra = 23;
  repeated google.protobuf.Timestamp seen = 24;
  sfixed64 oneof_like = 25;
  google.protobuf.Empty nothing = 26;
  .shop.v1.Order.Item absolute = 27;
  v1.Order.Item partly = 28;
  reserved 40 to max;
  reserved "old", 'older';
}

message Other { int32 x = 1; }

service Orders { rpc Get (Order) returns (stream Order) { option (http) = { get: "/" }; } }
"""
FILES, NAME = descriptor_set(TEXT, "Order")
DESCRIPTOR = message_descriptor(FILES, NAME)
ORDER = message_class(DESCRIPTOR)
SOURCE = ProtobufSource(FILES, NAME, None)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read(values: list[bytes | None], source: ProtobufSource = SOURCE) -> tuple[list[Any], list[str | None]]:
    column = read_batch(source, pa.array(values, pa.binary()), None)
    column.validate(full=True)
    return column.field(0).to_pylist(), column.field(1).to_pylist()


def written_again(values: list[bytes | None], prefix: bytes = b"") -> list[bytes | None]:
    column = read_batch(SOURCE, pa.array(values, pa.binary()), None).field(0)
    found: list[bytes | None] = ProtobufWriterSource(FILES, NAME, prefix).writer().write(column).to_pylist()
    return found


def test_a_message_with_everything() -> None:
    order = ORDER(id=1, name="é", weight=0, state="PAID", large=2**64 - 1, medium=2**32 - 1, ratio=0.5, token=b"\0")
    item = order.items.add(sku="s", count=2)
    item.prices["eur"].cents.extend([1, -1])
    order.notes[3] = "three"
    order.flags["on"] = True
    order.at.FromMicroseconds(1_500_001)
    order.took.FromMicroseconds(-1_500_000)
    order.coupon.value = ""
    order.points.value = 2**63
    order.history.extend([0, 5, -1, 77])
    order.extra["k"] = [1, {"z": None}]
    order.seen.add().FromMicroseconds(7)
    order.nothing.SetInParent()
    order.partly.sku = "p"
    (value, empty, tombstone), errors = read([order.SerializeToString(), b"", None])
    assert errors == [None, None, None]
    assert value == {
        "id": 1,
        "name": "é",
        "weight": 0,
        "state": "PAID",
        "items": [{"sku": "s", "count": 2, "prices": [("eur", {"cents": [1, -1]})]}],
        "notes": [(3, "three")],
        "flags": [("on", True)],
        "at": EPOCH + timedelta(microseconds=1_500_001),
        "took": timedelta(seconds=-1.5),
        "coupon": "",
        "points": Decimal(2**63),
        "card": None,
        "token": b"\0",
        "barter": None,
        "large": Decimal(2**64 - 1),
        "medium": 2**32 - 1,
        "history": ["NEW", "PAID", "LOST", "77"],
        "tags": [],
        "ratio": 0.5,
        "exact": 0.0,
        "gift": False,
        "raw": b"",
        "extra": '{"k": [1.0, {"z": null}]}',
        "seen": [EPOCH + timedelta(microseconds=7)],
        "oneof_like": 0,
        "absolute": None,
        "partly": {"sku": "p", "count": 0, "prices": []},
    }
    # Fields without presence have their default, the others are null.
    assert (empty["id"], empty["name"], empty["state"], empty["tags"]) == (0, "", "NEW", [])
    assert [empty[name] for name in ("weight", "at", "coupon", "card", "barter", "extra")] == [None] * 6
    assert tombstone is None
    order.ClearField("nothing")  # a message without fields has no column
    assert ORDER.FromString(written_again([order.SerializeToString()])[0] or b"") == order
    assert written_again([None, b""], b"\0\0") == [None, b"\0\0"]


def orders() -> st.SearchStrategy[Any]:
    int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    item = st.fixed_dictionaries(
        {}, optional={"sku": text, "count": int32, "prices": st.dictionaries(text, st.just({"cents": [5]}), max_size=2)}
    )
    fields: dict[str, Any] = {
        "id": int64,
        "name": text,
        "weight": int32,
        "state": st.sampled_from([0, 5, -1]),
        "items": st.lists(item, max_size=3),
        "notes": st.dictionaries(int32, text, max_size=3),
        "at": st.builds(lambda n: {"seconds": n, "nanos": 5000}, st.integers(-(10**9), 10**10)),
        "coupon": st.builds(lambda value: {"value": value}, text),
        "large": st.integers(0, 2**64 - 1),
        "history": st.lists(st.sampled_from([0, 5, 77]), max_size=3),
        "tags": st.lists(text, max_size=3),
        "ratio": st.floats(width=32, allow_nan=False),
        "raw": st.binary(max_size=8),
        "absolute": item,
    }
    payments: dict[str, Any] = {"card": text, "token": st.binary(max_size=4), "barter": item}
    payment = st.one_of(st.just({}), *(st.fixed_dictionaries({name: each}) for name, each in payments.items()))
    return st.builds(lambda a, b: ORDER(**a, **b), st.fixed_dictionaries({}, optional=fields), payment)


@settings(max_examples=50, deadline=None)
@given(st.lists(orders(), max_size=4))
def test_messages_are_read_and_written_again(messages: list[Any]) -> None:
    values = [each.SerializeToString() for each in messages]
    assert read(values)[1] == [None] * len(values)
    assert [ORDER.FromString(each or b"") for each in written_again(values)] == messages


@settings(max_examples=50, deadline=None)
@given(orders(), st.binary(max_size=30), st.data())
def test_damaged_messages_are_bad_or_read(message: Any, junk: bytes, data: st.DataObject) -> None:
    good = message.SerializeToString()
    damaged = bytearray(good)
    if damaged:
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    rows = [good, bytes(damaged), junk, good[:-1], good]
    values, errors = read(rows)
    assert errors[0] is None
    assert errors[4] is None
    assert values[0] == values[4]
    for row, value, why in zip(rows, values, errors, strict=True):
        assert (value is None) == (why is not None)
        if why is None:
            ORDER.FromString(row)


# Without JSON in it, a message is read by the compiled loop; what it leaves to the library must come out the same.
PLAIN = ProtobufSource(*descriptor_set(TEXT.replace("google.protobuf.Struct extra = 23;", ""), "Order"), None)

PLAIN_DESCRIPTOR = message_descriptor(PLAIN.files, PLAIN.message)
PLAIN_LAYOUT = layout_of(PLAIN.files, PLAIN.message)
COMPILED = ProtobufReader(PLAIN_DESCRIPTOR, PLAIN_LAYOUT)
LIBRARY = ProtobufReader(PLAIN_DESCRIPTOR, PLAIN_LAYOUT, compiled=False)


def compare(rows: list[bytes]) -> None:
    column = Rows.of(pa.array(rows, pa.binary()))
    compiled = COMPILED.read(column.data, column.starts, column.ends)
    library = LIBRARY.read(column.data, column.starts, column.ends)
    compiled[0].validate(full=True)
    assert compiled[1] == library[1]
    # The order of a map's entries means nothing.
    assert without_order(compiled[0].to_pylist()) == without_order(library[0].to_pylist())


def without_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_order(each) for name, each in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {key: without_order(each) for key, each in value}
    return [without_order(each) for each in value] if isinstance(value, list) else value


@settings(max_examples=80, deadline=None)
@given(st.lists(orders(), max_size=4), st.binary(max_size=30), st.data())
def test_the_compiled_loop_and_the_library_agree(messages: list[Any], junk: bytes, data: st.DataObject) -> None:
    rows = [each.SerializeToString() for each in messages]
    # Two messages one after the other are one message, merged: oneofs, lists, maps and messages in two parts.
    merged = [a + b for a in rows for b in rows]
    damaged = [bytearray(each) for each in rows if each]
    for each in damaged:
        each[data.draw(st.integers(0, len(each) - 1))] ^= data.draw(st.integers(1, 255))
    compare([*rows, junk, *map(bytes, damaged), *merged, *rows])


def test_usual_messages_need_no_library() -> None:
    order = ORDER(id=1, name="n", weight=3, state="PAID", card="c", medium=7, tags=["a", "b"], history=[0, 5])
    order.items.add(sku="s").prices["eur"].cents.extend([1, -(2**40)])
    order.notes[-3] = "x"
    order.points.value = 5
    order.at.FromMicroseconds(-1)
    tables = tables_for(PLAIN_DESCRIPTOR, PLAIN_LAYOUT)
    assert tables is not None
    column = Rows.of(pa.array([order.SerializeToString()] * 100, pa.binary()))
    _, unusual = COMPILED._read_compiled(tables, column.data, column.starts, column.ends)
    assert not unusual.any()
    compare([order.SerializeToString()] * 100)
    assert tables_for(DESCRIPTOR, layout_of(FILES, NAME)) is None


def test_a_time_out_of_range_is_bad_alone() -> None:
    late = ORDER()
    late.at.seconds = 2**62
    values, errors = read([b"", late.SerializeToString(), b""])
    assert values[0] == values[2] is not None
    assert values[1] is None
    assert errors[1] is not None
    assert errors[1].startswith("SchemaMismatch: a field of it has no value in Spark")


def test_unknown_fields_are_skipped() -> None:
    files, name = descriptor_set('syntax = "proto3"; message Small { string name = 2; }', None)
    values, _ = read([ORDER(id=5, name="n").SerializeToString()], ProtobufSource(files, name, None))
    assert values == [{"name": "n"}]


def test_text_that_is_not_utf8_in_proto2() -> None:
    files, name = descriptor_set("message Old { required string a = 1; optional int32 b = 2 [default = 7]; }", None)
    source = ProtobufSource(files, name, None)
    values, errors = read([b"\x0a\x01x", b"\x0a\x01\xff", b"", b"\x10\x03"], source)
    assert [values[0], values[3]] == [{"a": "x", "b": None}, {"a": None, "b": 3}]
    assert errors[1] is not None or values[1] is not None


# ---- schemas


def test_the_text_is_what_googles_library_shows() -> None:
    """A class's descriptor written as text by hand is the same descriptor."""
    text = """
    syntax = "proto3"; package google.protobuf;
    option cc_enable_arenas = true;
    message Timestamp { int64 seconds = 1; int32 nanos = 2; }
    """
    ours = parse_proto("google/protobuf/timestamp.proto", text)
    theirs = descriptor_pb2.FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for each in theirs.message_type[0].field:
        each.ClearField("json_name")  # which protoc writes even if nobody said it
    assert list(ours.message_type) == list(theirs.message_type)
    assert (ours.package, ours.syntax) == (theirs.package, theirs.syntax)


def test_where_schemas_come_from(tmp_path: Path) -> None:
    expected = (FILES, NAME)
    assert descriptor_set(FILES, "shop.v1.Order") == expected
    assert descriptor_set(ORDER, None) == expected
    (tmp_path / "set.desc").write_bytes(FILES)
    assert descriptor_set(tmp_path / "set.desc", "Order") == expected
    (tmp_path / "part.proto").write_text('syntax = "proto3"; package p; message Part { int32 x = 1; }')
    whole = (
        'syntax = "proto3"; package p; import "part.proto"; message Whole { Part part = 1; repeated Part more = 2; }'
    )
    (tmp_path / "whole.proto").write_text(whole)
    by_path = descriptor_set(tmp_path / "whole.proto", None)
    both = {"part.proto": (tmp_path / "part.proto").read_text(), "whole.proto": whole}
    assert descriptor_set(both, "Whole")[1] == by_path[1] == "p.Whole"
    assert layout_of(*by_path).spark.simpleString() == "struct<part:struct<x:int>,more:array<struct<x:int>>>"


def test_the_place_of_a_message_in_its_file() -> None:
    assert index_path(DESCRIPTOR) == (0,)
    assert index_path(message_descriptor(FILES, "shop.v1.Other")) == (1,)
    assert index_path(message_descriptor(FILES, "shop.v1.Order.Price")) == (0, 1)


@pytest.mark.parametrize(
    ("given_schema", "message", "complaint"),
    [
        (TEXT, None, "Which message is meant must be said.* there are Order, Other"),
        (TEXT, "Nobody", "has no message 'Nobody'"),
        ("message A { int32 x = ; }", None, r"schema.proto:1: number was expected, not ;"),
        ("message A { ? }", None, r"schema.proto:1: '\?' has no meaning"),
        ('syntax = "proto3"; message A { B b = 1; }', None, "is no valid Protobuf schema"),
        ('syntax = "proto3"; import "b.proto"; message A { int32 x = 1; }', None, "imports b.proto, which is not here"),
        ("message A { optional group G = 1 { } }", None, "groups are not understood: give .* a descriptor set"),
        ('edition = "2023"; option features.field_presence = IMPLICIT;', None, "features of editions"),
        (b"\xff\xff", "A", "no descriptor set"),
        (5, None, r"Protobuf\(int\) is not a schema"),
    ],
)
def test_bad_schemas_are_named(given_schema: Any, message: str | None, complaint: str) -> None:
    with pytest.raises(MoldauError, match=complaint):
        descriptor_set(given_schema, message)


def test_recursive_messages_are_refused() -> None:
    files = descriptor_set('syntax = "proto3"; message Tree { repeated Tree children = 1; }', None)
    with pytest.raises(MoldauError, match="recursive"):
        layout_of(*files)


def test_columns_and_values_that_do_not_fit() -> None:
    def struct(**fields: spark_types.DataType) -> spark_types.StructType:
        return spark_types.StructType([spark_types.StructField(name, kind) for name, kind in fields.items()])

    text = spark_types.StringType()
    layout = layout_of(FILES, NAME)
    check_columns(layout, struct(id=spark_types.LongType(), tags=spark_types.ArrayType(text)))
    with pytest.raises(MoldauError, match=r"has value.nope and the Protobuf schema has not"):
        check_columns(layout, struct(nope=text))
    with pytest.raises(MoldauError, match=r"value.tags is string where Protobuf has array<string>"):
        check_columns(layout, struct(tags=text))

    def write(name: str, values: list[Any], kind: Any) -> Any:
        column = pa.StructArray.from_arrays([pa.array(values, kind)], names=[name])
        return ProtobufWriterSource(FILES, NAME, b"").writer().write(column)

    with pytest.raises(
        MoldauError, match=r"value.state has 'OLD', which is none of the enum's symbols NEW, PAID, LOST"
    ):
        write("state", ["OLD"], pa.string())
    with pytest.raises(MoldauError, match=r"value.weight cannot be written as Protobuf"):
        write("weight", [2**40], pa.int64())
    with pytest.raises(MoldauError, match=r"value.tags has a null in a list"):
        write("tags", [["a", None]], pa.list_(pa.string()))
