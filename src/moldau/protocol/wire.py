"""The primitive types of Kafka's wire format, and what every generated message is built from.

Two layers live here. The functions at module level work on a buffer and a position, and are what generated code calls
on its rare paths (long varints, tagged fields it does not know). `Reader` and `Writer` wrap a buffer for hand-written
code and carry the position between messages.

Whatever arrives from a peer is hostile until read: a length or a count is checked against what is left in the buffer
before anything is allocated, and malformed input leaves as ProtocolError and nothing else. A Reader must never look
past its end; it narrows the buffer so that Python's own bounds checks stand guard.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from typing import Any, ClassVar, Final, Self

from moldau.ports import Buffer

try:
    from mypy_extensions import mypyc_attr
except ImportError:
    # Only who compiles has it, and only the compiler looks at what it says.
    def mypyc_attr(*_attrs: str, **_kwattrs: object) -> Any:  # type: ignore[misc]
        return lambda cls: cls


# Kafka writes a string's length as a positive int16, and keeps that limit for the compact form.
MAX_STRING_BYTES: Final = 32767

# What reading from a buffer that is too short, or decoding bytes that are not text, raises underneath.
MALFORMED: Final = (struct_error, IndexError, UnicodeDecodeError)
# What writing a value that does not fit its type raises underneath.
UNWRITABLE: Final = (struct_error, OverflowError, UnicodeEncodeError)

# The defaults of parameters whose real default is a new object.
UNSET: Final[Any] = object()
UNSET_LIST: Final[list[Any]] = []

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_UINT16: Final = Struct(">H")
_INT32: Final = Struct(">i")
_UINT32: Final = Struct(">I")
_INT64: Final = Struct(">q")
_FLOAT64: Final = Struct(">d")

# Arrays of numbers are mostly replica lists: a few elements. Their formats are compiled once, by length.
FEW: Final = 17
_FEW_INT8: Final = [Struct(f">{count}b") for count in range(FEW)]
_FEW_INT32: Final = [Struct(f">{count}i") for count in range(FEW)]
PACK_INT8: Final = [few.pack for few in _FEW_INT8]
PACK_INT32: Final = [few.pack for few in _FEW_INT32]
UNPACK_INT8: Final = [few.unpack_from for few in _FEW_INT8]
UNPACK_INT32: Final = [few.unpack_from for few in _FEW_INT32]


class ProtocolError(Exception):
    """Bytes that are not a message, or a message that the version cannot carry."""


class _FieldsOnDemand:
    """Makes a message class a dataclass when somebody first asks for its fields.

    The decorator costs more than creating the class; a node loads hundreds of them at start-up and asks none.
    """

    def __get__(self, instance: object, owner: Any) -> dict[str, dataclasses.Field[Any]]:
        if "__init__" not in owner.__dict__:
            raise AttributeError(f"{owner.__name__} has no fields")  # a base, as far as dataclasses is concerned
        if "__annotations__" not in owner.__dict__:
            owner.__annotations__ = dict.fromkeys(owner.__slots__, Any)  # compiled: the types are in the code alone
        dataclass(init=False, repr=False, eq=False, match_args=False)(owner)
        fields: dict[str, dataclasses.Field[Any]] = owner.__dict__["__dataclass_fields__"]
        return fields


@mypyc_attr(allow_interpreted_subclasses=True)
class Message:
    """The base of generated classes: compares and prints by field. `dataclasses.fields` and `replace` work on it."""

    __slots__: ClassVar[tuple[str, ...]] = ()
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]] = _FieldsOnDemand()  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"


@mypyc_attr(allow_interpreted_subclasses=True)
class WireMessage(Message):
    """A message that stands on its own: it has versions, and can be written and read."""

    __slots__ = ()
    API_KEY: ClassVar[int | None]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int | None]

    def write(self, w: Writer, version: int) -> None:
        raise NotImplementedError

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        raise NotImplementedError


# --- Reading at a position -------------------------------------------------------------------------------------------


def uvarint_at(buf: Buffer, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes, and the position after it."""
    value = shift = 0
    while shift < 35:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 and value <= 0xFFFFFFFF:
            return value, pos
        shift += 7
    raise ProtocolError("varint longer than five bytes or 32 bits")


def uvarlong_at(buf: Buffer, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most ten bytes, and the position after it."""
    value = shift = 0
    while shift < 70:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 and value <= 0xFFFFFFFFFFFFFFFF:
            return value, pos
        shift += 7
    raise ProtocolError("varint longer than ten bytes or 64 bits")


def long_length(buf: Buffer, pos: int) -> tuple[int, int]:
    """A compact length whose varint has more than one byte. Record batches have one: two and three bytes are fast."""
    second = buf[pos + 1]
    if second < 0x80:
        return (buf[pos] & 0x7F | second << 7) - 1, pos + 2
    third = buf[pos + 2]
    if third < 0x80:
        return (buf[pos] & 0x7F | (second & 0x7F) << 7 | third << 14) - 1, pos + 3
    length, pos = uvarint_at(buf, pos)
    return length - 1, pos


def long_string_length(buf: Buffer, pos: int) -> tuple[int, int]:
    """The same for a string, which has a limit of its own."""
    length, pos = long_length(buf, pos)
    if length > MAX_STRING_BYTES:
        raise ProtocolError(f"string of {length} bytes, at most {MAX_STRING_BYTES} are allowed")
    return length, pos


def skip_tags(buf: Buffer, pos: int, end: int) -> int:
    """The position after a section of tagged fields that are all unknown here."""
    count, pos = uvarint_at(buf, pos)
    if count > (end - pos) >> 1:
        raise ProtocolError("more tagged fields than bytes")
    previous = -1
    for _ in range(count):
        tag, pos = uvarint_at(buf, pos)
        size, pos = uvarint_at(buf, pos)
        if tag <= previous:
            raise ProtocolError(f"tag {tag} after tag {previous}")
        previous = tag
        pos += size
        if pos > end:
            raise ProtocolError("tagged field longer than the message")
    return pos


def numbers_at(letter: str, buf: Buffer, pos: int, count: int) -> list[Any]:
    """`count` numbers of one struct letter; the caller has checked that they are there."""
    return list(Struct(f">{count}{letter}").unpack_from(buf, pos))


def uuids_at(buf: Buffer, pos: int, count: int) -> list[bytes]:
    return [bytes(buf[at : at + 16]) for at in range(pos, pos + 16 * count, 16)]


def bad_length(field: str, length: int) -> ProtocolError:
    """The error for a length or a count that cannot be: null where there is no null, or more than is left."""
    if length < 0:
        return ProtocolError(f"{field} must not be null")
    return ProtocolError(f"{field} claims length {length}, more than the message holds")


def bad_tag(tag: int) -> ProtocolError:
    return ProtocolError(f"tagged field {tag} is out of order, or not as long as it claims")


def unsupported_version(message: str, version: int) -> ProtocolError:
    return ProtocolError(f"{message} has no version {version}")


def not_in_version(field: str, version: int) -> ProtocolError:
    return ProtocolError(f"{field} is set, but version {version} cannot carry it")


def null_not_allowed(field: str, version: int) -> ProtocolError:
    return ProtocolError(f"{field} must not be null in version {version}")


# --- Writing ---------------------------------------------------------------------------------------------------------


def put_uvarint(buf: bytearray, value: int) -> None:
    if value < 0:
        raise ProtocolError(f"negative varint {value}")
    while value > 0x7F:
        buf.append(value & 0x7F | 0x80)
        value >>= 7
    buf.append(value)


def put_string_length(buf: bytearray, length: int) -> None:
    """The length of a compact string that needs more than one byte."""
    if length > MAX_STRING_BYTES:
        raise ProtocolError(f"string of {length} bytes, at most {MAX_STRING_BYTES} are allowed")
    put_uvarint(buf, length + 1)


def put_length(buf: bytearray, length: int) -> None:
    """The length of a compact array or byte string that needs more than one byte."""
    value = length + 1
    if value < 0x4000:
        buf.append(value & 0x7F | 0x80)
        buf.append(value >> 7)
    else:
        put_uvarint(buf, value)


def join_uuids(uuids: list[bytes]) -> bytes:
    return b"".join(uuids)


def pack_numbers(letter: str, values: list[Any]) -> bytes:
    return Struct(f">{len(values)}{letter}").pack(*values)


def put_tagged(buf: bytearray, tag: int, body: bytearray) -> None:
    put_uvarint(buf, tag)
    put_uvarint(buf, len(body))
    buf += body


class Reader:
    """A cursor over a buffer. Every method takes its value from the position and moves past it."""

    __slots__ = ("buf", "end", "pos")

    def __init__(self, buf: Buffer, pos: int = 0, end: int | None = None) -> None:
        size = len(buf)
        if end is not None and end != size:
            if not 0 <= end <= size:
                raise ProtocolError(f"end {end} outside a buffer of {size} bytes")
            buf = memoryview(buf)[:end]
            size = end
        if not 0 <= pos <= size:
            raise ProtocolError(f"position {pos} outside a buffer of {size} bytes")
        self.buf = buf
        self.pos = pos
        self.end = size

    def remaining(self) -> int:
        return self.end - self.pos

    def _number(self, kind: Struct) -> Any:
        try:
            (value,) = kind.unpack_from(self.buf, self.pos)
        except struct_error as error:
            raise ProtocolError("message ends too early") from error
        self.pos += kind.size
        return value

    def int8(self) -> int:
        value: int = self._number(_INT8)
        return value

    def int16(self) -> int:
        value: int = self._number(_INT16)
        return value

    def uint16(self) -> int:
        value: int = self._number(_UINT16)
        return value

    def int32(self) -> int:
        value: int = self._number(_INT32)
        return value

    def uint32(self) -> int:
        value: int = self._number(_UINT32)
        return value

    def int64(self) -> int:
        value: int = self._number(_INT64)
        return value

    def float64(self) -> float:
        value: float = self._number(_FLOAT64)
        return value

    def boolean(self) -> bool:
        return self.int8() != 0

    def uvarint(self) -> int:
        try:
            value, self.pos = uvarint_at(self.buf, self.pos)
        except IndexError as error:
            raise ProtocolError("message ends too early") from error
        return value

    def varint(self) -> int:
        """A zigzag-encoded signed 32-bit number."""
        value = self.uvarint()
        return (value >> 1) ^ -(value & 1)

    def varlong(self) -> int:
        """A zigzag-encoded signed 64-bit number."""
        try:
            value, self.pos = uvarlong_at(self.buf, self.pos)
        except IndexError as error:
            raise ProtocolError("message ends too early") from error
        return (value >> 1) ^ -(value & 1)

    def uuid(self) -> bytes:
        return self._take("uuid", 16)

    def _take(self, what: str, length: int) -> bytes:
        stop = self.pos + length
        if length < 0 or stop > self.end:
            raise bad_length(what, length)
        taken = bytes(self.buf[self.pos : stop])
        self.pos = stop
        return taken

    def _text(self, length: int) -> str:
        if length > MAX_STRING_BYTES:
            raise bad_length("string", length)
        try:
            return str(self._take("string", length), "utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolError("string is not UTF-8") from error

    def string(self) -> str:
        return self._text(self.int16())

    def nullable_string(self) -> str | None:
        length = self.int16()
        return None if length < 0 else self._text(length)

    def compact_string(self) -> str:
        return self._text(self.uvarint() - 1)

    def compact_nullable_string(self) -> str | None:
        length = self.uvarint() - 1
        return None if length < 0 else self._text(length)

    def bytes_(self) -> bytes:
        return self._take("bytes", self.int32())

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length < 0 else self._take("bytes", length)

    def compact_bytes(self) -> bytes:
        return self._take("bytes", self.uvarint() - 1)

    def compact_nullable_bytes(self) -> bytes | None:
        length = self.uvarint() - 1
        return None if length < 0 else self._take("bytes", length)

    def records(self, *, compact: bool = False) -> memoryview | None:
        """A view of record batches; nothing is copied, so the buffer lives as long as the view."""
        length = self.uvarint() - 1 if compact else self.int32()
        if length < 0:
            return None
        stop = self.pos + length
        if stop > self.end:
            raise bad_length("records", length)
        view = memoryview(self.buf)[self.pos : stop]
        self.pos = stop
        return view

    def _bounded(self, count: int, element_size: int) -> int:
        if count < 0 or count * element_size > self.end - self.pos:
            raise bad_length("array", count)
        return count

    def array_length(self, element_size: int = 1) -> int:
        """The count of an array whose elements take at least `element_size` bytes each."""
        return self._bounded(self.int32(), element_size)

    def compact_array_length(self, element_size: int = 1) -> int:
        return self._bounded(self.uvarint() - 1, element_size)

    def skip_tagged_fields(self) -> None:
        try:
            self.pos = skip_tags(self.buf, self.pos, self.end)
        except IndexError as error:
            raise ProtocolError("message ends too early") from error


class Writer:
    """Collects what is written. `buf` holds the bytes; with `splice_from`, large record batches are not copied into
    it but kept beside it, and `chunks()` gives all pieces in order for a gathering write."""

    __slots__ = ("buf", "done", "splice_from")

    def __init__(self, splice_from: int | None = None) -> None:
        self.buf = bytearray()
        self.done: list[Buffer] = []
        self.splice_from = splice_from

    def chunks(self) -> list[Buffer]:
        return [*self.done, self.buf]

    def splice(self, data: Buffer) -> bytearray:
        """Write record batches, by reference if they are large; returns the buffer to go on with."""
        if self.splice_from is None or len(data) < self.splice_from:
            self.buf += data
        else:
            self.done.append(self.buf)
            self.done.append(data)
            self.buf = bytearray()
        return self.buf

    def _number(self, kind: Struct, value: Any) -> None:
        try:
            self.buf += kind.pack(value)
        except struct_error as error:
            raise ProtocolError(f"{value} does not fit") from error

    def int8(self, value: int) -> None:
        self._number(_INT8, value)

    def int16(self, value: int) -> None:
        self._number(_INT16, value)

    def uint16(self, value: int) -> None:
        self._number(_UINT16, value)

    def int32(self, value: int) -> None:
        self._number(_INT32, value)

    def uint32(self, value: int) -> None:
        self._number(_UINT32, value)

    def int64(self, value: int) -> None:
        self._number(_INT64, value)

    def float64(self, value: float) -> None:
        self._number(_FLOAT64, value)

    def boolean(self, value: bool) -> None:
        self.buf.append(1 if value else 0)

    def uvarint(self, value: int) -> None:
        put_uvarint(self.buf, value)

    def varint(self, value: int) -> None:
        if not -0x80000000 <= value <= 0x7FFFFFFF:
            raise ProtocolError(f"{value} does not fit")
        put_uvarint(self.buf, (value << 1) ^ (value >> 31))

    def varlong(self, value: int) -> None:
        if not -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
            raise ProtocolError(f"{value} does not fit")
        put_uvarint(self.buf, (value << 1) ^ (value >> 63))

    def uuid(self, value: bytes) -> None:
        if len(value) != 16:
            raise ProtocolError(f"a uuid has 16 bytes, not {len(value)}")
        self.buf += value

    def string(self, value: str) -> None:
        data = value.encode()
        self.int16(len(data))
        self.buf += data

    def nullable_string(self, value: str | None) -> None:
        if value is None:
            self.int16(-1)
        else:
            self.string(value)

    def compact_string(self, value: str) -> None:
        data = value.encode()
        put_string_length(self.buf, len(data))
        self.buf += data

    def compact_nullable_string(self, value: str | None) -> None:
        if value is None:
            self.buf.append(0)
        else:
            self.compact_string(value)

    def bytes_(self, value: Buffer) -> None:
        self.int32(len(value))
        self.buf += value

    def nullable_bytes(self, value: Buffer | None) -> None:
        if value is None:
            self.int32(-1)
        else:
            self.bytes_(value)

    def compact_bytes(self, value: Buffer) -> None:
        put_uvarint(self.buf, len(value) + 1)
        self.buf += value

    def compact_nullable_bytes(self, value: Buffer | None) -> None:
        if value is None:
            self.buf.append(0)
        else:
            self.compact_bytes(value)

    def records(self, value: Buffer | None, *, compact: bool = False) -> None:
        if value is None:
            if compact:
                self.buf.append(0)
            else:
                self.int32(-1)
            return
        if compact:
            put_uvarint(self.buf, len(value) + 1)
        else:
            self.int32(len(value))
        self.splice(value)

    def array_length(self, count: int) -> None:
        self.int32(count)

    def compact_array_length(self, count: int) -> None:
        put_uvarint(self.buf, count + 1)

    def empty_tagged_fields(self) -> None:
        self.buf.append(0)
