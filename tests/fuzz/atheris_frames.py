"""Coverage-guided fuzzing of request frames against the broker; see `atheris_runner.py` for how to run it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import atheris

with atheris.instrument_imports(include=["moldau"]):
    from moldau.protocol.api import API_TABLE
    from moldau.protocol.frames import encode_request
    from tests.fuzz.fuzz_node import FuzzNode, sample_message, served

from tests.fuzz.atheris_runner import run
from tests.protocol.protocol_schemas import all_cases

SAMPLES = 3


def feed(node: FuzzNode, data: bytes) -> None:
    node.throw(data)


def seeds() -> Iterator[bytes]:
    """Some requests of every API in every version."""
    cases = {(case.name, case.version): case for case in all_cases() if case.package == "wire"}
    chance = random.Random(1)
    with FuzzNode() as node:
        for key, low, high in served(node):
            for version in range(low, high + 1):
                case = cases[API_TABLE[key].request_class().__name__, version]
                for _ in range(SAMPLES):
                    message = node.inform(case, sample_message(case, chance), chance)
                    yield encode_request(API_TABLE[key], version, 1, "fuzz", message)[4:]


if __name__ == "__main__":
    run(feed, seeds())
