"""The client of schema registries against one over real HTTP, and the wire format that refers to it."""

from __future__ import annotations

import contextlib
import json
import pickle
import shutil
import socket
import struct
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.errors import MoldauError
from moldau.spark.values import Registry, RegistryError
from moldau.spark.values.avro_values import AvroSource
from moldau.spark.values.batches import read_batch
from moldau.spark.values.errors import UnknownSchemaError
from moldau.spark.values.framing import SchemaId, read_prefix, write_prefix
from moldau.spark.values.json_schema import json_schema_of, spark_type_of
from moldau.spark.values.protobuf_schema import descriptor_set
from moldau.spark.values.protobuf_values import ProtobufSource, register_files, registered_files
from moldau.spark.values.registry import PROTOBUF, RegisteredSchema, forget_schemas
from tests.spark.values_registry import RegistryServer, registry_server

V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
V2 = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": "-"}],
}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    forget_schemas()
    with registry_server() as found:
        yield found


def quick(server: RegistryServer, **more: Any) -> Registry:
    return Registry(server.url, timeout=5.0, **{"retries": 1, **more})


# ---- the client


def test_schemas_are_registered_and_found(server: RegistryServer) -> None:
    registry = quick(server)
    schema = RegisteredSchema("AVRO", json.dumps(V1))
    first = registry.register("orders/a value", schema)
    assert (first.id, first.version) == (1, 1)
    assert registry.register("orders/a value", schema).id == 1
    assert registry.register("orders/a value", RegisteredSchema("AVRO", json.dumps(V2))).version == 2
    assert registry.latest("orders/a value").text == json.dumps(V2)
    assert registry.by_version("orders/a value", 1).text == json.dumps(V1)
    assert registry.look_up("orders/a value", schema).id == 1
    assert registry.by_id(1).kind == "AVRO"
    assert first.guid is not None
    assert registry.by_guid(first.guid).text == json.dumps(V1)
    with pytest.raises(UnknownSchemaError, match="no schema 99"):
        registry.by_id(99)
    with pytest.raises(UnknownSchemaError, match="no version latest of subject 'nobody'"):
        registry.latest("nobody")


def test_each_id_is_fetched_once_and_a_missing_one_not_with_every_record(server: RegistryServer) -> None:
    server.add("s", json.dumps(V1))
    for _ in range(5):
        # As every task of a worker gets it.
        registry = pickle.loads(pickle.dumps(quick(server)))
        registry.by_id(1)
        with pytest.raises(UnknownSchemaError):
            registry.by_id(2)
    assert server.requests["GET /schemas/ids/1"] == 1
    assert server.requests["GET /schemas/ids/2"] == 1


def test_a_failing_registry_is_asked_again(server: RegistryServer) -> None:
    server.add("s", json.dumps(V1))
    server.failures = [503, 500, 429]
    assert quick(server, retries=4).by_id(1).text == json.dumps(V1)
    forget_schemas()
    server.failures = [503] * 10
    with pytest.raises(RegistryError, match=r"could not be asked for schema 1 in 2 attempts \(HTTP 503"):
        quick(server).by_id(1)


def test_another_address_is_tried(server: RegistryServer) -> None:
    server.add("s", json.dumps(V1))
    registry = Registry(f"http://127.0.0.1:{free_port()}, {server.url}/", retries=0)
    assert registry.by_id(1).text == json.dumps(V1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_registry_that_is_not_there_is_no_unknown_schema() -> None:
    registry = Registry(f"http://127.0.0.1:{free_port()}", retries=0)
    with pytest.raises(RegistryError, match="is it running, and is the address right"):
        registry.by_id(1)


def test_access_and_secrets(server: RegistryServer) -> None:
    server.add("s", json.dumps(V1))
    server.credentials = ("app", "s3cret")
    assert quick(server, user="app", password="s3cret").by_id(1).id == 1
    wrong = quick(server, user="app", password="other-secret")
    with pytest.raises(RegistryError, match="refuses access") as caught:
        wrong.by_id(1)
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(wrong)


def test_refusals_are_explained(server: RegistryServer) -> None:
    server.refused_subjects.add("s")
    with pytest.raises(RegistryError, match="as incompatible with earlier versions"):
        quick(server).register("s", RegisteredSchema("AVRO", json.dumps(V1)))
    with pytest.raises(RegistryError, match="HTTP 404"):
        Registry(server.url + "/not/here", retries=0).by_id(1)
    for address in ("localhost:8081", "ftp://x", "http://"):
        with pytest.raises(MoldauError, match="A registry's address is http://host:port"):
            Registry(address)
    with pytest.raises(MoldauError, match="Give the registry's user and password"):
        Registry("http://user:pass@host:8081")


def test_tls(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    pem = tmp_path / "both.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    )
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    subprocess.run([*command.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    pem.write_text(Path(key).read_text() + Path(certificate).read_text())
    with registry_server(str(pem)) as server:
        server.add("s", json.dumps(V1))
        assert Registry(server.url, ca_file=certificate).by_id(1).id == 1
        with pytest.raises(RegistryError, match="is not trusted"):
            Registry(server.url, retries=0).by_id(1)
        with pytest.raises(RegistryError, match="cannot be read"):
            Registry(server.url, ca_file="/not/there", retries=0).by_id(1)


# ---- the wire format


IDS = st.builds(SchemaId, st.integers(0, 2**32 - 1), st.none())
GUIDS = st.builds(SchemaId, st.none(), st.uuids().map(str))
PATHS = st.lists(st.integers(0, 300), min_size=1, max_size=4).map(tuple)


@given(st.one_of(IDS, GUIDS), st.one_of(st.just(()), PATHS), st.binary(max_size=8))
def test_a_prefix_is_read_as_it_was_written(schema: SchemaId, path: tuple[int, ...], rest: bytes) -> None:
    schema = SchemaId(schema.number, schema.guid, path)
    prefix = write_prefix(schema)
    assert read_prefix(prefix + rest, messages=bool(path)) == (schema, len(prefix))


def test_prefixes_as_others_write_them() -> None:
    # Bytes that Confluent's serializers have written.
    assert write_prefix(SchemaId(3)) == b"\0\0\0\0\3"
    assert write_prefix(SchemaId(3, None, (0,))) == b"\0\0\0\0\3\0"
    assert write_prefix(SchemaId(3, None, (1, 1))) == b"\0\0\0\0\3\4\2\2"
    guid = "6a9a682a-95aa-545b-ad62-0c73f53f5035"
    assert write_prefix(SchemaId(None, guid, (1, 1))) == b"\1" + uuid.UUID(guid).bytes + b"\4\2\2"


@given(st.binary(max_size=30), st.booleans())
def test_any_bytes_are_a_prefix_or_not(data: bytes, messages: bool) -> None:
    with contextlib.suppress(ValueError):
        _, length = read_prefix(data, messages=messages)
        assert 5 <= length <= len(data)


# ---- values with a registry


def framed(number: int, payload: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + payload


def test_every_value_is_read_with_the_schema_that_wrote_it(server: RegistryServer) -> None:
    old, new = server.add("s", json.dumps(V1)), server.add("s", json.dumps(V2))
    foreign = server.add("p", 'syntax = "proto3"; message A {}', "PROTOBUF")
    unfit = server.add("u", json.dumps({"type": "record", "name": "X", "fields": [{"name": "id", "type": "string"}]}))
    source = AvroSource(json.dumps(V2), (), quick(server))
    guid = server.schemas[0]["guid"]
    values = [
        framed(old, b"\x02"),
        framed(new, b"\x04\x02x"),
        None,
        framed(old, b"\x06"),
        b"\x01" + uuid.UUID(guid).bytes + b"\x08",
        b"\x0a",
        b"\x07abcdef",
        b"\0\0",
        framed(77, b""),
        framed(foreign, b""),
        framed(unfit, b"\x02x"),
        framed(old, b"\x02\x02"),
        b"",
        b"\x0a",
    ]
    headers = [None] * 5 + [write_prefix(SchemaId(None, guid))] + [None] * 7 + [b"\x09"]
    column = read_batch(source, pa.array(values, pa.binary()), pa.array(headers, pa.binary()))
    assert column.field(0).to_pylist() == [
        {"id": 1, "note": "-"},
        {"id": 2, "note": "x"},
        None,
        {"id": 3, "note": "-"},
        {"id": 4, "note": "-"},
        {"id": 5, "note": "-"},
        *[None] * 8,
    ]
    errors = column.field(1).to_pylist()
    assert errors[:6] == [None] * 6
    beginnings = [
        "NotFramed: it begins with byte 7, not with 0 or 1",
        "NotFramed: it has 2 bytes, too few",
        "UnknownSchema: the registry has no schema 77",
        "SchemaMismatch: it was written with a schema for PROTOBUF, not for Avro (schema 3 of the registry)",
        "SchemaMismatch: value.id was written as string where long is wanted (schema 4 of the registry)",
        "MalformedValue: bytes are left over",
        "NotFramed: it is empty",
        "NotFramed: its header with the schema's id begins with byte 9",
    ]
    assert [error[: len(begin)] for error, begin in zip(errors[6:], beginnings, strict=True)] == beginnings


def test_a_registry_that_is_down_stops_the_batch(server: RegistryServer) -> None:
    number = server.add("s", json.dumps(V1))
    source = AvroSource(json.dumps(V1), (), quick(server, retries=0))
    server.failures = [503]
    with pytest.raises(RegistryError, match="HTTP 503"):
        read_batch(source, pa.array([framed(number, b"\x02")], pa.binary()), None)
    # And the same batch is read when it is back.
    column = read_batch(source, pa.array([framed(number, b"\x02")], pa.binary()), None)
    assert column.to_pylist() == [{"value": {"id": 1}, "error": None}]


def test_references_between_schemas(server: RegistryServer) -> None:
    money = {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}
    server.add("money", json.dumps(money))
    order = {"type": "record", "name": "shop.Order", "fields": [{"name": "total", "type": "shop.Money"}]}
    number = server.add(
        "order", json.dumps(order), references=[{"name": "shop.Money", "subject": "money", "version": 1}]
    )
    source = AvroSource(json.dumps(order), (json.dumps(money),), quick(server))
    column = read_batch(source, pa.array([framed(number, b"\x06")], pa.binary()), None)
    assert column.to_pylist() == [{"value": {"total": {"cents": 3}}, "error": None}]


PROTO = """
syntax = "proto3"; package shop; import "money.proto"; import "google/protobuf/timestamp.proto";
message Order { Money total = 1; google.protobuf.Timestamp at = 2; }
message Other { message Inner { int32 x = 1; } }
"""
MONEY = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'


def test_protobuf_goes_to_the_registry_with_what_it_imports(server: RegistryServer) -> None:
    registry = quick(server)
    files, name = descriptor_set({"money.proto": MONEY, "order.proto": PROTO}, "Order")
    with pytest.raises(UnknownSchemaError):
        register_files(files, name, registry, "orders-value", register=False)
    registered = register_files(files, name, registry, "orders-value", register=True)
    assert register_files(files, name, registry, "orders-value", register=False).id == registered.id
    assert set(server.subjects) == {"money.proto", "orders-value"}
    found = registry.latest("orders-value", serialized=True)
    assert [(each.name, each.version) for each in found.references] == [("money.proto", 1)]
    files, name = registered_files(found, registry, None)
    assert name == "shop.Order"
    source = ProtobufSource(files, name, registry)
    assert registered.id is not None
    begin = struct.pack(">bI", 0, registered.id)
    values = [
        begin + b"\0\x0a\x02\x08\x05",
        begin + b"\2\0\x0a\x02\x08\x06",
        begin + b"\4\2\0",
        begin + b"\2\x0a",
        begin,
    ]
    column = read_batch(source, pa.array(values, pa.binary()), None)
    assert [each and each["total"] for each in column.field(0).to_pylist()] == [
        {"cents": 5},
        {"cents": 6},
        None,
        None,
        None,
    ]
    errors = column.field(1).to_pylist()
    assert errors[2].startswith("SchemaMismatch: it is a shop.Other.Inner, not a shop.Order")
    assert errors[3].startswith("SchemaMismatch: its schema has no message at [5]")
    assert errors[4].startswith("NotFramed: it ends where it should say which message it is")


def test_protobuf_of_registries_that_only_have_text(server: RegistryServer) -> None:
    server.add("money.proto", MONEY, PROTOBUF)
    reference = {"name": "money.proto", "subject": "money.proto", "version": 1}
    number = server.add("orders-value", PROTO, PROTOBUF, [reference])
    registry = quick(server)
    files, name = registered_files(registry.latest("orders-value", serialized=True), registry, "shop.Order")
    value = struct.pack(">bI", 0, number) + b"\0\x0a\x02\x08\x05"
    column = read_batch(ProtobufSource(files, name, registry), pa.array([value], pa.binary()), None)
    assert column.to_pylist() == [{"value": {"total": {"cents": 5}, "at": None}, "error": None}]


# ---- JSON Schema


def test_json_schemas_and_spark_types() -> None:
    schema = {
        "$defs": {"money": {"type": "object", "properties": {"cents": {"type": "integer"}}}},
        "properties": {
            "id": {"type": ["null", "integer"]},
            "total": {"$ref": "#/$defs/money"},
            "day": {"type": "string", "format": "date"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "more": {"type": "object", "additionalProperties": {"type": "number"}},
            "any": {},
            "maybe": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
        },
    }
    kind = spark_type_of(json.dumps(schema))
    assert kind.simpleString() == (
        "struct<id:bigint,total:struct<cents:bigint>,day:date,tags:array<string>,more:map<string,double>,any:string,"
        "maybe:boolean>"
    )
    assert spark_type_of(json_schema_of(kind, "t")).simpleString() == kind.simpleString()
    with pytest.raises(MoldauError, match="no JSON Schema"):
        spark_type_of("{")
    with pytest.raises(MoldauError, match="recursive"):
        spark_type_of('{"properties": {"next": {"$ref": "#"}}}')
