"""`moldau consume`: read a topic from a place or time, up to its end or for as long as it grows."""

from __future__ import annotations

import re
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.commands._shared import Target, cluster_options, complete_topic, no_such_topic
from moldau.cli.errors import CliError
from moldau.cli.output import FORMATS
from moldau.cli.reading import FETCH_WAIT_MS
from moldau.cli.record_view import View, view_for

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from moldau.client.admin import Admin

POLL_SECONDS = 0.2
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

Partition = tuple[str, int]


@click.command()
@click.argument("name", metavar="TOPIC", shell_complete=complete_topic)
@click.option("--from-beginning", is_flag=True, help="Begin with the oldest record.")
@click.option(
    "--from",
    "from_",
    metavar="WHERE",
    help="Begin at an offset (42), so many records before the end (-10), so long ago (15m, 2h, 1d), at a time "
    "(2026-01-31, 2026-01-31T12:30, @1769860200000), at 'beginning' or 'end'.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this partition. Repeatable.",
)
@click.option("-n", "--max", "limit", type=click.IntRange(min=0), help="End after this many records.")
@click.option("-F", "--follow", is_flag=True, help="Go on after the end, when a starting point was given.")
@click.option("-g", "--group", help="Read as a member of this consumer group, and commit what was read.")
@click.option(
    "-f", "--format", "template", metavar="TEMPLATE", help="For example '{time} {partition}:{offset} {key} {value}\\n'."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(FORMATS),
    default="table",
    help="table: a line for people; json; plain: the value.",
)
@click.option("--read-committed", is_flag=True, help="Leave out records of aborted and open transactions.")
@cluster_options
def consume(
    name: str,
    from_beginning: bool,
    from_: str | None,
    partitions: tuple[int, ...],
    limit: int | None,
    follow: bool,
    group: str | None,
    template: str | None,
    output: str,
    read_committed: bool,
    target: Target,
) -> None:
    """Read TOPIC.

    Without a starting point it shows new records as they arrive, until Ctrl-C. With one it reads up to the
    present end and stops there, unless told to --follow. To a pipe it writes bare values; -o json or a --format
    gives the rest.
    """
    if from_beginning and from_ is not None:
        raise click.UsageError("--from-beginning and --from exclude each other.")
    if group is not None and (partitions or from_ is not None):
        raise click.UsageError("A group member takes its place from the group: leave out --partition and --from.")
    where = "beginning" if from_beginning else from_
    view = view_for(output, template, terminal=sys.stdout.isatty())
    settings = {
        "group.id": group or "moldau-consume",
        "enable.auto.commit": "true" if group else "false",
        "auto.offset.reset": "earliest" if from_beginning else "latest",
        "isolation.level": "read_committed" if read_committed else "read_uncommitted",
        "fetch.max.wait.ms": FETCH_WAIT_MS,
        "enable.partition.eof": "true",
        "client.id": "moldau",
        **target.settings,
        "bootstrap.servers": target.bootstrap,
    }
    with target.admin() as admin:
        starts, ends = _range(admin, name, where, partitions, read_committed=read_committed)
    stops_at_end = where not in (None, "end", "latest") and not follow
    _read(name, settings, view, starts, ends if stops_at_end else None, limit, is_member=group is not None)


def _range(
    admin: Admin, name: str, where: str | None, only: tuple[int, ...], *, read_committed: bool
) -> tuple[dict[Partition, int], dict[Partition, int]]:
    """Where to begin and where the end is now, for each partition."""
    from moldau.client.admin.topics import find_partitions
    from moldau.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, find_offsets

    known = find_partitions(admin, name)
    if not known:
        raise no_such_topic(admin, name)
    missing = sorted(set(only) - set(known))
    if missing:
        raise CliError(
            f"Topic '{name}' has no partition {missing[0]}", hint=f"It has {len(known)}: 0 to {len(known) - 1}."
        )
    wanted = [(name, index) for index in only or known]
    isolation = READ_COMMITTED if read_committed else READ_UNCOMMITTED
    ends = _found(find_offsets(admin, dict.fromkeys(wanted, LATEST), isolation))
    if where is None or where in ("end", "latest"):
        return ends, ends
    firsts = _found(find_offsets(admin, dict.fromkeys(wanted, EARLIEST)))
    if where in ("beginning", "earliest"):
        return firsts, ends
    if re.fullmatch(r"-\d+", where):
        return {each: max(firsts[each], ends[each] + int(where)) for each in wanted}, ends
    if re.fullmatch(r"\d+", where):
        return {each: min(max(firsts[each], int(where)), ends[each]) for each in wanted}, ends
    at = _found(find_offsets(admin, dict.fromkeys(wanted, parse_time(where))))
    return {each: at[each] if at[each] >= 0 else ends[each] for each in wanted}, ends


def _found(offsets: dict[Partition, Any]) -> dict[Partition, int]:
    from moldau.protocol.errors import ApiError

    for (name, index), found in offsets.items():
        if isinstance(found, ApiError):
            raise CliError(f"The offsets of {name}-{index} cannot be read: {found.message}")
    return {each: found.offset for each, found in offsets.items()}


def parse_time(text: str) -> int:
    """A point in time as milliseconds since 1970: `15m` ago, `@milliseconds`, or an ISO date in local time."""
    if match := re.fullmatch(r"(\d+)([smhd])", text):
        return int((time.time() - int(match[1]) * UNITS[match[2]]) * 1000)
    if match := re.fullmatch(r"@(\d+)", text):
        return int(match[1])
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise CliError(
            f"'{text}' is not a place to read from",
            hint="Give an offset (42), a number of records (-10), an age (15m, 2h), a date, 'beginning' or 'end'.",
        ) from None


def _read(
    name: str,
    settings: dict[str, str],
    view: View,
    starts: dict[Partition, int],
    ends: dict[Partition, int] | None,
    limit: int | None,
    *,
    is_member: bool,
) -> None:
    from confluent_kafka import TopicPartition

    from moldau.cli.clients import ErrorReporter, make_consumer

    waiting = None
    if ends is not None:
        waiting = {each for each, end in ends.items() if is_member or starts[each] < end}
        if not waiting:
            return
    consumer = make_consumer(settings, ErrorReporter())
    try:
        if is_member:
            consumer.subscribe([name])
        else:
            consumer.assign([TopicPartition(topic, index, offset) for (topic, index), offset in starts.items()])
        _copy(consumer, view, ends, waiting, limit)
    finally:
        consumer.close()


def _copy(
    consumer: Consumer, view: View, ends: dict[Partition, int] | None, waiting: set[Partition] | None, limit: int | None
) -> None:
    """Write records until the limit, or until every partition in `waiting` has reached its end."""
    from confluent_kafka import KafkaError

    write, flush = sys.stdout.buffer.write, sys.stdout.buffer.flush
    count = 0
    while (limit is None or count < limit) and waiting != set():
        message = consumer.poll(0)
        if message is None:
            flush()
            message = consumer.poll(POLL_SECONDS)
            if message is None:
                continue
        place = (message.topic() or "", message.partition() or 0)
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                if waiting is not None:
                    waiting.discard(place)
            elif not error.retriable():
                raise CliError(f"Reading failed: {error.str()}")
            continue
        offset = message.offset() or 0
        end = None if ends is None else ends.get(place)
        if end is not None and waiting is not None:
            if offset >= end:
                waiting.discard(place)
                continue
            if offset == end - 1:
                waiting.discard(place)
        write(view(message))
        count += 1
    flush()
