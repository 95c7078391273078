"""Emits the tables that find a message by number: Kafka's APIs, and the record types of its internal logs."""

from __future__ import annotations

from codegen.modules import HEADER
from codegen.source import Source
from codegen.specification import Specification, snake_case


def api_table_source(packages: dict[str, list[Specification]]) -> str:
    out = Source()
    out.add(HEADER, "from __future__ import annotations", "", "from enum import IntEnum", "", "")
    requests = _by_key(packages["wire"], "request")
    responses = _by_key(packages["wire"], "response")
    with out.block("class ApiKey(IntEnum):"):
        for key, request in requests.items():
            out.add(f"{snake_case(_api_name(request)).upper()} = {key}")
    out.add("", "")
    out.add("# key: (name, start of its module names, lowest and highest version, unstable, flexible from, listeners)")
    with out.block("APIS: dict[int, tuple[str, str, int, int, bool, int | None, tuple[str, ...]]] = {"):
        for key, request in requests.items():
            response = responses[key]
            assert request.versions == response.versions, request.name
            assert request.flexible == response.flexible, request.name
            low, high = request.versions.low, request.versions.high
            flexible = request.flexible.low if request.flexible & request.versions else None
            listeners = tuple(sorted(request.listeners))
            name = _api_name(request)
            facts = f'"{name}", "{snake_case(name)}", {low}, {high}, {request.latest_unstable}, {flexible}, {listeners}'
            out.add(f"{key}: ({facts}),")
    out.add("}")
    _records(out, packages)
    return out.text().replace("'", '"')


def _records(out: Source, packages: dict[str, list[Specification]]) -> None:
    out.add("", "# record type: (module, class name)")
    with out.block("METADATA_RECORDS: dict[int, tuple[str, str]] = {"):
        for key, record in _by_key(packages["metadata"], "metadata").items():
            out.add(f"{key}: {_place(record)},")
    out.add("}", "", "# package: record type: (module and class name of the key, the same of the value)")
    with out.block("COORDINATOR_RECORDS: dict[str, dict[int, tuple[tuple[str, str], tuple[str, str]]]] = {"):
        for package in ("group", "share", "transaction"):
            keys = _by_key(packages[package], "coordinator-key")
            values = _by_key(packages[package], "coordinator-value")
            assert keys.keys() == values.keys(), package
            with out.block(f'"{package}": {{'):
                for number, key_record in keys.items():
                    out.add(f"{number}: ({_place(key_record)}, {_place(values[number])}),")
            out.add("},")
    out.add("}")


def _by_key(specifications: list[Specification], kind: str) -> dict[int, Specification]:
    found = {each.api_key: each for each in specifications if each.kind == kind and each.api_key is not None}
    return dict(sorted(found.items()))


def _api_name(request: Specification) -> str:
    return request.name.removesuffix("Request")


def _place(record: Specification) -> str:
    return f'("{snake_case(record.name)}", "{record.name}")'
