"""Coverage-guided fuzzing of request frames against broker and controller; see `atheris_runner.py` for how to run it.

The first byte of an input says which of the two it is for.
"""

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
BROKER, CONTROLLER = b"\0", b"\1"


def feed(node: FuzzNode, data: bytes) -> None:
    service = node.node.controller_api if data[:1] == CONTROLLER else node.node.broker
    node.throw(data[1:], service=service)


def seeds() -> Iterator[bytes]:
    """Some requests of every API in every version."""
    cases = {(case.name, case.version): case for case in all_cases() if case.package == "wire"}
    chance = random.Random(1)
    with FuzzNode() as node:
        for prefix, service in ((BROKER, node.node.broker), (CONTROLLER, node.node.controller_api)):
            for key, low, high in served(service):
                for version in range(low, high + 1):
                    case = cases[API_TABLE[key].request_class().__name__, version]
                    for _ in range(SAMPLES):
                        message = node.inform(case, sample_message(case, chance), chance)
                        yield prefix + encode_request(API_TABLE[key], version, 1, "fuzz", message)[4:]


if __name__ == "__main__":
    run(feed, seeds())
