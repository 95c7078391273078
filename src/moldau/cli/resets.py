"""Where a group's offsets go when they are reset: to an end of the log, an offset, a time, by a distance, from a file.

It only plans: it reads offsets and never writes any. A wish beyond the log is moved to the log's nearest end, and the
plan says so.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from moldau.cli.errors import CliError
from moldau.client.admin.client import Admin
from moldau.client.errors import failure
from moldau.client.offsets import EARLIEST, LATEST, NO_OFFSET, find_offsets
from moldau.protocol.errors import ApiError, ErrorCode

_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+)(?:[.,](\d{0,9}))?S)?)?", re.IGNORECASE
)
_DATE_TIME = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})T(\d{1,2}):(\d{1,2}):(\d{1,2})\.(\d{1,3})(Z|[+-]\d\d(?::?\d\d)?)")

Partition = tuple[str, int]


@dataclass(slots=True)
class Plan:
    """New offsets, and remarks on those that are not what was asked for."""

    offsets: dict[Partition, int] = field(default_factory=dict)
    # Partitions without a record at or after the wanted time: they go to their end.
    without_record: list[Partition] = field(default_factory=list)
    # Partition, the offset wished for, and the one it was moved to.
    moved: list[tuple[Partition, int, int]] = field(default_factory=list)


class Unshiftable(CliError):
    """A partition cannot be shifted because the group never committed an offset there."""


def parse_partitions(arguments: Iterable[str]) -> tuple[list[Partition], list[str]]:
    """`topic:0,1` and `topic` arguments: the partitions named, and the topics meant as a whole."""
    partitions: list[Partition] = []
    topics: list[str] = []
    for argument in arguments:
        name, colon, indexes = argument.partition(":")
        if not colon:
            topics.append(argument)
            continue
        if not name or not indexes or ":" in indexes:
            raise CliError(f"Invalid topic arg '{argument}', expected topic name and partitions")
        for index in indexes.split(","):
            if not re.fullmatch(r"[-+]?\d+", index):
                raise CliError(f"Invalid partition '{index}' specified in topic arg '{argument}'")
            partitions.append((name, int(index)))
    return partitions, topics


def named_partitions(admin: Admin, arguments: Iterable[str]) -> list[Partition]:
    """The partitions that `topic` and `topic:0,1` arguments mean; ApiError for a topic that does not exist."""
    from moldau.client.admin.topics import describe_topics

    partitions, topics = parse_partitions(arguments)
    for topic in describe_topics(admin, topics):
        partitions += [(topic.name, each.index) for each in topic.partitions]
    return list(dict.fromkeys(partitions))


def check_partitions(admin: Admin, partitions: Sequence[Partition]) -> None:
    """ApiError for partitions that do not exist or have no leader."""
    from moldau.client.admin.topics import describe_topics

    topics = describe_topics(admin, sorted({name for name, _ in partitions}))
    leaders = {(topic.name, each.index): each.leader for topic in topics for each in topic.partitions}
    missing = ",".join(f"{name}-{index}" for name, index in partitions if (name, index) not in leaders)
    if missing:
        raise failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f'The partitions "{missing}" do not exist')
    leaderless = ",".join(f"{name}-{index}" for name, index in partitions if leaders[name, index] < 0)
    if leaderless:
        raise failure(ErrorCode.LEADER_NOT_AVAILABLE, f'The partitions "{leaderless}" have no leader')


def to_earliest(admin: Admin, partitions: Iterable[Partition]) -> Plan:
    return Plan(_offsets(admin, partitions, EARLIEST))


def to_latest(admin: Admin, partitions: Iterable[Partition]) -> Plan:
    return Plan(_offsets(admin, partitions, LATEST))


def to_offset(admin: Admin, partitions: Iterable[Partition], offset: int) -> Plan:
    return within_log(admin, dict.fromkeys(partitions, offset))


def to_time(admin: Admin, partitions: Iterable[Partition], milliseconds: int) -> Plan:
    """The first record at or after a time."""
    wanted = list(partitions)
    found = _offsets(admin, wanted, milliseconds)
    none = [each for each in wanted if found[each] == NO_OFFSET]
    return Plan({**found, **_offsets(admin, none, LATEST)}, without_record=none)


def shifted(admin: Admin, partitions: Iterable[Partition], committed: Mapping[Partition, int], distance: int) -> Plan:
    wishes = {}
    for name, index in partitions:
        if (name, index) not in committed:
            raise Unshiftable(
                f"Cannot shift offset for partition {name}-{index} since there is no current committed offset"
            )
        wishes[name, index] = committed[name, index] + distance
    return within_log(admin, wishes)


def to_current(admin: Admin, partitions: Iterable[Partition], committed: Mapping[Partition, int]) -> Plan:
    """What is committed now, and the end of the log where nothing is."""
    wanted = list(partitions)
    rest = [each for each in wanted if each not in committed]
    return Plan({**{each: committed[each] for each in wanted if each in committed}, **_offsets(admin, rest, LATEST)})


def within_log(admin: Admin, wishes: Mapping[Partition, int]) -> Plan:
    """The offsets wished for, each moved into its log."""
    firsts = _offsets(admin, wishes, EARLIEST)
    ends = _offsets(admin, wishes, LATEST)
    plan = Plan()
    for partition, wish in wishes.items():
        fitting = ends[partition] if wish > ends[partition] else max(wish, firsts[partition])
        plan.offsets[partition] = fitting
        if fitting != wish:
            plan.moved.append((partition, wish, fitting))
    return plan


def _offsets(admin: Admin, partitions: Iterable[Partition], when: int) -> dict[Partition, int]:
    times = dict.fromkeys(partitions, when)
    offsets = {}
    for partition, found in find_offsets(admin, times).items() if times else ():
        if isinstance(found, ApiError):
            raise found
        offsets[partition] = found.offset
    return offsets


def read_plan_file(path: str, group: str | None) -> dict[str, dict[Partition, int]]:
    """Offsets by group from lines `topic,partition,offset` (of the one group) or `group,topic,partition,offset`."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except OSError as error:
        raise CliError(f"Cannot read {path}: {error.strerror}") from None
    plans: dict[str, dict[Partition, int]] = {}
    for number, row in enumerate(rows, 1):
        fields = [each.strip() for each in row]
        if len(fields) == 3 and group is not None:
            fields.insert(0, group)
        if len(fields) != 4 or not re.fullmatch(r"\d+", fields[2]) or not re.fullmatch(r"-?\d+", fields[3]):
            form = "topic,partition,offset" if group is not None else "group,topic,partition,offset"
            raise CliError(f"Line {number} of {path} is not {form}: {','.join(row)}")
        plans.setdefault(fields[0], {})[fields[1], int(fields[2])] = int(fields[3])
    return plans


def parse_duration(text: str) -> int:
    """An ISO 8601 duration of days and smaller, as Java reads one (`P1DT2H30M`), in milliseconds; ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.group(2, 4, 5, 6)) or (match[3] or "") in ("T", "t"):
        raise ValueError("Text cannot be parsed to a Duration")
    seconds = int(match[2] or 0) * 86_400 + int(match[4] or 0) * 3600 + int(match[5] or 0) * 60 + int(match[6] or 0)
    fraction = int((match[7] or "0").ljust(3, "0")[:3])
    milliseconds = seconds * 1000 + (-fraction if (match[6] or "").startswith("-") else fraction)
    return -milliseconds if match[1] == "-" else milliseconds


def parse_date_time(text: str) -> int:
    """`2026-01-31T12:30:00.000`, with or without a zone (without: UTC), as milliseconds; ValueError."""
    from datetime import datetime, timedelta, timezone

    day, _, clock = text.partition("T")
    zoned = text if re.search("[-+Z]", clock) else f"{day}T{clock}Z"
    match = _DATE_TIME.fullmatch(zoned)
    if match is None:
        raise ValueError(f'Unparseable date: "{zoned}"')
    zone = match[8].replace(":", "")
    minutes = 0 if zone == "Z" else int(zone[1:3]) * 60 + int(zone[3:] or 0)
    offset = timezone(timedelta(minutes=-minutes if zone.startswith("-") else minutes))
    parts = [int(each) for each in match.group(1, 2, 3, 4, 5, 6)]
    try:
        moment = datetime(parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], tzinfo=offset)
    except ValueError:
        raise ValueError(f'Unparseable date: "{zoned}"') from None
    return int(moment.timestamp()) * 1000 + int(match[7])
