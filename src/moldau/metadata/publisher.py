"""From committed records to published images: the loader that every node runs, whatever its roles.

The loader replays what the quorum committed and tells its publishers about each new image, in order, exactly once.
A publisher sees whole decisions only: records between BeginTransaction and EndTransaction appear together or, after
AbortTransaction, not at all. The loader must never see a record that is not committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from moldau.metadata.delta import ImageDelta, difference
from moldau.metadata.image import EMPTY_IMAGE, ClusterImage, Provenance
from moldau.metadata.records import MetadataRecord
from moldau.metadata.replay import ImageBuilder, ReplayError
from moldau.protocol.generated.metadata.abort_transaction_record import AbortTransactionRecord
from moldau.protocol.generated.metadata.begin_transaction_record import BeginTransactionRecord
from moldau.protocol.generated.metadata.end_transaction_record import EndTransactionRecord


class CommittedBatch(NamedTuple):
    """One batch of the metadata log below the high watermark; `records` is empty for a control batch."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    size_bytes: int
    records: Sequence[MetadataRecord]


Publisher: TypeAlias = Callable[[ImageDelta, ClusterImage], None]
"""Something on the node that follows the cluster's metadata: told what changed, and the new image."""


class MetadataLoader:
    """Keeps the newest published image, and the half-replayed one while a transaction is open."""

    __slots__ = ("_before", "_builder", "_delta_known", "_publishers", "_replayed", "image", "transaction_open")

    def __init__(self) -> None:
        self.image = EMPTY_IMAGE
        self.transaction_open = False
        self._builder = ImageBuilder(EMPTY_IMAGE)
        self._before = EMPTY_IMAGE
        self._delta_known = True
        self._replayed = EMPTY_IMAGE.provenance
        self._publishers: list[Publisher] = []

    def add_publisher(self, publisher: Publisher) -> None:
        """Publishers are told in the order they were added; a late one first hears everything there is."""
        self._publishers.append(publisher)
        if self.image is not EMPTY_IMAGE:
            publisher(difference(EMPTY_IMAGE, self.image), self.image)

    def load_snapshot(self, records: Iterable[MetadataRecord], provenance: Provenance) -> None:
        """Replace everything by a snapshot's content."""
        builder = ImageBuilder(EMPTY_IMAGE)
        builder.replay_all(records)
        image, _ = builder.build(provenance)
        self._builder = builder
        self._before = image
        self._delta_known = True
        self._replayed = provenance
        self.transaction_open = False
        self._publish(difference(self.image, image), image)

    def load_batches(self, batches: Sequence[CommittedBatch], *, more_follows: bool = False) -> None:
        """Replay batches in the order of the log. One publication for all of them, together with those before them
        that said that more follows, once no transaction is open."""
        for batch in batches:
            for index, record in enumerate(batch.records):
                kind = type(record)
                if kind is BeginTransactionRecord:
                    self._begin(batch, batch.base_offset + index - 1)
                elif kind is EndTransactionRecord:
                    self.transaction_open = False
                elif kind is AbortTransactionRecord:
                    self._abort()
                else:
                    self._builder.replay(record)
        if batches:
            last = batches[-1]
            self._replayed = Provenance(last.last_offset, last.epoch, last.timestamp_ms)
        if not (more_follows or self.transaction_open) and self._replayed.offset > self.image.offset:
            self._publish_replayed(self._replayed)

    def _begin(self, batch: CommittedBatch, last_offset: int) -> None:
        if self.transaction_open:
            raise ReplayError(f"a metadata transaction begins at offset {last_offset + 1} inside another one")
        self.transaction_open = True
        # To go back to if the transaction is aborted. The delta from the published image is lost by this.
        self._before, _ = self._builder.build(Provenance(last_offset, batch.epoch, batch.timestamp_ms))
        self._delta_known = False

    def _abort(self) -> None:
        self.transaction_open = False
        self._builder = ImageBuilder(self._before)

    def _publish_replayed(self, provenance: Provenance) -> None:
        image, delta = self._builder.build(provenance)
        if not self._delta_known:
            delta = difference(self.image, image)
            self._delta_known = True
        self._before = image
        self._publish(delta, image)

    def _publish(self, delta: ImageDelta, image: ClusterImage) -> None:
        self.image = image
        for publisher in self._publishers:
            publisher(delta, image)
