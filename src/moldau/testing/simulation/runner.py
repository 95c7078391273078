"""Running seeds: one with its story, or many after each other or on several processors.

Decides what a failure is (a broken rule, an exception nobody expected, an error that a node could only log) and what
is told of it. The same seed gives the same story in every process: what hashes decide is fixed by `PYTHONHASHSEED`,
which the command line sets.
"""

from __future__ import annotations

import gc
import logging
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context

from moldau.testing.simulation.ledger import Broken
from moldau.testing.simulation.scenario import Scenario

log = logging.getLogger("moldau")

# A cluster that is thrown away is full of cycles: collected now and then, not while it lives.
SEEDS_PER_COLLECTION = 5
SEEDS_PER_TASK = 10


@dataclass(slots=True)
class Outcome:
    """What became of one seed."""

    seed: int
    # Which rule was broken and how; None when all went well.
    failure: str | None
    trace: str
    events: int
    virtual_ms: int
    story: list[str] = field(default_factory=list)


class _Watcher(logging.Handler):
    """What the nodes log: exceptions they could only log are failures, the rest is part of a story that is told."""

    def __init__(self, scenario: Scenario, *, tell: bool) -> None:
        super().__init__(logging.INFO if tell else logging.ERROR)
        self._world = scenario.world
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        if self._tell:
            self._world.story.append((self._world.now, f"        log: {record.getMessage()}"))
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, OSError):
            self._world.logged.append(f"{record.getMessage()}: {''.join(traceback.format_exception(error))}")


def run_seed(
    seed: int, *, faults: Iterable[str] | None = None, workloads: Iterable[str] | None = None, tell: bool = False
) -> Outcome:
    """Run one seed. With `tell` the story also has what the nodes logged; that changes nothing of what happens."""
    scenario = Scenario(seed, faults=faults, workloads=workloads)
    world = scenario.world
    watcher = _Watcher(scenario, tell=tell)
    before = log.level, log.propagate
    log.addHandler(watcher)
    log.setLevel(logging.INFO if tell else logging.ERROR)
    log.propagate = False
    failure = None
    try:
        scenario.run()
    except Broken as broken:
        failure = str(broken)
    except Exception as error:
        failure = f"an unexpected {type(error).__name__}: {error}\n{traceback.format_exc()}"
    finally:
        log.removeHandler(watcher)
        log.setLevel(before[0])
        log.propagate = before[1]
    story = [f"{at:>8} ms  {text}" for at, text in world.story]
    return Outcome(seed, failure, world.trace, world.events, world.now, story)


def run_seeds(
    seeds: Iterable[int],
    *,
    faults: Iterable[str] | None = None,
    workloads: Iterable[str] | None = None,
    processes: int = 1,
) -> Iterator[Outcome]:
    """Run many seeds; outcomes come in the order of the seeds, without their stories unless they failed."""
    faults = None if faults is None else tuple(faults)
    workloads = None if workloads is None else tuple(workloads)
    if processes <= 1:
        yield from _some(seeds, faults, workloads)
        return
    chunks = iter(seeds)
    with ProcessPoolExecutor(processes, mp_context=get_context("fork")) as pool:
        waiting = []
        while chunk := list(islice(chunks, SEEDS_PER_TASK)):
            waiting.append(pool.submit(_chunk, chunk, faults, workloads))
        for task in waiting:
            yield from task.result()


def _chunk(seeds: list[int], faults: tuple[str, ...] | None, workloads: tuple[str, ...] | None) -> list[Outcome]:
    return list(_some(seeds, faults, workloads))


def _some(seeds: Iterable[int], faults: tuple[str, ...] | None, workloads: tuple[str, ...] | None) -> Iterator[Outcome]:
    collecting = gc.isenabled()
    gc.disable()
    # What is there already stays: nobody needs to look through it again and again.
    gc.freeze()
    try:
        for count, seed in enumerate(seeds, 1):
            outcome = run_seed(seed, faults=faults, workloads=workloads)
            if outcome.failure is None:
                outcome.story.clear()
            yield outcome
            if count % SEEDS_PER_COLLECTION == 0:
                gc.collect()
    finally:
        gc.unfreeze()
        if collecting:
            gc.enable()
