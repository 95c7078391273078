"""Streaming reads: what the next micro-batch holds, and where the query has got to.

It decides how far a micro-batch goes (limits in offsets and bytes, a minimum with a longest delay, everything up to a
fixed end under AvailableNow), notices partitions that appear and offsets that go backwards, and commits progress to a
consumer group for others to see. Spark's checkpoint is the only truth about progress: the group's offsets are never
read after the first start. All of it runs in one process for the life of the query, except `read`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from moldau.client.cluster import Cluster
from moldau.client.errors import MoldauError
from moldau.client.group_offsets import commit_group_offsets
from moldau.client.offsets import EARLIEST, LATEST, list_offsets
from moldau.spark.batch_reader import RangePartition, fetch_settings, read_partition
from moldau.spark.brokers import shared_cluster
from moldau.spark.errors import DataLossError
from moldau.spark.fetching import OffsetRange
from moldau.spark.options import SourceOptions
from moldau.spark.planning import (
    Offsets,
    find_partitions,
    from_json,
    limit,
    pack,
    record_sizes,
    resolve,
    split,
    to_json,
)
from moldau.spark.worker_socket import acknowledge_now

_log = logging.getLogger(__name__)


class MoldauStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A topic, or several, as a stream of micro-batches."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._settings = fetch_settings(options)
        # Under AvailableNow: where the query is to end.
        self._target: Offsets | None = None
        self._last_latest: Offsets = {}
        # What the group was told last.
        self._shown: Offsets = {}
        self._last_batch_at = time.monotonic()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge_now()

    @property
    def _cluster(self) -> Cluster:
        return shared_cluster(self._options.client)

    # ---- offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        partitions = find_partitions(self._cluster, self._options.subscription)
        return to_json(resolve(self._cluster, self._options, self._options.start, partitions, starting=True))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        if options.min_offsets is not None:
            return ReadMinRows(options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        subscription = self._options.subscription
        topics = {*subscription.topics, *(topic for topic, _ in subscription.assigned)}
        self._target = self._latest(set() if self._options.fail_on_data_loss else topics)

    def latestOffset(self, start: dict[str, Any], read_limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        begin = from_json(start)
        # Spark asks for the next micro-batch when the last one is done, and says so by `commit` only one later.
        self._show_progress(dict(begin))
        available = self._available(begin)
        if isinstance(read_limit, ReadAllAvailable):
            return to_json(self._advance(available))
        options = self._options
        ahead = sum(offset - begin.get(part, 0) for part, offset in available.items())
        if options.min_offsets is not None and self._target is None and ahead < options.min_offsets:
            waited = time.monotonic() - self._last_batch_at
            if ahead == 0 or waited < options.max_trigger_delay:
                return start
        end = available
        if options.max_offsets is not None:
            end = limit(begin, end, options.max_offsets)
        if options.max_bytes is not None and end != begin:
            end = limit(begin, end, options.max_bytes, record_sizes(self._cluster, begin, end, options.isolation))
        return to_json(self._advance(end))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return to_json(self._last_latest) if self._last_latest else None

    def _advance(self, end: Offsets) -> Offsets:
        self._last_batch_at = time.monotonic()
        return end

    def _latest(self, may_be_gone: set[str]) -> Offsets:
        partitions = find_partitions(self._cluster, self._options.subscription, may_be_gone)
        self._last_latest = list_offsets(self._cluster, dict.fromkeys(partitions, LATEST), self._options.isolation)
        return self._last_latest

    def _available(self, begin: Offsets) -> Offsets:
        """Up to where there is something to read, never before where the query already is."""
        latest = self._latest({topic for topic, _ in begin}) if self._target is None else self._target
        fresh = [part for part in latest if part not in begin]
        if fresh:
            # A partition that appeared is read from its beginning; a limit must count from there.
            begin.update(list_offsets(self._cluster, dict.fromkeys(fresh, EARLIEST), self._options.isolation))
        available = {}
        for part, offset in begin.items():
            end = latest.get(part)
            if end is None:
                self._lost(f"{part[0]}-{part[1]} does not exist any more")
                end = offset
            elif end < offset and self._target is None:
                self._lost(f"{part[0]}-{part[1]} ends at offset {end} but {offset} was read already; was it recreated?")
            available[part] = max(end, offset)
        return available

    # ---- reading

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, stop = from_json(start), from_json(end)
        fresh = [part for part in stop if part not in begin]
        if fresh:
            begin |= list_offsets(self._cluster, dict.fromkeys(fresh, EARLIEST), self._options.isolation)
        gone = sorted(set(begin) - set(stop))
        if gone:
            self._lost(f"partitions {gone} were in the checkpoint but are not read any more")
        ranges = [OffsetRange(*part, begin[part], offset) for part, offset in sorted(stop.items())]
        for each in ranges:
            if each.start > each.end:
                self._lost(f"{each.topic}-{each.partition} went back from offset {each.start} to {each.end}")
        options = self._options
        pieces = split(ranges, options.min_partitions, options.max_records_per_partition)
        tasks = pack(pieces, options.min_partitions, options.max_records_per_partition)
        return [RangePartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(partition, self._settings, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        self._show_progress(from_json(end))

    def _show_progress(self, done: Offsets) -> None:
        """Tell the group how far the query has got. Others only look at it, so a failure must not end the query."""
        group = self._options.group
        if (
            group is None
            or done == self._shown
            or any(done[part] < at for part, at in self._shown.items() if part in done)
        ):
            return
        try:
            commit_group_offsets(self._cluster, group, done, "spark")
            self._shown = done
        except MoldauError as error:
            _log.warning("The progress of the query was not committed to group '%s': %s", group, error)

    def stop(self) -> None:
        self._cluster.close()

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{what}. Some data may have been lost. To go on without it, set the option failOnDataLoss=false"
            )
        _log.warning("%s; going on because failOnDataLoss is false", what)
