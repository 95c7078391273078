"""`kafka-get-offsets`: offsets of partitions at the end, the beginning, or a point in time."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence

from moldau.cli.errors import CliError
from moldau.cli.kafka._common import TopicFilter, open_admin
from moldau.cli.kafka._options import OptionParser, Options, run

Accepts = Callable[[str, int], bool]

_SPECIAL_TIMES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
_RULE = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")


def main(argv: Sequence[str] | None = None) -> int:
    return run(lambda: execute(argv), prefix="Error occurred: ")


def execute(argv: Sequence[str] | None) -> int:
    options = _parser().parse(argv)
    options.require("bootstrap-server")
    if options.has("topic-partitions") and (options.has("topic") or options.has("partitions")):
        raise CliError("--topic-partitions cannot be used with --topic or --partitions")
    time = parse_time(options.text("time"))
    accepts = partition_filter(options)

    from moldau.cli.java_errors import java_text
    from moldau.client.admin.topics import list_topics
    from moldau.client.offsets import NO_OFFSET, find_offsets
    from moldau.protocol.errors import ApiError

    with open_admin(options, "GetOffsetShell") as admin:
        internal = not options.has("exclude-internal-topics")
        partitions = [
            (topic.name, index)
            for topic in list_topics(admin)
            if internal or not topic.internal
            for index in range(topic.partitions)
            if accepts(topic.name, index)
        ]
        if not partitions:
            raise CliError("Could not match any topic-partitions with the specified filters")
        offsets = find_offsets(admin, dict.fromkeys(partitions, time))
    for name, index in sorted(partitions, key=lambda partition: f"{partition[0]}-{partition[1]}"):
        found = offsets[name, index]
        if isinstance(found, ApiError):
            reason = java_text(found)
            print(f"Skip getting offsets for topic-partition {name}-{index} due to error: {reason}", file=sys.stderr)
        elif found.offset != NO_OFFSET:
            print(f"{name}:{index}:{found.offset}")
    return 0


def _parser() -> OptionParser:
    parser = OptionParser("kafka-get-offsets", "Show the offsets of partitions.")
    parser.connection()
    parser.value("topic", "REGEX", "Topics to ask for. Without it, all.")
    parser.value("partitions", "P1,P2,…", "Partitions to ask for. Without it, all.")
    parser.value(
        "topic-partitions",
        "RULE,…",
        "Instead of the two options above: rules TOPIC:PARTITIONS, where TOPIC is a regular expression (empty: any) "
        "and PARTITIONS is a number, a range FROM-TO without TO, FROM- or -TO (left out: all).",
    )
    parser.value(
        "time",
        "TIME",
        "A timestamp in milliseconds (the first record at or after it), or -1 / latest, -2 / earliest, "
        "-3 / max-timestamp, -4 / earliest-local, -5 / latest-tiered, -6 / earliest-pending-upload.",
        default="latest",
    )
    parser.flag("exclude-internal-topics", "Leave out internal topics.")
    return parser


def parse_time(text: str) -> int:
    if text in _SPECIAL_TIMES:
        return _SPECIAL_TIMES[text]
    try:
        return int(text)
    except ValueError:
        listed = " / ".join(f"{number} or {name}" for name, number in _SPECIAL_TIMES.items())
        raise CliError(
            f"Malformed time argument {text}. Please use {listed}, or a specified long format timestamp"
        ) from None


def partition_filter(options: Options) -> Accepts:
    if options.has("topic-partitions"):
        rules = [_rule(text) for text in options.text("topic-partitions").split(",")]
        return lambda name, index: any(rule(name, index) for rule in rules)
    topics = TopicFilter(options.value("topic") or ".*")
    chosen = _partition_set(options.value("partitions"))
    return lambda name, index: topics.allows(name) and (not chosen or index in chosen)


def _partition_set(text: str | None) -> set[int]:
    try:
        return {int(part) for part in text.split(",")} if text else set()
    except ValueError:
        raise CliError(
            f"--partitions expects a comma separated list of numeric partition ids, but received: {text}"
        ) from None


def _rule(text: str) -> Accepts:
    match = _RULE.fullmatch(text)
    if match is None:
        raise CliError(f"Invalid rule specification: {text}")
    topics = TopicFilter(match[1] or ".*")
    if match[2]:
        only = int(match[2])
        return lambda name, index: index == only and topics.allows(name)
    low = int(match[3] or 0)
    high = int(match[4]) if match[4] else sys.maxsize
    return lambda name, index: low <= index < high and topics.allows(name)


if __name__ == "__main__":
    raise SystemExit(main())
