"""Bytes of every wire message and version that kio knows, compared with kio's: an implementation of other hands."""

from __future__ import annotations

import dataclasses
import datetime
import io
import types
import typing
import uuid
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from kio.index import load_entity_module
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from protocol_schemas import Case, all_cases, messages

from moldau.protocol.codec import decode, encode

EXAMPLES = 15
SUFFIXES = {"request": "Request", "response": "Response"}


def kio_class(case: Case) -> Any | None:
    """kio's class for a message, None when it does not know that message or version."""
    kind = EntityType[case.schema["kind"]]
    stem = case.name.removesuffix(SUFFIXES.get(case.schema["kind"], ""))
    known = {name.replace("_", ""): name for name in schema_name_map}
    name = known.get(stem.lower())
    if name is None or kind not in schema_name_map[name].get(case.version, {}):
        return None
    return getattr(load_entity_module(name, case.version, kind), case.name)


CASES = [(case, cls) for case in all_cases() if case.package == "wire" and (cls := kio_class(case)) is not None]


def plain(name: str) -> str:
    """A field's name as far as both sides agree on it: kio drops units and underscores of its own taste."""
    name = name.replace("_", "").lower()
    return name.removesuffix("ms")


@cache
def pairs(case: Case, struct: str, cls: Any) -> list[tuple[dict[str, Any], Any, Any]]:
    """Our fields beside kio's, matched by place; kio's class has exactly the fields of the version."""
    ours, theirs = case.fields(struct), dataclasses.fields(cls)
    assert [plain(each["name"]) for each in ours] == [plain(each.name) for each in theirs], case
    hints = typing.get_type_hints(cls)
    return [(field, other, hints[other.name]) for field, other in zip(ours, theirs, strict=True)]


def to_kio(case: Case, struct: str, message: Any, cls: Any) -> Any:
    values = {
        other.name: convert(case, field, other, hint, getattr(message, field["attribute"]))
        for field, other, hint in pairs(case, struct, cls)
    }
    return cls(**values)


def convert(case: Case, field: dict[str, Any], other: Any, hint: Any, value: Any) -> Any:
    if value is None:
        return None
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (hint,) = [each for each in typing.get_args(hint) if each is not type(None)]
    if field.get("array"):
        inner = typing.get_args(hint)[0]
        return tuple(convert(case, {**field, "array": False}, other, inner, each) for each in value)
    if dataclasses.is_dataclass(hint):
        return to_kio(case, field["type"], value, hint)
    match other.metadata["kafka_type"]:
        case "uuid":
            return uuid.UUID(bytes=value) if any(value) else None
        case "error_code":
            return KioErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
            return None if value == -1 else epoch + datetime.timedelta(milliseconds=value)
        case _:
            return value


def test_kio_knows_most_messages() -> None:
    wire = [case for case in all_cases() if case.package == "wire"]
    assert len(CASES) > 0.9 * len(wire), sorted(str(case) for case in wire if kio_class(case) is None)


@pytest.mark.parametrize(("case", "cls"), CASES, ids=[str(case) for case, _ in CASES])
def test_bytes_are_kios(case: Case, cls: Any) -> None:
    write = entity_writer(cls)
    read = entity_reader(cls)

    @given(message=messages(case, tame=True))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(message: Any) -> None:
        entity = to_kio(case, case.name, message, cls)
        buffer = io.BytesIO()
        write(buffer, entity)
        ours = encode(message, case.version)
        assert ours == buffer.getvalue()
        assert decode(case.message_class(), ours, case.version) == message
        assert read(ours, 0)[0] == entity

    check()
