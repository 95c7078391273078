"""How `kafka-console-consumer` shows a record: Kafka's formatters and deserializers by their class names."""

from __future__ import annotations

import struct
import sys
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from moldau.cli.errors import CliError

if TYPE_CHECKING:
    from confluent_kafka import Message

DEFAULT_FORMATTER = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
INTERNAL_FORMATTERS: dict[str, tuple[str, tuple[int, ...] | None]] = {
    # The package of record shapes, and which types of records are shown (None: all).
    "OffsetsMessageFormatter": ("group", (0, 1)),
    "GroupMetadataMessageFormatter": ("group", (2,)),
    "TransactionLogMessageFormatter": ("transaction", None),
    "ShareGroupStateMessageFormatter": ("share", None),
}
TIMESTAMP_TYPES = {1: "CreateTime", 2: "LogAppendTime"}

Write = Callable[["Message"], bytes]
Deserialize = Callable[[bytes], bytes]


def _text(data: bytes) -> bytes:
    return data.decode("utf-8", "replace").encode()


def _number(layout: str) -> Deserialize:
    unpack = struct.Struct(layout)

    def deserialize(data: bytes) -> bytes:
        if len(data) != unpack.size:
            raise CliError(f"Size of data received by the deserializer is not {unpack.size}")
        return str(unpack.unpack(data)[0]).encode()

    return deserialize


_DESERIALIZERS: dict[str, Deserialize] = {
    "StringDeserializer": _text,
    "ByteArrayDeserializer": bytes,
    "BytesDeserializer": bytes,
    "ByteBufferDeserializer": bytes,
    "ShortDeserializer": _number(">h"),
    "IntegerDeserializer": _number(">i"),
    "LongDeserializer": _number(">q"),
    "FloatDeserializer": _number(">f"),
    "DoubleDeserializer": _number(">d"),
    "BooleanDeserializer": lambda data: b"true" if data == b"\x01" else b"false",
    "UUIDDeserializer": lambda data: str(uuid.UUID(data.decode())).encode(),
    "VoidDeserializer": lambda _: b"null",
}


def formatter(class_name: str, properties: Mapping[str, str]) -> Write:
    kind = class_name.rpartition(".")[2]
    if kind in ("DefaultMessageFormatter", "LoggingMessageFormatter"):
        return DefaultFormatter(properties).write
    if kind == "NoOpMessageFormatter":
        return lambda _: b""
    if kind in INTERNAL_FORMATTERS:
        return _internal_formatter(*INTERNAL_FORMATTERS[kind])
    raise CliError(f"The formatter {class_name} is not one this tool knows", hint="It cannot load Java classes.")


class DefaultFormatter:
    """Timestamp, partition, offset, epoch, headers, key and value, each if asked for, separated like columns."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        def flag(name: str, default: str = "false") -> bool:
            return properties.get(name, default).strip().lower() == "true"

        def text(name: str, default: str) -> bytes:
            return properties.get(name, default).encode()

        self.timestamp = flag("print.timestamp")
        self.partition = flag("print.partition")
        self.offset = flag("print.offset")
        self.delivery = flag("print.delivery")
        self.epoch = flag("print.epoch")
        self.headers = flag("print.headers")
        self.key = flag("print.key")
        self.value = flag("print.value", "true")
        self.key_separator = text("key.separator", "\t")
        self.line_separator = text("line.separator", "\n")
        self.headers_separator = text("headers.separator", ",")
        self.null_literal = text("null.literal", "null")
        self.read_key = _deserializer(properties, "key.deserializer")
        self.read_value = _deserializer(properties, "value.deserializer")
        self.read_header = _deserializer(properties, "headers.deserializer")

    def write(self, message: Message) -> bytes:
        columns = []
        if self.timestamp:
            kind, timestamp = message.timestamp()
            name = TIMESTAMP_TYPES.get(kind)
            columns.append(b"NO_TIMESTAMP" if name is None else f"{name}:{timestamp}".encode())
        if self.partition:
            columns.append(f"Partition:{message.partition()}".encode())
        if self.offset:
            columns.append(f"Offset:{message.offset()}".encode())
        if self.delivery:
            columns.append(_delivery(message))
        if self.epoch:
            epoch = message.leader_epoch()
            columns.append(b"Epoch:NOT_PRESENT" if epoch is None or epoch < 0 else b"Epoch:%d" % epoch)
        if self.headers:
            columns.append(self._headers(message))
        if self.key:
            columns.append(self._read(self.read_key, message.key()))
        if self.value:
            columns.append(self._read(self.read_value, message.value()))
        if not columns:
            return b""
        return self.key_separator.join(columns) + self.line_separator

    def _headers(self, message: Message) -> bytes:
        headers: Any = message.headers()
        if not headers:
            return b"NO_HEADERS"
        return self.headers_separator.join(
            name.encode() + b":" + self._read(self.read_header, value) for name, value in headers
        )

    def _read(self, deserialize: Deserialize, data: bytes | str | None) -> bytes:
        if data is None:
            return self.null_literal
        return deserialize(data.encode() if isinstance(data, str) else data)


def _delivery(message: Message) -> bytes:
    """How often a share group has handed the record out; consumers of other groups are not told."""
    count = message.delivery_count()
    return b"Delivery:NOT_PRESENT" if count is None or count < 1 else b"Delivery:%d" % count


def _deserializer(properties: Mapping[str, str], name: str) -> Deserialize:
    class_name = properties.get(name)
    if not class_name:
        return bytes
    found = _DESERIALIZERS.get(class_name.rpartition(".")[2])
    if found is None:
        # As Kafka's tool does: say so and show the bytes.
        print(f"Unable to instantiate a deserializer from {class_name}", file=sys.stderr)
        return bytes
    return found


def _internal_formatter(package: str, types: tuple[int, ...] | None) -> Write:
    from moldau.cli.kafka._record_json import compact, coordinator_values

    def write(message: Message) -> bytes:
        key, value = message.key(), message.value()
        if not isinstance(key, bytes) or not (value is None or isinstance(value, bytes)):
            return b""
        if types is not None and int.from_bytes(key[:2], "big", signed=True) not in types:
            return b""
        read = coordinator_values(package, key, value)
        if read is None:
            return b""
        kind, key_data, version, value_data = read
        shown = None if version is None else {"version": version, "data": value_data}
        return compact({"key": {"type": kind, "data": key_data}, "value": shown}).encode() + b"\n"

    return write
