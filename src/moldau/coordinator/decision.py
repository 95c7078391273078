"""What a shard decides: records for the log, and the response that leaves once they are committed.

Only values; `runtime.py` carries them out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from moldau.protocol.coordinator_records import encode_key, encode_value
from moldau.protocol.errors import ApiError
from moldau.protocol.wire import WireMessage

T = TypeVar("T")

CoordinatorRecord: TypeAlias = tuple[bytes, bytes | None]
"""One change of a shard's state, as it stands in the log: key and value. A value of None is a tombstone."""


def record(key: WireMessage, value: WireMessage | None, version: int = 0) -> CoordinatorRecord:
    return encode_key(key), None if value is None else encode_value(value, version)


class Transaction(NamedTuple):
    """The producer on whose behalf records are written; they count when its transaction commits."""

    producer_id: int
    producer_epoch: int


class Decision(Generic[T]):
    """What a request leads to: the records that change the state, and the response once they are committed."""

    __slots__ = ("atomic", "done", "records", "replay", "response")

    def __init__(
        self,
        response: T,
        records: Sequence[CoordinatorRecord] = (),
        *,
        replay: bool = True,
        atomic: bool = True,
        done: Callable[[ApiError | None], None] | None = None,
    ) -> None:
        self.response = response
        self.records = records
        # False where the shard holds more than its records say (who waits for what) and has changed itself already.
        self.replay = replay
        # False where the records mean something one by one, so that very many may go into several batches.
        self.atomic = atomic
        # Told when the records are committed, or why they could not be written.
        self.done = done
