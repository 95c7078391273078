"""The rules of Avro's schema resolution, as a program for `avro_kernel`: values of the writer's schema, read as values
of the reader's.

It decides what becomes of every field: read, widened, skipped, filled with its default, or refused. What can be known
from the schemas alone is refused here (`MismatchError`: no value of that writer can be read); what depends on the value
(the branch of a union) is refused when it comes. Timestamps are converted to microseconds whatever unit they have.
Record names are not compared, as readers are often given a name of their own.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from moldau.spark.values import avro_kernel as op
from moldau.spark.values.avro_schema import (
    MICROS_BY_TIMESTAMP,
    AvroSchema,
    Layout,
    decimal_of,
    kind_of,
)
from moldau.spark.values.errors import MismatchError
from moldau.spark.values.vectors import TWO_VECTORS, Node

# Which writers a reader of plain values understands, and how.
_SCALARS: dict[str, dict[str, int]] = {
    "boolean": {"boolean": op.BOOLEAN},
    "int": {"int": op.INT},
    "long": {"int": op.INT, "long": op.LONG},
    "float": {"int": op.INTEGER_TO_DOUBLE, "long": op.INTEGER_TO_DOUBLE, "float": op.FLOAT},
    "double": {"int": op.INTEGER_TO_DOUBLE, "long": op.INTEGER_TO_DOUBLE, "float": op.FLOAT, "double": op.DOUBLE},
    "date": {"int": op.INT},
    "string": {"string": op.STRING, "bytes": op.STRING},
    "uuid": {"string": op.STRING},
    "bytes": {"bytes": op.BYTES, "string": op.BYTES},
}
_SKIP_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


@dataclass(slots=True)
class Program:
    """What the kernel runs, and the bytes and messages that it refers to."""

    code: Any
    table: Any
    constants: bytes
    messages: list[str]


@dataclass(slots=True)
class _Compiler:
    writer: AvroSchema
    layout: Layout
    code: list[list[int]] = field(default_factory=list)
    table: list[int] = field(default_factory=list)
    constants: bytearray = field(default_factory=bytearray)
    messages: list[str] = field(default_factory=list)
    # Records that are skipped: where the code for it begins, and who calls it before that is known.
    skips: dict[str, int] = field(default_factory=dict)
    calls: list[tuple[int, str]] = field(default_factory=list)

    def emit(self, code: int, a: int = -1, b: int = 0, c: int = 0) -> int:
        self.code.append([code, a, b, c])
        return len(self.code) - 1

    def here(self) -> int:
        return len(self.code)

    def constant(self, value: bytes) -> int:
        """Where a constant is, in the kernel's way to say that it is none of the data."""
        start = -1 - len(self.constants)
        self.constants += value
        return start

    # ---- reading

    def read(self, written: Any, node: Node) -> None:
        written = self.writer.resolve(written)
        if isinstance(written, list):
            self._branches(written, lambda branch: self.read(branch, node))
        elif written["type"] == "null" and (node.valid >= 0 or node.kind == "null"):
            self.absent(node)
        elif node.kind == "union":
            self._choose(written, node)
        else:
            if node.valid >= 0:
                self.emit(op.SET, node.valid, 1)
            self._value(written, node)

    def _branches(self, branches: list[Any], each: Any) -> None:
        """Code for every branch; one that cannot be read fails when a value has it."""
        targets = len(self.table)
        self.table += [0] * len(branches)
        self.emit(op.UNION, -1, targets, len(branches))
        ends = []
        failed = 0
        first_error = None
        for number, branch in enumerate(branches):
            self.table[targets + number] = self.here()
            before = self.here()
            try:
                each(branch)
            except MismatchError as error:
                del self.code[before:]
                self.calls = [call for call in self.calls if call[0] < before]
                self.emit(op.FAIL, -1, op.FIRST_MESSAGE + len(self.messages))
                self.messages.append(str(error))
                failed += 1
                first_error = first_error or error
            ends.append(self.emit(op.JUMP))
        if failed == len(branches) and first_error is not None:
            raise first_error
        for end in ends:
            self.code[end][2] = self.here()

    def _choose(self, written: Any, node: Node) -> None:
        """The first branch of the reader's union that fits: of the same kind and name, or else one it can widen to."""
        candidates = [child for child in node.children if _same(written, child)]
        candidates += [child for child in node.children if child not in candidates]
        for chosen in candidates:
            before, calls = self.here(), list(self.calls)
            try:
                if node.valid >= 0:
                    self.emit(op.SET, node.valid, 1)
                for child in node.children:
                    if child is not chosen:
                        self.absent(child)
                self.emit(op.SET, chosen.valid, 1)
                self._value(written, chosen)
                return
            except MismatchError:
                del self.code[before:]
                self.calls = calls
        raise _mismatch(written, node)

    def _value(self, written: Any, node: Node) -> None:
        base = written["type"]
        kind = node.kind
        known = _SCALARS.get(kind)
        if known is not None:
            if base not in known:
                raise _mismatch(written, node)
            self.emit(known[base], node.vector)
        elif kind in ("timestamp", "local-timestamp"):
            self._timestamp(written, node)
        elif kind == "decimal":
            self._decimal(written, node)
        elif kind in ("fixed", "uuid-fixed"):
            if base != "fixed" or written["size"] != node.schema["size"]:
                raise _mismatch(written, node)
            self.emit(op.FIXED, node.vector, written["size"])
        elif kind == "enum":
            self._enum(written, node)
        elif kind == "null":
            if base != "null":
                raise _mismatch(written, node)
        elif base != kind and not (kind == "record" and base == "error"):
            raise _mismatch(written, node)
        elif kind == "record":
            self._record(written, node)
        else:
            self._container(written, node)

    def _timestamp(self, written: Any, node: Node) -> None:
        if written["type"] not in ("int", "long"):
            raise _mismatch(written, node)
        logical = written.get("logicalType")
        if logical not in MICROS_BY_TIMESTAMP:
            logical = node.schema["logicalType"]
        times, over = MICROS_BY_TIMESTAMP[logical]
        if times > 1:
            self.emit(op.LONG_TIMES, node.vector, times)
        elif over > 1:
            self.emit(op.LONG_OVER, node.vector, over)
        else:
            self.emit(op.LONG, node.vector)

    def _decimal(self, written: Any, node: Node) -> None:
        if written["type"] not in ("bytes", "fixed"):
            raise _mismatch(written, node)
        precision, scale = decimal_of(node.schema, node.path)
        if written.get("logicalType") == "decimal" and int(written.get("scale", 0)) != scale:
            digits = written.get("scale", 0)
            raise MismatchError(
                f"{node.path} was written with {digits} digits after the point where {scale} are wanted"
            )
        limit = len(self.table)
        self.table += halves(10**precision - 1)
        self.emit(op.DECIMAL, node.vector, limit, written["size"] if written["type"] == "fixed" else -1)

    def _enum(self, written: Any, node: Node) -> None:
        if written["type"] != "enum":
            raise _mismatch(written, node)
        wanted = node.schema["symbols"]
        symbols = len(self.table)
        for symbol in written["symbols"]:
            if symbol not in wanted:
                symbol = node.schema.get("default")
            encoded = b"" if symbol is None else symbol.encode()
            self.table += [self.constant(encoded), -1 if symbol is None else len(encoded)]
        self.emit(op.ENUM, node.vector, symbols, len(written["symbols"]))

    def _record(self, written: Any, node: Node) -> None:
        fields = node.schema["fields"]
        place = {name: number for number, each in enumerate(fields) for name in each.get("aliases", ())}
        place |= {each["name"]: number for number, each in enumerate(fields)}
        missing = set(range(len(fields)))
        for each in written["fields"]:
            number = place.get(each["name"])
            if number in missing:
                missing.discard(number)
                self.read(each["type"], node.children[number])
            else:
                self.skip(each["type"])
        for number in sorted(missing):
            if "default" not in fields[number]:
                raise MismatchError(
                    f"{node.children[number].path} is not in the schema it was written with, and has no default"
                )
            self.default(fields[number]["default"], node.children[number])

    def _container(self, written: Any, node: Node) -> None:
        self.emit(op.MARK, node.vector, node.inner)
        self.emit(op.LOOP)
        block = self.emit(op.BLOCK, node.inner)
        if node.kind == "map":
            self.emit(op.STRING, node.children[0].vector)
        self.read(written["values" if node.kind == "map" else "items"], node.children[-1])
        self.emit(op.NEXT, node.inner, block)
        self.code[block][2] = self.here()

    # ---- what is not there

    def absent(self, node: Node) -> None:
        """No value at this place. What an Arrow column needs of it all the same must be set."""
        if node.valid >= 0:
            self.emit(op.SET, node.valid, 0)
        if node.inner >= 0:
            self.emit(op.MARK, node.vector, node.inner)
            return
        if node.vector >= 0:
            for vector in range(node.vector, node.vector + (2 if node.kind in TWO_VECTORS else 1)):
                self.emit(op.SET, vector, 0)
        for child in node.children:
            self.absent(child)

    def default(self, value: Any, node: Node) -> None:
        """The value that a reader's field has when nobody wrote it."""
        if value is None and (node.valid >= 0 or node.kind == "null"):
            self.absent(node)
            return
        if node.valid >= 0:
            self.emit(op.SET, node.valid, 1)
        if node.kind == "union":
            self._default_of_union(value, node)
        elif node.kind == "record":
            for each, child in zip(node.schema["fields"], node.children, strict=True):
                if each["name"] not in value and "default" not in each:
                    raise MismatchError(f"The default of {node.path} has no {each['name']}")
                self.default(value.get(each["name"], each.get("default")), child)
        elif node.inner >= 0:
            self.emit(op.MARK, node.vector, node.inner)
            for item in value.items() if node.kind == "map" else value:
                self.emit(op.ITEM, node.inner)
                if node.kind == "map":
                    self._default_bytes(item[0].encode(), node.children[0])
                self.default(item[1] if node.kind == "map" else item, node.children[-1])
                self.emit(op.COUNT, node.inner)
        elif node.kind == "decimal":
            high, low = halves(int.from_bytes(value.encode("latin-1"), "big", signed=True))
            self.emit(op.SET, node.vector, high)
            self.emit(op.SET, node.vector + 1, low)
        elif node.kind in TWO_VECTORS:
            latin = node.kind in ("bytes", "fixed", "uuid-fixed")
            self._default_bytes(value.encode("latin-1" if latin else "utf-8"), node)
        elif node.kind in ("float", "double"):
            self.emit(op.SET, node.vector, struct.unpack("<q", struct.pack("<d", float(value)))[0])
        elif node.kind in ("timestamp", "local-timestamp"):
            times, over = MICROS_BY_TIMESTAMP[node.schema["logicalType"]]
            self.emit(op.SET, node.vector, int(value) * times // over)
        else:
            self.emit(op.SET, node.vector, int(value))

    def _default_bytes(self, value: bytes, node: Node) -> None:
        self.emit(op.SET, node.vector, self.constant(value))
        self.emit(op.SET, node.vector + 1, len(value))

    def _default_of_union(self, value: Any, node: Node) -> None:
        """A union's default belongs to its first branch."""
        chosen = node.children[0]
        for child in node.children[1:]:
            self.absent(child)
        self.default(value, chosen)

    # ---- skipping

    def skip(self, written: Any) -> None:
        written = self.writer.resolve(written)
        if isinstance(written, list):
            self._branches(written, self.skip)
            return
        base = written["type"]
        if base in _SKIP_SIZES:
            self.emit(op.SKIP, -1, _SKIP_SIZES[base])
        elif base in ("int", "long", "enum"):
            self.emit(op.SKIP_VARINT)
        elif base in ("bytes", "string"):
            self.emit(op.SKIP_BYTES)
        elif base == "fixed":
            self.emit(op.SKIP, -1, written["size"])
        elif base in ("array", "map"):
            self.emit(op.LOOP)
            block = self.emit(op.BLOCK)
            if base == "map":
                self.emit(op.SKIP_BYTES)
            self.skip(written["values" if base == "map" else "items"])
            self.emit(op.NEXT, -1, block)
            self.code[block][2] = self.here()
        else:
            # A record may contain itself, so its code is somewhere else and called.
            self.calls.append((self.emit(op.CALL), written["name"]))

    def finish(self) -> None:
        """End the row, and write the code of skipped records behind it."""
        self.emit(op.END)
        done = 0
        while done < len(self.calls):
            call, name = self.calls[done]
            done += 1
            if name not in self.skips:
                self.skips[name] = self.here()
                for each in self.writer.names[name]["fields"]:
                    self.skip(each["type"])
                self.emit(op.RETURN)
            self.code[call][2] = self.skips[name]


def halves(value: int) -> list[int]:
    """A 128-bit number as two signed 64-bit ones, the upper one first."""
    low, high = struct.unpack("<qq", value.to_bytes(16, "little", signed=True))
    return [high, low]


def _same(written: Any, node: Node) -> bool:
    if kind_of(written) != node.kind:
        return False
    return "name" not in written or written["name"].rpartition(".")[2] == node.schema["name"].rpartition(".")[2]


def _mismatch(written: Any, node: Node) -> MismatchError:
    name = written.get("name", "")
    return MismatchError(
        f"{node.path} was written as {written['type']} {name}".rstrip() + f" where {node.kind} is wanted"
    )


def compile_program(writer: AvroSchema, layout: Layout) -> Program:
    """The program that reads the writer's values into the vectors of the reader's layout."""
    compiler = _Compiler(writer, layout)
    compiler.read(writer.root, layout.root)
    compiler.finish()
    return Program(
        np.array(compiler.code, dtype=np.int64),
        np.array(compiler.table or [0], dtype=np.int64),
        bytes(compiler.constants),
        compiler.messages,
    )
