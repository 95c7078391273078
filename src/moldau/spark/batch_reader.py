"""Batch reads: the offsets are fixed when the query is planned, and each range becomes a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from moldau.client.errors import MoldauError
from moldau.client.offsets import EARLIEST, NO_OFFSET, list_offsets
from moldau.spark.brokers import shared_cluster
from moldau.spark.fetching import FetchSettings, OffsetRange, read_range
from moldau.spark.options import SourceOptions
from moldau.spark.planning import find_partitions, pack, resolve, split
from moldau.spark.pushdown import Narrowing, push
from moldau.spark.worker_memory import settle
from moldau.spark.worker_socket import acknowledge_now


class RangePartition(InputPartition):
    """A task: one range of offsets, or several small ones."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(", ".join(map(str, ranges)))
        self.ranges = ranges


def fetch_settings(options: SourceOptions, min_timestamp: int | None = None) -> FetchSettings:
    return FetchSettings(
        client=options.client,
        isolation=options.isolation,
        fetch_bytes=options.fetch_bytes,
        poll_timeout=options.poll_timeout,
        check_crcs=options.check_crcs,
        fail_on_data_loss=options.fail_on_data_loss,
        min_timestamp=min_timestamp,
    )


def read_partition(partition: InputPartition, settings: FetchSettings, schema: StructType) -> Iterator[Any]:
    """The Arrow batches of a task; runs on an executor."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # Spark plans a task with nothing in it when there is no range at all.
    if not isinstance(partition, RangePartition):
        return
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    for each in partition.ranges:
        yield from read_range(each, settings, arrow_schema)
    settle()


class MoldauBatchReader(DataSourceReader):
    """Reads what is between two sets of offsets."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._narrowing = Narrowing()
        self._settings = fetch_settings(options)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge_now()

    def partitions(self) -> list[InputPartition]:
        options, narrowing = self._options, self._narrowing
        cluster = shared_cluster(options.client)
        everything = find_partitions(cluster, options.subscription)
        wanted = [each for each in everything if narrowing.keeps(each)]
        starts = resolve(cluster, options, options.start, everything, starting=True)
        ends = resolve(cluster, options, options.end, everything, starting=False)
        earliest = list_offsets(cluster, dict.fromkeys(wanted, EARLIEST), options.isolation)
        by_time = {}
        if narrowing.min_timestamp is not None:
            times = dict.fromkeys(wanted, narrowing.min_timestamp)
            by_time = list_offsets(cluster, times, options.isolation)
        ranges = []
        for each in wanted:
            start, end = starts[each], ends[each]
            if start > end:
                raise MoldauError(
                    f"{each[0]}-{each[1]}: the starting offset {start} is after the ending offset {end}; "
                    "check startingOffsets and endingOffsets"
                )
            first = max(start, narrowing.first_offset)
            if first > start:
                # The query asked for it: what retention took before it is not missed.
                first = max(first, earliest[each])
            if by_time.get(each, 0) == NO_OFFSET:
                continue  # nothing is that young
            first = max(first, by_time.get(each, 0))
            ranges.append(OffsetRange(*each, first, min(end, narrowing.end_offset)))
        pieces = split(ranges, options.min_partitions, options.max_records_per_partition)
        tasks = pack(pieces, options.min_partitions, options.max_records_per_partition)
        settle()
        return [RangePartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(partition, self._settings, self._schema)

    @property
    def pushFilters(self) -> Any:  # noqa: N802 - Spark's name
        return _OptionalPushdown(self)

    def narrow(self, filters: list[Filter]) -> Iterable[Filter]:
        """Read less where filters allow it; those that Spark must still apply."""
        remaining = push(self._narrowing, filters)
        self._settings = replace(self._settings, min_timestamp=self._narrowing.min_timestamp)
        return remaining


class _OptionalPushdown:
    """`pushFilters` for sessions that push filters down, invisible to those that do not.

    Spark refuses every reader that defines the method while spark.sql.python.filterPushdown.enabled is false, which is
    the default. It tells so by the function behind the bound method: here it is that of the base class.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: MoldauBatchReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.narrow(filters)
