"""Arbitrary messages of any package and version, built from the facts that codegen writes beside this file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from moldau.protocol.errors import ErrorCode
from moldau.protocol.wire import WireMessage

RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
ERROR_CODES = [int(code) for code in ErrorCode]


@dataclass(frozen=True)
class Case:
    """One version of one message."""

    package: str
    schema: dict[str, Any]
    version: int

    @property
    def name(self) -> str:
        name: str = self.schema["name"]
        return name

    def __str__(self) -> str:
        return f"{self.package}-{self.name}-v{self.version}"

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash(str(self))

    def module(self) -> Any:
        return _modules()[self.name]

    def message_class(self) -> type[WireMessage]:
        cls: type[WireMessage] = getattr(self.module(), self.name)
        return cls

    def fields(self, struct: str) -> list[dict[str, Any]]:
        """The fields of a struct that this version has, in the order of the specification."""
        return [field for field in self.schema["structs"][struct] if within(field["versions"], self.version)]


def within(versions: list[int] | None, version: int) -> bool:
    return versions is not None and versions[0] <= version <= versions[1]


@cache
def all_cases() -> list[Case]:
    schemas = json.loads((Path(__file__).parent / "schemas.json").read_text(encoding="utf-8"))
    return [
        Case(package, schema, version)
        for package, messages in schemas.items()
        for schema in messages
        for version in range(schema["versions"][0], schema["versions"][1] + 1)
    ]


@cache
def _modules() -> dict[str, Any]:
    """Generated modules by the name of the message in them, found without trusting the generated tables."""
    root = Path(import_module("moldau.protocol.generated").__file__ or "").parent
    found = {}
    for path in root.glob("*/*.py"):
        if path.stem != "__init__":
            module = import_module(f"moldau.protocol.generated.{path.parent.name}.{path.stem}")
            for name, value in vars(module).items():
                if isinstance(value, type) and issubclass(value, WireMessage) and value.__module__ == module.__name__:
                    found[name] = module
    return found


@cache
def messages(case: Case, *, tame: bool = False) -> st.SearchStrategy[WireMessage]:
    """Messages whose fields are arbitrary where the version has them and default where it has not.

    Tame ones use numbers that have a meaning (error codes that exist, times that a calendar can show).
    """
    return _struct(case, case.name, tame)


@cache
def _struct(case: Case, struct: str, tame: bool) -> st.SearchStrategy[Any]:
    cls = getattr(case.module(), struct)
    return st.builds(cls, **{field["attribute"]: _field(case, field, tame) for field in case.fields(struct)})


def _field(case: Case, field: dict[str, Any], tame: bool) -> st.SearchStrategy[Any]:
    values = _value(case, field, tame)
    if field.get("array"):
        values = st.lists(values, max_size=3)
    if within(field.get("nullable"), case.version):
        values = st.one_of(st.none(), values)
    return values


def _value(case: Case, field: dict[str, Any], tame: bool) -> st.SearchStrategy[Any]:
    kind = field["type"]
    if kind in RANGES:
        return _numbers(field, kind, tame)
    simple: dict[str, st.SearchStrategy[Any]] = {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "uuid": st.binary(min_size=16, max_size=16),
        "string": st.one_of(st.text(max_size=5), st.sampled_from(["x" * 126, "x" * 127, "é" * 64, "y" * 300])),
        "bytes": st.one_of(st.binary(max_size=5), st.sampled_from([b"x" * 126, b"x" * 127, b"y" * 20000])),
        "records": st.binary(max_size=200),
    }
    return simple[kind] if kind in simple else _struct(case, kind, tame)


def _numbers(field: dict[str, Any], kind: str, tame: bool) -> st.SearchStrategy[int]:
    low, high = RANGES[kind]
    if tame:
        name = field["name"].lower()
        if "error" in name and kind == "int16":
            return st.sampled_from(ERROR_CODES)
        if kind == "int64" and (name.endswith("ms") or "timestamp" in name or "timeout" in name):
            low, high = 0, 2**40
    return st.one_of(st.integers(low, high), st.sampled_from([low, high, max(0, low)]))
