"""Avro read and written by our compiled loops, compared with fastavro on schemas and values made at random."""

from __future__ import annotations

import io
import json
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as spark_types

from moldau.client.errors import MoldauError
from moldau.spark.values.avro_schema import Layout, parse, schema_for
from moldau.spark.values.avro_values import AvroSource
from moldau.spark.values.avro_writing import AvroWriter, check_columns
from moldau.spark.values.batches import read_batch

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Times that Python's datetime can hold, in microseconds.
MICROS = st.integers(-(10**15), 10**16)
INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)


def fastavro_bytes(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(schema), value)
    return out.getvalue()


def read(schema: Any, values: list[bytes | None]) -> tuple[list[Any], list[str | None]]:
    column = read_batch(AvroSource(json.dumps(schema), (), None), pa.array(values, pa.binary()), None)
    column.validate(full=True)
    return column.field(0).to_pylist(), column.field(1).to_pylist()


# ---- schemas made at random, each with its values and what Spark is to see of them


@dataclass
class Kind:
    """A schema; values as fastavro takes them, paired with what is read."""

    schema: Any
    values: st.SearchStrategy[tuple[Any, Any]]


def same(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    return strategy.map(lambda value: (value, value))


def logical(base: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": logical_type, **more}


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PLAIN = [
    Kind("boolean", same(st.booleans())),
    Kind("int", same(INT)),
    Kind("long", same(LONG)),
    Kind("float", same(st.floats(width=32, allow_nan=False))),
    Kind("double", same(st.floats(allow_nan=False))),
    Kind("bytes", same(st.binary(max_size=12))),
    Kind("string", same(TEXT)),
    Kind(logical("int", "date"), st.integers(-700_000, 2_900_000).map(lambda n: (n, date(1970, 1, 1) + timedelta(n)))),
    Kind(
        logical("long", "timestamp-millis"),
        MICROS.map(lambda n: (n // 1000, EPOCH + timedelta(microseconds=n // 1000 * 1000))),
    ),
    Kind(logical("long", "timestamp-micros"), MICROS.map(lambda n: (n, EPOCH + timedelta(microseconds=n)))),
    Kind(
        logical("long", "local-timestamp-micros"),
        MICROS.map(lambda n: (n, (EPOCH + timedelta(microseconds=n)).replace(tzinfo=None))),
    ),
    Kind(logical("string", "uuid"), st.uuids().map(lambda n: (str(n), str(n)))),
    Kind(
        logical("bytes", "decimal", precision=38, scale=3),
        st.integers(-(10**38) + 1, 10**38 - 1).map(
            lambda n: (Decimal(n).scaleb(-3, _WIDE), Decimal(n).scaleb(-3, _WIDE))
        ),
    ),
]


def _wide() -> Any:
    import decimal

    return decimal.Context(prec=60)


_WIDE = _wide()


@st.composite
def kinds(draw: Any, depth: int = 3) -> Kind:
    names = [0]

    def name() -> str:
        names[0] += 1
        return f"N{names[0]}"

    def make(left: int) -> Kind:
        shape = draw(st.integers(0, 9 if left else 3))
        if shape <= 2:
            return draw(st.sampled_from(PLAIN))
        if shape == 3:
            if draw(st.booleans()):
                symbols = ["RED", "GREEN", "BLUE"]
                return Kind({"type": "enum", "name": name(), "symbols": symbols}, same(st.sampled_from(symbols)))
            size = draw(st.integers(0, 20))
            return Kind({"type": "fixed", "name": name(), "size": size}, same(st.binary(min_size=size, max_size=size)))
        if shape <= 6:
            return record(left)
        if shape == 7:
            inner = make(left - 1)
            pairs = st.lists(inner.values, max_size=4)
            return Kind(
                {"type": "array", "items": inner.schema},
                pairs.map(lambda items: ([a for a, _ in items], [b for _, b in items])),
            )
        if shape == 8:
            inner = make(left - 1)
            entries = st.dictionaries(TEXT, inner.values, max_size=4)
            return Kind(
                {"type": "map", "values": inner.schema},
                entries.map(lambda d: ({k: a for k, (a, _) in d.items()}, [(k, b) for k, (_, b) in d.items()])),
            )
        return Kind(["null", "long", "string"], UNION)

    def nullable(left: int) -> Kind:
        inner = make(left)
        if isinstance(inner.schema, list) or draw(st.booleans()):
            return inner
        schema = ["null", inner.schema] if draw(st.booleans()) else [inner.schema, "null"]
        return Kind(schema, st.one_of(st.just((None, None)), inner.values))

    def record(left: int) -> Kind:
        fields = {f"f{number}": nullable(left - 1) for number in range(draw(st.integers(1, 4)))}
        schema = {
            "type": "record",
            "name": name(),
            "fields": [{"name": field, "type": each.schema} for field, each in fields.items()],
        }
        values = st.fixed_dictionaries({field: each.values for field, each in fields.items()})
        return Kind(
            schema, values.map(lambda v: ({n: a for n, (a, _) in v.items()}, {n: b for n, (_, b) in v.items()}))
        )

    return record(depth)


UNION = st.one_of(
    st.just((None, None)),
    LONG.map(lambda n: (n, {"member0": n, "member1": None})),
    TEXT.map(lambda t: (t, {"member0": None, "member1": t})),
)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_what_fastavro_writes_is_read_and_written_again(data: st.DataObject) -> None:
    kind = data.draw(kinds())
    pairs = data.draw(st.lists(kind.values, min_size=1, max_size=6))
    written = [fastavro_bytes(kind.schema, value) for value, _ in pairs]
    rows = [None, *written, None]
    values, errors = read(kind.schema, rows)
    assert errors == [None] * len(rows)
    assert values == [None, *(seen for _, seen in pairs), None]
    column = read_batch(AvroSource(json.dumps(kind.schema), (), None), pa.array(rows, pa.binary()), None).field(0)
    assert AvroWriter(Layout(parse(kind.schema)), b"").write(column).to_pylist() == rows
    # A prefix stands in front of every value, and of no null.
    framed = AvroWriter(Layout(parse(kind.schema)), b"\0\1\2").write(column[1:]).to_pylist()
    assert framed == [b"\0\1\2" + value for value in written] + [None]


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_damaged_values_are_bad_or_read_but_never_more_than_that(data: st.DataObject) -> None:
    kind = data.draw(kinds())
    value, seen = data.draw(kind.values)
    good = fastavro_bytes(kind.schema, value)
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = good[: data.draw(st.integers(0, len(good)))]
    rows = [good, bytes(damaged), cut, good + b"\0", data.draw(st.binary(max_size=40)), good]
    column = read_batch(AvroSource(json.dumps(kind.schema), (), None), pa.array(rows, pa.binary()), None)
    column.validate(full=True)
    errors = column.field(1).to_pylist()
    for row, why in enumerate(errors):
        assert (why is None) == column.field(0)[row].is_valid
    # Good rows around bad ones come out as they are.
    first, last = column.field(0)[0], column.field(0)[5]
    assert errors[0] is None
    assert errors[5] is None
    assert first.as_py() == last.as_py() == seen
    if cut != good:
        assert errors[2] is not None
    assert errors[3] is not None
    assert "left over" in errors[3]


# ---- schema resolution

V1 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "gone", "type": {"type": "map", "values": {"type": "array", "items": ["null", "string"]}}},
        {"name": "amount", "type": "float"},
        {"name": "old_name", "type": ["null", "string"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID", "LOST"]}},
        {"name": "tree", "type": {"type": "record", "name": "Tree", "fields": [
            {"name": "children", "type": {"type": "array", "items": "Tree"}}]}},
        {"name": "at", "type": logical("long", "timestamp-millis")},
    ],
}  # fmt: skip
V2 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "at", "type": logical("long", "timestamp-micros")},
        {"name": "new_name", "aliases": ["old_name"], "type": ["null", "string"], "default": None},
        {"name": "id", "type": "long"},
        {"name": "amount", "type": ["null", "double"]},
        {"name": "state", "type": {
            "type": "enum", "name": "State", "symbols": ["NEW", "PAID", "OTHER"], "default": "OTHER"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["a", "é"]},
        {"name": "limits", "type": {"type": "map", "values": "int"}, "default": {"low": -1}},
        {"name": "inner", "type": {"type": "record", "name": "In", "fields": [
            {"name": "x", "type": "double", "default": 1.5}, {"name": "y", "type": "bytes"}]},
            "default": {"y": "\u00ff"}},
        {"name": "price", "type": logical("bytes", "decimal", precision=6, scale=2), "default": "\u0001\u0000"},
        {"name": "either", "type": ["string", "long"], "default": "s"},
    ],
}  # fmt: skip


def source_pair(writer: Any, reader: Any, values: list[bytes]) -> Any:
    """Values of one schema read with another, as happens with a registry."""
    from moldau.spark.values.avro_reading import AvroReader
    from moldau.spark.values.framing import Rows

    rows = Rows.of(pa.array(values, pa.binary()))
    column, wrong = AvroReader(parse(writer), Layout(parse(reader))).read(rows.data, rows.starts, rows.ends)
    column.validate(full=True)
    return column.to_pylist(), wrong


def test_an_old_value_is_read_as_a_new_one() -> None:
    tree: Any = {"children": [{"children": []}, {"children": [{"children": []}]}]}
    old = {
        "id": 7,
        "gone": {"k": ["x", None]},
        "amount": 0.5,
        "old_name": "n",
        "state": "LOST",
        "tree": tree,
        "at": 1234,
    }
    values, wrong = source_pair(V1, V2, [fastavro_bytes(V1, old), fastavro_bytes(V1, {**old, "state": "PAID"})])
    assert wrong == {}
    assert values[0] == {
        "at": EPOCH + timedelta(milliseconds=1234),
        "new_name": "n",
        "id": 7,
        "amount": 0.5,
        "state": "OTHER",
        "tags": ["a", "é"],
        "limits": [("low", -1)],
        "inner": {"x": 1.5, "y": b"\xff"},
        "price": Decimal("2.56"),
        "either": {"member0": "s", "member1": None},
    }
    assert values[1]["state"] == "PAID"


@pytest.mark.parametrize(
    ("written", "wanted", "value", "read_as"),
    [
        ("int", "long", 5, 5),
        ("int", "double", 5, 5.0),
        ("long", "float", 5, 5.0),
        ("float", "double", 0.5, 0.5),
        ("string", "bytes", "é", "é".encode()),
        ("bytes", "string", b"x", "x"),
        ("int", ["null", "string", "long"], 5, {"member0": None, "member1": 5}),
        (["int", "string"], "long", 5, 5),
        (["null", "int"], ["null", "long"], None, None),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "double"}, [1, 2], [1.0, 2.0]),
    ],
)
def test_promotions_agree_with_fastavro(written: Any, wanted: Any, value: Any, read_as: Any) -> None:
    writer = {"type": "record", "name": "R", "fields": [{"name": "f", "type": written}]}
    reader = {"type": "record", "name": "R", "fields": [{"name": "f", "type": wanted}]}
    data = fastavro_bytes(writer, {"f": value})
    values, wrong = source_pair(writer, reader, [data])
    assert (values, wrong) == ([{"f": read_as}], {})
    theirs = schemaless_reader(io.BytesIO(data), parse_schema(writer), parse_schema(reader))
    if not isinstance(read_as, dict):
        assert theirs == {"f": read_as}


@pytest.mark.parametrize(
    ("written", "wanted", "complaint"),
    [
        ("string", "int", "value.f was written as string where int is wanted"),
        (
            {"type": "fixed", "name": "F", "size": 3},
            {"type": "fixed", "name": "F", "size": 4},
            "value.f was written as",
        ),
        (
            logical("bytes", "decimal", precision=5, scale=1),
            logical("bytes", "decimal", precision=5, scale=2),
            "1 digits",
        ),
    ],
)
def test_what_cannot_be_resolved_is_named(written: Any, wanted: Any, complaint: str) -> None:
    from moldau.spark.values.avro_program import compile_program
    from moldau.spark.values.errors import MismatchError

    writer = {"type": "record", "name": "R", "fields": [{"name": "f", "type": written}]}
    reader = {"type": "record", "name": "R", "fields": [{"name": "f", "type": wanted}]}
    with pytest.raises(MismatchError, match=complaint):
        compile_program(parse(writer), Layout(parse(reader)))


def test_a_branch_that_cannot_be_resolved_is_bad_only_where_it_is() -> None:
    writer = {"type": "record", "name": "R", "fields": [{"name": "f", "type": ["null", "string", "int"]}]}
    reader = {"type": "record", "name": "R", "fields": [{"name": "f", "type": ["null", "int"]}]}
    values, wrong = source_pair(writer, reader, [fastavro_bytes(writer, {"f": each}) for each in (None, "x", 3)])
    assert values == [{"f": None}, {"f": 3}]
    assert wrong == {1: "SchemaMismatch: value.f was written as string where int is wanted"}


def test_a_block_with_its_size_is_read_and_skipped() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "int"}}]}
    # Two blocks: one of two items in four bytes, one of one item.
    data = bytes([3, 8, 0x80, 0x01, 0x82, 0x01, 2, 6, 0])
    assert read(schema, [data])[0] == [{"a": [64, 65, 3]}]
    values, wrong = source_pair(schema, {"type": "record", "name": "R", "fields": []}, [data])
    assert (values, wrong) == ([{}], {})


def test_a_bomb_of_items_without_bytes_is_refused() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}]}
    data = bytes([0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F, 0])
    values, errors = read(schema, [data])
    assert values == [None]
    assert errors == ["MalformedValue: an array or a map in it says it is longer than the value"]


def test_many_items_make_the_vectors_grow() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "string"}}]}
    rows = [{"a": ["x" * (n % 5)] * n} for n in range(200)]
    values, _ = read(schema, [fastavro_bytes(schema, row) for row in rows])
    assert values == rows


# ---- types


def test_recursive_schemas_and_wide_decimals_are_refused() -> None:
    recursive = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
    with pytest.raises(MoldauError, match=r"recursive \(value.next is a N inside a N\)"):
        Layout(parse(recursive))
    with pytest.raises(MoldauError, match="decimal\\(40, 2\\)"):
        Layout(parse(logical("bytes", "decimal", precision=40, scale=2)))
    with pytest.raises(MoldauError, match="no Avro schema"):
        parse('{"type": "record"}')
    with pytest.raises(MoldauError, match="must be JSON"):
        parse("{nonsense")


def struct(**fields: spark_types.DataType) -> spark_types.StructType:
    return spark_types.StructType([spark_types.StructField(name, kind) for name, kind in fields.items()])


def test_the_schema_of_a_spark_type_gives_that_type_again() -> None:
    text = spark_types.StringType()
    kind = struct(
        name=text,
        at=spark_types.TimestampType(),
        day=spark_types.DateType(),
        price=spark_types.DecimalType(9, 2),
        tags=spark_types.ArrayType(text, containsNull=False),
        counts=spark_types.MapType(text, spark_types.IntegerType()),
        inner=struct(x=spark_types.DoubleType(), y=struct(z=spark_types.BinaryType())),
        flag=spark_types.BooleanType(),
        local=spark_types.TimestampNTZType(),
    )
    kind.add("id", spark_types.LongType(), nullable=False)
    layout = Layout(parse(schema_for(kind, "Order")))
    assert layout.root.spark.simpleString() == kind.simpleString()
    check_columns(layout.root, kind)


def test_columns_that_do_not_fit_the_schema_are_named() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "int"]}],
    }
    root = Layout(parse(schema)).root
    number = spark_types.IntegerType()
    check_columns(root, struct(a=number))
    with pytest.raises(MoldauError, match=r"has value.c and the Avro schema has not"):
        check_columns(root, struct(a=number, c=number))
    with pytest.raises(MoldauError, match=r"has value.a, which must have a value"):
        check_columns(root, struct(b=number))
    with pytest.raises(MoldauError, match="value is string where the Avro schema has record"):
        check_columns(root, spark_types.StringType())


def test_values_that_do_not_fit_the_schema_are_refused() -> None:
    def write(schema: Any, values: list[Any], kind: Any) -> Any:
        record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": schema}]}
        column = pa.StructArray.from_arrays([pa.array(values, kind)], names=["a"])
        return AvroWriter(Layout(parse(record)), b"").write(column).to_pylist()

    with pytest.raises(MoldauError, match=r"value.a is null and the Avro schema does not allow it"):
        write("int", [1, None], pa.int32())
    with pytest.raises(MoldauError, match="none of the enum's symbols A, B"):
        write({"type": "enum", "name": "E", "symbols": ["A", "B"]}, ["A", "C"], pa.string())
    with pytest.raises(MoldauError, match="must have 3 bytes"):
        write({"type": "fixed", "name": "F", "size": 3}, [b"12"], pa.binary())
    with pytest.raises(MoldauError, match="cannot be written as Avro's int"):
        write("int", [2**40], pa.int64())
    members = pa.struct([("member0", pa.int64()), ("member1", pa.string())])
    with pytest.raises(
        MoldauError, match="Row 1 of a batch cannot be written as Avro: a union in it has no member set"
    ):
        write(["long", "string"], [{"member0": 1}, {}], members)
    # What fits is as fastavro writes it.
    fixed = logical("fixed", "decimal", name="D", size=20, precision=6, scale=0)
    expected = fastavro_bytes(
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": fixed}]}, {"a": Decimal(-200)}
    )
    assert write(fixed, [Decimal(-200)], pa.decimal128(6, 0)) == [expected]
    some = uuid.uuid4()
    assert write(logical("fixed", "uuid", name="U", size=16), [str(some)], pa.string()) == [some.bytes]
