"""`kafka-console-consumer`: the records of a topic on standard output."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from moldau.cli import properties
from moldau.cli.errors import CliError
from moldau.cli.kafka._formatters import DEFAULT_FORMATTER, Write, formatter
from moldau.cli.kafka._options import OptionParser, Options, integer, parse_key_values, run
from moldau.cli.reading import FETCH_WAIT_MS

if TYPE_CHECKING:
    from confluent_kafka import Consumer

POLL_SECONDS = 0.1

RENAMED = {
    "consumer-property": "command-property",
    "consumer.config": "command-config",
    "property": "formatter-property",
}


def main(argv: Sequence[str] | None = None) -> int:
    return run(lambda: execute(argv))


def execute(argv: Sequence[str] | None) -> int:
    options = _parser().parse(argv)
    _check(options)
    settings, group_given = consumer_settings(options)
    start = start_offset(options)
    write = formatter(options.text("formatter"), formatter_properties(options))

    from moldau.cli.clients import ErrorReporter, make_consumer

    consumer = make_consumer(settings, ErrorReporter())
    stopped = stop_on_signals()
    try:
        count = _read(consumer, options, write, start, group_given=group_given, stopped=stopped)
    finally:
        consumer.close()
    print(f"Processed a total of {count} messages", file=sys.stderr)
    if options.has("enable-systest-events") and stopped():
        print("shutdown_complete")
    return 0


def _parser() -> OptionParser:
    parser = OptionParser("kafka-console-consumer", "Print the records of a topic.")
    parser.connection(client="consumer")
    parser.value("topic", "NAME", "The topic to read.")
    parser.value("include", "REGEX", "Read all topics whose names match, instead of --topic.")
    parser.value("partition", "N", "Read only this partition.", convert=integer)
    parser.value("offset", "OFFSET", "Where to begin in the partition: a number, earliest or latest.")
    parser.flag("from-beginning", "Begin with the oldest record, unless the group has committed an offset.")
    parser.value("group", "ID", "Read as a member of this consumer group. Without it, no group is used.")
    parser.value("max-messages", "N", "End after this many records.", convert=integer)
    parser.value("timeout-ms", "MS", "End when no record arrived for this long.", convert=integer)
    parser.value(
        "isolation-level",
        "LEVEL",
        "read_committed or read_uncommitted.",
        default="read_uncommitted",
    )
    parser.value("formatter", "CLASS", "One of Kafka's formatters.", default=DEFAULT_FORMATTER)
    parser.value(
        "formatter-property",
        "NAME=VALUE",
        "What to print: print.timestamp, print.partition, print.offset, print.epoch, print.headers, print.key, "
        "print.value (true or false), key.separator, line.separator, headers.separator, null.literal, "
        "key.deserializer, value.deserializer, headers.deserializer. May be repeated.",
    )
    parser.value("formatter-config", "FILE", "Formatter properties from a file.")
    parser.value("property", "NAME=VALUE", "Deprecated: --formatter-property.")
    parser.value("key-deserializer", "CLASS", "How to read keys; one of Kafka's deserializers.")
    parser.value("value-deserializer", "CLASS", "How to read values; one of Kafka's deserializers.")
    parser.value("command-property", "NAME=VALUE", "A consumer setting. May be repeated.")
    parser.value("consumer-property", "NAME=VALUE", "Deprecated: --command-property.")
    parser.value("consumer.config", "FILE", "Deprecated: --command-config.")
    parser.flag("skip-message-on-error", "Go on after a record that cannot be shown.")
    parser.flag("enable-systest-events", "Print shutdown_complete after being told to stop.")
    return parser


def _check(options: Options) -> None:
    if options.has("topic") == options.has("include"):
        raise options.error("Exactly one of --include/--topic is required. ")
    if options.has("partition"):
        if not options.has("topic"):
            raise options.error("The topic is required when partition is specified.")
        if options.has("from-beginning") and options.has("offset"):
            raise options.error("Options from-beginning and offset cannot be specified together.")
    elif options.has("offset"):
        raise options.error("The partition is required when offset is specified.")
    options.require("bootstrap-server")
    for old, new in RENAMED.items():
        if options.has(old):
            if options.has(new):
                raise options.error(f"Options --{old} and --{new} cannot be specified together.")
            print(f"Option --{old} is deprecated. Use --{new} instead.", file=sys.stderr)


def consumer_settings(options: Options) -> tuple[dict[str, str], bool]:
    """The client's settings, and whether somebody named a group."""
    from_file: dict[str, str] = {}
    for option in ("consumer.config", "command-config"):
        if options.has(option):
            from_file.update(properties.load(options.text(option)))
    single = parse_key_values([*options.values("consumer-property"), *options.values("command-property")])
    groups = {each["group.id"] for each in (from_file, single) if "group.id" in each}
    if options.has("group"):
        groups.add(options.text("group"))
    if len(groups) > 1:
        listed = ", ".join(f"'{group}'" for group in sorted(groups))
        raise options.error(
            "The group ids provided in different places (directly using '--group', via '--command-property', or via "
            f"'--command-config') do not match. Detected group ids: {listed}"
        )
    if groups and options.has("partition"):
        raise options.error("Options group and partition cannot be specified together.")
    settings = {**from_file, **single, "bootstrap.servers": options.text("bootstrap-server")}
    reset = settings.setdefault("auto.offset.reset", "earliest" if options.has("from-beginning") else "latest")
    if options.has("from-beginning") and reset != "earliest":
        raise CliError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
        )
    settings.setdefault("client.id", "console-consumer")
    settings.setdefault("allow.auto.create.topics", "true")
    settings.setdefault("fetch.max.wait.ms", FETCH_WAIT_MS)
    if options.has("isolation-level") or "isolation.level" not in settings:
        settings["isolation.level"] = options.text("isolation-level")
    if groups:
        settings["group.id"] = groups.pop()
    else:
        settings["group.id"] = f"console-consumer-{random.randrange(100_000)}"
        settings["enable.auto.commit"] = "false"
    return settings, options.has("group") or "group.id" in from_file or "group.id" in single


def start_offset(options: Options) -> int:
    """Where to begin, as the client library says it."""
    beginning, end = -2, -1
    if not options.has("offset"):
        return beginning if options.has("from-beginning") else end
    text = options.text("offset")
    if text.lower() in ("earliest", "latest"):
        return beginning if text.lower() == "earliest" else end
    if not text.isdigit():
        raise options.error(
            f"The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest', or a "
            "non-negative long."
        )
    return int(text)


def formatter_properties(options: Options) -> dict[str, str]:
    given = properties.load(options.text("formatter-config")) if options.has("formatter-config") else {}
    for option, name in (("key-deserializer", "key.deserializer"), ("value-deserializer", "value.deserializer")):
        if options.value(option):
            given[name] = options.text(option)
    return {**given, **parse_key_values([*options.values("property"), *options.values("formatter-property")])}


def stop_on_signals() -> Callable[[], bool]:
    """SIGTERM and SIGINT end the reading, not the process, so that what was read is reported."""
    received: list[int] = []

    def stop(number: int, _: Any) -> None:
        received.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return lambda: bool(received)


def _read(
    consumer: Consumer, options: Options, write: Write, start: int, *, group_given: bool, stopped: Callable[[], bool]
) -> int:
    from moldau.cli.reading import PartitionReader, assign_one, java_pattern

    topic = options.value("topic")
    timeout_ms = options.value("timeout-ms")
    timeout = None if timeout_ms is None or timeout_ms < 0 else timeout_ms / 1000
    reader: PartitionReader | None = None
    if options.has("partition"):
        assign_one(consumer, topic, options.value("partition"), start)
    elif group_given:
        consumer.subscribe([topic or f"^({options.text('include')})$"])
    else:
        accepts = (lambda name: name == topic) if topic else java_pattern(options.text("include"))
        reader = PartitionReader(consumer, accepts, start, topic)
        reader.begin(timeout)
    wanted = options.value("max-messages")
    skip_errors = options.has("skip-message-on-error")
    return _copy(consumer, reader, write, wanted, timeout, skip_errors, stopped)


def _copy(
    consumer: Consumer,
    reader: Any,
    write: Write,
    wanted: int | None,
    timeout: float | None,
    skip_errors: bool,
    stopped: Callable[[], bool],
) -> int:
    """Write records until enough were read, none came for `timeout`, the output is gone or we are told to stop."""
    from confluent_kafka import KafkaError

    output = sys.stdout.buffer
    count = 0
    last_arrival = time.monotonic()
    while (wanted is None or wanted < 0 or count < wanted) and not stopped():
        message = consumer.poll(0)
        if message is None:
            output.flush()
            message = consumer.poll(POLL_SECONDS if timeout is None else min(POLL_SECONDS, timeout))
        if message is None:
            if timeout is not None and time.monotonic() - last_arrival > timeout:
                print("No message arrived in time, ending.", file=sys.stderr)
                break
            if reader is not None:
                reader.refresh()
            continue
        error = message.error()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                _report(error)
            continue
        last_arrival = time.monotonic()
        count += 1
        try:
            output.write(write(message))
        except CliError as problem:
            if not skip_errors:
                raise
            print(f"Error processing message, skipping this message: {problem.message}", file=sys.stderr)
        except BrokenPipeError:
            print("Unable to write to standard out, closing consumer.", file=sys.stderr)
            break
    try:
        output.flush()
    except BrokenPipeError:
        pass
    return count


def _report(error: Any) -> None:
    if error.fatal() or not error.retriable():
        print(f"WARN {error.str()}", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
