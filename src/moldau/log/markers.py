"""Reading the one record of a transaction marker: committed or aborted, and by which coordinator's epoch."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from moldau.ports import Buffer
from moldau.records.batch import CONTROL_ABORT, CONTROL_COMMIT, BatchError, BatchHeader
from moldau.records.record import read_control_records

# Version, coordinator epoch.
_VALUE = Struct(">hi")


@dataclass(frozen=True, slots=True)
class EndMarker:
    committed: bool
    coordinator_epoch: int
    timestamp: int


def read_end_marker(header: BatchHeader, batch: Buffer) -> EndMarker | None:
    """The marker in a control batch; None for an empty batch (compaction removed it) or another control record."""
    for record in read_control_records(batch, header):
        if record.type in (CONTROL_ABORT, CONTROL_COMMIT):
            if len(record.value) < _VALUE.size:
                raise BatchError(f"the transaction marker at offset {record.offset} is too short")
            coordinator_epoch: int = _VALUE.unpack_from(record.value)[1]
            return EndMarker(record.type == CONTROL_COMMIT, coordinator_epoch, record.timestamp)
    return None
