"""Seeds that must pass, the same seed twice, and the stories of seeds that fail."""

from __future__ import annotations

import os

import pytest
from click.testing import CliRunner

from moldau.cli.commands.simulate import simulate
from moldau.testing.simulation.faults import FAULTS
from moldau.testing.simulation.ledger import batches_of, records_of
from moldau.testing.simulation.runner import run_seed, run_seeds
from moldau.testing.simulation.scenario import WORKLOADS, Scenario
from tests.conftest import COMPILED

from .planted import planted

SEEDS = int(os.environ.get("MOLDAU_SIMULATION_SEEDS", "40"))
FIRST_SEED = int(os.environ.get("MOLDAU_SIMULATION_FIRST_SEED", "0"))


def test_seeds_pass() -> None:
    """More of them: MOLDAU_SIMULATION_SEEDS=1000, or `moldau simulate --seeds 1000 --processes 2`."""
    failed = [
        f"seed {outcome.seed}: {outcome.failure}\n" + "\n".join(outcome.story[-40:])
        for outcome in run_seeds(range(FIRST_SEED, FIRST_SEED + SEEDS), processes=os.cpu_count() or 1)
        if outcome.failure is not None
    ]
    assert not failed, "\n\n".join(failed)


@pytest.mark.parametrize("seed", [3, 8, 12, 41])
def test_the_same_seed_is_the_same_story(seed: int) -> None:
    once, again = run_seed(seed), run_seed(seed)
    assert (once.trace, once.events, once.story) == (again.trace, again.events, again.story)
    # Telling what the nodes log changes nothing of what happens.
    assert run_seed(seed, tell=True).trace == once.trace


def test_other_seeds_are_other_stories() -> None:
    assert run_seed(3).trace != run_seed(4).trace


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_kind_of_client_gets_along_without_trouble(workload: str) -> None:
    outcome = run_seed(1, faults=(), workloads=("idempotent", workload))
    assert outcome.failure is None, outcome.failure


def test_compaction_removes_what_is_replaced_and_nothing_else() -> None:
    scenario = Scenario(2, faults=(), workloads=("table", "consumer"))
    world = scenario.run()
    ledger = world.ledgers()["table", 0]
    for node in world.nodes.values():
        assert node.rooms is not None
        copy = node.rooms.partitions.find("table", 0)
        assert copy is not None
        batches = list(batches_of(copy.log, 0, copy.log.high_watermark))
        left = [each for header, data in batches for each in records_of(header, data)]
        assert len(left) < len(ledger.records), "keys were written again and again"
        assert set(ledger.latest_values().values()) <= set(left)


def test_voters_come_and_go() -> None:
    outcome = run_seed(5, faults=("kill",), workloads=("idempotent", "voters"))
    assert outcome.failure is None, outcome.failure
    story = "\n".join(outcome.story)
    assert "n4 is a voter" in story
    assert "is no voter any more" in story


@pytest.mark.parametrize("fault", FAULTS)
def test_every_kind_of_trouble_alone(fault: str) -> None:
    outcome = run_seed(2, faults=(fault,), workloads=("idempotent",))
    assert outcome.failure is None, outcome.failure


@pytest.mark.skipif(COMPILED, reason="bugs are planted by replacing methods, which compiled code does not see")
def test_a_failing_seed_tells_its_story(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    with planted("commit-what-the-leader-alone-has"):
        result = CliRunner().invoke(simulate, ["--seed", "0"], standalone_mode=False)
        many = CliRunner().invoke(simulate, ["--seed", "0", "--seeds", "2"], standalone_mode=False)
    assert result.return_value == 1
    assert "3 nodes are up" in result.output
    assert "is led by n" in result.output
    assert "BROKEN: " in result.output
    assert "is committed, but" in result.output or "called committed" in result.output
    assert many.return_value == 1
    assert "moldau simulate --seed 0" in many.output


def test_what_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    result = CliRunner().invoke(simulate, ["--faults", "earthquake"])
    assert result.exit_code != 0
    assert "earthquake" in result.output
