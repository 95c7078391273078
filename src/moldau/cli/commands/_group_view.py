"""What there is to know about groups, gathered for people's commands in one shape whatever the type of the group.

It decides what a row about a partition or a member says, not how it looks. It never changes anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from moldau.cli.commands._shared import BOOTSTRAP_VARIABLE, COMPLETION_TIMEOUT_MS, DEFAULT_BOOTSTRAP, suggestion
from moldau.cli.errors import CliError
from moldau.client.errors import MoldauError

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

    from moldau.client.admin import Admin
    from moldau.client.admin.groups import GroupDescription, GroupListing
    from moldau.client.admin.streams_groups import StreamsGroup
    from moldau.client.cluster import Coordinator

View = dict[str, Any]
Partition = tuple[str, int]


def complete_group(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of groups that begin with what was typed; nothing when the cluster does not answer at once."""
    from click.shell_completion import CompletionItem

    from moldau.client.admin import Admin
    from moldau.client.admin.groups import list_groups
    from moldau.protocol.errors import ApiError

    bootstrap = context.params.get("bootstrap") or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
    limits = {"default.api.timeout.ms": COMPLETION_TIMEOUT_MS, "request.timeout.ms": COMPLETION_TIMEOUT_MS}
    try:
        with Admin(bootstrap, limits) as admin:
            found = list_groups(admin)
    except (MoldauError, ApiError):
        return []
    return [
        CompletionItem(each.group_id, help=f"{each.type} {each.state}".strip() or None)
        for each in found
        if each.group_id.startswith(incomplete)
    ]


def no_such_group(name: str, known: Iterable[str]) -> CliError:
    return CliError(f"There is no group '{name}'", hint=suggestion(name, sorted(known), "moldau group list"))


def find_groups(admin: Admin, names: Sequence[str]) -> list[GroupListing]:
    """The listings of the named groups; an error that helps for one that is not there."""
    from moldau.client.admin.groups import list_groups

    known = {each.group_id: each for each in list_groups(admin)}
    for name in names:
        if name not in known:
            raise no_such_group(name, known)
    return [known[name] for name in dict.fromkeys(names)]


def describe(admin: Admin, listings: Sequence[GroupListing]) -> list[View]:
    """Groups with their members, partitions and lag, in the order given. One that went away meanwhile is left out."""
    from moldau.client.admin.groups import SHARE, STREAMS

    shares = [each.group_id for each in listings if each.type == SHARE]
    streams = [each.group_id for each in listings if each.type == STREAMS]
    others = [each.group_id for each in listings if each.type not in (SHARE, STREAMS)]
    views = {
        **(_consumer_views(admin, others) if others else {}),
        **(_share_views(admin, shares) if shares else {}),
        **(_streams_views(admin, streams) if streams else {}),
    }
    return [views[each.group_id] for each in listings if each.group_id in views]


def count_members(admin: Admin, listings: Sequence[GroupListing]) -> dict[str, int | None]:
    """How many members each group has; None where the cluster does not tell."""
    from moldau.client.admin.groups import SHARE, STREAMS, describe_groups
    from moldau.client.admin.share_groups import describe_share_groups
    from moldau.client.admin.streams_groups import describe_streams_groups

    counts: dict[str, int | None] = {}
    for describing, types in (
        (describe_share_groups, (SHARE,)),
        (describe_streams_groups, (STREAMS,)),
        (describe_groups, None),
    ):
        of_type = [
            each.group_id
            for each in listings
            if (each.type in types if types is not None else each.type not in (SHARE, STREAMS))
        ]
        found: Mapping[str, Any] = describing(admin, of_type) if of_type else {}
        for group, description in found.items():
            members = getattr(description, "members", None)
            counts[group] = None if members is None else len(members)
    return counts


def _present(found: Mapping[str, Any]) -> dict[str, Any]:
    """The groups that are there; any other trouble than not being there is an error."""
    from moldau.protocol.errors import ApiError, ErrorCode

    present = {}
    for group, value in found.items():
        if not isinstance(value, ApiError):
            present[group] = value
        elif value.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise value
    return present


# Groups that commit offsets


def _consumer_views(admin: Admin, names: list[str]) -> dict[str, View]:
    from moldau.client.admin.group_lags import group_lags
    from moldau.client.admin.groups import DEAD, describe_groups
    from moldau.client.group_offsets import fetch_offsets

    groups: dict[str, GroupDescription] = _present(describe_groups(admin, names))
    groups = {name: group for name, group in groups.items() if group.state != DEAD}
    committed = _present(fetch_offsets(admin, groups)) if groups else {}
    views = {}
    for name, rows in group_lags(admin, groups.values(), committed).items():
        partitions = [
            {
                "topic": row.topic,
                "partition": row.partition,
                "committed": None if row.committed is None else row.committed.offset,
                "end": row.end,
                "lag": row.lag,
                "leaderEpoch": None if row.committed is None else row.committed.leader_epoch,
                "metadata": None if row.committed is None else row.committed.metadata,
                "member": None if row.member is None else row.member.member_id,
                "clientId": None if row.member is None else row.member.client_id,
                "host": None if row.member is None else row.member.host.lstrip("/"),
            }
            for row in rows
        ]
        views[name] = _view(groups[name], partitions)
    return views


def _share_views(admin: Admin, names: list[str]) -> dict[str, View]:
    from moldau.client.admin.share_groups import describe_share_groups, fetch_share_offsets

    groups: dict[str, GroupDescription] = _present(describe_share_groups(admin, names))
    starts = _present(fetch_share_offsets(admin, groups)) if groups else {}
    views = {}
    for name, group in groups.items():
        partitions = [
            {
                "topic": topic,
                "partition": index,
                "committed": start.offset,
                "end": None,
                "lag": start.lag,
                "leaderEpoch": start.leader_epoch,
            }
            for (topic, index), start in sorted(starts.get(name, {}).items())
        ]
        views[name] = _view(group, partitions)
    return views


def _view(group: GroupDescription, partitions: list[View]) -> View:
    lags = {(each["topic"], each["partition"]): each["lag"] for each in partitions}
    members = [
        {
            "id": member.member_id,
            "instanceId": member.instance_id,
            "clientId": member.client_id,
            "host": member.host.lstrip("/"),
            "epoch": member.epoch,
            "subscribed": member.subscribed,
            "assignment": _by_topic(member.partitions),
            "partitions": len(member.partitions),
            "lag": _total(lags.get(each) for each in member.partitions),
        }
        for member in group.members
    ]
    return {
        "group": group.group_id,
        "type": group.type,
        "protocol": group.protocol,
        "state": group.state,
        "coordinator": _coordinator(group.coordinator),
        "assignor": group.assignor or None,
        "epoch": group.epoch,
        "assignmentEpoch": group.assignment_epoch,
        "lag": _total(each["lag"] for each in partitions),
        "members": members,
        "partitions": partitions,
    }


def _coordinator(coordinator: Coordinator) -> View:
    return {"id": coordinator.node_id, "host": coordinator.host, "port": coordinator.port}


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    return topics


def _total(lags: Iterable[int | None]) -> int | None:
    """The sum of the lags that are known; None if there is no such."""
    known = [each for each in lags if each is not None]
    return sum(known) if known else None


# Streams groups


def _streams_views(admin: Admin, names: list[str]) -> dict[str, View]:
    from moldau.client.admin.streams_groups import describe_streams_groups
    from moldau.client.group_offsets import fetch_offsets
    from moldau.client.offsets import LATEST, find_offsets
    from moldau.protocol.errors import ApiError

    groups: dict[str, StreamsGroup] = _present(describe_streams_groups(admin, names))
    committed = _present(fetch_offsets(admin, groups)) if groups else {}
    views = {}
    for name, group in groups.items():
        offsets = committed.get(name, {})
        wanted = sorted({*group.active_partitions(), *offsets})
        ends = find_offsets(admin, dict.fromkeys(wanted, LATEST)) if wanted else {}
        partitions = []
        for topic, index in wanted:
            at, end = offsets.get((topic, index)), ends[topic, index]
            end_offset = None if isinstance(end, ApiError) else end.offset
            partitions.append(
                {
                    "topic": topic,
                    "partition": index,
                    "committed": None if at is None else at.offset,
                    "end": end_offset,
                    "lag": None if at is None or end_offset is None else end_offset - at.offset,
                    "leaderEpoch": None if at is None else at.leader_epoch,
                }
            )
        views[name] = _streams_view(group, partitions)
    return views


def _streams_view(group: StreamsGroup, partitions: list[View]) -> View:
    members = [
        {
            "id": member.member_id,
            "processId": member.process_id,
            "clientId": member.client_id,
            "host": member.host.lstrip("/"),
            "epoch": member.epoch,
            "assignment": {f"task {name}": indexes for name, indexes in member.tasks.active},
            "standby": {f"task {name}": indexes for name, indexes in member.tasks.standby},
            "warmup": {f"task {name}": indexes for name, indexes in member.tasks.warmup},
            "partitions": sum(len(indexes) for _, indexes in member.tasks.active),
            "lag": None,
        }
        for member in group.members
    ]
    return {
        "group": group.group_id,
        "type": "Streams",
        "protocol": "streams",
        "state": group.state,
        "coordinator": _coordinator(group.coordinator),
        "assignor": None,
        "epoch": group.epoch,
        "assignmentEpoch": group.assignment_epoch,
        "topologyEpoch": group.topology_epoch,
        "lag": _total(each["lag"] for each in partitions),
        "members": members,
        "partitions": partitions,
    }
