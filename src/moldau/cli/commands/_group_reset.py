"""`moldau group reset`: what would change, shown partition by partition; and, if told to, changing it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from moldau.cli import resets
from moldau.cli.commands._shared import no_such_topic
from moldau.cli.errors import CliError
from moldau.cli.output import Column, show_json, show_rows

if TYPE_CHECKING:
    from moldau.cli.resets import Partition, Plan
    from moldau.client.admin import Admin
    from moldau.client.admin.groups import GroupListing

COLUMNS = (
    Column("topic", "TOPIC", style="bold"),
    Column("partition", "PARTITION", number=True),
    Column("current", "NOW", number=True),
    Column("new", "NEW", number=True),
    Column("changeText", "CHANGE", number=True),
    Column("end", "END", number=True),
    Column("lag", "LAG AFTER", number=True),
    Column("remark", "REMARK"),
)
PLACES = "Give earliest, latest, an offset (42), an age (15m, 2h, 1d), a date or time, or @milliseconds."
MEMBERS_NAMED = 3


def reset_group(
    admin: Admin,
    name: str,
    *,
    to: str | None,
    shift_by: int | None,
    from_file: str | None,
    topics: Sequence[str],
    execute: bool,
    output: str,
) -> None:
    listing = _find(admin, name, must_exist=not topics and from_file is None)
    if listing is not None:
        _refuse_if_active(admin, listing)
    is_share = listing is not None and listing.type == "Share"
    if is_share and (shift_by is not None or from_file is not None or (to or "").isdigit()):
        raise CliError(
            f"'{name}' is a share group: it can be reset to earliest, latest or a time",
            hint="Share groups keep no single offset to count from.",
        )
    known = _known(admin, name, is_share=is_share)
    current = {partition: offset for partition, offset in known.items() if offset is not None}
    if from_file is not None:
        plan = _from_file(admin, name, from_file, topics)
    else:
        plan = _plan(admin, to, shift_by, _partitions(admin, name, topics, known), current)
    if execute and plan.offsets:
        _write(admin, name, plan.offsets, is_share=is_share)
    _show(admin, name, plan, current, executed=execute, output=output)


def _find(admin: Admin, name: str, *, must_exist: bool) -> GroupListing | None:
    """The group. One that is told its topics need not exist yet: its consumers will begin where it is set."""
    from moldau.cli.commands._group_view import no_such_group
    from moldau.client.admin.groups import list_groups

    known = {each.group_id: each for each in list_groups(admin)}
    if must_exist and name not in known:
        raise no_such_group(name, known)
    return known.get(name)


def _refuse_if_active(admin: Admin, listing: GroupListing) -> None:
    from moldau.client.admin.groups import DEAD, EMPTY, SHARE, STREAMS, describe_groups
    from moldau.client.admin.share_groups import describe_share_groups
    from moldau.client.admin.streams_groups import describe_streams_groups

    describing: Any = {SHARE: describe_share_groups, STREAMS: describe_streams_groups}.get(
        listing.type, describe_groups
    )
    found = describing(admin, [listing.group_id])[listing.group_id]
    if getattr(found, "state", EMPTY) not in (EMPTY, DEAD):
        raise still_active(admin, listing, "its offsets can only be reset when it has none")


def still_active(admin: Admin, listing: GroupListing, consequence: str) -> CliError:
    """The refusal to change a group that is in use, naming who uses it."""
    from moldau.cli.commands._group_view import describe

    views = describe(admin, [listing])
    members = views[0]["members"] if views else []
    users = list(dict.fromkeys(f"{each['clientId']} on {each['host']}" for each in members))
    more = f" and {len(users) - MEMBERS_NAMED} more" if len(users) > MEMBERS_NAMED else ""
    count = f"{len(members)} member{'s' * (len(members) != 1)}" if members else "members"
    return CliError(
        f"Group '{listing.group_id}' has {count}: {consequence}",
        hint=f"Stop its consumers first: {', '.join(users[:MEMBERS_NAMED])}{more}." if users else None,
    )


def _known(admin: Admin, name: str, *, is_share: bool) -> dict[Partition, int | None]:
    """Where the group stands in each partition it has read; a share group may not have settled on a start yet."""
    from moldau.client.admin.share_groups import fetch_share_offsets
    from moldau.client.group_offsets import fetch_offsets
    from moldau.protocol.errors import ApiError, ErrorCode

    found: Any = (fetch_share_offsets if is_share else fetch_offsets)(admin, [name])[name]
    if isinstance(found, ApiError):
        if found.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        raise found
    return {partition: at.offset for partition, at in found.items()}


def _partitions(admin: Admin, name: str, topics: Sequence[str], known: Iterable[Partition]) -> list[Partition]:
    from moldau.protocol.errors import ApiError, ErrorCode

    if not topics:
        partitions = sorted(known)
        if not partitions:
            raise CliError(f"Group '{name}' has committed no offsets", hint="Name what to set with --topic.")
        return partitions
    try:
        partitions = resets.named_partitions(admin, topics)
        resets.check_partitions(admin, partitions)
    except ApiError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        from moldau.client.admin.topics import list_topics

        there = {each.name for each in list_topics(admin)}
        wrong = next((each.partition(":")[0] for each in topics if each.partition(":")[0] not in there), None)
        raise (CliError(error.message) if wrong is None else no_such_topic(admin, wrong)) from None
    return partitions


def _plan(
    admin: Admin, to: str | None, shift_by: int | None, partitions: list[Partition], current: dict[Partition, int]
) -> Plan:
    if shift_by is not None:
        return resets.shifted(admin, partitions, current, shift_by)
    assert to is not None
    if to in ("earliest", "beginning"):
        return resets.to_earliest(admin, partitions)
    if to in ("latest", "end"):
        return resets.to_latest(admin, partitions)
    if re.fullmatch(r"\d+", to):
        return resets.to_offset(admin, partitions, int(to))
    return resets.to_time(admin, partitions, parse_moment(to))


def parse_moment(text: str) -> int:
    """A point in time as milliseconds since 1970: an age, an ISO duration, a date or time, or @milliseconds."""
    from moldau.cli.commands.consume import parse_time

    try:
        return int(time.time() * 1000) - resets.parse_duration(text)
    except ValueError:
        pass
    try:
        return parse_time(text)
    except CliError:
        raise CliError(f"'{text}' is not a place to reset to", hint=PLACES) from None


def _from_file(admin: Admin, name: str, path: str, topics: Sequence[str]) -> Plan:
    wishes = resets.read_plan_file(path, name).get(name, {})
    if topics:
        partitions, whole = resets.parse_partitions(topics)
        wishes = {each: wish for each, wish in wishes.items() if each in partitions or each[0] in whole}
    if not wishes:
        raise CliError(f"{path} holds no offsets for group '{name}'")
    resets.check_partitions(admin, sorted(wishes))
    return resets.within_log(admin, wishes)


def _write(admin: Admin, name: str, offsets: dict[Partition, int], *, is_share: bool) -> None:
    from moldau.client.admin.share_groups import alter_share_offsets
    from moldau.client.group_offsets import commit_offsets

    (alter_share_offsets if is_share else commit_offsets)(admin, name, offsets)


def _show(admin: Admin, name: str, plan: Plan, current: dict[Partition, int], *, executed: bool, output: str) -> None:
    rows = _rows(admin, plan, current)
    if output == "json":
        partitions = [{key: value for key, value in row.items() if key != "changeText"} for row in rows]
        show_json({"group": name, "executed": executed, "partitions": partitions})
        return
    columns = COLUMNS if any(row["remark"] for row in rows) or output == "plain" else COLUMNS[:-1]
    show_rows(rows, columns, output)
    if output != "table":
        return
    changed = sum(row["change"] != 0 for row in rows)
    print()
    if executed:
        print(f"Reset {len(rows)} offset{'s' * (len(rows) != 1)} of group {name}; {changed} changed.")
    else:
        print(f"This is a preview: {changed} of {len(rows)} would change, nothing did. Add --execute to do it.")


def _rows(admin: Admin, plan: Plan, current: dict[Partition, int]) -> list[dict[str, Any]]:
    ends = resets.to_latest(admin, plan.offsets).offsets
    remarks = {each: f"asked for {wish}, which is outside the log" for each, wish, _ in plan.moved}
    remarks |= dict.fromkeys(plan.without_record, "no record since then: to the end")
    rows = []
    for partition, new in sorted(plan.offsets.items()):
        now = current.get(partition)
        change = None if now is None else new - now
        rows.append(
            {
                "topic": partition[0],
                "partition": partition[1],
                "current": now,
                "new": new,
                "change": change,
                "changeText": "new" if change is None else f"{change:+d}" if change else "0",
                "end": ends[partition],
                "lag": ends[partition] - new,
                "remark": remarks.get(partition),
            }
        )
    return rows
