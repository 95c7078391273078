"""`kafka-transactions`: list and describe transactions, find those that hang, and end them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from moldau.cli.errors import CliError
from moldau.cli.kafka._common import open_admin
from moldau.cli.kafka._options import OptionParser, Options, integer, run

if TYPE_CHECKING:
    from moldau.client.admin import Admin
    from moldau.client.admin.transactions import ProducerDescription

Partition = tuple[str, int]

LIST_HEADERS = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
DESCRIBE_HEADERS = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)
PRODUCER_HEADERS = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)
HANGING_HEADERS = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)
DEFAULT_MAX_TIMEOUT_MIN = 15
_MINUTE_MS = 60_000


def main(argv: Sequence[str] | None = None) -> int:
    return run(lambda: execute(argv))


def execute(argv: Sequence[str] | None) -> int:
    from moldau.protocol.errors import ApiError

    options = _parser().parse(argv)
    if len(options.rest) != 1 or options.rest[0] not in COMMANDS:
        given = f" '{' '.join(options.rest)}'" if options.rest else ""
        raise options.error(f"Unknown command{given}; one of {', '.join(COMMANDS)} is needed")
    options.require("bootstrap-server")
    what, command = COMMANDS[options.rest[0]]
    with open_admin(options, "kafka-transactions") as admin:
        try:
            command(admin, options)
        except ApiError as error:
            print(f"{what(options)}: {error.message}", file=sys.stderr)
            return 1
    return 0


def _parser() -> OptionParser:
    parser = OptionParser(
        "kafka-transactions",
        f"Look at transactions and end those that hang. Commands: {', '.join(COMMANDS)}.",
    )
    parser.connection()
    parser.value("duration-filter", "MS", "list: only transactions open for longer than this.", convert=integer)
    parser.value("transactional-id-pattern", "REGEX", "list: only ids that match.")
    parser.value("transactional-id", "ID", "describe, force-terminate: the transactional id.")
    parser.value("transactionalId", "ID", "The same, as Kafka's forceTerminateTransaction spells it.")
    parser.value("topic", "NAME", "describe-producers, abort, find-hanging: the topic.")
    parser.value("partition", "NUMBER", "describe-producers, abort, find-hanging: the partition.", convert=integer)
    parser.value(
        "broker-id", "ID", "describe-producers, find-hanging: look at this broker's replicas.", convert=integer
    )
    parser.value("start-offset", "OFFSET", "abort: where the transaction begins.", convert=integer)
    parser.value("producer-id", "ID", "abort: the producer, instead of --start-offset.", convert=integer)
    parser.value("producer-epoch", "EPOCH", "abort: with --producer-id.", convert=integer)
    parser.value("coordinator-epoch", "EPOCH", "abort: with --producer-id.", convert=integer)
    parser.value(
        "max-transaction-timeout",
        "MINUTES",
        "find-hanging: transactions younger than this are left out.",
        convert=integer,
        default=DEFAULT_MAX_TIMEOUT_MIN,
    )
    return parser


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as their widest value, each followed by a tab."""
    lines = [[str(value) for value in row] for row in (headers, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headers))]
    for line in lines:
        print("".join(f"{value:<{width}}\t" for value, width in zip(line, widths, strict=True)))


# ---- list, describe


def _list(admin: Admin, options: Options) -> None:
    from moldau.client.admin.transactions import list_transactions

    found = list_transactions(
        admin, duration_ms=options.value("duration-filter"), pattern=options.value("transactional-id-pattern")
    )
    print_table(
        LIST_HEADERS, [(each.transactional_id, each.coordinator, each.producer_id, each.state) for each in found]
    )


def _transactional_id(options: Options) -> str:
    if options.has("transactionalId"):
        return options.text("transactionalId")
    options.require("transactional-id")
    return options.text("transactional-id")


def _describe(admin: Admin, options: Options) -> None:
    from moldau.client.admin.transactions import describe_transaction

    found = describe_transaction(admin, _transactional_id(options))
    started = duration = "None"
    if found.started_ms is not None:
        started, duration = str(found.started_ms), str(_now_ms() - found.started_ms)
    row = (
        found.coordinator,
        found.transactional_id,
        found.producer_id,
        found.producer_epoch,
        found.state,
        found.timeout_ms,
        started,
        duration,
        ",".join(f"{topic}-{index}" for topic, index in found.partitions),
    )
    print_table(DESCRIBE_HEADERS, [row])


def _partition(options: Options) -> Partition:
    options.require("topic", "partition")
    return options.text("topic"), options.value("partition")


def _producers_of(admin: Admin, partition: Partition, broker: int | None = None) -> list[ProducerDescription]:
    from moldau.client.admin.transactions import describe_producers
    from moldau.protocol.errors import ApiError

    found = describe_producers(admin, [partition], broker)[partition]
    if isinstance(found, ApiError):
        raise found
    return found


def _describe_producers(admin: Admin, options: Options) -> None:
    found = _producers_of(admin, _partition(options), options.value("broker-id"))
    rows = [
        (
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.last_sequence,
            each.last_timestamp,
            "None" if each.transaction_start is None else each.transaction_start,
        )
        for each in found
    ]
    print_table(PRODUCER_HEADERS, rows)


# ---- ending


def _abort(admin: Admin, options: Options) -> None:
    from moldau.client.admin.transactions import abort_in_partition

    partition = _partition(options)
    if options.has("start-offset"):
        offset = options.value("start-offset")
        for each in _producers_of(admin, partition):
            if each.transaction_start == offset:
                producer_id, epoch, coordinator = each.producer_id, each.producer_epoch, each.coordinator_epoch
                break
        else:
            topic, index = partition
            raise CliError(
                f"Could not find any open transactions starting at offset {offset} on partition {topic}-{index}"
            )
    elif options.has("producer-id"):
        options.require("producer-epoch", "coordinator-epoch")
        producer_id, epoch, coordinator = (
            options.value(name) for name in ("producer-id", "producer-epoch", "coordinator-epoch")
        )
    else:
        raise CliError(
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) or "
            "with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
        )
    abort_in_partition(
        admin, partition, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=max(coordinator, 0)
    )


def _force_terminate(admin: Admin, options: Options) -> None:
    from moldau.client.admin.transactions import fence_producer

    fence_producer(admin, _transactional_id(options))


# ---- find-hanging


def _find_hanging(admin: Admin, options: Options) -> None:
    from moldau.client.admin.transactions import find_hanging

    broker = options.value("broker-id")
    if not options.has("topic") and broker is None:
        raise CliError(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"
        )
    if options.has("partition") and not options.has("topic"):
        raise CliError("The --partition argument requires --topic to be provided")
    now = _now_ms()
    hanging = find_hanging(
        admin,
        _to_search(admin, options, broker),
        now_ms=now,
        max_timeout_ms=options.value("max-transaction-timeout") * _MINUTE_MS,
        broker=broker,
    )
    rows = [
        (
            *each.partition,
            each.producer.producer_id,
            each.producer.producer_epoch,
            each.producer.coordinator_epoch,
            each.producer.transaction_start,
            each.producer.last_timestamp,
            (now - each.producer.last_timestamp) // _MINUTE_MS,
        )
        for each in hanging
    ]
    print_table(HANGING_HEADERS, rows)


def _to_search(admin: Admin, options: Options, broker: int | None) -> list[Partition]:
    from moldau.client.admin.topics import describe_topics, list_topics

    if options.has("partition"):
        return [_partition(options)]
    names = [options.text("topic")] if options.has("topic") else [each.name for each in list_topics(admin)]
    return [
        (topic.name, each.index)
        for topic in describe_topics(admin, names)
        for each in topic.partitions
        if broker is None or broker in each.replicas
    ]


def _now_ms() -> int:
    return int(time.time() * 1000)


def _of_partition(what: str) -> Callable[[Options], str]:
    return lambda options: f"{what} {options.text('topic')}-{options.value('partition')}"


def _of_id(what: str) -> Callable[[Options], str]:
    return lambda options: f"{what} `{_transactional_id(options)}`"


# Command -> how its failure is told, and what it does. The last two are one.
COMMANDS: dict[str, tuple[Callable[[Options], str], Callable[[Admin, Options], None]]] = {
    "list": (lambda _: "Failed to list transactions", _list),
    "describe": (_of_id("Failed to describe transaction state of transactional-id"), _describe),
    "describe-producers": (_of_partition("Failed to describe producers for partition"), _describe_producers),
    "abort": (_of_partition("Failed to abort transaction in partition"), _abort),
    "find-hanging": (lambda _: "Failed to find hanging transactions", _find_hanging),
    "forceTerminateTransaction": (_of_id("Failed to force terminate transactionalId"), _force_terminate),
    "force-terminate": (_of_id("Failed to force terminate transactionalId"), _force_terminate),
}


if __name__ == "__main__":
    raise SystemExit(main())
