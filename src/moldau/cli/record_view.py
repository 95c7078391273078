"""How `moldau consume` shows a record: a line for people, JSON, the bare value, or a template of the user's."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from moldau.cli.errors import CliError
from moldau.cli.output import time_text

if TYPE_CHECKING:
    from confluent_kafka import Message

View = Callable[["Message"], bytes]

_FIELD = re.compile(r"\{(\w+)(?::([^{}]+))?\}")
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\0": "\0", "\\\\": "\\", "{{": "{", "}}": "}"}
_ESCAPE = re.compile(r"\\[nt0\\]|\{\{|\}\}")
# Terminal colours.
DIM, KEY, RESET = "\033[2m", "\033[36m", "\033[0m"

FIELDS = ("topic", "partition", "offset", "epoch", "timestamp", "time", "key", "value", "headers", "header")


def view_for(output: str, template: str | None, *, terminal: bool) -> View:
    if template is not None:
        return template_view(template)
    if output == "json":
        return json_view
    if output == "plain" or not terminal:
        return plain_view
    return people_view


def plain_view(message: Message) -> bytes:
    return _bytes(message.value()) + b"\n"


def people_view(message: Message) -> bytes:
    """Time and place dimmed, key, value, headers."""
    _, timestamp = message.timestamp()
    key = "" if message.key() is None else f"{KEY}{_text(message.key())}{RESET}  "
    value = f"{DIM}null{RESET}" if message.value() is None else _text(message.value())
    headers = _header_text(message)
    if headers:
        headers = f"  {DIM}{headers}{RESET}"
    place = f"{DIM}{time_text(timestamp)} {message.partition()}:{message.offset()}{RESET}"
    return f"{place}  {key}{value}{headers}\n".encode()


def json_view(message: Message) -> bytes:
    kind, timestamp = message.timestamp()
    record: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp if kind else None,
        **_json_bytes("key", message.key()),
        **_json_bytes("value", message.value()),
    }
    headers: Any = message.headers()
    if headers:
        record["headers"] = [{"name": name, **_json_bytes("value", value)} for name, value in headers]
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _json_bytes(name: str, data: Any) -> dict[str, str | None]:
    """Text where the bytes are text, else base64 under a name that says so."""
    if data is None:
        return {name: None}
    raw = _bytes(data)
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(raw).decode()}


def template_view(template: str) -> View:
    """`{partition}:{offset} {key} {header:trace} {value}\\n` as a view; unknown fields are refused at once."""
    parts: list[bytes | Callable[[Message], bytes]] = []
    position = 0
    for match in _FIELD.finditer(template):
        if match.start() and template[match.start() - 1] == "{":
            continue
        parts.append(_literal(template[position : match.start()]))
        parts.append(_field(match[1], match[2]))
        position = match.end()
    parts.append(_literal(template[position:]))
    if not template.endswith(("\\n", "\n", "\\0")):
        parts.append(b"\n")
    return lambda message: b"".join(part if isinstance(part, bytes) else part(message) for part in parts)


def _literal(text: str) -> bytes:
    return _ESCAPE.sub(lambda match: _ESCAPES[match[0]], text).encode()


def _field(name: str, argument: str | None) -> Callable[[Message], bytes]:
    if name == "header" and argument:
        return lambda message: _bytes(dict(_headers(message)).get(argument))
    readers: dict[str, Callable[[Message], Any]] = {
        "topic": lambda message: message.topic(),
        "partition": lambda message: message.partition(),
        "offset": lambda message: message.offset(),
        "epoch": lambda message: message.leader_epoch(),
        "timestamp": lambda message: message.timestamp()[1],
        "time": lambda message: time_text(message.timestamp()[1]),
        "key": lambda message: message.key(),
        "value": lambda message: message.value(),
        "headers": _header_text,
    }
    if name not in readers:
        raise CliError(
            f"'{{{name}}}' is not a field of a record", hint=f"Fields: {', '.join(FIELDS)} (as header:NAME)."
        )
    read = readers[name]
    return lambda message: _bytes(read(message))


def _headers(message: Message) -> list[tuple[str, Any]]:
    headers: Any = message.headers()
    return list(headers or [])


def _header_text(message: Message) -> str:
    return " ".join(f"{name}={_text(value)}" for name, value in _headers(message))


def _text(data: Any) -> str:
    return _bytes(data).decode("utf-8", "replace")


def _bytes(data: Any) -> bytes:
    if data is None:
        return b"null"
    return data if isinstance(data, bytes) else str(data).encode()
