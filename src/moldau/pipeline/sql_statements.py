"""Our statements among Spark's: a topic as a stream or table, and a continuous SELECT into a topic.

    CREATE [OR REPLACE] STREAM name [(column type, ...)] WITH (topic = '...', format = 'json', ...)
    CREATE [OR REPLACE] TABLE  name [(column type, ...)] WITH (topic = '...', ...)
    INSERT INTO TOPIC 'name' [WITH (key = '...', mode = 'update', ...)] SELECT ...

Everything else is Spark's and passed on as it is; so are the columns' types and the SELECT in ours. An option that
nobody knows is refused here, with the line it is in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from moldau.pipeline.sql_text import NAME, STRING, WORD, SqlError, Statement, Token
from moldau.spark.options import SINK_OPTIONS, SOURCE_OPTIONS

JSON, STRING_FORMAT, AVRO, PROTOBUF, RAW = "json", "string", "avro", "protobuf", "raw"
FORMATS = (JSON, STRING_FORMAT, AVRO, PROTOBUF, RAW)
MODES = ("append", "update", "complete")
# Options that only some formats have a use for.
_FORMATS_OF_OPTIONS = {
    "schema": (AVRO, PROTOBUF),
    "message": (PROTOBUF,),
    "registry": (JSON, AVRO, PROTOBUF),
}

# How to get into a schema registry: `registry.user` and so on, as `moldau.spark.values.Registry` calls them.
REGISTRY_SETTINGS = ("user", "password", "token", "ca_file", "certificate_file", "key_file", "key_password")
_REGISTRY_OPTIONS = ("registry", "subject", *(f"registry.{name}" for name in REGISTRY_SETTINGS))
_VALUE_OPTIONS = ("format", "schema", "message", *_REGISTRY_OPTIONS)
_STREAM_OPTIONS = ("topic", *_VALUE_OPTIONS, "timestamp", "watermark", "start", "errors")
_TABLE_OPTIONS = ("topic", *_VALUE_OPTIONS, "errors")
_TOPIC_OPTIONS = (*_VALUE_OPTIONS, "key", "mode", "name", "trigger")
_ENVIRONMENT = re.compile(r"\$\{env:(\w+)\}")
# Options of format("moldau") that our own words replace.
_REPLACED = frozenset({"subscribe", "subscribePattern", "assign", "startingOffsets", "topic", "batchId"})


@dataclass(slots=True, frozen=True)
class Relation:
    """A topic by the name under which SELECTs find it. `columns` is Spark's DDL; empty when none were given."""

    name: str
    is_table: bool
    columns: str
    options: Mapping[str, str]
    # Options of format("moldau"), passed on as they are.
    source: Mapping[str, str]
    line: int

    @property
    def topic(self) -> str:
        return self.options.get("topic", self.name)

    @property
    def format(self) -> str:
        return self.options.get("format", JSON if self.columns else STRING_FORMAT)


@dataclass(slots=True, frozen=True)
class TopicInsert:
    """A SELECT whose rows go to a topic for as long as the program runs."""

    topic: str
    query: str
    options: Mapping[str, str]
    sink: Mapping[str, str]
    line: int

    @property
    def format(self) -> str:
        return self.options.get("format", JSON)

    @property
    def mode(self) -> str:
        return self.options.get("mode", "append")


@dataclass(slots=True, frozen=True)
class SparkStatement:
    """A statement of Spark's own."""

    text: str
    line: int


Parsed = Relation | TopicInsert | SparkStatement


def parse(statement: Statement) -> Parsed:
    """What a statement is; a SqlError when it begins as one of ours and does not go on as one."""
    parser = _Parser(statement)
    if parser.take("INSERT", "INTO", "TOPIC") and parser.kind() in (STRING, NAME):
        return parser.insert()
    parser.at = 0
    if parser.take("CREATE"):
        parser.take("OR", "REPLACE")
        if parser.take("STREAM"):
            return parser.relation(is_table=False)
        if parser.take("TABLE") and parser.has_with_list():
            return parser.relation(is_table=True)
    return SparkStatement(statement.text, statement.line)


def values_of(topic: str, name: str, options: Mapping[str, str]) -> Relation:
    """A topic with values of this format, whose options are given otherwise than in a statement."""
    given = {option: (value, 1) for option, value in {**options, "format": name}.items()}
    own, _ = _sorted_out(given, _VALUE_OPTIONS, (), f"values of format '{name}'")
    _check_format(name, given, 1)
    return Relation(topic, is_table=False, columns="", options=own, source={}, line=1)


@dataclass(slots=True)
class _Parser:
    statement: Statement
    at: int = field(default=0)

    # ---- the statements

    def relation(self, *, is_table: bool) -> Relation:
        name = self._name("a name for the topic")
        line = self.statement.line
        columns = self._parenthesised() if self._symbol("(") else ""
        if not self.take("WITH"):
            raise self._wrong("WITH (topic = '...', ...)")
        options = self._options()
        if self.at < len(self.statement.tokens):
            raise self._wrong("the end of the statement")
        own, source = _sorted_out(options, _TABLE_OPTIONS if is_table else _STREAM_OPTIONS, SOURCE_OPTIONS, "a topic")
        found = Relation(name, is_table, columns, own, source, line)
        _check_format(found.format, options, line)
        _check_columns(found)
        if own.get("start", "earliest") not in ("earliest", "latest"):
            raise SqlError(f"start = '{own['start']}' is neither 'earliest' nor 'latest'", options["start"][1])
        if own.get("errors", "null") not in ("null", "fail"):
            raise SqlError(f"errors = '{own['errors']}' is neither 'null' nor 'fail'", options["errors"][1])
        return found

    def insert(self) -> TopicInsert:
        topic = self.statement.tokens[self.at].value
        self.at += 1
        options: dict[str, tuple[str, int]] = {}
        if self._word_then_parenthesis("WITH"):
            self.at += 1
            options = self._options()
        if self.at >= len(self.statement.tokens):
            raise self._wrong("a SELECT")
        query = self.statement.slice(self.statement.tokens[self.at], self.statement.tokens[-1])
        own, sink = _sorted_out(options, _TOPIC_OPTIONS, SINK_OPTIONS, "INSERT INTO TOPIC")
        found = TopicInsert(topic, query, own, sink, self.statement.line)
        _check_format(found.format, options, found.line)
        if found.mode not in MODES:
            raise SqlError(f"mode = '{found.mode}' is not one of {', '.join(MODES)}", options["mode"][1])
        return found

    # ---- pieces

    def take(self, *words: str) -> bool:
        """Step over these words if they come next."""
        tokens = self.statement.tokens[self.at : self.at + len(words)]
        if len(tokens) < len(words) or not all(token.is_word(word) for token, word in zip(tokens, words, strict=True)):
            return False
        self.at += len(words)
        return True

    def kind(self) -> str | None:
        return self.statement.tokens[self.at].kind if self.at < len(self.statement.tokens) else None

    def has_with_list(self) -> bool:
        """Whether `WITH (` follows somewhere outside of parentheses: Spark's CREATE TABLE has no such thing."""
        tokens, depth = self.statement.tokens, 0
        for index in range(self.at, len(tokens) - 1):
            depth += tokens[index].is_symbol("(") - tokens[index].is_symbol(")")
            if depth == 0 and tokens[index].is_word("AS", "USING"):
                return False
            if depth == 0 and tokens[index].is_word("WITH") and tokens[index + 1].is_symbol("("):
                return True
        return False

    def _word_then_parenthesis(self, word: str) -> bool:
        tokens = self.statement.tokens[self.at : self.at + 2]
        return len(tokens) == 2 and tokens[0].is_word(word) and tokens[1].is_symbol("(")

    def _symbol(self, symbol: str) -> bool:
        return self.at < len(self.statement.tokens) and self.statement.tokens[self.at].is_symbol(symbol)

    def _name(self, what: str) -> str:
        if self.kind() not in (WORD, NAME):
            raise self._wrong(what)
        self.at += 1
        return self.statement.tokens[self.at - 1].value

    def _parenthesised(self) -> str:
        """The text between the parentheses that open here."""
        tokens, first, depth = self.statement.tokens, self.at, 0
        while self.at < len(tokens):
            depth += tokens[self.at].is_symbol("(") - tokens[self.at].is_symbol(")")
            self.at += 1
            if depth == 0:
                inner = tokens[first + 1 : self.at - 1]
                return self.statement.slice(inner[0], inner[-1]) if inner else ""
        raise SqlError("this ( is never closed", tokens[first].line)

    def _options(self) -> dict[str, tuple[str, int]]:
        """`(name = value, ...)`: values and the lines they are in, by name."""
        if not self._symbol("("):
            raise self._wrong("(")
        self.at += 1
        found: dict[str, tuple[str, int]] = {}
        while not self._symbol(")"):
            name = self._option_name()
            if not self._symbol("="):
                raise self._wrong("=")
            self.at += 1
            token = self._value()
            found[name] = _from_environment(token), token.line
            if self._symbol(","):
                self.at += 1
            elif not self._symbol(")"):
                raise self._wrong(", or )")
        self.at += 1
        return found

    def _option_name(self) -> str:
        """A word, words with dots between them, or anything in quotes."""
        if self.kind() not in (WORD, STRING, NAME):
            raise self._wrong("the name of an option")
        name = self.statement.tokens[self.at].value
        self.at += 1
        while self._symbol("."):
            name = f"{name}.{self.statement.tokens[self.at + 1].value}"
            self.at += 2
        return name

    def _value(self) -> Token:
        if self.kind() not in (WORD, STRING):
            raise self._wrong("a value in quotes, or a number")
        self.at += 1
        return self.statement.tokens[self.at - 1]

    def _wrong(self, expected: str) -> SqlError:
        tokens = self.statement.tokens
        if self.at < len(tokens):
            return SqlError(f"expected {expected} where '{tokens[self.at].value}' stands", tokens[self.at].line)
        return SqlError(f"expected {expected} where the statement ends", tokens[-1].line)


def _from_environment(token: Token) -> str:
    """An option's value, with `${env:NAME}` replaced as Spark does in its own statements: no password in a program."""

    def value_of(match: re.Match[str]) -> str:
        try:
            return os.environ[match[1]]
        except KeyError:
            raise SqlError(f"the environment variable {match[1]} is not set", token.line) from None

    return _ENVIRONMENT.sub(value_of, token.value)


def _sorted_out(
    given: Mapping[str, tuple[str, int]], ours: tuple[str, ...], sparks: tuple[str, ...], where: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Options that are ours, and those that are passed on to format("moldau")."""
    passed = {name.lower(): name for name in sparks if name not in _REPLACED}
    own: dict[str, str] = {}
    other: dict[str, str] = {}
    for name, (value, line) in given.items():
        if name.lower() in ours:
            own[name.lower()] = value
        elif name.lower() in passed or name.startswith("kafka."):
            other[name] = value
        else:
            near = get_close_matches(name.lower(), [*ours, *passed], n=1)
            hint = f"Did you mean {passed.get(near[0], near[0])}?" if near else f"There are {', '.join(ours)}."
            raise SqlError(f"there is no option '{name}' for {where}", line, hint)
    return own, other


def _check_format(name: str, given: Mapping[str, tuple[str, int]], line: int) -> None:
    """That there is such a format, and that it has a use for the options that say more about values."""
    if name not in FORMATS:
        raise SqlError(f"format '{name}' is not one of {', '.join(FORMATS)}", given["format"][1])
    for option, formats in _FORMATS_OF_OPTIONS.items():
        if option in given and name not in formats:
            hint = f"It is for {' and '.join(formats)}."
            raise SqlError(f"format '{name}' has no use for the option '{option}'", given[option][1], hint)
    if "registry" not in given:
        for option in _REGISTRY_OPTIONS[1:]:
            if option in given:
                hint = "Add registry = 'http://...'."
                raise SqlError(f"the option '{option}' is about a schema registry, and none is named", line, hint)


def _check_columns(relation: Relation) -> None:
    kind = "TABLE" if relation.is_table else "STREAM"
    if relation.columns and relation.format in (STRING_FORMAT, RAW):
        raise SqlError(
            f"values of format '{relation.format}' have no columns",
            relation.line,
            hint="Leave the columns or the format out.",
        )
    if relation.columns and relation.format in (AVRO, PROTOBUF):
        raise SqlError(
            f"the columns of '{relation.name}' are those of its {relation.format} schema",
            relation.line,
            hint=f"Leave the columns out: CREATE {kind} {relation.name} WITH (...).",
        )
    if relation.format == JSON and not relation.columns and "registry" not in relation.options:
        raise SqlError(
            f"the columns of '{relation.name}' are not known",
            relation.line,
            hint=f"Write CREATE {kind} {relation.name} (user STRING, ...).",
        )
