"""Protobuf's schema language, read: `.proto` text to file descriptors, without a compiler on the machine.

It knows what describes data: messages, enums, oneofs, maps, nested types, imports, and the options that change how
values are read. Services, extensions and other options are skipped. What it cannot be sure to understand (groups,
features of editions) is refused with a hint to give a descriptor set that protoc has made. Names are resolved and
everything else is checked by Google's own library when the descriptor is added to a pool.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import descriptor_pb2

from moldau.client.errors import MoldauError

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/                                    # nothing
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<number>\.?\d(?:[eE][+-]|[\w.])*)
      | (?P<name>\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
      | (?P<symbol>[{}\[\]()<>=;,:+\-/.])""",
    re.VERBOSE | re.DOTALL,
)
_HINT = "give Protobuf(...) a descriptor set instead: protoc --include_imports --descriptor_set_out=..."
_LABELS = {
    "optional": descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
    "required": descriptor_pb2.FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED,
}
_SCALARS = {
    each: descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{each.upper()}")
    for each in [
        "double",
        "float",
        "int32",
        "int64",
        "uint32",
        "uint64",
        "sint32",
        "sint64",
        "fixed32",
        "fixed64",
        "sfixed32",
        "sfixed64",
        "bool",
        "string",
        "bytes",
    ]
}
_DEEPEST_NESTING = 60


def parse_proto(name: str, text: str) -> Any:
    """The FileDescriptorProto of a file with this name and text. Its type names are as they are written."""
    return _Parser(name, _tokens(name, text)).file()


@dataclass(slots=True, frozen=True)
class _Token:
    kind: str
    text: str
    line: int


def _tokens(name: str, text: str) -> list[_Token]:
    found = []
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise MoldauError(f"{name}:{line}: {text[position]!r} has no meaning in a .proto file")
        if match.lastgroup is not None:
            found.append(_Token(match.lastgroup, match.group(), line))
        line += match.group().count("\n")
        position = match.end()
    found.append(_Token("end", "the end of the file", line))
    return found


@dataclass(slots=True)
class _Parser:
    name: str
    tokens: list[_Token]
    at: int = 0
    syntax: str = "proto2"
    depth: int = 0
    # Fields of proto3 that say `optional`, by message: each is the only one of a oneof that comes after all others.
    optional: list[tuple[Any, Any]] = field(default_factory=list)

    # ---- tokens

    def error(self, text: str) -> MoldauError:
        return MoldauError(f"{self.name}:{self.tokens[self.at].line}: {text}")

    def peek(self) -> str:
        token = self.tokens[self.at]
        return "" if token.kind == "string" else token.text

    def next(self, kind: str | None = None) -> str:
        token = self.tokens[self.at]
        if token.kind == "end" or (kind is not None and token.kind != kind):
            raise self.error(f"{kind or 'more'} was expected, not {token.text}")
        self.at += 1
        return token.text

    def expect(self, symbol: str) -> None:
        if self.peek() != symbol:
            raise self.error(f"{symbol!r} was expected, not {self.tokens[self.at].text}")
        self.at += 1

    def accept(self, symbol: str) -> bool:
        if self.peek() == symbol and self.tokens[self.at].kind != "end":
            self.at += 1
            return True
        return False

    def string(self) -> str:
        parts = [_unquoted(self.next("string"))]
        while self.tokens[self.at].kind == "string":
            parts.append(_unquoted(self.next("string")))
        return "".join(parts)

    def integer(self) -> int:
        sign = -1 if self.accept("-") else 1
        text = self.next("number")
        try:
            return sign * (int(text, 8) if re.fullmatch(r"0[0-7]+", text) else int(text, 0))
        except ValueError:
            raise self.error(f"{text} is not a whole number") from None

    def skip_statement(self) -> None:
        """Over what does not matter, up to its semicolon or through its block."""
        depth = 0
        while True:
            token = self.tokens[self.at]
            text = self.next()
            if token.kind == "string":
                continue
            if text in "{[(<":
                depth += 1
            elif text in "}])>":
                depth -= 1
                if depth == 0 and text == "}":
                    self.accept(";")
                    return
            elif text == ";" and depth == 0:
                return

    # ---- grammar

    def file(self) -> Any:
        file = descriptor_pb2.FileDescriptorProto(name=self.name)
        while self.tokens[self.at].kind != "end":
            word = self.next()
            if word in ("syntax", "edition"):
                self.expect("=")
                self._syntax(word, self.string(), file)
            elif word == "package":
                file.package = self.next("name")
                self.expect(";")
            elif word == "import":
                kind = self.next() if self.peek() in ("public", "weak") else ""
                file.dependency.append(self.string())
                if kind == "public":
                    file.public_dependency.append(len(file.dependency) - 1)
                self.expect(";")
            elif word == "message":
                self.message(file.message_type.add())
            elif word == "enum":
                self.enum(file.enum_type.add())
            elif word == "option":
                self.option()
            elif word in ("service", "extend"):
                self.skip_statement()
            elif word != ";":
                raise self.error(f"{word!r} was not expected here")
        for message, each in self.optional:
            each.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{each.name}")
        return file

    def _syntax(self, word: str, value: str, file: Any) -> None:
        if word == "edition":
            number = descriptor_pb2.Edition.Value(f"EDITION_{value}") if value in ("2023", "2024") else None
            if number is None:
                raise self.error(f"edition {value} is not known here: {_HINT}")
            self.syntax = file.syntax = "editions"
            file.edition = number
        elif value in ("proto2", "proto3"):
            self.syntax = value
            if value == "proto3":
                file.syntax = value
        else:
            raise self.error(f"syntax {value!r} is neither proto2 nor proto3")
        self.expect(";")

    def option(self) -> None:
        if self.peek().startswith("features"):
            raise self.error(f"features of editions are not understood: {_HINT}")
        self.skip_statement()

    def message(self, message: Any) -> None:
        message.name = self.next("name")
        self.depth += 1
        if self.depth > _DEEPEST_NESTING:
            raise self.error("messages are nested too deeply")
        self.expect("{")
        while not self.accept("}"):
            word = self.peek()
            if word == ";":
                self.at += 1
            elif word == "message" and self._declares():
                self.at += 1
                self.message(message.nested_type.add())
            elif word == "enum" and self._declares():
                self.at += 1
                self.enum(message.enum_type.add())
            elif word == "oneof" and self._declares():
                self.at += 1
                self.oneof(message)
            elif word == "option":
                self.at += 1
                self.option()
            elif word in ("reserved", "extensions") or (word == "extend" and not self._is_field()):
                self.skip_statement()
            else:
                self.field(message, None)
        self.depth -= 1

    def _declares(self) -> bool:
        """Whether a word that is also a good name for a type opens a block here."""
        return self.tokens[self.at + 1].kind == "name" and self.tokens[self.at + 2].text == "{"

    def _is_field(self) -> bool:
        return self.tokens[self.at + 2].text == "="

    def oneof(self, message: Any) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self.next("name"))
        self.expect("{")
        while not self.accept("}"):
            if self.peek() == "option":
                self.at += 1
                self.option()
            elif not self.accept(";"):
                self.field(message, index)

    def field(self, message: Any, oneof: int | None) -> None:
        label = self.next() if self.peek() in _LABELS and self.tokens[self.at + 2].text != "=" else ""
        if self.peek() == "group":
            raise self.error(f"groups are not understood: {_HINT}")
        if self.peek() == "map" and self.tokens[self.at + 1].text == "<":
            self._map(message)
            return
        kind = self.next("name")
        each = message.field.add(name=self.next("name"))
        self.expect("=")
        each.number = self.integer()
        each.label = _LABELS[label or "optional"]
        _set_type(each, kind)
        if oneof is not None:
            each.oneof_index = oneof
        elif label == "optional" and self.syntax == "proto3":
            each.proto3_optional = True
            self.optional.append((message, each))
        self._field_options(each)

    def _map(self, message: Any) -> None:
        self.next()
        self.expect("<")
        key = self.next("name")
        self.expect(",")
        value = self.next("name")
        self.expect(">")
        each = message.field.add(name=self.next("name"), label=_LABELS["repeated"])
        self.expect("=")
        each.number = self.integer()
        name = "".join(part[:1].upper() + part[1:] for part in each.name.split("_")) + "Entry"
        entry = message.nested_type.add(name=name)
        entry.options.map_entry = True
        for number, (part, kind) in enumerate((("key", key), ("value", value)), start=1):
            _set_type(entry.field.add(name=part, number=number, label=_LABELS["optional"]), kind)
        each.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
        each.type_name = name
        self._field_options(each)

    def _field_options(self, each: Any) -> None:
        if self.accept("["):
            while not self.accept("]"):
                self._field_option(each)
                self.accept(",")
        self.expect(";")

    def _field_option(self, each: Any) -> None:
        if self.accept("("):
            self.next("name")
            self.expect(")")
            name = ""
            if self.tokens[self.at].text.startswith("."):
                self.next("name")
        else:
            name = self.next("name")
        self.expect("=")
        if name.startswith("features"):
            raise self.error(f"features of editions are not understood: {_HINT}")
        if self.peek() == "{":
            self._skip_block()
        elif self.tokens[self.at].kind == "string":
            text = self.string()
            if name == "default":
                each.default_value = text
            elif name == "json_name":
                each.json_name = text
        else:
            text = ("-" if self.accept("-") else "") + self.next()
            if name == "default":
                each.default_value = text
            elif name == "packed":
                each.options.packed = text == "true"

    def _skip_block(self) -> None:
        depth = 0
        while True:
            token = self.tokens[self.at]
            text = self.next()
            if token.kind != "string":
                depth += (text in "{[<") - (text in "}]>")
            if depth == 0:
                return

    def enum(self, enum: Any) -> None:
        enum.name = self.next("name")
        self.expect("{")
        while not self.accept("}"):
            if self.accept(";"):
                continue
            word = self.next("name")
            if word == "option" and self.peek() != "=":
                if self.peek() == "allow_alias":
                    self.next()
                    self.expect("=")
                    enum.options.allow_alias = self.next() == "true"
                    self.expect(";")
                else:
                    self.option()
            elif word == "reserved" and self.peek() != "=":
                self.skip_statement()
            else:
                self.expect("=")
                enum.value.add(name=word, number=self.integer())
                self.skip_statement()


def _set_type(each: Any, kind: str) -> None:
    if kind in _SCALARS:
        each.type = _SCALARS[kind]
    else:
        # Whether it is a message or an enum is found out when the name is resolved.
        each.type_name = kind


def _unquoted(literal: str) -> str:
    inside = literal[1:-1]
    if "\\" not in inside:
        return inside
    return inside.encode("latin-1", "backslashreplace").decode("unicode_escape")
