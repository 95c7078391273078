"""One batch of values, as a worker of Spark reads it: bytes in, a column of values and a column of reasons out.

It puts together what the formats have in common: finding out which schema wrote which rows, getting a reader for each
schema once in a process, and putting rows back in order when some could not be read. Formats bring a `ReaderSource`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from moldau.spark.values.errors import MISMATCH, UNKNOWN_SCHEMA, MismatchError, UnknownSchemaError, reason
from moldau.spark.values.framing import Group, Rows, SchemaId, framed, unframed

_MOST_READERS = 1000


class Reader(Protocol):
    """Reads values that one schema wrote."""

    def read(self, data: Any, starts: Any, ends: Any) -> tuple[Any, dict[int, str]]:
        """(column of the rows that can be read, in order; why the others cannot)."""


class ReaderSource(Protocol, Hashable):
    """What a format brings to the workers: small, and equal to others that were made of the same."""

    @property
    def is_framed(self) -> bool:
        """Whether values say which schema wrote them."""

    @property
    def has_messages(self) -> bool:
        """Whether they say which of its messages, too."""

    @property
    def arrow_type(self) -> Any:
        """Of the column that comes out."""

    def reader(self, schema: SchemaId | None) -> Reader:
        """UnknownSchemaError or MismatchError if no value of that schema can be read."""


_readers: dict[tuple[ReaderSource, SchemaId | None], Reader] = {}


def read_batch(source: ReaderSource, values: Any, headers: Any) -> Any:
    """A struct column: `value`, and `error`, which is null for good rows."""
    rows = Rows.of(values)
    bad: dict[int, str] = {}
    if source.is_framed:
        groups, bad = framed(rows, headers, messages=source.has_messages)
    else:
        groups = unframed(rows)
    pieces = []
    # Where in the pieces each row is; -1 for those that are null or bad.
    place = np.full(rows.present.size, -1, dtype=np.int64)
    count = 0
    for group in groups:
        column, wrong = _read_group(source, group, rows)
        good = group.rows
        if wrong:
            bad.update((int(group.rows[at]), why) for at, why in wrong.items())
            good = np.delete(group.rows, list(wrong))
        place[good] = np.arange(count, count + good.size)
        count += good.size
        if column is not None:
            pieces.append(column)
    return _together(source.arrow_type, pieces, place, bad)


def _read_group(source: ReaderSource, group: Group, rows: Rows) -> tuple[Any, dict[int, str]]:
    try:
        reader = _reader(source, group.schema)
    except UnknownSchemaError as error:
        return None, dict.fromkeys(range(group.rows.size), reason(UNKNOWN_SCHEMA, str(error)))
    except MismatchError as error:
        why = str(error) if group.schema is None else f"{error} (schema {group.schema} of the registry)"
        return None, dict.fromkeys(range(group.rows.size), reason(MISMATCH, why))
    return reader.read(rows.data, group.starts, group.ends)


def _reader(source: ReaderSource, schema: SchemaId | None) -> Reader:
    key = (source, schema)
    reader = _readers.get(key)
    if reader is None:
        reader = source.reader(schema)
        if len(_readers) >= _MOST_READERS:
            _readers.clear()
        _readers[key] = reader
    return reader


def _together(kind: Any, pieces: list[Any], place: Any, bad: dict[int, str]) -> Any:
    whole = pa.concat_arrays(pieces) if len(pieces) > 1 else pieces[0] if pieces else pa.nulls(0, kind)
    if len(whole) != place.size or not np.array_equal(place, np.arange(place.size)):
        whole = whole.take(pa.array(place, mask=place < 0)) if len(whole) else pa.nulls(place.size, kind)
    if bad:
        errors = pa.array([bad.get(row) for row in range(place.size)], pa.string())
    else:
        errors = pa.nulls(place.size, pa.string())
    return pa.StructArray.from_arrays([whole, errors], names=["value", "error"])
