"""The options of `format("moldau")`: those of Spark's `kafka` format by the same names and rules, and ours.

It decides what an option means and refuses one that nobody knows, that is malformed or that contradicts another: a
misspelt limit that is silently ignored costs more than an error. It never speaks to a broker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from moldau.client.cluster import TopicPartition
from moldau.client.errors import MoldauError
from moldau.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from moldau.client.settings import ClientSettings
from moldau.spark.brokers import client_settings

KAFKA_PREFIX = "kafka."

# Values of starting and ending offsets, and of an offset inside their JSON.
FROM_GROUP = "group"
_NAMED_OFFSETS = {"earliest": EARLIEST, "latest": LATEST}

_SUBSCRIPTIONS = ("assign", "subscribe", "subscribePattern")
SOURCE_OPTIONS = (
    *_SUBSCRIPTIONS,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "includeHeaders",
)
SINK_OPTIONS = ("topic", "includeHeaders", "deliveryGuarantee", "transactionalId", "ignoreMissingHistory", "batchId")
# Spark itself passes these on to a data source.
_SPARKS_OWN = ("path", "checkpointLocation", "queryName", "mode")

# Client settings that the source and the sink decide themselves.
_DECIDED_HERE = {
    "auto.offset.reset": "set startingOffsets instead",
    "enable.auto.commit": "progress is kept in Spark's checkpoint, and committed to kafka.group.id when that is set",
    "interceptor.classes": "interceptors are Java classes",
    "key.deserializer": "keys are read as bytes; convert the column instead",
    "value.deserializer": "values are read as bytes; convert the column instead",
    "key.serializer": "keys are written as bytes or strings; convert the column instead",
    "value.serializer": "values are written as bytes or strings; convert the column instead",
    "transactional.id": "set the option transactionalId instead",
    "partitioner.class": "records go where the partition column says, else where Kafka's murmur2 of the key does",
}
_DURATION = re.compile(r"(\d+)\s*(ms|milliseconds?|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)", re.IGNORECASE)
_DURATION_MS = {"ms": 1, "mi": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60_000
DEFAULT_POLL_TIMEOUT_MS = 120_000
# Kafka's own default. Larger answers were slower: they fall out of the cache, and Spark waits longer for the first.
DEFAULT_FETCH_BYTES = 1024 * 1024


class Options:
    """Options by case-insensitive name, with typed access and errors that name the option."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): str(value) for name, value in given.items()}
        self._names = {name.lower(): name for name in given}

    def check(self, known: tuple[str, ...], purpose: str) -> None:
        allowed = {name.lower(): name for name in (*known, *_SPARKS_OWN)}
        for name in self._given:
            if name.startswith(KAFKA_PREFIX):
                decided = _DECIDED_HERE.get(name[len(KAFKA_PREFIX) :])
                if decided:
                    raise MoldauError(f"The option {name} cannot be set: {decided}")
            elif name not in allowed:
                close = get_close_matches(name, [*allowed, KAFKA_PREFIX + name], n=1)
                hint = f"; did you mean {allowed.get(close[0], close[0])}?" if close else ""
                raise MoldauError(f"There is no option '{self._names[name]}' for {purpose}{hint}")

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def flag(self, name: str, default: bool) -> bool:
        value = self._given.get(name.lower())
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise MoldauError(f"{name}={value} is neither true nor false")
        return value.lower() == "true"

    def number(self, name: str, least: int = 1) -> int | None:
        value = self._given.get(name.lower())
        if value is None:
            return None
        if not re.fullmatch(r"-?\d+", value.strip()) or int(value) < least:
            raise MoldauError(f"{name}={value} is not a whole number of at least {least}")
        return int(value)

    def milliseconds(self, name: str, default: int) -> int:
        """`15m`, `10s`, or a plain number of milliseconds."""
        value = self._given.get(name.lower())
        if value is None:
            return default
        if value.strip().isdigit():
            return int(value)
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            raise MoldauError(f"{name}={value} is not a duration such as 10s or 15m")
        unit = match[2].lower()
        return int(match[1]) * _DURATION_MS["ms" if unit.startswith(("ms", "mill")) else unit[0]]

    def json(self, name: str) -> Any:
        value = self._given.get(name.lower())
        if value is None:
            return None
        try:
            return json.loads(value)
        except ValueError as error:
            raise MoldauError(f"{name}={value} is not JSON: {error}") from None

    def kafka(self) -> dict[str, str]:
        """Client settings: the `kafka.*` options without the prefix."""
        prefix = len(KAFKA_PREFIX)
        return {name[prefix:]: value for name, value in self._given.items() if name.startswith(KAFKA_PREFIX)}


@dataclass(slots=True, frozen=True)
class Subscription:
    """Which partitions are read: of some topics, of topics by a pattern, or exactly these."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"subscribePattern={self.pattern}"
        return f"subscribe={','.join(self.topics)}" if self.topics else f"assign={self.assigned}"


@dataclass(slots=True, frozen=True)
class Bound:
    """Where reading starts or ends: EARLIEST, LATEST, a group's offsets, offsets, or times, by partition."""

    everywhere: int | None = None
    from_group: bool = False
    offsets: tuple[tuple[TopicPartition, int], ...] = ()
    timestamp: int | None = None
    timestamps: tuple[tuple[TopicPartition, int], ...] = ()


@dataclass(slots=True, frozen=True)
class SourceOptions:
    client: ClientSettings
    subscription: Subscription
    start: Bound
    end: Bound
    latest_when_no_timestamp: bool
    isolation: int
    fail_on_data_loss: bool
    poll_timeout: float
    fetch_bytes: int
    check_crcs: bool
    max_offsets: int | None
    min_offsets: int | None
    max_bytes: int | None
    max_trigger_delay: float
    min_partitions: int | None
    max_records_per_partition: int | None
    group: str | None


def source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    options = Options(given)
    options.check(SOURCE_OPTIONS, "a source")
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if options.text(name) is not None:
                raise MoldauError(f"{name} is for batch reads; a streaming query ends with trigger(availableNow=True)")
    kafka = options.kafka()
    isolation = kafka.get("isolation.level", "read_uncommitted")
    if isolation not in ("read_uncommitted", "read_committed"):
        raise MoldauError(f"kafka.isolation.level={isolation} is neither read_uncommitted nor read_committed")
    max_offsets, min_offsets = options.number("maxOffsetsPerTrigger"), options.number("minOffsetsPerTrigger")
    if max_offsets is not None and min_offsets is not None and min_offsets > max_offsets:
        raise MoldauError(f"minOffsetsPerTrigger={min_offsets} is above maxOffsetsPerTrigger={max_offsets}")
    start = _bound(options, "starting", LATEST if streaming else EARLIEST)
    if start.everywhere == LATEST and not streaming:
        raise MoldauError("startingOffsets=latest would read nothing in a batch read: use earliest or JSON")
    if start.from_group and "group.id" not in kafka:
        raise MoldauError('startingOffsets=group needs the group: set .option("kafka.group.id", ...)')
    end = _bound(options, "ending", LATEST)
    if end.everywhere == EARLIEST or end.from_group:
        raise MoldauError("endingOffsets must be latest or JSON of offsets")
    strategy = options.text("startingOffsetsByTimestampStrategy") or "error"
    if strategy not in ("error", "latest"):
        raise MoldauError(f"startingOffsetsByTimestampStrategy={strategy} is neither error nor latest")
    return SourceOptions(
        client=client_settings(kafka),
        subscription=_subscription(options),
        start=start,
        end=end,
        latest_when_no_timestamp=strategy == "latest",
        isolation=READ_COMMITTED if isolation == "read_committed" else READ_UNCOMMITTED,
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        poll_timeout=options.milliseconds("kafkaConsumer.pollTimeoutMs", DEFAULT_POLL_TIMEOUT_MS) / 1000,
        fetch_bytes=_kafka_number(kafka, "max.partition.fetch.bytes", DEFAULT_FETCH_BYTES),
        check_crcs=kafka.get("check.crcs", "true").lower() != "false",
        max_offsets=max_offsets,
        min_offsets=min_offsets,
        max_bytes=options.number("maxBytesPerTrigger"),
        max_trigger_delay=options.milliseconds("maxTriggerDelay", DEFAULT_MAX_TRIGGER_DELAY_MS) / 1000,
        min_partitions=options.number("minPartitions"),
        max_records_per_partition=options.number("maxRecordsPerPartition"),
        group=kafka.get("group.id"),
    )


def includes_headers(given: Mapping[str, str]) -> bool:
    return Options(given).flag("includeHeaders", False)


def _kafka_number(kafka: Mapping[str, str], name: str, default: int) -> int:
    text = kafka.get(name, str(default))
    if not text.isdigit() or int(text) < 1:
        raise MoldauError(f"kafka.{name}={text} is not a positive number")
    return int(text)


def _subscription(options: Options) -> Subscription:
    given = [name for name in _SUBSCRIPTIONS if options.text(name) is not None]
    if len(given) != 1:
        what = f"{' and '.join(given)} are" if given else "none is"
        raise MoldauError(f"Exactly one of {', '.join(_SUBSCRIPTIONS)} must be set; {what}")
    text = (options.text(given[0]) or "").strip()
    if given[0] == "subscribe":
        topics = tuple(filter(None, (name.strip() for name in text.split(","))))
        if not topics:
            raise MoldauError("subscribe names no topic")
        return Subscription(topics=topics)
    if given[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise MoldauError(f"subscribePattern={text} is not a regular expression: {error}") from None
        return Subscription(pattern=text)
    value = options.json("assign")
    shape = 'JSON such as {"topic": [0, 1]}'
    if not isinstance(value, dict) or not value:
        raise MoldauError(f"assign={text} is not {shape}")
    assigned = []
    for topic, partitions in value.items():
        if not isinstance(partitions, list) or not all(type(each) is int and each >= 0 for each in partitions):
            raise MoldauError(f"assign={text} is not {shape}")
        assigned += [(topic, each) for each in partitions]
    return Subscription(assigned=tuple(assigned))


def _bound(options: Options, which: str, default: int) -> Bound:
    """Spark's order of precedence: one timestamp for all, timestamps by partition, offsets."""
    timestamp = options.number(f"{which}Timestamp", least=0)
    if timestamp is not None:
        return Bound(timestamp=timestamp)
    by_timestamp = options.json(f"{which}OffsetsByTimestamp")
    if by_timestamp is not None:
        return Bound(timestamps=partition_numbers(by_timestamp, f"{which}OffsetsByTimestamp", least=0))
    text = options.text(f"{which}Offsets")
    if text is None:
        return Bound(everywhere=default)
    if text.strip().lower() in _NAMED_OFFSETS:
        return Bound(everywhere=_NAMED_OFFSETS[text.strip().lower()])
    if text.strip().lower() == FROM_GROUP:
        return Bound(from_group=True)
    return Bound(offsets=partition_numbers(options.json(f"{which}Offsets"), f"{which}Offsets", least=EARLIEST))


def partition_numbers(value: Any, name: str, least: int) -> tuple[tuple[TopicPartition, int], ...]:
    """`{"topic": {"0": 23, "1": -2}}` as pairs."""
    try:
        found = tuple(
            ((str(topic), int(partition)), number)
            for topic, numbers in value.items()
            for partition, number in numbers.items()
        )
    except (AttributeError, ValueError):
        found = ()
    if not found or not all(type(number) is int and number >= least for _, number in found):
        raise MoldauError(
            f'{name} is neither a known word nor JSON such as {{"topic": {{"0": 23, "1": -2}}}} '
            "(-2 is the earliest offset, -1 the latest)"
        )
    return found
