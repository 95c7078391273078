"""The states of a record in a share group, the kinds of acknowledgement, and which change of state is possible.

Decides nothing about time or ownership; numbers are those of the wire and of the stored state.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

NOBODY: Final = ""
"""The member that holds what nobody holds."""


class RecordState(IntEnum):
    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    # Reserved by Kafka for records on their way to a dead-letter topic; read from stored state, never entered here.
    ARCHIVING = 3
    ARCHIVED = 4


AVAILABLE: Final = RecordState.AVAILABLE
ACQUIRED: Final = RecordState.ACQUIRED
ACKNOWLEDGED: Final = RecordState.ACKNOWLEDGED
ARCHIVED: Final = RecordState.ARCHIVED

TERMINAL: Final = frozenset({ACKNOWLEDGED, ARCHIVED})


class AcknowledgeType(IntEnum):
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


RENEW: Final = AcknowledgeType.RENEW

STATE_AFTER: Final = {
    AcknowledgeType.GAP: ARCHIVED,
    AcknowledgeType.ACCEPT: ACKNOWLEDGED,
    AcknowledgeType.RELEASE: AVAILABLE,
    AcknowledgeType.REJECT: ARCHIVED,
}
"""What becomes of a record that is acknowledged so. RENEW is missing: it changes how long, not what."""


def may_become(now: RecordState, then: RecordState) -> bool:
    if now is then or now in TERMINAL:
        return False
    return now is not AVAILABLE or then is ACQUIRED
