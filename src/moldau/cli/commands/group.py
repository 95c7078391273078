"""`moldau group`: list, describe, reset and delete groups of every type."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.commands._group_view import complete_group, find_groups, no_such_group
from moldau.cli.commands._shared import Target, cluster_options, output_option
from moldau.cli.errors import CliError
from moldau.cli.output import Column, show_facts, show_json, show_rows

if TYPE_CHECKING:
    from moldau.client.admin import Admin
    from moldau.client.admin.groups import GroupListing

TYPES = ("classic", "consumer", "share", "streams")
LIST_COLUMNS = (
    Column("group", "GROUP", style="bold"),
    Column("state", "STATE"),
    Column("type", "TYPE"),
    Column("protocol", "PROTOCOL"),
    Column("members", "MEMBERS", number=True),
)
LAG_COLUMN = Column("lag", "LAG", number=True)
PARTITION_COLUMNS = (
    Column("topic", "TOPIC", style="bold"),
    Column("partition", "PARTITION", number=True),
    Column("committed", "COMMITTED", number=True),
    Column("end", "END", number=True),
    Column("lag", "LAG", number=True),
    Column("clientId", "CLIENT"),
    Column("host", "HOST"),
    Column("member", "MEMBER"),
)
SHARE_COLUMNS = (
    Column("topic", "TOPIC", style="bold"),
    Column("partition", "PARTITION", number=True),
    Column("committed", "START", number=True),
    Column("lag", "LAG", number=True),
)
MEMBER_COLUMNS = (
    Column("id", "MEMBER", style="bold"),
    Column("clientId", "CLIENT"),
    Column("host", "HOST"),
    Column("partitions", "PARTITIONS", number=True),
    Column("lag", "LAG", number=True),
    Column("assignmentText", "ASSIGNMENT"),
)
INSTANCE_COLUMN = Column("instanceId", "INSTANCE")


@click.group()
def group() -> None:
    """List, describe, reset and delete groups."""


@group.command("list")
@click.argument("pattern", required=False)
@click.option("-s", "--state", "states", multiple=True, metavar="STATE", help="Only in this state. Repeatable.")
@click.option("-t", "--type", "types", multiple=True, type=click.Choice(TYPES), help="Only of this type. Repeatable.")
@click.option("-l", "--lag", is_flag=True, help="Also how far each group is behind.")
@output_option
@cluster_options
def list_(
    pattern: str | None, states: tuple[str, ...], types: tuple[str, ...], lag: bool, output: str, target: Target
) -> None:
    """List groups, those that contain PATTERN if one is given."""
    from moldau.cli.commands._group_view import count_members, describe
    from moldau.client.admin.groups import list_groups

    with target.admin() as admin:
        found = [
            each
            for each in list_groups(admin, states=_known_states(states), types=[each.capitalize() for each in types])
            if pattern is None or pattern in each.group_id
        ]
        members = count_members(admin, found)
        lags = {view["group"]: view["lag"] for view in describe(admin, found)} if lag else {}
    rows = [
        {
            "group": each.group_id,
            "state": each.state or None,
            "type": each.type or None,
            "protocol": each.protocol or None,
            "members": members.get(each.group_id),
            **({"lag": lags.get(each.group_id)} if lag else {}),
        }
        for each in found
    ]
    columns = (*LIST_COLUMNS, LAG_COLUMN) if lag else LIST_COLUMNS
    show_rows(rows, columns, output, empty="No groups. One appears when a consumer joins it or commits for it.")


def _known_states(given: tuple[str, ...]) -> list[str]:
    from moldau.cli.commands._shared import suggestion
    from moldau.client.admin.groups import STATES

    known = {state.lower(): state for states in STATES.values() for state in states}
    for state in given:
        if state.lower() not in known:
            hint = suggestion(state.capitalize(), list(known.values()), "moldau group list")
            raise CliError(f"'{state}' is not a state of a group", hint=hint)
    return [known[state.lower()] for state in given]


@group.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True, shell_complete=complete_group)
@click.option("--members", "view", flag_value="members", help="Only the members.")
@click.option("--offsets", "view", flag_value="offsets", help="Only the partitions with offsets and lag.")
@click.option("-w", "--watch", is_flag=True, help="Show the lag live, with rates, until Ctrl-C.")
@click.option("--interval", type=click.FloatRange(min=0.1), default=2.0, show_default=True, help="Seconds of --watch.")
@click.option("--times", type=click.IntRange(min=1), help="End --watch after so many looks.")
@output_option
@cluster_options
def describe(
    names: tuple[str, ...],
    view: str | None,
    watch: bool,
    interval: float,
    times: int | None,
    output: str,
    target: Target,
) -> None:
    """Show groups with their members, offsets and lag."""
    from moldau.cli.commands import _group_view

    if watch and len(set(names)) > 1:
        raise click.UsageError("--watch shows one group at a time.")
    with target.admin() as admin:
        if watch:
            from moldau.cli.commands._group_watch import watch as run_watch

            run_watch(lambda: _look(admin, names[0]), output, interval, times)
            return
        described = _group_view.describe(admin, find_groups(admin, names))
    if output == "json":
        show_json(described)
        return
    for number, each in enumerate(described):
        if number and output == "table":
            print()
        _show_description(each, view, output)


def _look(admin: Admin, name: str) -> dict[str, Any]:
    from moldau.cli.commands import _group_view

    described = _group_view.describe(admin, find_groups(admin, [name]))
    if not described:
        raise no_such_group(name, [])
    return described[0]


def _show_description(described: dict[str, Any], view: str | None, output: str) -> None:
    partitions = described["partitions"]
    members = [{**each, "assignmentText": _assignment_text(each["assignment"])} for each in described["members"]]
    if output == "table":
        coordinator = described["coordinator"]
        facts = {
            "Group": described["group"],
            "Type": described["type"],
            "State": described["state"],
            "Protocol": described["protocol"] or None,
            "Assignor": described["assignor"],
            "Coordinator": f"{coordinator['host']}:{coordinator['port']} (node {coordinator['id']})",
            "Epoch": described["epoch"],
            "Members": len(members),
            "Partitions": len(partitions),
            "Lag": described["lag"],
        }
        show_facts({name: value for name, value in facts.items() if value is not None}, output)
    if view == "members" or (view is None and members and output == "table"):
        _show_members(members, output)
    if view != "members":
        _show_partitions(described, output)


def _show_members(members: list[dict[str, Any]], output: str) -> None:
    columns: tuple[Column, ...] = MEMBER_COLUMNS
    if any(each.get("instanceId") for each in members) or output == "plain":
        columns = (*MEMBER_COLUMNS[:1], INSTANCE_COLUMN, *MEMBER_COLUMNS[1:])
    if output == "table":
        print()
    show_rows(members, columns, output, empty="No members.")


def _show_partitions(described: dict[str, Any], output: str) -> None:
    columns: tuple[Column, ...] = SHARE_COLUMNS if described["type"] == "Share" else PARTITION_COLUMNS
    if output == "table":
        # The table of members, or the next column, tells who it is; the long id is for scripts.
        columns = tuple(column for column in columns if column.key != "member")
        print()
    show_rows(described["partitions"], columns, output, empty="No offsets.")


def _assignment_text(assignment: dict[str, list[int]]) -> str:
    """`topic:0-3,7 other:1`."""
    return " ".join(f"{name}:{ranges_text(indexes)}" for name, indexes in assignment.items()) or "-"


def ranges_text(numbers: list[int]) -> str:
    """`0-3,7`."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=complete_group)
@click.option(
    "--to",
    "to",
    metavar="WHERE",
    help="earliest, latest, an offset (42), an age (15m, 2h, 1d, PT1H30M), or a time (2026-01-31, 2026-01-31T12:30, "
    "@1769860200000).",
)
@click.option("--shift-by", type=int, metavar="N", help="Forward by N records; backward if N is negative.")
@click.option("--from-file", metavar="FILE", help="To the offsets in a file of lines topic,partition,offset.")
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:P1,P2]",
    help="Only this topic, or these partitions of it. Repeatable.  [default: all the group has offsets for]",
)
@click.option("--execute", is_flag=True, help="Do it. Without this, only show what would be done.")
@output_option
@cluster_options
def reset(
    name: str,
    to: str | None,
    shift_by: int | None,
    from_file: str | None,
    topics: tuple[str, ...],
    execute: bool,
    output: str,
    target: Target,
) -> None:
    """Move the offsets of a group that has no members.

    Shows what would change; add --execute to change it.
    """
    from moldau.cli.commands._group_reset import reset_group

    if sum(each is not None for each in (to, shift_by, from_file)) != 1:
        raise click.UsageError("Say where to: one of --to, --shift-by and --from-file.")
    with target.admin() as admin:
        reset_group(
            admin,
            name,
            to=to,
            shift_by=shift_by,
            from_file=from_file,
            topics=topics,
            execute=execute,
            output=output,
        )


@group.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True, shell_complete=complete_group)
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:P1,P2]",
    help="Delete only the group's offsets for this topic. Repeatable.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--if-exists", is_flag=True, help="Succeed when a group is not there.")
@cluster_options
def delete(names: tuple[str, ...], topics: tuple[str, ...], yes: bool, if_exists: bool, target: Target) -> None:
    """Delete groups with their offsets, or only offsets."""
    if not yes and sys.stdin.isatty():
        what = f"the offsets for {', '.join(topics)} of" if topics else "with all offsets"
        question = f"Delete {what} {', '.join(names)}?" if topics else f"Delete {', '.join(names)} {what}?"
        click.confirm(question, abort=True)
    with target.admin() as admin:
        known = _existing(admin, names, if_exists=if_exists)
        for each in known:
            if topics:
                _delete_offsets(admin, each, topics)
            else:
                _delete_group(admin, each)


def _existing(admin: Admin, names: tuple[str, ...], *, if_exists: bool) -> list[GroupListing]:
    from moldau.client.admin.groups import list_groups

    if not if_exists:
        return find_groups(admin, names)
    return [each for each in list_groups(admin) if each.group_id in names]


def _delete_group(admin: Admin, listing: GroupListing) -> None:
    from moldau.cli.commands._group_reset import still_active
    from moldau.client.admin.groups import delete_groups
    from moldau.protocol.errors import ErrorCode

    error = delete_groups(admin, [listing.group_id])[listing.group_id]
    if error is None:
        print(f"Deleted group {listing.group_id}.")
    elif error.code == ErrorCode.NON_EMPTY_GROUP:
        raise still_active(admin, listing, "it can only be deleted when it has none")
    else:
        raise error


def _delete_offsets(admin: Admin, listing: GroupListing, topics: tuple[str, ...]) -> None:
    from moldau.cli.resets import named_partitions, parse_partitions
    from moldau.client.admin.groups import SHARE
    from moldau.client.admin.share_groups import delete_share_offsets
    from moldau.client.group_offsets import delete_offsets
    from moldau.protocol.errors import ApiError

    results: dict[Any, ApiError | None]
    if listing.type == SHARE:
        if parse_partitions(topics)[0]:
            raise CliError("A share group forgets whole topics only", hint="Leave out the partitions after the colon.")
        results = dict(delete_share_offsets(admin, listing.group_id, topics))
    else:
        results = dict(delete_offsets(admin, listing.group_id, named_partitions(admin, topics)))
    for each, error in results.items():
        place = each if isinstance(each, str) else f"{each[0]}-{each[1]}"
        if error is not None:
            raise CliError(f"The offsets of {listing.group_id} for {place} cannot be deleted: {error.message}")
    print(f"Deleted the offsets of {listing.group_id} for {', '.join(topics)}.")
