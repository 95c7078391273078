"""Streams groups (KIP-1071): members that share the tasks of one topology.

Loaded when the first of them is met, in the log or on the wire; only how their records are recognised is known before.
"""

from __future__ import annotations

from typing import Final

# Types of records, as the first two bytes of their keys.
GROUP_METADATA: Final = 17
MEMBER_METADATA: Final = 19
TARGET_METADATA: Final = 20
TARGET_MEMBER: Final = 21
CURRENT_ASSIGNMENT: Final = 22
TOPOLOGY: Final = 23
RECORD_TYPES: Final = (
    GROUP_METADATA,
    MEMBER_METADATA,
    TARGET_METADATA,
    TARGET_MEMBER,
    CURRENT_ASSIGNMENT,
    TOPOLOGY,
)
