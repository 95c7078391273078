"""One shard of the transaction coordinator: the transactional ids behind one partition of the transaction-state topic.

Holds the state and tells whoever writes markers (`prepared`) what a predecessor left unfinished. What happens to an id
is decided by `producers.py`, `partitions.py` and `ending.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.coordinator.decision import CoordinatorRecord, Decision, Transaction
from moldau.coordinator.transaction.metadata import (
    TransactionMetadata,
    log_record,
    read_key,
    read_value,
    tombstone,
)
from moldau.coordinator.transaction.states import IDLE, PREPARED, TransactionState

if TYPE_CHECKING:
    from moldau.coordinator.runtime import ShardHost
    from moldau.metadata.delta import ImageDelta
    from moldau.metadata.image import ClusterImage

log = logging.getLogger("moldau.coordinator")

R = TypeVar("R")


class TransactionShard:
    def __init__(
        self,
        host: ShardHost[Any],
        *,
        transaction_version: Callable[[], int],
        prepared: Callable[[TransactionShard, str, TransactionMetadata], None],
        opened: Callable[[], None],
    ) -> None:
        """`prepared` is called for each transaction whose end is decided and committed; `opened` when one begins."""
        self.host = host
        self.ids: dict[str, TransactionMetadata] = {}
        # The ids with an open transaction, so that looking for those whose time is up does not touch all.
        self.ongoing: set[str] = set()
        self._transaction_version = transaction_version
        self._prepared = prepared
        self._opened = opened
        # What the latest decision wrote, to take it over without reading it back: (value, what it means).
        self._written: tuple[bytes | None, TransactionMetadata] | None = None

    def change(
        self,
        transactional_id: str,
        metadata: TransactionMetadata,
        response: R,
        done: Callable[[], None] | None = None,
    ) -> Decision[R]:
        """Write the new state of an id; `done` is called once it is committed."""
        record = log_record(transactional_id, metadata, self._transaction_version())
        self._written = record[1], metadata
        if done is None:
            return Decision(response, (record,))
        committed = done
        return Decision(response, (record,), done=lambda error: None if error is not None else committed())

    def end(self, transactional_id: str, metadata: TransactionMetadata, response: R) -> Decision[R]:
        """Write down how a transaction ends. Markers follow when that is committed, never before."""
        return self.change(
            transactional_id, metadata, response, lambda: self._prepared(self, transactional_id, metadata)
        )

    def is_current(self, transactional_id: str, metadata: TransactionMetadata) -> bool:
        """Whether nothing has changed since `metadata` was the state of this id."""
        return self.ids.get(transactional_id) is metadata

    # ---- time

    def timed_out(self, now_ms: int) -> list[tuple[str, TransactionMetadata]]:
        """Open transactions that have been so for longer than their producers asked for."""
        found: list[tuple[str, TransactionMetadata]] = []
        for transactional_id in self.ongoing:
            metadata = self.ids[transactional_id]
            if metadata.started_ms + metadata.timeout_ms < now_ms:
                found.append((transactional_id, metadata))
        return found

    def expire(self, now_ms: int, expiration_ms: int) -> Decision[None]:
        """Forget the ids that have not been used for so long."""
        records: list[CoordinatorRecord] = [
            tombstone(transactional_id)
            for transactional_id, metadata in self.ids.items()
            if metadata.state in IDLE and metadata.updated_ms <= now_ms - expiration_ms
        ]
        return Decision(None, records, atomic=False)

    # ---- the runtime's calls

    def replay(self, offset: int, transaction: Transaction | None, key: bytes, value: bytes | None) -> None:
        transactional_id = read_key(key)
        if transactional_id is None:
            log.warning("a record of an unknown type at offset %d is left out", offset)
            return
        if value is None:
            self.ids.pop(transactional_id, None)
            self.ongoing.discard(transactional_id)
            return
        written, self._written = self._written, None
        metadata = written[1] if written is not None and written[0] is value else read_value(value)
        if metadata is None:
            log.warning("a record of an unknown version at offset %d is left out", offset)
            return
        self.ids[transactional_id] = metadata
        if metadata.state is TransactionState.ONGOING:
            if not self.ongoing:
                self._opened()
            self.ongoing.add(transactional_id)
        else:
            self.ongoing.discard(transactional_id)

    def end_transaction(self, transaction: Transaction, committed: bool) -> None:
        """Never happens: the coordinator's own records are not part of anybody's transaction."""

    def loaded(self, image: ClusterImage) -> None:
        for transactional_id, metadata in list(self.ids.items()):
            if metadata.state in PREPARED:
                self._prepared(self, transactional_id, metadata)

    def unloaded(self) -> None:
        """Whatever is still under way finds nothing here any more, and stops; the new coordinator goes on with it."""
        self.ids.clear()
        self.ongoing.clear()

    def image_published(self, delta: ImageDelta, image: ClusterImage) -> None:
        """Nothing here depends on the cluster; markers that could not be written are tried again anyway."""
