"""`moldau cluster rebalance` and `moldau cluster drain`: show a plan, then carry it out a few partitions at a time.

Without `--execute` nothing is changed. What is under way goes on in the cluster when the command is interrupted;
running it again plans from where things are then.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from moldau.cli.commands._shared import Target, cluster_options, output_option
from moldau.cli.errors import CliError
from moldau.cli.output import Column, bytes_text, show_json, show_rows
from moldau.cli.placement_plans import Broker, Load, Partition, PlanError, drain_plan, loads, rebalance_plan

if TYPE_CHECKING:
    from moldau.client.admin import Admin

F = TypeVar("F", bound=Callable[..., Any])

POLL_SECONDS = 0.25
PLAN_ROWS_MAX = 50
CORDONED = "cordoned.log.dirs"
ALL_DIRECTORIES = "*"


@dataclass(slots=True, frozen=True)
class How:
    """How a plan is carried out, if it is."""

    execute: bool
    throttle: int | None
    at_once: int
    timeout: float
    output: str


def _move_options(command: F) -> F:
    """The options of commands that move replicas; the command gets one `how`."""

    @wraps(command)
    def with_how(
        *args: Any, execute: bool, throttle: int | None, at_once: int, timeout: float, output: str, **kwargs: Any
    ) -> Any:
        return command(*args, how=How(execute, throttle, at_once, timeout, output), **kwargs)

    given: Any = output_option(with_how)
    for option in (
        click.option("--execute", is_flag=True, help="Do it. Without this the plan is only shown."),
        click.option("--throttle", type=click.IntRange(min=1), metavar="BYTES/S", help="Limit what moving may use."),
        click.option(
            "--at-once",
            type=click.IntRange(min=1),
            default=20,
            show_default=True,
            help="How many partitions move at the same time.",
        ),
        click.option("--timeout", type=float, default=3600.0, show_default=True, help="Seconds until it gives up."),
    ):
        given = option(given)
    return given  # type: ignore[no-any-return]


@click.command()
@click.option("--topic", "topics", multiple=True, help="Only this topic. Repeatable.")
@click.option("--broker", "wanted", type=int, multiple=True, help="Only over these brokers. Repeatable.")
@_move_options
@cluster_options
def rebalance(topics: tuple[str, ...], wanted: tuple[int, ...], how: How, target: Target) -> None:
    """Spread replicas and leaders evenly over the brokers; shows the plan unless --execute is given."""
    with target.admin() as admin:
        brokers, current = _situation(admin, topics)
        if wanted:
            unknown = sorted(set(wanted) - {broker.id for broker in brokers})
            if unknown:
                raise CliError(f"There is no broker {unknown[0]}, or it is fenced")
            outside = {broker for replicas in current.values() for broker in replicas} - set(wanted)
            chosen = [broker for broker in brokers if broker.id in wanted]
            moved_in = _plan(lambda: drain_plan(current, chosen, outside)) if outside else {}
            plan = {**moved_in, **rebalance_plan({**current, **moved_in}, chosen)}
        else:
            plan = rebalance_plan(current, brokers)
        _carry_out(admin, current, plan, brokers, how)


@click.command()
@click.argument("broker", type=int)
@_move_options
@cluster_options
def drain(broker: int, how: How, target: Target) -> None:
    """Move everything off a BROKER, so that it can be taken away; shows the plan unless --execute is given.

    The broker is cordoned first: it is given no new partitions until the setting cordoned.log.dirs is taken off it.
    """
    from moldau.client.admin.cluster import describe_cluster

    with target.admin() as admin:
        brokers, current = _situation(admin, ())
        if all(broker not in replicas for replicas in current.values()):
            if broker not in {each.node_id for each in describe_cluster(admin, fenced=True).brokers}:
                raise CliError(f"There is no broker {broker}")
            print(f"Broker {broker} holds nothing.")
            return
        plan = _plan(lambda: drain_plan(current, brokers, [broker]))
        if how.execute and broker in {each.node_id for each in describe_cluster(admin).brokers}:
            _cordon(admin, broker)
            # From here on nothing new comes to it, but something may have come since we looked.
            brokers, current = _situation(admin, ())
            plan = _plan(lambda: drain_plan(current, brokers, [broker]))
        _carry_out(admin, current, plan, brokers, how)
    if how.execute and how.output == "table":
        print(f"Broker {broker} holds nothing any more. Stop it, then: kafka-cluster unregister --id {broker} ...")


def _cordon(admin: Admin, broker: int) -> None:
    """Let nothing new come to a broker that is to become empty."""
    from moldau.client.admin.configs import ResourceType, alter_configs
    from moldau.protocol.errors import ApiError

    try:
        alter_configs(admin, ResourceType.BROKER, str(broker), set_to={CORDONED: ALL_DIRECTORIES})
    except ApiError as error:
        print(f"New partitions may still come to broker {broker}: {error.message}", file=sys.stderr)


def _plan(make: Callable[[], dict[Partition, list[int]]]) -> dict[Partition, list[int]]:
    try:
        return make()
    except PlanError as error:
        raise CliError(f"That cannot be done: {error}") from None


def _situation(admin: Admin, topics: Sequence[str]) -> tuple[list[Broker], dict[Partition, list[int]]]:
    """The brokers that can hold replicas, and where these are (or will be, once what moves has moved)."""
    from moldau.client.admin.cluster import describe_cluster, describe_log_dirs
    from moldau.client.admin.reassignments import all_reassignments
    from moldau.client.admin.topics import describe_topics, list_topics

    up = [each for each in describe_cluster(admin).brokers if not each.fenced]
    open_to_new = {
        node
        for node, directories in describe_log_dirs(admin, [each.node_id for each in up]).items()
        if any(not directory.cordoned and directory.error is None for directory in directories)
    }
    brokers = [Broker(each.node_id, each.rack) for each in up if each.node_id in open_to_new]
    names = [each.name for each in list_topics(admin)]
    for topic in topics:
        if topic not in names:
            raise CliError(f"There is no topic '{topic}'")
    wanted = list(topics) or names
    current = {
        (topic.name, each.index): list(each.replicas)
        for topic in (describe_topics(admin, wanted) if wanted else [])
        for each in topic.partitions
    }
    under_way = all_reassignments(admin)
    if under_way:
        raise CliError(
            f"{len(under_way)} partitions are being moved already",
            hint="Wait for them ('kafka-reassign-partitions --list'), or cancel them.",
        )
    return brokers, current


# ---- carrying out


def _carry_out(
    admin: Admin,
    current: Mapping[Partition, Sequence[int]],
    plan: Mapping[Partition, Sequence[int]],
    brokers: Collection[Broker],
    how: How,
) -> None:
    _preview(admin, current, plan, brokers, how.output)
    if not plan:
        return
    if not how.execute:
        if how.output == "table":
            print("\nNothing was changed. Add --execute to do it.")
        return
    _Move(admin, current, plan, how).run()


def _preview(
    admin: Admin,
    current: Mapping[Partition, Sequence[int]],
    plan: Mapping[Partition, Sequence[int]],
    brokers: Collection[Broker],
    output: str,
) -> None:
    from moldau.client.admin.cluster import describe_log_dirs

    ids = sorted({broker.id for broker in brokers} | {each for replicas in current.values() for each in replicas})
    sizes: dict[Partition, int] = {}
    for directories in describe_log_dirs(admin, sorted(admin.nodes)).values():
        for each in (replica for directory in directories for replica in directory.replicas):
            sizes[each.topic, each.partition] = max(sizes.get((each.topic, each.partition), 0), each.size)
    rows: list[dict[str, Any]] = [
        {
            "partition": f"{topic}-{index}",
            "from": list(current[topic, index]),
            "to": list(replicas),
            "bytes": sizes.get((topic, index), 0) * len(set(replicas) - set(current[topic, index])),
        }
        for (topic, index), replicas in sorted(plan.items())
    ]
    before, after = loads(current, ids), loads({**current, **plan}, ids)
    total = sum(row["bytes"] for row in rows)
    if output == "json":
        show_json({"moves": rows, "bytes": total, "brokers": [_load_row(i, before[i], after[i]) for i in ids]})
        return
    columns = (
        Column("partition", "PARTITION", style="bold"),
        Column("from", "REPLICAS"),
        Column("to", "NEW REPLICAS"),
        Column("text", "TO COPY", number=True),
    )
    for row in rows:
        row["text"] = bytes_text(row["bytes"])
    if output == "plain":
        show_rows(rows, columns, output)
        return
    show_rows(rows[:PLAN_ROWS_MAX], columns, output, empty="There is nothing to move: all is even.")
    if len(rows) > PLAN_ROWS_MAX:
        print(f"... and {len(rows) - PLAN_ROWS_MAX} more")
    if rows:
        print()
        titles = (
            Column("broker", "BROKER", number=True, style="bold"),
            Column("replicas", "REPLICAS"),
            Column("leaders", "LEADS"),
        )
        show_rows([_load_row(i, before[i], after[i]) for i in ids], titles, output)
        print(f"\n{len(rows)} partitions change, {bytes_text(total)} to copy.")


def _load_row(broker: int, before: Load, after: Load) -> dict[str, Any]:
    return {
        "broker": broker,
        "replicas": f"{before.replicas} -> {after.replicas}",
        "leaders": f"{before.leaders} -> {after.leaders}",
    }


class _Move:
    """A plan on its way: some partitions at a time, until all have arrived."""

    def __init__(
        self,
        admin: Admin,
        current: Mapping[Partition, Sequence[int]],
        plan: Mapping[Partition, Sequence[int]],
        how: How,
    ) -> None:
        self._admin = admin
        self._current = current
        self._plan = plan
        self._throttle = how.throttle
        self._at_once = how.at_once
        self._end = time.monotonic() + how.timeout
        self._quiet = how.output != "table"
        self._shown = -1

    def run(self) -> None:
        from moldau.client.admin.reassignments import (
            PREFERRED,
            clear_throttles,
            elect_leaders,
            moves_of,
            throttle_moves,
        )

        waiting = sorted(self._plan)
        moving: list[Partition] = []
        brokers = {b for p in waiting for b in (*self._plan[p], *self._current[p])}
        if self._throttle is not None:
            throttle_moves(self._admin, moves_of({}, self._plan, self._current), self._throttle)
        try:
            while waiting or moving:
                begun, waiting = waiting[: self._at_once - len(moving)], waiting[self._at_once - len(moving) :]
                self._begin(begun)
                moving = self._still_moving([*moving, *begun])
                self._show(len(self._plan) - len(waiting) - len(moving))
                if moving:
                    self._wait()
        finally:
            if self._throttle is not None:
                clear_throttles(self._admin, brokers, {topic for topic, _ in self._plan})
        elect_leaders(self._admin, PREFERRED, sorted(self._plan))

    def _begin(self, partitions: Sequence[Partition]) -> None:
        from moldau.client.admin.reassignments import reassign
        from moldau.protocol.errors import ErrorCode

        if not partitions:
            return
        refused = reassign(self._admin, {partition: self._plan[partition] for partition in partitions})
        for (topic, index), error in sorted(refused.items()):
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # deleted meanwhile: nothing left to move
                raise CliError(f"{topic}-{index} cannot be moved: {error.message}")

    def _still_moving(self, partitions: Sequence[Partition]) -> list[Partition]:
        from moldau.client.admin.reassignments import all_reassignments

        return sorted(all_reassignments(self._admin, partitions)) if partitions else []

    def _wait(self) -> None:
        if time.monotonic() > self._end:
            raise CliError("It takes too long; what is under way goes on, the rest was not begun")
        time.sleep(POLL_SECONDS)

    def _show(self, done: int) -> None:
        if self._quiet or done == self._shown:
            return
        self._shown = done
        print(f"{done} of {len(self._plan)} partitions moved", file=sys.stderr)
