"""`kafka-streams-groups`: list, describe, reset and delete streams groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from moldau.cli.kafka import _groups as shared
from moldau.cli.kafka._groups import column, print_error, shown
from moldau.cli.kafka._options import OptionParser, Options, run
from moldau.protocol.api import ApiKey

if TYPE_CHECKING:
    from moldau.cli.resets import Partition
    from moldau.client.admin import Admin
    from moldau.client.admin.groups import GroupListing
    from moldau.client.admin.streams_groups import StreamsGroup, Tasks
    from moldau.client.group_offsets import Committed

ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
KIND = "streams"


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
    with shared.open_group_admin(options, "kafka-streams-groups") as admin:
        shared.serves(admin, ApiKey.STREAMS_GROUP_DESCRIBE, KIND)
        return shared.report_failures(lambda: action(admin, options), KIND, exit_code=1)


def _parser() -> OptionParser:
    parser = OptionParser("kafka-streams-groups", "List, describe, reset and delete streams groups.")
    shared.group_options(parser, KIND)
    shared.scenario_options(parser)
    parser.value("input-topic", "TOPIC[:P1,P2]", "Input topics to reset or delete offsets of. Repeatable.")
    parser.flag("all-input-topics", "All input topics of the group.")
    parser.value(
        "delete-internal-topic",
        "TOPIC",
        "With --reset-offsets --execute: also delete this internal topic. Repeatable.",
    )
    parser.flag(
        "delete-all-internal-topics",
        "With --delete, or --reset-offsets --execute: also delete the topics Kafka Streams made for the group.",
    )
    return parser


def _check(options: Options) -> None:
    """Which options go together, as in Kafka's tool."""
    options.require("bootstrap-server")
    shared.check_describe(options)
    has_groups = options.has("group") or options.has("all-groups")
    scoped = options.has("input-topic") or options.has("all-input-topics")
    if options.has("delete"):
        if not has_groups:
            raise options.error("Option [delete] takes one of these options: [all-groups], [group]")
        if scoped:
            raise options.error("To forget the offsets of some topics only, use --delete-offsets.")
    if options.has("delete-offsets"):
        if not scoped or not options.has("group"):
            raise options.error(
                "Option [delete-offsets] takes the [group] and one of these options: [all-input-topics], [input-topic]"
            )
        options.value("group")
    if options.has("reset-offsets"):
        if options.has("dry-run") == options.has("execute"):
            raise options.error("Option [reset-offsets] takes the option: [execute] or [dry-run]")
        if not has_groups:
            raise options.error("Option [reset-offsets] takes one of these options: [all-groups], [group]")
        shared.check_scenarios(options, shared.SCENARIOS)
    elif options.has("dry-run") or options.has("execute"):
        raise options.error("Only Option [reset-offsets] accepts [execute] or [dry-run]")
    _check_internal_topics(options)
    options.forbid("list", "members", "offsets")
    options.forbid("group", "all-groups", "list")
    options.forbid("input-topic", "list", "describe", "delete")
    shared.require_one_action(
        options,
        ACTIONS,
        "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, or --delete-offsets.",
    )


def _check_internal_topics(options: Options) -> None:
    resets = options.has("reset-offsets") and options.has("execute")
    if options.has("delete-all-internal-topics") and not (options.has("delete") or resets):
        raise options.error("Option [delete-all-internal-topics] takes [delete], or [reset-offsets] with [execute]")
    if options.has("delete-internal-topic") and not resets:
        raise options.error("Option [delete-internal-topic] takes [reset-offsets] with [execute]")


def streams_groups(admin: Admin, states: Sequence[str] = ()) -> list[GroupListing]:
    from moldau.client.admin.groups import STREAMS, list_groups

    return list_groups(admin, states=states, types=[STREAMS])


def _list(admin: Admin, options: Options) -> None:
    if not options.has("state"):
        for each in streams_groups(admin):
            print(each.group_id)
        return
    from moldau.client.admin.groups import STREAMS

    groups = streams_groups(admin, shared.wanted_states(options, STREAMS))
    line = f"{column(each.group_id for each in groups)} %s"
    print(line % ("GROUP", "STATE"))
    for each in groups:
        print(line % (each.group_id, each.state or "Unknown"))


# Describing


def _described(admin: Admin, group: str) -> StreamsGroup:
    from moldau.client.admin.streams_groups import describe_streams_groups
    from moldau.protocol.errors import ApiError

    found = describe_streams_groups(admin, [group])[group]
    if isinstance(found, ApiError):
        raise found
    return found


def _describe(admin: Admin, options: Options) -> None:
    verbose = options.has("verbose")
    for name in shared.selected(options, lambda: streams_groups(admin)):
        group = _described(admin, name)
        if options.has("members"):
            _print_members(group, verbose=verbose)
        elif options.has("state"):
            _print_state(group, verbose=verbose)
        else:
            _print_offsets(admin, group, verbose=verbose)


def _remark_on_state(group: StreamsGroup) -> None:
    from moldau.client.admin.groups import DEAD, EMPTY

    if group.state == DEAD:
        print_error(f"Streams group '{group.group_id}' does not exist.")
    elif group.state == EMPTY:
        print_error(f"Streams group '{group.group_id}' has no active members.")


def _has_members(group: StreamsGroup) -> bool:
    from moldau.client.admin.groups import DEAD

    if group.state == DEAD or not group.members:
        return False
    _remark_on_state(group)
    return True


def _print_state(group: StreamsGroup, *, verbose: bool) -> None:
    _remark_on_state(group)
    coordinator = f"{group.coordinator} ({group.coordinator.node_id})"
    formats = [column([group.group_id]), column([coordinator], 25), "%-25s"]
    titles = ["GROUP", "COORDINATOR (ID)", "STATE"]
    values: list[object] = [group.group_id, coordinator, group.state]
    if verbose:
        formats += ["%-15s", "%-25s"]
        titles += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        values += [group.epoch, group.assignment_epoch]
    line = " ".join([*formats, "%s"])
    print(line % (*titles, "#MEMBERS"))
    print(line % (*values, len(group.members)))


def _print_members(group: StreamsGroup, *, verbose: bool) -> None:
    if not _has_members(group):
        return
    name = column([group.group_id])
    member_id = column(member.member_id for member in group.members)
    process = column(member.process_id for member in group.members)
    client = column(member.client_id for member in group.members)
    if not verbose:
        line = f"{name} {member_id} {process} {client} %s"
        print(line % ("GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS"))
        for member in group.members:
            identity = (group.group_id, member.member_id, member.process_id, member.client_id)
            print(line % (*identity, tasks_text(member.tasks)))
        return
    # Kafka leaves no space before the member's column.
    line = f"{name} %-25s %-15s{member_id} %-15s %-15s {process} {client} %s"
    titles = ("GROUP", "TARGET-ASSIGNMENT-EPOCH", "TOPOLOGY-EPOCH", "MEMBER", "MEMBER-PROTOCOL", "MEMBER-EPOCH")
    print(line % (*titles, "PROCESS", "CLIENT-ID", "ASSIGNMENTS"))
    for member in group.members:
        protocol = "classic" if member.classic else "streams"
        epochs = (group.assignment_epoch, group.topology_epoch, member.member_id, protocol, member.epoch)
        tasks = tasks_text(member.tasks) + tasks_text(member.target, "TARGET-")
        print(line % (group.group_id, *epochs, member.process_id, member.client_id, tasks))


def tasks_text(tasks: Tasks, prefix: str = "") -> str:
    """`ACTIVE: 0:[0,1]; STANDBY: 1:[2]; `."""
    text = ""
    for kind, listed in (("ACTIVE", tasks.active), ("STANDBY", tasks.standby), ("WARMUP", tasks.warmup)):
        if listed:
            ids = "".join(f"{subtopology}:[{','.join(map(str, partitions))}]; " for subtopology, partitions in listed)
            text += f"{prefix}{kind}: {ids}"
    return text


def _print_offsets(admin: Admin, group: StreamsGroup, *, verbose: bool) -> None:
    from moldau.client.offsets import EARLIEST, LATEST, find_offsets
    from moldau.protocol.errors import ApiError

    partitions = group.active_partitions()
    bounds: dict[int, dict[Partition, int]] = {EARLIEST: {}, LATEST: {}}
    for when, offsets in bounds.items():
        for partition, found in find_offsets(admin, dict.fromkeys(partitions, when)).items() if partitions else ():
            if isinstance(found, ApiError):
                raise found
            offsets[partition] = found.offset
    committed = _committed(admin, group)
    if not _has_members(group):
        return
    name, topic = column([group.group_id]), column(topic for topic, _ in partitions)
    line = f"{name} {topic} %-10s {'%-15s %-15s %-15s %-15s' if verbose else '%s'}"
    more = ("CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET") if verbose else ()
    print(line % ("GROUP", "TOPIC", "PARTITION", *more, "OFFSET-LAG"))
    for partition in partitions:
        at, end = committed.get(partition), bounds[LATEST][partition]
        lag = end - (at.offset if at is not None else bounds[EARLIEST][partition])
        details = (shown(at and at.offset), shown(at and at.leader_epoch), end) if verbose else ()
        print(line % (group.group_id, *partition, *details, lag))


# Changing


def _committed(admin: Admin, group: StreamsGroup, *, inputs_only: bool = False) -> dict[Partition, Committed]:
    """What the group has committed for the topics it reads."""
    topics = group.input_topics() if inputs_only else group.read_topics()
    return {each: at for each, at in _all_committed(admin, group.group_id).items() if each[0] in topics}


def _all_committed(admin: Admin, group: str) -> dict[Partition, Committed]:
    from moldau.client.group_offsets import fetch_offsets
    from moldau.protocol.errors import ApiError

    offsets = fetch_offsets(admin, [group])[group]
    if isinstance(offsets, ApiError):
        raise offsets
    return offsets


def _reset(admin: Admin, options: Options) -> None:
    from moldau.client.admin.groups import DEAD, EMPTY
    from moldau.client.group_offsets import commit_offsets

    plans: dict[str, dict[Partition, int]] = {}
    for name in shared.selected(options, lambda: streams_groups(admin)):
        group = _described(admin, name)
        if group.state not in (EMPTY, DEAD):
            print_error(
                f"Assignments can only be reset if the group '{name}' is inactive, but the current state is "
                f"{group.state}."
            )
            plans[name] = {}
            continue
        with shared.named_by_message():
            plans[name] = _plan(admin, options, group)
            if options.has("execute") and plans[name]:
                commit_offsets(admin, name, plans[name])
        if options.has("execute"):
            if options.has("delete-all-internal-topics"):
                _delete_topics(admin, name, _internal_topics(group))
            elif options.has("delete-internal-topic"):
                _delete_topics(admin, name, options.values("delete-internal-topic"))
    if options.has("export"):
        shared.print_plan_as_csv(options, plans)
    else:
        shared.print_plan(plans, "%-30s", "%-30s", "%-15s")


def _plan(admin: Admin, options: Options, group: StreamsGroup) -> dict[Partition, int]:
    from moldau.cli.resets import check_partitions, named_partitions

    if options.has("all-input-topics"):
        partitions = list(_committed(admin, group, inputs_only=True))
    elif options.has("input-topic"):
        partitions = named_partitions(admin, options.values("input-topic"))
        check_partitions(admin, partitions)
        if not set(partitions) <= set(_all_committed(admin, group.group_id)):
            print_error(f"One or more topics are not part of the group '{group.group_id}'.")
            partitions = []
    elif options.has("from-file"):
        partitions = []
    else:
        raise options.error("One of the reset scopes should be defined: --all-input-topics, --input-topic.")

    def committed() -> dict[Partition, int]:
        return {each: at.offset for each, at in _committed(admin, group).items()}

    return shared.planned(admin, options, group.group_id, partitions, committed)


def _internal_topics(group: StreamsGroup) -> list[str]:
    """The topics Kafka Streams made for the group; one with another name is not touched."""
    from moldau.client.admin.streams_groups import is_internal_name

    topics = []
    for topic in group.internal_topics():
        if is_internal_name(topic, group.group_id):
            topics.append(topic)
        else:
            print_error(
                f"The internal topic '{topic}' is not inferred as internal and thus will not be deleted with the group "
                f"'{group.group_id}'."
            )
    return topics


def _delete_topics(admin: Admin, group: str, topics: Sequence[str]) -> None:
    from moldau.client.admin.topics import delete_topics
    from moldau.protocol.errors import ErrorCode

    for error in delete_topics(admin, topics).values() if topics else ():
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            print_error(f"Deleting internal topics for group '{group}' failed because the topics do not exist.")
        else:
            print_error(f"Deleting internal topics for group '{group}' failed due to {error.message}")
        return


def _delete(admin: Admin, options: Options) -> None:
    from moldau.cli.java_errors import java_text
    from moldau.client.admin.groups import DEAD, EMPTY, delete_groups

    listed = {each.group_id: each.state for each in streams_groups(admin)}
    groups = list(listed) if options.has("all-groups") else list(dict.fromkeys(options.values("group")))
    results: dict[str, str | None] = {}
    for group in groups:
        if group not in listed:
            reason = f"Group '{group}' does not exist or is not a streams group."
            results[group] = f"java.lang.IllegalArgumentException: {reason}"
        elif listed[group] == DEAD:
            results[group] = f"java.lang.IllegalStateException: Streams group '{group}' group state is DEAD."
        elif listed[group] != EMPTY:
            reason = f"Streams group '{group}' is not EMPTY."
            results[group] = f"org.apache.kafka.common.errors.GroupNotEmptyException: {reason}"
    ready = [group for group in groups if group not in results]
    # What belongs to a group is only known while it is there.
    internal = {}
    if options.has("delete-all-internal-topics"):
        found = {group: _internal_topics(_described(admin, group)) for group in ready}
        internal = {group: topics for group, topics in found.items() if topics}
    if ready:
        results |= {group: java_text(error) if error else None for group, error in delete_groups(admin, ready).items()}
    shared.print_deleted_groups(KIND, results, dot=".")
    _delete_left_behind(admin, {group: topics for group, topics in internal.items() if results[group] is None})


def _delete_left_behind(admin: Admin, internal: dict[str, list[str]]) -> None:
    """The internal topics of groups that are gone."""
    from moldau.cli.java_errors import java_text
    from moldau.client.admin.topics import delete_topics

    if not internal:
        return
    problems: dict[str, str] = {}
    for group, topics in internal.items():
        for topic, error in delete_topics(admin, topics).items():
            print(f"Failed to delete internal topic: {topic}")
            problems[group] = java_text(error)
    if not problems:
        print(
            f"Deletion of associated internal topics of the streams groups ({_quoted(internal)}) was successful.",
        )
        return
    print("Deletion of some associated internal topics failed:")
    for group, reason in problems.items():
        print(f"* Internal topics of the streams group '{group}' could not be deleted due to: {reason}")


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _delete_offsets(admin: Admin, options: Options) -> None:
    group = options.text("group")
    if options.has("all-input-topics"):
        partitions = list(_committed(admin, _described(admin, group), inputs_only=True))
        shared.forget_offsets(admin, group, partitions, {})
    else:
        named, unknown = shared.partitions_to_forget(admin, options.values("input-topic"))
        shared.forget_offsets(admin, group, named, unknown)


if __name__ == "__main__":
    raise SystemExit(main())
