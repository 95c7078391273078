"""`moldau produce`: records from arguments, files or standard input to a topic."""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

import click

from moldau.cli.commands._shared import Target, cluster_options, complete_topic, no_such_topic
from moldau.cli.errors import CliError
from moldau.cli.lines import LineFormat, LineParser
from moldau.cli.output import bytes_text

PROGRESS_SECONDS = 0.2
MAX_SHOWN_FAILURES = 5
DELIVERY_TIMEOUT_MS = "30000"


@dataclass(slots=True)
class Outgoing:
    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, str | bytes | None]] = field(default_factory=list)
    partition: int | None = None
    timestamp: int | None = None


@click.command()
@click.argument("name", metavar="TOPIC", shell_complete=complete_topic)
@click.argument("values", metavar="[VALUE]...", nargs=-1)
@click.option("-f", "--file", "path", type=click.Path(dir_okay=False), help="Read lines from a file ('-': stdin).")
@click.option("-k", "--key", help="The key of every record.")
@click.option("-K", "--key-separator", metavar="TEXT", help="Lines begin with a key, up to this text.")
@click.option("-H", "--header", multiple=True, metavar="NAME=VALUE", help="A header of every record. Repeatable.")
@click.option("-p", "--partition", type=click.IntRange(min=0), help="The partition.  [default: by key]")
@click.option("--json", "as_json", is_flag=True, help="Lines are JSON, as 'moldau consume -o json' prints them.")
@click.option("--null", "null_marker", metavar="TEXT", help="A key or value that is this text is null.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
)
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option(
    "--idempotent",
    is_flag=True,
    help="Never write a record twice, even when an acknowledgement is lost. Takes half a second more to begin.",
)
@click.option("-q", "--quiet", is_flag=True, help="Neither progress nor summary.")
@cluster_options
def produce(
    name: str,
    values: tuple[str, ...],
    path: str | None,
    key: str | None,
    key_separator: str | None,
    header: tuple[str, ...],
    partition: int | None,
    as_json: bool,
    null_marker: str | None,
    compression: str,
    acks: str,
    idempotent: bool,
    quiet: bool,
    target: Target,
) -> int:
    """Send records to TOPIC: each VALUE, or each line of a file or of standard input."""
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator exclude each other.")
    if idempotent and acks != "all":
        raise click.UsageError("--idempotent needs --acks all.")
    form = LineFormat(
        parse_key=key_separator is not None,
        key_separator=_unescaped(key_separator or "\t"),
        null_marker=None if null_marker is None else null_marker.encode(),
    )
    form.check()
    fixed = Outgoing(None, None if key is None else key.encode(), _headers(header), partition)
    _check_topic(target, name)
    settings = {
        "acks": acks,
        "compression.type": compression,
        "enable.idempotence": str(idempotent).lower(),
        "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
        "linger.ms": "5",
        "client.id": "moldau",
        **target.settings,
        "bootstrap.servers": target.bootstrap,
    }
    lines = _lines(values, path)
    records = _from_json(lines) if as_json else _from_lines(lines, form)
    return Sender(name, settings, quiet=quiet).send_all(_with_fixed(records, fixed))


def _check_topic(target: Target, name: str) -> None:
    """Fail before reading anything when nobody answers; a topic that is missing may be created by the cluster."""
    from moldau.client.admin.topics import find_partitions

    with target.admin() as admin:
        if not find_partitions(admin, name, create=True):
            raise no_such_topic(admin, name)


def _headers(pairs: Iterable[str]) -> list[tuple[str, str | bytes | None]]:
    headers: list[tuple[str, str | bytes | None]] = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"A header is given as NAME=VALUE, not '{pair}'.")
        headers.append((name, value.encode()))
    return headers


def _unescaped(text: str) -> bytes:
    return text.replace("\\t", "\t").replace("\\n", "\n").replace("\\0", "\0").encode()


def _lines(values: tuple[str, ...], path: str | None) -> Iterator[bytes]:
    if values:
        if path is not None:
            raise click.UsageError("Give either values or a file.")
        yield from (value.encode() for value in values)
        return
    if path is None or path == "-":
        if sys.stdin.isatty():
            print("One record a line; Ctrl-D ends.", file=sys.stderr)
        yield from sys.stdin.buffer
        return
    try:
        file: IO[bytes]
        with open(path, "rb") as file:
            yield from file
    except OSError as error:
        raise CliError(f"Cannot read {path}: {error.strerror}") from None


def _from_lines(lines: Iterable[bytes], form: LineFormat) -> Iterator[Outgoing]:
    parser = LineParser(form)
    for line in lines:
        parsed = parser.parse(line)
        yield Outgoing(parsed.value, parsed.key, parsed.headers)


def _from_json(lines: Iterable[bytes]) -> Iterator[Outgoing]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record: Any = json.loads(line)
            if not isinstance(record, dict):
                raise TypeError("not an object")
            headers = record.get("headers") or []
            pairs = headers.items() if isinstance(headers, dict) else [(each["name"], each) for each in headers]
            yield Outgoing(
                _bytes_of(record, "value"),
                _bytes_of(record, "key"),
                [(name, _header_value(value)) for name, value in pairs],
                record.get("partition"),
                record.get("timestamp"),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise CliError(f"Line {number} is not a record in JSON: {error}") from None


def _bytes_of(record: dict[str, Any], name: str) -> bytes | None:
    if f"{name}Base64" in record:
        return base64.b64decode(record[f"{name}Base64"], validate=True)
    value = record.get(name)
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value, separators=(",", ":")).encode()


def _header_value(value: Any) -> bytes | None:
    return _bytes_of(value, "value") if isinstance(value, dict) else None if value is None else str(value).encode()


def _with_fixed(records: Iterable[Outgoing], fixed: Outgoing) -> Iterator[Outgoing]:
    """What options say about every record, added to what its line says."""
    for record in records:
        if record.key is None:
            record.key = fixed.key
        if fixed.headers:
            record.headers = [*record.headers, *fixed.headers]
        if fixed.partition is not None:
            record.partition = fixed.partition
        yield record


class Sender:
    """Sends records, shows how far it is, and tells at the end what became of them."""

    def __init__(self, topic: str, settings: dict[str, str], *, quiet: bool) -> None:
        from moldau.cli.clients import ErrorReporter, make_producer

        self.topic = topic
        self.quiet = quiet
        self.delivered = 0
        self.size = 0
        self.failures: dict[str, int] = {}
        self._producer = make_producer(settings, ErrorReporter())
        self._shows_progress = not quiet and sys.stderr.isatty() and not sys.stdin.isatty()
        self._next_progress = 0.0

    def send_all(self, records: Iterable[Outgoing]) -> int:
        started = time.monotonic()
        try:
            for record in records:
                self._send(record)
        except CliError:
            self._producer.flush()
            if self.delivered:
                self._summarise(time.monotonic() - started)
            raise
        self._producer.flush()
        self._summarise(time.monotonic() - started)
        return 1 if self.failures else 0

    def _send(self, record: Outgoing) -> None:
        optional: dict[str, Any] = {}
        if record.partition is not None:
            optional["partition"] = record.partition
        if record.timestamp is not None:
            optional["timestamp"] = record.timestamp
        while True:
            try:
                self._producer.produce(
                    self.topic,
                    value=record.value,
                    key=record.key,
                    headers=record.headers or None,
                    on_delivery=self._on_delivery,
                    **optional,
                )
            except BufferError:
                self._producer.poll(0.1)
                continue
            except (TypeError, ValueError) as error:
                raise CliError(f"A record cannot be sent: {error}") from None
            self._producer.poll(0)
            self._progress()
            return

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is None:
            self.delivered += 1
            self.size += len(message.value() or b"") + len(message.key() or b"")
            return
        reason = error.str()
        if reason not in self.failures and len(self.failures) < MAX_SHOWN_FAILURES:
            print(f"Error: {reason}", file=sys.stderr)
        self.failures[reason] = self.failures.get(reason, 0) + 1

    def _progress(self) -> None:
        if self._shows_progress and (now := time.monotonic()) >= self._next_progress:
            self._next_progress = now + PROGRESS_SECONDS
            print(f"\r{self.delivered:,} records, {bytes_text(self.size)}", end="", file=sys.stderr, flush=True)

    def _summarise(self, seconds: float) -> None:
        if self._shows_progress:
            print("\r\033[K", end="", file=sys.stderr)
        if self.failures:
            print(f"{sum(self.failures.values())} records could not be sent.", file=sys.stderr)
        if not self.quiet:
            many = "" if self.delivered == 1 else "s"
            print(
                f"{self.delivered:,} record{many} to {self.topic}, {bytes_text(self.size)} in {seconds:.1f} s",
                file=sys.stderr,
            )
