"""Waiting with open eyes: for how long, when it ends, and when it is given up."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.config.node_config import NodeConfig
from moldau.config.one_node import defaults_for_one_node
from moldau.config.types import ConfigError
from moldau.node.alertness import OCCASIONS_PER_TRY, SETTING, WORTH_FIRST, WORTH_MAX, Alertness

LIMIT_US = 2_000


class Loop(asyncio.SelectorEventLoop):
    """Turned by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.planned: list[Callable[[], Any]] = []

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:
        self.planned.append(callback)
        return asyncio.Handle(callback, args, self)

    def sleeps(self) -> bool:
        """Whether the loop would sleep now: nothing is planned for its next turn."""
        return not self.planned

    def turn(self) -> None:
        planned, self.planned = self.planned, []
        for call in planned:
            call()


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


def alert(loop: Loop, limit_us: int = LIMIT_US) -> Alertness:
    alertness = Alertness(limit_us)
    alertness.begin(loop)
    return alertness


def _of(value: str) -> Alertness:
    return Alertness.of(NodeConfig.load({**defaults_for_one_node(), SETTING: value}))


def expect_in_vain(alertness: Alertness, loop: Loop) -> None:
    alertness.expect()
    time.sleep(LIMIT_US / 1_000_000)
    loop.turn()
    assert loop.sleeps()


def test_it_looks_until_the_time_is_up(loop: Loop) -> None:
    alertness = alert(loop, 20_000)
    assert loop.sleeps()
    begun = time.perf_counter()
    alertness.expect()
    turns = 0
    while not loop.sleeps():
        loop.turn()
        turns += 1
    assert time.perf_counter() - begun >= 0.02
    assert turns > 2


def test_it_ends_when_something_has_come(loop: Loop) -> None:
    alertness = alert(loop, 10_000_000)
    alertness.expect()
    loop.turn()
    assert not loop.sleeps()
    alertness.arrived()
    loop.turn()
    assert loop.sleeps()


def test_there_is_never_more_than_one_look_in_a_turn(loop: Loop) -> None:
    alertness = alert(loop, 10_000_000)
    for _ in range(3):
        alertness.expect()
        alertness.arrived()
        alertness.expect()
        assert len(loop.planned) == 1
        loop.turn()
        assert len(loop.planned) == 1


def test_what_never_comes_is_not_waited_for(loop: Loop) -> None:
    alertness = alert(loop)
    for _ in range(WORTH_FIRST // 2):
        expect_in_vain(alertness, loop)
    for _ in range(OCCASIONS_PER_TRY - 1):
        alertness.expect()
        assert loop.sleeps()
    expect_in_vain(alertness, loop)
    alertness.expect()
    assert loop.sleeps()


def test_a_try_that_succeeds_restores_it(loop: Loop) -> None:
    alertness = alert(loop, 10_000)
    for _ in range(WORTH_FIRST // 2):
        alertness.expect()
        time.sleep(0.01)
        loop.turn()
    for _ in range(OCCASIONS_PER_TRY):
        alertness.expect()
    assert not loop.sleeps()
    alertness.arrived()
    loop.turn()
    assert loop.sleeps()
    alertness.expect()
    assert not loop.sleeps()


def test_what_comes_in_one_case_of_three_is_not_waited_for(loop: Loop) -> None:
    alertness = alert(loop)
    for _ in range(WORTH_FIRST):
        alertness.expect()
        alertness.arrived()
        loop.turn()
        expect_in_vain(alertness, loop)
        expect_in_vain(alertness, loop)
    assert not waits(alertness, loop)


def test_what_comes_in_three_cases_of_four_is_waited_for(loop: Loop) -> None:
    alertness = alert(loop)
    for _ in range(2 * WORTH_MAX):
        for _ in range(3):
            assert waits(alertness, loop)
            alertness.arrived()
            loop.turn()
        expect_in_vain(alertness, loop)


def waits(alertness: Alertness, loop: Loop) -> bool:
    alertness.expect()
    return not loop.sleeps()


def test_what_comes_unexpected_changes_nothing(loop: Loop) -> None:
    alertness = alert(loop)
    for _ in range(WORTH_FIRST // 2):
        expect_in_vain(alertness, loop)
        alertness.arrived()
    alertness.expect()
    assert loop.sleeps()


def test_switched_off(loop: Loop) -> None:
    alertness = alert(loop, 0)
    alertness.expect()
    assert loop.sleeps()


@pytest.mark.parametrize("value", ["-1", "10001", "soon", "1.5"])
def test_a_setting_that_is_none(value: str) -> None:
    with pytest.raises(ConfigError, match=rf"Invalid value {value} for configuration {SETTING}: a number of micro"):
        _of(value)


@pytest.mark.parametrize("value", ["", "0", "10000"])
def test_a_setting(value: str) -> None:
    _of(value)


def test_a_node_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "moldau", "start", "--override", f"log.dirs={tmp_path}", "--override"]
    node = subprocess.run([*command, f"{SETTING}=never"], capture_output=True, text=True, timeout=60, check=False)
    assert node.returncode != 0
    assert f"Invalid value never for configuration {SETTING}" in node.stderr
    assert "Traceback" not in node.stderr
