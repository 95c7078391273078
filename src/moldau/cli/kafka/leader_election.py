"""`kafka-leader-election`: elect preferred leaders, or any leader where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.cli.errors import CliError
from moldau.cli.kafka._assignment_json import Partition, parse_elections, partition_name, read_file
from moldau.cli.kafka._common import open_admin
from moldau.cli.kafka._options import OptionParser, Options, integer, run

if TYPE_CHECKING:
    from moldau.client.admin import Admin

TYPES = ("preferred", "unclean")


def main(argv: Sequence[str] | None = None) -> int:
    return run(lambda: execute(argv))


def execute(argv: Sequence[str] | None) -> int:
    options = _parser().parse(argv)
    if options.has("admin.config") and not options.has("command-config"):
        options.given.append(("command-config", options.text("admin.config")))
    kind = _check(options)
    partitions: list[Partition] | None = None
    if options.has("path-to-json-file"):
        partitions = parse_elections(read_file(options.text("path-to-json-file")))
    elif options.has("topic"):
        partitions = [(options.text("topic"), options.value("partition"))]
    with open_admin(options, "leader-election-tool") as admin:
        _elect(admin, kind, partitions)
    return 0


def _parser() -> OptionParser:
    parser = OptionParser("kafka-leader-election", "Elect leaders of topic partitions.")
    parser.connection()
    parser.value("admin.config", "FILE", "The older name of --command-config.")
    parser.value("election-type", "TYPE", "Required. preferred: the first replica; unclean: any, where none leads.")
    parser.value("path-to-json-file", "FILE", "The partitions to elect leaders of, as JSON.")
    parser.value("topic", "TOPIC", "The topic of one partition to elect a leader of.")
    parser.value("partition", "NUMBER", "That partition.", convert=integer)
    parser.flag("all-topic-partitions", "Elect leaders of every partition that needs it.")
    return parser


def _check(options: Options) -> int:
    missing = [name for name in ("bootstrap-server", "election-type") if not options.has(name)]
    if missing:
        raise options.error(f"Missing required option(s): {', '.join(missing)}")
    kind = options.text("election-type").lower()
    if kind not in TYPES:
        raise options.error(f"Cannot parse argument '{kind}' of option election-type")
    ways = [name for name in ("topic", "all-topic-partitions", "path-to-json-file") if options.has(name)]
    if len(ways) != 1:
        raise options.error(
            "One and only one of the following options is required: topic, all-topic-partitions, path-to-json-file"
            if not ways
            else f"One and only one of the following options is allowed: {', '.join(ways)}"
        )
    if options.has("topic") and not options.has("partition"):
        raise options.error("Missing required option(s): partition")
    if options.has("partition") and not options.has("topic"):
        raise options.error("Option partition is only allowed if topic is used")
    return TYPES.index(kind)


def _elect(admin: Admin, kind: int, partitions: Sequence[Partition] | None) -> None:
    from moldau.cli.java_errors import java_text
    from moldau.client.admin.reassignments import elect_leaders
    from moldau.protocol.errors import ErrorCode

    told = sorted(elect_leaders(admin, kind, partitions).items())
    name = TYPES[kind].upper()
    done = [partition for partition, error in told if error is None]
    needless = [p for p, error in told if error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED]
    failed = [(p, error) for p, error in told if error is not None and error.code is not ErrorCode.ELECTION_NOT_NEEDED]
    if done:
        names = ", ".join(map(partition_name, done))
        print(f"Successfully completed leader election ({name}) for partitions {names}")
    if needless:
        print(f"Valid replica already elected for partitions {', '.join(map(partition_name, needless))}")
    for partition, error in failed:
        text = java_text(error)
        print(f"Error completing leader election ({name}) for partition: {partition_name(partition)}: {text}")
    if failed:
        raise CliError(f"{len(failed)} replica(s) could not be elected")


if __name__ == "__main__":
    raise SystemExit(main())
