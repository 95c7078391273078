"""The cluster's own topics, and the refusal of names that no topic may have."""

from __future__ import annotations

from moldau.controller.topic_names import reason_against
from moldau.protocol.errors import ApiError, ErrorCode

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})


def validate(name: str) -> None:
    reason = reason_against(name)
    if reason is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS
