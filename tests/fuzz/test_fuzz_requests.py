"""Every API in every version, asked properly, nearly properly, and cut at every byte."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.api import API_TABLE, ApiKey
from moldau.protocol.frames import encode_request
from tests.fuzz.fuzz_node import EFFORT, QUICK, FuzzNode, served
from tests.fuzz.mutations import mutant
from tests.protocol.protocol_schemas import Case, all_cases, messages

MUTANTS = 12
HEADER_BYTES = 8

with FuzzNode() as _node:
    SERVED = served(_node.node.broker)
CASES = {(case.name, case.version): case for case in all_cases() if case.package == "wire"}


def case_of(key: ApiKey, version: int) -> Case:
    return CASES[API_TABLE[key].request_class().__name__, version]


def throw_around(node: FuzzNode, key: ApiKey, version: int, outcomes: Counter[str]) -> None:
    """Proper requests of one API and version, and what becomes of them when they are changed a little."""
    case = case_of(key, version)

    @given(message=messages(case), seed=st.integers(0, 2**32))
    @settings(QUICK, max_examples=6 * EFFORT)
    def check(message: Any, seed: int) -> None:
        chance = random.Random(seed)
        if chance.randrange(5):
            message = node.inform(case, message, chance)
        frame = encode_request(API_TABLE[key], version, chance.randrange(2**31), "fuzz", message)[4:]
        outcome = node.throw(frame)
        # Without acknowledgement a closed connection is the only way to say that a produce request failed.
        assert outcome != "refused" or key == ApiKey.PRODUCE, f"a proper request is refused: {message}"
        outcomes[outcome] += 1
        for _ in range(MUTANTS):
            outcomes[node.throw(mutant(frame, chance, keep=HEADER_BYTES))] += 1

    check()


@pytest.mark.parametrize(("key", "low", "high"), SERVED, ids=[key.name for key, _, _ in SERVED])
def test_asked_properly_and_nearly_properly(key: ApiKey, low: int, high: int) -> None:
    outcomes: Counter[str] = Counter()
    with FuzzNode() as node:
        for version in range(low, high + 1):
            throw_around(node, key, version, outcomes)
        node.alive()
    assert outcomes["answered"] + outcomes["waiting"] + outcomes["silent"]


def cut_everywhere(node: FuzzNode, key: ApiKey, version: int) -> None:
    case = case_of(key, version)

    @given(message=messages(case), seed=st.integers(0, 2**32))
    @settings(QUICK, max_examples=1)
    def check(message: Any, seed: int) -> None:
        message = node.inform(case, message, random.Random(seed))
        frame = encode_request(API_TABLE[key], version, 1, "fuzz", message)[4:]
        for size in range(min(len(frame), 400)):
            assert node.throw(frame[:size]) == "refused", f"cut at {size} of {len(frame)}: {message}"

    check()


@pytest.mark.parametrize(("key", "low", "high"), SERVED, ids=[key.name for key, _, _ in SERVED])
def test_cut_at_every_byte(key: ApiKey, low: int, high: int) -> None:
    """No prefix of a request is taken for the request: nothing is made up for what is missing."""
    with FuzzNode() as node:
        for version in range(low, high + 1):
            cut_everywhere(node, key, version)
        node.alive()
