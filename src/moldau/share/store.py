"""What a share partition asks of the place where its state is kept.

The state outlives the leader: it is read when a leader takes over and written before an acknowledgement is answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from moldau.ports import Pending
from moldau.protocol.errors import ApiError

UNINITIALIZED = -1
"""The start offset of a share partition that nobody has read from yet: the group's reset policy decides."""


class StateBatch(NamedTuple):
    """Neighbouring records that stand alike, as they are stored."""

    first: int
    last: int
    state: int
    deliveries: int


class StoredState(NamedTuple):
    state_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]


class StateStore(Protocol):
    """The stored state of one share partition, for one leader epoch."""

    def read(self) -> Pending[StoredState | ApiError]: ...

    def write(
        self, state_epoch: int, start_offset: int, delivery_complete: int, batches: list[StateBatch]
    ) -> Pending[ApiError | None]: ...
