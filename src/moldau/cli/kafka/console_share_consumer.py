"""`kafka-console-share-consumer`: records of a topic, read as a member of a share group and acknowledged one by one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from moldau.cli import properties
from moldau.cli.errors import CliError
from moldau.cli.kafka._formatters import DEFAULT_FORMATTER, Write, formatter
from moldau.cli.kafka._options import OptionParser, Options, integer, parse_key_values, run
from moldau.cli.kafka.console_consumer import formatter_properties, stop_on_signals

if TYPE_CHECKING:
    from confluent_kafka import ShareConsumer

POLL_SECONDS = 0.2
DEFAULT_GROUP = "console-share-consumer"
RENAMED = {
    "consumer-property": "command-property",
    "consumer-config": "command-config",
    "property": "formatter-property",
}


def main(argv: Sequence[str] | None = None) -> int:
    return run(lambda: execute(argv))


def execute(argv: Sequence[str] | None) -> int:
    options = _parser().parse(argv)
    _check(options)
    settings = consumer_settings(options)
    write = formatter(options.text("formatter"), formatter_properties(options))
    _check_served(settings)

    from moldau.cli.clients import ErrorReporter, make_share_consumer

    consumer = make_share_consumer(settings, ErrorReporter())
    stopped = stop_on_signals()
    count = 0
    try:
        consumer.subscribe([options.text("topic")])
        count = _copy(consumer, options, write, stopped)
    finally:
        consumer.close()
    print(f"Processed a total of {count} messages", file=sys.stderr)
    if options.has("enable-systest-events") and stopped():
        print("shutdown_complete")
    return 0


def _parser() -> OptionParser:
    parser = OptionParser("kafka-console-share-consumer", "Print the records of a topic, read through a share group.")
    parser.connection(client="consumer")
    parser.value("topic", "NAME", "The topic to read.")
    parser.value("group", "ID", f"The share group; {DEFAULT_GROUP} if none is named.")
    parser.value("max-messages", "N", "End after this many records.", convert=integer)
    parser.value("timeout-ms", "MS", "End when no record arrived for this long.", convert=integer)
    parser.flag("reject", "Reject every record: nobody gets it again.")
    parser.flag("release", "Release every record: it may be delivered again.")
    parser.flag("reject-message-on-error", "Reject a record that cannot be shown, instead of ending.")
    parser.value("formatter", "CLASS", "One of Kafka's formatters.", default=DEFAULT_FORMATTER)
    parser.value(
        "formatter-property",
        "NAME=VALUE",
        "What to print: print.timestamp, print.partition, print.offset, print.delivery, print.epoch, print.headers, "
        "print.key, print.value (true or false), key.separator, line.separator, headers.separator, null.literal, "
        "key.deserializer, value.deserializer, headers.deserializer. May be repeated.",
    )
    parser.value("formatter-config", "FILE", "Formatter properties from a file.")
    parser.value("property", "NAME=VALUE", "Deprecated: --formatter-property.")
    parser.value("key-deserializer", "CLASS", "How to read keys; one of Kafka's deserializers.")
    parser.value("value-deserializer", "CLASS", "How to read values; one of Kafka's deserializers.")
    parser.value("command-property", "NAME=VALUE", "A consumer setting. May be repeated.")
    parser.value("consumer-property", "NAME=VALUE", "Deprecated: --command-property.")
    parser.value("consumer-config", "FILE", "Deprecated: --command-config.")
    parser.flag("enable-systest-events", "Print shutdown_complete after being told to stop.")
    return parser


def _check(options: Options) -> None:
    if not options.has("topic"):
        raise options.error("--topic is a required argument")
    options.require("bootstrap-server")
    if options.has("reject") and options.has("release"):
        raise options.error("At most one of --reject and --release may be specified.")
    for old, new in RENAMED.items():
        if options.has(old):
            if options.has(new):
                raise options.error(f"Options --{old} and --{new} cannot be specified together.")
            print(f"Option --{old} is deprecated. Use --{new} instead.", file=sys.stderr)


def consumer_settings(options: Options) -> dict[str, str]:
    settings: dict[str, str] = {}
    for option in ("consumer-config", "command-config"):
        if options.has(option):
            settings |= properties.load(options.text(option))
    single = parse_key_values([*options.values("consumer-property"), *options.values("command-property")])
    groups = {each["group.id"] for each in (settings, single) if "group.id" in each}
    groups |= {options.text("group")} if options.has("group") else set()
    if len(groups) > 1:
        listed = ", ".join(f"'{group}'" for group in sorted(groups))
        raise options.error(f"More than one group is named: {listed}")
    settings |= single
    settings.setdefault("client.id", "console-share-consumer")
    settings["bootstrap.servers"] = options.text("bootstrap-server")
    settings["group.id"] = groups.pop() if groups else DEFAULT_GROUP
    settings["share.acknowledgement.mode"] = "explicit"
    return settings


def _check_served(settings: dict[str, str]) -> None:
    """A client library would wait for ever for a coordinator that cannot be."""
    from moldau.cli.kafka._groups import serves
    from moldau.client.admin import Admin
    from moldau.protocol.api import ApiKey

    with Admin(settings["bootstrap.servers"], settings, patient=True) as admin:
        serves(admin, ApiKey.SHARE_FETCH, "share")


def _copy(consumer: ShareConsumer, options: Options, write: Write, stopped: Callable[[], bool]) -> int:
    """Write and acknowledge records until enough were read, none came for the timeout, or we are told to stop."""
    from confluent_kafka import AcknowledgeType

    kind = AcknowledgeType.ACCEPT
    if options.has("reject") or options.has("release"):
        kind = AcknowledgeType.REJECT if options.has("reject") else AcknowledgeType.RELEASE
    timeout_ms, wanted = options.value("timeout-ms"), options.value("max-messages")
    timeout = None if timeout_ms is None or timeout_ms < 0 else timeout_ms / 1000
    output = sys.stdout.buffer
    count = 0
    last_arrival = time.monotonic()
    while (wanted is None or wanted < 0 or count < wanted) and not stopped():
        batch = list(consumer.poll(POLL_SECONDS if timeout is None else min(POLL_SECONDS, timeout)))
        for message in batch:
            if message.error() is not None:
                _report(message.error())
            elif (wanted is not None and 0 <= wanted <= count) or stopped():
                # Others may have what came with the last record that was wanted.
                consumer.acknowledge(message, AcknowledgeType.RELEASE)
            else:
                last_arrival = time.monotonic()
                count += 1
                _show(consumer, message, write, kind, reject_on_error=options.has("reject-message-on-error"))
        try:
            output.flush()
        except BrokenPipeError:
            print("Unable to write to standard out, closing consumer.", file=sys.stderr)
            break
        if not batch and timeout is not None and time.monotonic() - last_arrival > timeout:
            print("No message arrived in time, ending.", file=sys.stderr)
            break
    return count


def _show(consumer: ShareConsumer, message: Any, write: Write, kind: Any, *, reject_on_error: bool) -> None:
    from confluent_kafka import AcknowledgeType

    try:
        sys.stdout.buffer.write(write(message))
    except CliError as problem:
        if not reject_on_error:
            raise
        print(f"Error processing message, rejecting this message: {problem.message}", file=sys.stderr)
        consumer.acknowledge(message, AcknowledgeType.REJECT)
    else:
        consumer.acknowledge(message, kind)


def _report(error: Any) -> None:
    if error.fatal():
        raise CliError(f"Reading failed: {error.str()}")
    if not error.retriable():
        print(f"WARN {error.str()}", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
