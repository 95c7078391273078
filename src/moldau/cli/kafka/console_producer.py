"""`kafka-console-producer`: lines of standard input as records of a topic."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from moldau.cli import properties
from moldau.cli.errors import CliError
from moldau.cli.kafka._options import OptionParser, Options, integer, parse_key_values, run
from moldau.cli.lines import LineFormat, LineParser

if TYPE_CHECKING:
    from confluent_kafka import Message, Producer

LINE_READER = "org.apache.kafka.tools.LineMessageReader"
# How long Kafka's producer tries to deliver a record, all retries included.
DELIVERY_TIMEOUT_MS = "120000"
MAX_SHOWN_FAILURES = 10

# Option, producer setting, default, and what the option is about.
SETTINGS: tuple[tuple[str, str, Any, str], ...] = (
    ("timeout", "linger.ms", 1000, "How long to wait for a batch to fill, in milliseconds."),
    ("request-required-acks", "acks", "-1", "Acknowledgements to wait for: 0, 1 or -1 (all)."),
    ("request-timeout-ms", "request.timeout.ms", 1500, "How long the broker may take to acknowledge."),
    ("message-send-max-retries", "retries", 3, "How often to try again."),
    ("retry-backoff-ms", "retry.backoff.ms", 100, "How long to wait before trying again."),
    ("socket-buffer-size", "send.buffer.bytes", 102400, "Size of the socket's send buffer."),
    ("max-memory-bytes", "buffer.memory", 33554432, "Memory for records that wait to be sent."),
    ("batch-size", "batch.size", 16384, "Bytes of records to collect into one batch."),
    ("max-partition-memory-bytes", "batch.size", None, "Deprecated: --batch-size."),
    ("metadata-expiry-ms", "metadata.max.age.ms", 300000, "How often to refresh metadata."),
    ("max-block-ms", "max.block.ms", 60000, "How long sending may block."),
)


def main(argv: Sequence[str] | None = None) -> int:
    return run(lambda: execute(argv))


def execute(argv: Sequence[str] | None) -> int:
    options = _parser().parse(argv)
    _check(options)
    form = LineFormat.from_properties(_reader_properties(options))
    settings = producer_settings(options)
    return _produce(options.text("topic"), settings, LineParser(form), sync=options.has("sync"))


def _parser() -> OptionParser:
    parser = OptionParser("kafka-console-producer", "Send lines of standard input to a topic.")
    parser.connection(client="producer")
    parser.value("topic", "NAME", "Required. The topic to send to.")
    parser.flag("sync", "Wait for each record before reading the next line.")
    parser.value("compression-codec", "CODEC", "none, gzip (also when left empty), snappy, lz4 or zstd.", optional=True)
    for option, setting, default, text in SETTINGS:
        convert = str if option == "request-required-acks" else integer
        parser.value(option, "N", f"{text} ({setting})", convert=convert, default=default)
    parser.value("line-reader", "CLASS", "Only Kafka's own line reader is available.", default=LINE_READER)
    parser.value("command-property", "NAME=VALUE", "A producer setting. May be repeated.")
    parser.value("producer-property", "NAME=VALUE", "Deprecated: --command-property.")
    parser.value("producer.config", "FILE", "Deprecated: --command-config.")
    parser.value(
        "reader-property",
        "NAME=VALUE",
        "How to read lines: parse.key, key.separator, parse.headers, headers.delimiter, headers.separator, "
        "headers.key.separator, ignore.error, null.marker. May be repeated.",
    )
    parser.value("reader-config", "FILE", "Reader properties from a file.")
    parser.value("property", "NAME=VALUE", "Deprecated: --reader-property.")
    return parser


def _check(options: Options) -> None:
    options.require("topic", "bootstrap-server")
    renamed = {
        "producer-property": "command-property",
        "producer.config": "command-config",
        "property": "reader-property",
        "max-partition-memory-bytes": "batch-size",
    }
    for old, new in renamed.items():
        if not options.has(old):
            continue
        if options.has(new) and old != "max-partition-memory-bytes":
            raise options.error(f"Options --{new} and --{old} cannot be specified together.")
        print(f"Warning: --{old} is deprecated. Use --{new} instead.", file=sys.stderr)
    if options.text("line-reader") != LINE_READER:
        raise CliError(f"{options.text('line-reader')} is a Java class and cannot be loaded here")


def _reader_properties(options: Options) -> dict[str, str]:
    given = properties.load(options.text("reader-config")) if options.has("reader-config") else {}
    return {**given, **parse_key_values([*options.values("property"), *options.values("reader-property")])}


def producer_settings(options: Options) -> dict[str, str]:
    """Settings from the file, then from single properties, then from options that were given or nobody else set."""
    settings: dict[str, str] = {}
    for option in ("producer.config", "command-config"):
        if options.has(option):
            settings.update(properties.load(options.text(option)))
    settings.update(parse_key_values([*options.values("producer-property"), *options.values("command-property")]))
    settings["bootstrap.servers"] = options.text("bootstrap-server")
    if options.has("compression-codec"):
        settings["compression.type"] = options.value("compression-codec") or "gzip"
    settings.setdefault("compression.type", "none")
    settings.setdefault("client.id", "console-producer")
    for option, setting, _, _ in SETTINGS:
        if options.has(option) or (setting not in settings and options.value(option) is not None):
            settings[setting] = str(options.value(option))
    settings.setdefault("delivery.timeout.ms", DELIVERY_TIMEOUT_MS)
    can_be_idempotent = settings["acks"] in ("-1", "all") and settings["retries"] != "0"
    settings.setdefault("enable.idempotence", str(can_be_idempotent).lower())
    return settings


def _produce(topic: str, settings: dict[str, str], parser: LineParser, *, sync: bool) -> int:
    from moldau.cli.clients import ErrorReporter, make_producer

    failures = 0

    def delivered(error: Any, message: Message) -> None:
        nonlocal failures
        if error is not None:
            failures += 1
            if failures <= MAX_SHOWN_FAILURES:
                _report(topic, message, error.str())

    producer = make_producer(settings, ErrorReporter())
    prompt = sys.stdin.isatty() and sys.stdout.isatty()
    try:
        while line := _next_line(prompt):
            record = parser.parse(line)
            _send(producer, topic, record.value, record.key, record.headers, delivered)
            if sync:
                producer.flush()
            if sync and failures:
                return 1
    except KeyboardInterrupt:
        pass
    finally:
        producer.flush()
    if failures > MAX_SHOWN_FAILURES:
        print(f"ERROR {failures} messages could not be sent", file=sys.stderr)
    return 1 if failures else 0


def _next_line(prompt: bool) -> bytes:
    if prompt:
        print(">", end="", flush=True)
    return sys.stdin.buffer.readline()


def _send(
    producer: Producer,
    topic: str,
    value: bytes | None,
    key: bytes | None,
    headers: list[tuple[str, str | bytes | None]],
    delivered: Any,
) -> None:
    """Hand the record to the client; when its buffer is full, wait for some of it to be delivered."""
    while True:
        try:
            producer.produce(topic, value=value, key=key, headers=headers or None, on_delivery=delivered)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def _report(topic: str, message: Message, reason: str) -> None:
    sizes = [
        f"{name}: {'null' if part is None else f'{len(part)} bytes'}"
        for name, part in (("key", message.key()), ("value", message.value()))
    ]
    print(f"ERROR when sending message to topic {topic} with {', '.join(sizes)}: {reason}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
