"""`kafka-share-groups`: list, describe, reset and delete share groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.cli.errors import CliError
from moldau.cli.kafka import _groups as shared
from moldau.cli.kafka._groups import assignment_text, column, print_error, print_note, shown
from moldau.cli.kafka._options import OptionParser, Options, run
from moldau.protocol.api import ApiKey

if TYPE_CHECKING:
    from moldau.client.admin import Admin
    from moldau.client.admin.groups import GroupDescription, GroupListing
    from moldau.client.admin.share_groups import ShareStart
    from moldau.protocol.errors import ApiError

    Starts = dict[tuple[str, int], ShareStart]

ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
SCENARIOS = ("to-datetime", "to-earliest", "to-latest")
KIND = "share"


def main(argv: Sequence[str] | None = None) -> int:
    return run(lambda: execute(argv))


def execute(argv: Sequence[str] | None) -> int:
    options = _parser().parse(argv)
    _check(options)
    actions = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset-offsets": _reset,
        "delete-offsets": _delete_offsets,
    }
    action = next(run for name, run in actions.items() if options.has(name))
    with shared.open_group_admin(options, "kafka-share-groups") as admin:
        shared.serves(admin, ApiKey.SHARE_GROUP_DESCRIBE, KIND)
        return shared.report_failures(lambda: action(admin, options), KIND, exit_code=0)


def _parser() -> OptionParser:
    parser = OptionParser("kafka-share-groups", "List, describe, reset and delete share groups.")
    shared.group_options(parser, KIND)
    parser.value("topic", "TOPIC[:P1,P2]", "Topics (to reset: or partitions of them) to change offsets of. Repeatable.")
    parser.flag("all-topics", "With --reset-offsets: all topics the group has read.")
    return parser


def _check(options: Options) -> None:
    """Which options go together, as in Kafka's tool."""
    options.require("bootstrap-server")
    shared.check_describe(options)
    if options.has("delete"):
        if options.has("group") == options.has("all-groups"):
            raise options.error("Option [delete] takes either [group] or [all-groups]")
        if options.has("topic"):
            raise options.error("Option [delete] does not take the option: [topic]")
    if options.has("delete-offsets") and not (options.has("group") and options.has("topic")):
        raise options.error("Option [delete-offsets] takes the following options: [group], [topic]")
    if options.has("reset-offsets"):
        _check_reset(options)
    options.forbid("group", "all-groups", "list")
    options.forbid("topic", "list", "describe")
    shared.require_one_action(
        options, ACTIONS, f"Command must include exactly one action: {', '.join(f'--{each}' for each in ACTIONS)}."
    )


def _check_reset(options: Options) -> None:
    if options.has("dry-run") and options.has("execute"):
        raise options.error("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not options.has("dry-run") and not options.has("execute"):
        raise options.error("Option [reset-offsets] takes the option: [execute] or [dry-run]")
    if not options.has("group"):
        raise options.error("Option [reset-offsets] takes the option: [group]")
    if not options.has("topic") and not options.has("all-topics"):
        raise options.error("Option [reset-offsets] takes one of these options: [all-topics], [topic]")
    if not any(options.has(each) for each in SCENARIOS):
        listed = ", ".join(f"[{each}]" for each in SCENARIOS)
        raise options.error(f"Option [reset-offsets] takes one of these options: {listed}")
    shared.check_scenarios(options, SCENARIOS)


def share_groups(admin: Admin, states: Sequence[str] = ()) -> list[GroupListing]:
    from moldau.client.admin.groups import SHARE, list_groups

    return list_groups(admin, states=states, types=[SHARE])


def _list(admin: Admin, options: Options) -> None:
    if not options.has("state"):
        for each in share_groups(admin):
            print(each.group_id)
        return
    from moldau.client.admin.groups import SHARE

    groups = share_groups(admin, shared.wanted_states(options, SHARE))
    line = f"{column(each.group_id for each in groups)} %s"
    print(line % ("GROUP", "STATE"))
    for each in groups:
        print(line % (each.group_id, each.state or "Unknown"))


# Describing


def _described(admin: Admin, groups: list[str]) -> dict[str, GroupDescription]:
    from moldau.client.admin.share_groups import describe_share_groups
    from moldau.protocol.errors import ApiError

    found: dict[str, GroupDescription] = {}
    for group, description in sorted(describe_share_groups(admin, groups).items()):
        if isinstance(description, ApiError):
            raise description
        found[group] = description
    return found


def _describe(admin: Admin, options: Options) -> None:
    groups = _described(admin, shared.selected(options, lambda: share_groups(admin)))
    verbose = options.has("verbose")
    if options.has("members"):
        for group in groups.values():
            _print_members(group, verbose=verbose)
    elif options.has("state"):
        for group in groups.values():
            _print_state(group, verbose=verbose)
    else:
        for name, starts in _starts(admin, list(groups)).items():
            _print_offsets(name, starts, verbose=verbose)


def _starts(admin: Admin, groups: list[str]) -> dict[str, Starts]:
    from moldau.client.admin.share_groups import fetch_share_offsets
    from moldau.protocol.errors import ApiError

    found: dict[str, Starts] = {}
    for group, starts in fetch_share_offsets(admin, groups).items():
        if isinstance(starts, ApiError):
            raise starts
        found[group] = starts
    return found


def _print_offsets(group: str, starts: Starts, *, verbose: bool) -> None:
    if not starts:
        print(f"\nShare group '{group}' has no offset information.")
        return
    formats = [column([group]), column(name for name, _ in starts), "%-10s", *["%-13s"] * verbose, "%-13s", "%s"]
    line = "\n" + " ".join(formats)
    print(line % ("GROUP", "TOPIC", "PARTITION", *["LEADER-EPOCH"] * verbose, "START-OFFSET", "LAG"), end="")
    for (name, index), start in sorted(starts.items()):
        epoch = [shown(start.leader_epoch)] * verbose
        print(line % (group, name, index, *epoch, shown(start.offset), shown(start.lag)), end="")
    print()


def _remark_on_state(group: GroupDescription) -> bool:
    """Whether there may be something to show."""
    from moldau.client.admin.groups import DEAD, EMPTY

    if group.state == DEAD:
        print_error(f"Share group '{group.group_id}' does not exist.")
    elif group.state == EMPTY:
        print_note(f"Share group '{group.group_id}' has no active members.")
    return group.state != DEAD


def _print_state(group: GroupDescription, *, verbose: bool) -> None:
    _remark_on_state(group)
    coordinator = f"{group.coordinator}  ({group.coordinator.node_id})"
    formats = [column([group.group_id]), column([coordinator], 25), "%-15s"]
    titles = ["GROUP", "COORDINATOR (ID)", "STATE"]
    values: list[object] = [group.group_id, coordinator, group.state]
    if verbose:
        formats += ["%-12s", "%-17s"]
        titles += ["GROUP-EPOCH", "ASSIGNMENT-EPOCH"]
        values += [group.epoch, group.assignment_epoch]
    line = "\n" + " ".join([*formats, "%s"])
    print(line % (*titles, "#MEMBERS") + line % (*values, len(group.members)))


def _print_members(group: GroupDescription, *, verbose: bool) -> None:
    members = sorted(group.members, key=lambda member: member.member_id)
    if not _remark_on_state(group) or not members:
        return
    formats = [
        column([group.group_id]),
        column(member.member_id for member in members),
        column(member.host for member in members),
        column(member.client_id for member in members),
        "%-12s",
        *["%-13s"] * verbose,
        "%s",
    ]
    line = "\n" + " ".join(formats)
    epoch_title = ["MEMBER-EPOCH"] * verbose
    print(
        line % ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", *epoch_title, "ASSIGNMENT"),
        end="",
    )
    for member in members:
        values = [group.group_id, member.member_id, member.host, member.client_id, len(member.partitions)]
        print(line % (*values, *[member.epoch] * verbose, assignment_text(member.partitions)), end="")
    print()


# Changing


def _reset(admin: Admin, options: Options) -> None:
    from moldau.cli.resets import check_partitions, named_partitions
    from moldau.client.admin.share_groups import alter_share_offsets, describe_share_groups
    from moldau.protocol.errors import ApiError, ErrorCode

    group = options.text("group")
    description = describe_share_groups(admin, [group])[group]
    if isinstance(description, ApiError):
        # Offsets can be set before there is a group.
        if description.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise CliError(description.message)
    elif description.active:
        raise CliError(f"Share group '{group}' is not empty.")
    with shared.named_by_message():
        if options.has("topic"):
            partitions = named_partitions(admin, options.values("topic"))
        else:
            partitions = list(_starts(admin, [group])[group])
        check_partitions(admin, partitions)
        plan = shared.planned_simply(admin, options, partitions)
        if options.has("execute") and plan:
            alter_share_offsets(admin, group, plan)
    shared.print_plan_in_columns({group: plan})


def _delete(admin: Admin, options: Options) -> None:
    from moldau.cli.java_errors import java_text
    from moldau.client.admin.groups import DEAD, EMPTY, delete_groups

    listed = {each.group_id: each.state for each in share_groups(admin)}
    groups = list(listed) if options.has("all-groups") else list(dict.fromkeys(options.values("group")))
    results: dict[str, str | None] = {}
    for group in groups:
        if group not in listed:
            results[group] = f"java.lang.IllegalArgumentException: Group '{group}' is not a share group."
        elif listed[group] == DEAD:
            results[group] = f"java.lang.IllegalStateException: Share group '{group}' group state is DEAD."
        elif listed[group] != EMPTY:
            reason = f"Share group '{group}' is not EMPTY."
            results[group] = f"org.apache.kafka.common.errors.GroupNotEmptyException: {reason}"
    ready = [group for group in groups if group not in results]
    if ready:
        results |= {group: java_text(error) if error else None for group, error in delete_groups(admin, ready).items()}
    shared.print_deleted_groups(KIND, results)


def _delete_offsets(admin: Admin, options: Options) -> None:
    from moldau.client.admin.share_groups import delete_share_offsets
    from moldau.protocol.errors import ApiError

    topics = sorted(set(options.values("topic")))
    results: dict[str, ApiError | None]
    try:
        results = delete_share_offsets(admin, options.text("group"), topics)
    except ApiError as error:
        print_error(error.message)
        results = dict.fromkeys(topics, error)
    line = f"\n{column(topics)} %s"
    print(line % ("TOPIC", "STATUS"), end="")
    for topic, problem in sorted(results.items()):
        print(line % (topic, "Successful" if problem is None else f"Error: {problem.message}"), end="")
    print()


if __name__ == "__main__":
    raise SystemExit(main())
