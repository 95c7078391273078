"""`kafka-consumer-groups`: list, describe, reset and delete consumer groups, of the classic and the newer protocol."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from moldau.cli.kafka import _groups as shared
from moldau.cli.kafka._groups import Reported, assignment_text, column, print_error, print_note, shown
from moldau.cli.kafka._options import OptionParser, Options, run

if TYPE_CHECKING:
    from moldau.cli.resets import Partition
    from moldau.client.admin import Admin
    from moldau.client.admin.group_lags import PartitionLag
    from moldau.client.admin.groups import GroupDescription, GroupListing, Member

ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
KIND = "consumer"
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
MISSING_EXECUTE = (
    "WARN: Nothing will be done because --execute is missing. Kafka 5.0 will ask for one of --dry-run and --execute: "
    "scripts that only want to look should say --dry-run."
)


def main(argv: Sequence[str] | None = None) -> int:
    return run(lambda: execute(argv))


def execute(argv: Sequence[str] | None) -> int:
    options = _parser().parse(argv)
    _check(options)
    if options.has("validate-regex"):
        print(regex_verdict(options.text("validate-regex")))
        return 0
    actions = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset-offsets": _reset,
        "delete-offsets": _delete_offsets,
    }
    action = next(run for name, run in actions.items() if options.has(name))
    with shared.open_group_admin(options, "kafka-consumer-groups") as admin:
        return shared.report_failures(lambda: action(admin, options), KIND, exit_code=0)


def _parser() -> OptionParser:
    parser = OptionParser("kafka-consumer-groups", "List, describe, reset and delete consumer groups.")
    shared.group_options(parser, KIND)
    shared.scenario_options(parser)
    parser.value("type", "TYPES", "With --list: also types; or only groups of these types.", optional=True)
    parser.value("topic", "TOPIC[:P1,P2]", "Topics, or partitions of them, to reset or delete offsets of. Repeatable.")
    parser.flag("all-topics", "With --reset-offsets: all topics the group has offsets for.")
    parser.value("validate-regex", "REGEX", "Say whether a regular expression is one a group can subscribe with.")
    return parser


def _check(options: Options) -> None:
    """Which options go together, as in Kafka's tool."""
    if not options.has("validate-regex"):
        options.require("bootstrap-server")
    shared.check_describe(options)
    if options.has("type") and not options.has("list"):
        raise options.error("Option(s) [type] are unavailable given other options on the command line")
    has_groups = options.has("group") or options.has("all-groups")
    if options.has("delete"):
        if not has_groups:
            raise options.error("Option [delete] takes one of these options: [all-groups], [group]")
        if options.has("topic"):
            raise options.error("To forget the offsets of some topics only, use --delete-offsets.")
    if options.has("delete-offsets") and not (options.has("group") and options.has("topic")):
        raise options.error("Option [delete-offsets] takes the following options: [group], [topic]")
    if options.has("reset-offsets"):
        if options.has("dry-run") and options.has("execute"):
            raise options.error("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
        if not options.has("dry-run") and not options.has("execute"):
            print(MISSING_EXECUTE, file=sys.stderr)
        if not has_groups:
            raise options.error("Option [reset-offsets] takes one of these options: [all-groups], [group]")
        shared.check_scenarios(options, shared.SCENARIOS)
    options.forbid("group", "all-groups", "list")
    options.forbid("topic", "list", "describe")
    shared.require_one_action(
        options, ACTIONS, f"Command must include exactly one action: {', '.join(f'--{each}' for each in ACTIONS)}"
    )


# Listing


def consumer_groups(admin: Admin, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
    """Groups that consume: of the newer protocol, of the classic one, and those that only ever committed offsets."""
    from moldau.client.admin.groups import CLASSIC, CONSUMER, CONSUMER_PROTOCOL, list_groups

    listed = list_groups(admin, states=states, types=types)
    return [
        each for each in listed if each.protocol in ("", CONSUMER_PROTOCOL) and each.type in ("", CLASSIC, CONSUMER)
    ]


def _list(admin: Admin, options: Options) -> None:
    with_types, with_states = options.has("type"), options.has("state")
    if not with_types and not with_states:
        for each in consumer_groups(admin):
            print(each.group_id)
        return
    from moldau.client.admin.groups import CONSUMER

    groups = consumer_groups(admin, states=shared.wanted_states(options, CONSUMER), types=_wanted_types(options))
    rows = [("GROUP", "TYPE", "STATE"), *((each.group_id, each.type, each.state or "Unknown") for each in groups)]
    # Ten characters more than the longest name.
    width = max([shared.MIN_WIDTH, *(len(each.group_id) for each in groups)]) + 10
    for name, kind, state in rows:
        print(f"{name:<{width}}" + f" {kind:<20}" * with_types + f" {state:<20}" * with_states)


def _wanted_types(options: Options) -> list[str]:
    from moldau.client.admin.groups import CLASSIC, CONSUMER

    text = options.value("type")
    if not text:
        return []
    known = {each.lower(): each for each in (CLASSIC, CONSUMER)}
    types = [each.strip().lower() for each in text.split(",")]
    if not set(types) <= set(known):
        raise options.error(f"Invalid types list '{text}'. Valid types are: {', '.join(known.values())}")
    return [known[each] for each in types]


# Describing


def described(admin: Admin, groups: Iterable[str]) -> dict[str, GroupDescription]:
    """Descriptions by name; the first group that is none of these ends the command."""
    from moldau.client.admin.groups import CONSUMER_PROTOCOL, describe_groups
    from moldau.protocol.errors import ApiError

    found: dict[str, GroupDescription] = {}
    for group, description in sorted(describe_groups(admin, groups).items()):
        if isinstance(description, ApiError):
            raise description
        if description.protocol not in ("", CONSUMER_PROTOCOL):
            raise Reported(
                f"java.lang.IllegalArgumentException: GroupId {group} is not a consumer group ({description.protocol})."
            )
        found[group] = description
    return found


def _describe(admin: Admin, options: Options) -> None:
    groups = shared.selected(options, lambda: consumer_groups(admin))
    descriptions = described(admin, groups)
    verbose = options.has("verbose")
    if options.has("members"):
        for group in descriptions.values():
            _print_members(group, verbose=verbose)
    elif options.has("state"):
        for group in descriptions.values():
            _print_state(group, verbose=verbose)
    else:
        for name, rows in lags(admin, descriptions).items():
            _print_offsets(descriptions[name], rows, verbose=verbose)


def lags(admin: Admin, descriptions: dict[str, GroupDescription]) -> dict[str, list[PartitionLag]]:
    from moldau.client.admin.group_lags import group_lags
    from moldau.client.group_offsets import fetch_offsets
    from moldau.protocol.errors import ApiError

    committed = {}
    for group, offsets in fetch_offsets(admin, descriptions).items():
        if isinstance(offsets, ApiError):
            raise offsets
        committed[group] = offsets
    return group_lags(admin, descriptions.values(), committed)


def _has_rows(group: GroupDescription, count: int) -> bool:
    """Remark on the group's state; whether there is something to show."""
    from moldau.client.admin.groups import DEAD, EMPTY

    if group.state == DEAD:
        print_error(f"Consumer group '{group.group_id}' does not exist.")
    elif group.state == EMPTY:
        print_note(f"Consumer group '{group.group_id}' has no active members.")
    elif group.state in REBALANCING:
        print_note(f"Warning: Consumer group '{group.group_id}' is rebalancing.")
    return group.state != DEAD and count > 0


def _print_offsets(group: GroupDescription, rows: list[PartitionLag], *, verbose: bool) -> None:
    if not _has_rows(group, len(rows)):
        return
    formats = [column([group.group_id]), column(row.topic for row in rows), "%-10s"]
    formats += ["%-15s"] * (4 if verbose else 3)
    formats += [
        column(row.member.member_id for row in rows if row.member),
        column(row.member.host for row in rows if row.member),
        "%s",
    ]
    line = "\n" + " ".join(formats)
    titles = ["GROUP", "TOPIC", "PARTITION", *["LEADER-EPOCH"] * verbose, "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    print(line % (*titles, "CONSUMER-ID", "HOST", "CLIENT-ID"), end="")
    for row in rows:
        committed, member = row.committed, row.member
        values: list[object] = [group.group_id, row.topic, row.partition]
        if verbose:
            values.append(shown(committed and committed.leader_epoch))
        values += [shown(committed and committed.offset), shown(row.end), shown(row.lag)]
        values += (member.member_id, member.host, member.client_id) if member else ["-"] * 3
        print(line % tuple(values), end="")
    print()


def _print_members(group: GroupDescription, *, verbose: bool) -> None:
    members = group.members if _has_rows(group, len(group.members)) else []
    with_instances = any(member.instance_id for member in members)
    # A group that is moving from one protocol to the other says of each member on which side it is.
    upgrading = {True, False} <= {member.upgraded for member in members}
    titles = ["GROUP", "CONSUMER-ID", *["GROUP-INSTANCE-ID"] * with_instances, "HOST", "CLIENT-ID", "#PARTITIONS"]
    formats = [column([group.group_id] if members else []), column(member.member_id for member in members)]
    if with_instances:
        formats.append(column((member.instance_id or "" for member in members), 17))
    formats += [column(member.host for member in members), column(member.client_id for member in members), "%-15s "]
    if verbose:
        titles += [
            "CURRENT-EPOCH",
            "CURRENT-ASSIGNMENT",
            "TARGET-EPOCH",
            "TARGET-ASSIGNMENT",
            *["UPGRADED"] * upgrading,
        ]
        current = column((assignment_text(member.partitions) for member in members), 20)
        target = column((assignment_text(member.target or ()) for member in members), 20)
        formats[-1] += " ".join(["%-15s", current, "%-15s", target, *["%s"] * upgrading])
    line = " ".join(formats)
    print("\n" + line % tuple(titles))
    for member in group.members:
        print(line % tuple(_member_row(group, member, with_instances, upgrading, verbose)))


def _member_row(
    group: GroupDescription, member: Member, with_instances: bool, upgrading: bool, verbose: bool
) -> list[object]:
    values: list[object] = [group.group_id, member.member_id]
    if with_instances:
        values.append(member.instance_id or "")
    values += [member.host, member.client_id, len(member.partitions)]
    if verbose:
        values += [shown(member.epoch), assignment_text(member.partitions) or "-"]
        values += [shown(group.assignment_epoch), assignment_text(member.target or ()) or "-"]
        if upgrading:
            values.append(shown(None if member.upgraded is None else str(member.upgraded).lower()))
    return values


def _print_state(group: GroupDescription, *, verbose: bool) -> None:
    if not _has_rows(group, 1):
        return
    coordinator = f"{group.coordinator}  ({group.coordinator.node_id})"
    formats = [column([group.group_id]), column([coordinator], 25), "%-20s", "%-20s"]
    titles = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    values: list[object] = [group.group_id, coordinator, group.assignor or "-", group.state]
    if verbose:
        formats += ["%-15s", "%-25s"]
        titles += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        values += [shown(group.epoch), shown(group.assignment_epoch)]
    line = "\n" + " ".join([*formats, "%s"])
    print(line % (*titles, "#MEMBERS") + line % (*values, len(group.members)))


# Changing


def _reset(admin: Admin, options: Options) -> None:
    from moldau.client.admin.groups import describe_groups
    from moldau.client.group_offsets import commit_offsets
    from moldau.protocol.errors import ApiError, ErrorCode

    plans: dict[str, dict[Partition, int]] = {}
    groups = shared.selected(options, lambda: consumer_groups(admin))
    for group, description in describe_groups(admin, groups).items():
        if isinstance(description, ApiError):
            # Offsets can be set before there is a group.
            if description.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise description
        elif description.active:
            print_error(
                f"Assignments can only be reset if the group '{group}' is inactive, but the current state is "
                f"{description.state}."
            )
            plans[group] = {}
            continue
        with shared.named_by_message():
            plans[group] = _plan(admin, options, group)
            if options.has("execute") and plans[group]:
                commit_offsets(admin, group, plans[group])
    if options.has("export"):
        shared.print_plan_as_csv(options, plans)
    else:
        shared.print_plan_in_columns(plans)


def _plan(admin: Admin, options: Options, group: str) -> dict[Partition, int]:
    from moldau.cli.resets import check_partitions, named_partitions

    def committed() -> dict[Partition, int]:
        from moldau.client.group_offsets import fetch_offsets
        from moldau.protocol.errors import ApiError

        offsets = fetch_offsets(admin, [group])[group]
        if isinstance(offsets, ApiError):
            raise offsets
        return {partition: each.offset for partition, each in offsets.items()}

    if options.has("all-topics"):
        partitions = list(committed())
    elif options.has("topic"):
        partitions = named_partitions(admin, options.values("topic"))
    elif options.has("from-file"):
        partitions = []
    else:
        raise options.error("One of the reset scopes should be defined: --all-topics, --topic.")
    check_partitions(admin, partitions)
    return shared.planned(admin, options, group, partitions, committed)


def _delete(admin: Admin, options: Options) -> None:
    from moldau.cli.java_errors import java_text
    from moldau.client.admin.groups import delete_groups

    results = delete_groups(admin, shared.selected(options, lambda: consumer_groups(admin)))
    shared.print_deleted_groups(KIND, {group: java_text(error) if error else None for group, error in results.items()})


def _delete_offsets(admin: Admin, options: Options) -> None:
    partitions, unknown = shared.partitions_to_forget(admin, options.values("topic"))
    shared.forget_offsets(admin, options.text("group"), partitions, unknown)


# Regular expressions

# What Python's expressions have and RE2's, which brokers use, do not.
_NOT_IN_RE2 = re.compile(r"\(\?(?:[=!>(#]|<[=!]|P=)|\\[1-9]|[*+?}]\+")


def regex_verdict(text: str) -> str:
    reason = None
    if match := _NOT_IN_RE2.search(re.sub(r"\\[^1-9]", "", text)):
        backwards = match[0].startswith("\\")
        reason = "invalid escape sequence" if backwards else "invalid or unsupported Perl syntax"
    else:
        try:
            re.compile(text)
        except re.error as error:
            reason = error.msg
    verdict = "valid" if reason is None else f"invalid: {reason}"
    return f"The regular expression `{text}` is {verdict}."


if __name__ == "__main__":
    raise SystemExit(main())
