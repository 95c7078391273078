"""Compaction: a topic of which only the latest value of each key must stay, and the judgement over what did.

Decides what compaction may remove: values that a later one of the same key replaces, what was aborted, markers and
tombstones. The latest values must be on every replica. Who reads a log while it is compacted may miss what is replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from moldau.records.builder import BatchBuilder
from moldau.testing.simulation.ledger import Broken, Ledger, batches_of, records_of
from moldau.testing.simulation.producers import IdempotentProducer

if TYPE_CHECKING:
    from moldau.testing.simulation.node import SimulatedNode
    from moldau.testing.simulation.world import Simulation

KEYS = 4
# One of so many records removes its key.
RECORDS_PER_TOMBSTONE = 7


class TableProducer(IdempotentProducer):
    """Writes values of a few keys again and again. What a record is depends on its value alone: it may be sent again.

    Tombstones are nowhere to be found later; only what they leave is judged."""

    def values(self, *, idempotent: bool) -> list[bytes]:
        found = super().values(idempotent=idempotent)
        for value in found:
            if _is_tombstone(value):
                del self.world.history.sent[value]
        return found

    def note(self, value: bytes, offset: int) -> None:
        if not _is_tombstone(value):
            super().note(value, offset)

    def batch(self, values: list[bytes], producer_id: int = -1, epoch: int = -1, sequence: int = -1) -> bytes:
        builder = BatchBuilder(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        now = self.world.clock.now_ms()
        for value in values:
            key = b"key%d" % (crc32(b"key of " + value) % KEYS)
            builder.append(key, None if _is_tombstone(value) else value, timestamp=now)
        return builder.build()


def _is_tombstone(value: bytes) -> bool:
    return crc32(value) % RECORDS_PER_TOMBSTONE == 0


def judge_tables(world: Simulation) -> None:
    """What is left on every replica: of what was committed, in order, and the latest values among it."""
    topics = world.rules.truth.topics_by_name
    for name in sorted(world.compacted & topics.keys()):
        for index, registration in topics[name].partitions.items():
            ledger = world.rules.ledgers.get((topics[name].id, index))
            if ledger is not None:
                for replica in registration.replicas:
                    _judge_copy(world.nodes[replica], name, index, ledger)


def _judge_copy(node: SimulatedNode, topic: str, index: int, ledger: Ledger) -> None:
    copy = None if node.rooms is None else node.rooms.partitions.find(topic, index)
    if copy is None or not copy.opened:
        return
    offsets: list[int] = []
    for header, data in batches_of(copy.log, copy.log.log_start_offset, copy.log.high_watermark):
        ledger.note(node.host, header, data)
        offsets += [each.offset for each in records_of(header, data)]
    if offsets != sorted(set(offsets)):
        raise Broken(f"{ledger.where}: {node.host} has records out of order: {offsets}")
    found = set(offsets)
    for key, latest in ledger.latest_values().items():
        if latest.offset not in found:
            raise Broken(
                f"{ledger.where}: {node.host} compacted the latest value of {key!r} away (offset {latest.offset})"
            )
