"""What the tools for consumer, share and streams groups have in common: options, selection, and Kafka's way of failing.

These tools of Kafka's report a failed operation on standard output, as `Error: …` after an empty line, and all but one
still end with 0; scripts look for the text. Errors in Kafka's text carry Java class names, which are made here. A
cluster that cannot be reached or does not serve an API is another matter: that goes to standard error and ends with 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from moldau.cli.kafka._common import open_admin
from moldau.cli.kafka._options import OptionError, OptionParser, Options, integer
from moldau.client.errors import Unreachable, Unsupported

if TYPE_CHECKING:
    from moldau.cli.resets import Partition, Plan
    from moldau.client.admin import Admin
    from moldau.client.admin.groups import GroupListing
    from moldau.protocol.errors import ApiError

DEFAULT_TIMEOUT_MS = 30_000
MISSING = "-"
SCENARIOS = (
    "to-offset",
    "to-datetime",
    "by-duration",
    "to-earliest",
    "to-latest",
    "to-current",
    "shift-by",
    "from-file",
)
MIN_WIDTH = 15


class Reported(Exception):
    """An error whose text has the form Kafka's tool gives it."""


def group_options(parser: OptionParser, kind: str) -> None:
    """The options all three tools have."""
    parser.connection()
    parser.value("group", "ID", f"The {kind} group. May be repeated.")
    parser.flag("all-groups", f"All {kind} groups.")
    parser.flag("list", f"List {kind} groups.")
    parser.flag("describe", f"Describe {kind} groups.")
    parser.flag("delete", f"Delete {kind} groups.")
    parser.flag("reset-offsets", "Move the offsets of a group without members. Nothing happens without --execute.")
    parser.flag("delete-offsets", "Forget the offsets of a group for some topics.")
    parser.flag("members", "With --describe: the members of the group.")
    parser.flag("offsets", "With --describe: the offsets of the group. This is what is shown if nothing is said.")
    parser.value(
        "state",
        "STATES",
        "With --describe: the state of the group. With --list: also states; or only groups in these states.",
        optional=True,
    )
    parser.flag("verbose", "With --describe: more columns.")
    parser.flag("dry-run", "With --reset-offsets: only show what would be done.")
    parser.flag("execute", "With --reset-offsets: do it.")
    parser.flag("to-earliest", "Reset to the oldest record.")
    parser.flag("to-latest", "Reset to the end.")
    parser.value("to-datetime", "TIME", "Reset to the first record at or after YYYY-MM-DDThh:mm:ss.sss.")
    parser.value("timeout", "MS", "How long to try.", convert=integer, default=DEFAULT_TIMEOUT_MS)


def scenario_options(parser: OptionParser) -> None:
    """The further places offsets of consumer and streams groups can be reset to."""
    parser.value("to-offset", "N", "Reset to this offset.", convert=integer)
    parser.value("by-duration", "DURATION", "Reset to the first record not older than a duration PnDTnHnMnS.")
    parser.flag("to-current", "Reset to what is committed, or to the end where nothing is.")
    parser.value("shift-by", "N", "Move by so many records, forward or (negative) backward.", convert=integer)
    parser.value("from-file", "FILE", "Reset to the offsets in a CSV file as --export writes it.")
    parser.flag("export", "With --reset-offsets: print the offsets as CSV.")


def check_describe(options: Options) -> None:
    """--describe wants groups and at most one view; --state takes its states only with --list."""
    if not options.has("describe"):
        for option in ("members", "offsets", "verbose"):
            if options.has(option):
                raise options.error(f"Option(s) [{option}] are unavailable given other options on the command line")
        if options.has("state") and not options.has("list"):
            raise options.error("Option(s) [state] are unavailable given other options on the command line")
        return
    if not options.has("group") and not options.has("all-groups"):
        raise options.error("Option [describe] takes one of these options: [all-groups], [group]")
    if sum(options.has(view) for view in ("members", "offsets", "state")) > 1:
        raise options.error("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    if options.value("state") is not None:
        raise options.error("Option [describe] does not take a value for [state]")


def check_scenarios(options: Options, scenarios: Sequence[str]) -> None:
    for scenario in scenarios:
        options.forbid(scenario, *(other for other in scenarios if other != scenario))


def open_group_admin(options: Options, client_id: str) -> Admin:
    """The client, with the tool's own limit of time."""
    from dataclasses import replace

    admin = open_admin(options, client_id)
    seconds = options.value("timeout") / 1000
    admin.settings = replace(
        admin.settings, api_timeout=seconds, request_timeout=min(seconds, admin.settings.request_timeout)
    )
    return admin


def report_failures(action: Callable[[], None], kind: str, *, exit_code: int) -> int:
    """Run an action; an error of the cluster is reported as Kafka's tool does it."""
    from moldau.cli.java_errors import java_text
    from moldau.protocol.errors import ApiError

    try:
        action()
    except (Unreachable, Unsupported, OptionError):
        raise
    except ApiError as error:
        print_error(f"Executing {kind} group command failed due to {java_text(error)}")
        return exit_code
    except Reported as error:
        print_error(f"Executing {kind} group command failed due to {error}")
        return exit_code
    return 0


@contextmanager
def named_by_message() -> Iterator[None]:
    """Errors that Kafka's tool shows by their message alone, without the class."""
    from moldau.protocol.errors import ApiError

    try:
        yield
    except ApiError as error:
        raise Reported(error.message) from None


def print_error(message: str) -> None:
    sys.stderr.flush()
    print(f"\nError: {message}")


def print_note(message: str) -> None:
    """A remark on standard error, after what was printed so far."""
    sys.stdout.flush()
    print(f"\n{message}", file=sys.stderr, flush=True)


def serves(admin: Admin, api_key: int, kind: str) -> None:
    """Say plainly that a cluster has no groups of this type, rather than that it has none of them now."""
    if not admin.supports(api_key):
        from moldau.protocol.api import API_TABLE

        raise Unsupported(
            f"The cluster does not serve {kind} groups: the broker does not offer {API_TABLE[api_key].name}"
        )


def wanted_states(options: Options, group_type: str) -> list[str]:
    from moldau.client.admin.groups import STATES

    text = options.value("state")
    if not text:
        return []
    known = {state.lower(): state for state in STATES[group_type]}
    states = [each.strip().lower() for each in text.split(",")]
    if not set(states) <= set(known):
        raise options.error(f"Invalid state list '{text}'. Valid states are: {', '.join(known.values())}")
    return [known[state] for state in states]


def selected(options: Options, everything: Callable[[], Iterable[GroupListing]]) -> list[str]:
    """The groups the command is about."""
    if options.has("all-groups"):
        return [each.group_id for each in everything()]
    return list(dict.fromkeys(options.values("group")))


def column(values: Iterable[str], least: int = MIN_WIDTH) -> str:
    """The format of a column as wide as its widest value."""
    return f"%-{max([least, *(len(value) for value in values)])}s"


def shown(value: object) -> str:
    return MISSING if value is None else str(value)


def assignment_text(partitions: Iterable[Partition]) -> str:
    """`topic:0,1;other:2`."""
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    return ";".join(sorted(f"{name}:{','.join(map(str, sorted(indexes)))}" for name, indexes in topics.items()))


# Resetting


def planned(
    admin: Admin,
    options: Options,
    group: str,
    partitions: list[Partition],
    committed: Callable[[], dict[Partition, int]],
) -> dict[Partition, int]:
    """The offsets the chosen scenario leads to, with Kafka's remarks about those that were moved."""
    from moldau.cli import resets

    if options.has("to-offset"):
        plan = resets.to_offset(admin, partitions, options.value("to-offset"))
    elif options.has("to-earliest"):
        plan = resets.to_earliest(admin, partitions)
    elif options.has("to-latest"):
        plan = resets.to_latest(admin, partitions)
    elif options.has("shift-by"):
        try:
            plan = resets.shifted(admin, partitions, committed(), options.value("shift-by"))
        except resets.Unshiftable as error:
            raise options.error(error.message) from None
    elif options.has("to-datetime"):
        plan = resets.to_time(admin, partitions, _date_time(options.text("to-datetime")))
    elif options.has("by-duration"):
        plan = resets.to_time(admin, partitions, _ago(options.text("by-duration")))
    elif options.has("from-file"):
        plan = _from_file(admin, options, group)
    elif options.has("to-current"):
        plan = resets.to_current(admin, partitions, committed())
    else:
        listed = ", ".join(f"[{each}]" for each in SCENARIOS)
        raise options.error(f"Option '[reset-offsets]' requires one of the following scenarios: {listed}")
    _remark(plan)
    return plan.offsets


def planned_simply(admin: Admin, options: Options, partitions: list[Partition]) -> dict[Partition, int]:
    """The offsets of a share group, which knows fewer scenarios."""
    from moldau.cli import resets

    if options.has("to-earliest"):
        plan = resets.to_earliest(admin, partitions)
    elif options.has("to-latest"):
        plan = resets.to_latest(admin, partitions)
    else:
        plan = resets.to_time(admin, partitions, _date_time(options.text("to-datetime")))
    _remark(plan)
    return plan.offsets


def _date_time(text: str) -> int:
    from moldau.cli.resets import parse_date_time

    try:
        return parse_date_time(text)
    except ValueError as error:
        raise Reported(f"java.text.ParseException: {error}") from None


def _ago(text: str) -> int:
    import time

    from moldau.cli.resets import parse_duration

    try:
        return int(time.time() * 1000) - parse_duration(text)
    except ValueError as error:
        raise Reported(str(error)) from None


def _from_file(admin: Admin, options: Options, group: str) -> Plan:
    from moldau.cli import resets

    groups = options.values("group")
    plans = resets.read_plan_file(options.text("from-file"), groups[0] if len(groups) == 1 else None)
    if group not in plans:
        print_error(f"No reset plan for group {group} found")
        return resets.Plan()
    return resets.within_log(admin, plans[group])


def _remark(plan: Plan) -> None:
    for (name, index), wish, fitting in plan.moved:
        relation = "higher than latest" if wish > fitting else "lower than earliest"
        print(
            f"WARN New offset ({wish}) is {relation} offset for topic partition {name}-{index}. "
            f"Value will be set to {fitting}",
            file=sys.stderr,
        )
    for name, index in plan.without_record:
        print(f"\nWarn: Partition {index} from topic {name} is empty. Falling back to latest known offset.")


def print_plan(plans: dict[str, dict[Partition, int]], group_format: str, topic_format: str, end: str) -> None:
    """The offsets that were or would be set, in order of group, topic and partition."""
    line = f"\n{group_format} {topic_format} %-10s {end}"
    if plans:
        print(line % ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), end="")
    for group, offsets in plans.items():
        for (name, index), offset in sorted(offsets.items()):
            print(line % (group, name, index, offset), end="")
    print()


def print_plan_in_columns(plans: dict[str, dict[Partition, int]]) -> None:
    """As `print_plan`, with columns as wide as needed."""
    topics = [name for offsets in plans.values() for name, _ in offsets]
    print_plan(plans, column(plans), column(topics), "%s")


def print_plan_as_csv(options: Options, plans: dict[str, dict[Partition, int]]) -> None:
    """What --from-file reads: without the group where there is only one."""
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    single = len(options.values("group")) == 1
    for group, offsets in plans.items():
        for (name, index), offset in sorted(offsets.items()):
            writer.writerow(([] if single else [group]) + [name, index, offset])
    print(text.getvalue())


# Deleting


def print_deleted_groups(kind: str, results: dict[str, str | None], *, dot: str = "") -> None:
    """Which groups were deleted, and why the others were not (in Java's words)."""
    done = ", ".join(f"'{group}'" for group, reason in results.items() if reason is None)
    failed = {group: reason for group, reason in results.items() if reason is not None}
    if not failed:
        print(f"Deletion of requested {kind} groups ({done}) was successful.")
        return
    print_error(f"Deletion of some {kind} groups failed:")
    for group, reason in failed.items():
        print(f"* Group '{group}' could not be deleted due to: {reason}")
    if done:
        print(f"\nThese {kind} groups were deleted successfully: {done}{dot}")


def partitions_to_forget(
    admin: Admin, arguments: Iterable[str]
) -> tuple[list[Partition], dict[Partition, ApiError | None]]:
    """The partitions `topic` and `topic:0,1` mean, and the topics that do not exist (as partition -1)."""
    from moldau.cli.resets import parse_partitions
    from moldau.client.admin.topics import describe_topics
    from moldau.protocol.errors import ApiError

    partitions, topics = parse_partitions(arguments)
    unknown: dict[Partition, ApiError | None] = {}
    for name in topics:
        try:
            described = describe_topics(admin, [name])
        except ApiError as error:
            unknown[name, -1] = error
        else:
            partitions += [(name, each.index) for each in described[0].partitions]
    return partitions, unknown


def forget_offsets(
    admin: Admin, group: str, partitions: list[Partition], results: dict[Partition, ApiError | None]
) -> None:
    """Delete offsets and report each partition."""
    from moldau.cli.java_errors import java_text
    from moldau.client.group_offsets import delete_offsets
    from moldau.protocol.errors import ApiError, ErrorCode

    outcome: dict[Partition, ApiError | None]
    trouble: ApiError | None = None
    try:
        outcome = delete_offsets(admin, group, partitions)
    except ApiError as error:
        trouble = error
        outcome = dict.fromkeys(partitions, error)
    else:
        trouble = next((error for error in outcome.values() if error is not None), None)
    results |= outcome
    if trouble is None:
        print(f"Request succeeded for deleting offsets from group {group}.")
    elif trouble.code in (
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ):
        print_error("Encountered some partition-level error, see the follow-up details.")
    else:
        print_error(trouble.message)
    line = f"\n{column(name for name, _ in results)} %-10s %-15s"
    print(line % ("TOPIC", "PARTITION", "STATUS"), end="")
    for (name, index), problem in sorted(results.items(), key=lambda each: f"{each[0][0]}{each[0][1]}"):
        status = "Successful" if problem is None else f"Error: {java_text(problem)}"
        print(line % (name, index if index >= 0 else MISSING, status), end="")
    print()


def require_one_action(options: Options, actions: Sequence[str], message: str) -> None:
    if sum(options.has(action) for action in actions) != 1:
        raise options.error(message)
