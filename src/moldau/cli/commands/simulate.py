"""`moldau simulate`: whole clusters in this process, in a world that fails on purpose; a seed is a story told again."""

from __future__ import annotations

import os
import sys
import time

import click


def _words(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(word for word in value.split(",") if word)


@click.command()
@click.option("--seed", type=int, default=0, show_default=True, help="The (first) seed.")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="How many, from that one on.")
@click.option("--faults", callback=_words, help="Only these kinds of trouble, separated by commas; '' for none.")
@click.option("--clients", callback=_words, help="Only these kinds of clients, separated by commas.")
@click.option("--processes", type=click.IntRange(1), help="Seeds at the same time; else one for each processor.")
@click.option("--quiet", is_flag=True, help="Tell only the stories of seeds that fail.")
def simulate(
    seed: int,
    seeds: int,
    faults: tuple[str, ...] | None,
    clients: tuple[str, ...] | None,
    processes: int | None,
    quiet: bool,
) -> int:
    """Run clusters under crashes, cuts and failing disks, and check every promise after every event.

    One seed is told as a story; of many only those that fail. The same seed is the same story, always.
    """
    _fix_hashes()
    from moldau.testing.simulation.faults import FAULTS
    from moldau.testing.simulation.scenario import WORKLOADS

    for name, chosen, known in (("--faults", faults, FAULTS), ("--clients", clients, WORKLOADS)):
        unknown = [word for word in chosen or () if word not in known]
        if unknown:
            raise click.UsageError(f"{name} knows no '{unknown[0]}', only {', '.join(known)}")
    if seeds == 1:
        return _tell_one(seed, faults, clients, quiet=quiet)
    return _run_many(range(seed, seed + seeds), faults, clients, processes or os.cpu_count() or 1)


def _fix_hashes() -> None:
    """The order of Python's sets depends on a secret of each process; with a known one a seed is the same for ever."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        arguments = [sys.executable, "-m", "moldau", *sys.argv[1:]]
        os.execve(sys.executable, arguments, {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606


def _tell_one(seed: int, faults: tuple[str, ...] | None, clients: tuple[str, ...] | None, *, quiet: bool) -> int:
    from moldau.testing.simulation.runner import run_seed

    outcome = run_seed(seed, faults=faults, workloads=clients, tell=True)
    if outcome.failure is not None or not quiet:
        click.echo("\n".join(outcome.story))
    click.echo(
        f"seed {seed}: {outcome.events} events in {outcome.virtual_ms / 1000:.1f} virtual seconds, "
        f"trace {outcome.trace}"
    )
    if outcome.failure is None:
        return 0
    click.echo(f"BROKEN: {outcome.failure}")
    return 1


def _run_many(seeds: range, faults: tuple[str, ...] | None, clients: tuple[str, ...] | None, processes: int) -> int:
    from moldau.testing.simulation.runner import run_seeds

    begin = time.perf_counter()
    failed: list[int] = []
    events = done = 0
    for outcome in run_seeds(seeds, faults=faults, workloads=clients, processes=processes):
        done += 1
        events += outcome.events
        if outcome.failure is not None:
            failed.append(outcome.seed)
            click.echo("\n".join(outcome.story[-60:]))
            click.echo(f"seed {outcome.seed} BROKEN: {outcome.failure}\n")
        elif done % 1000 == 0:
            click.echo(f"{done} seeds, {done / (time.perf_counter() - begin):.1f} a second, {len(failed)} failed")
    seconds = time.perf_counter() - begin
    click.echo(
        f"{done} seeds from {seeds.start} on: {len(failed)} failed; {events} events in {seconds:.0f} s, "
        f"{done / seconds:.1f} seeds a second"
    )
    if failed:
        click.echo(f"again with its story: moldau simulate --seed {failed[0]}")
    return 1 if failed else 0
