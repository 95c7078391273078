"""The answers to requests about share groups and their state that failed as a whole (`failures.py` has the rest)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from moldau.broker.share_state_apis import SHARE_STATE_APIS, parts_of
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import MESSAGES
from moldau.protocol.generated.wire.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from moldau.protocol.generated.wire.share_group_describe_response import DescribedGroup, ShareGroupDescribeResponse

if TYPE_CHECKING:
    from moldau.broker.failures import Failed


def _describe(request: Any, failed: Failed) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(
        groups=[DescribedGroup(error_code=failed.code, group_id=group_id) for group_id in request.group_ids]
    )


def _describe_offsets(request: Any, failed: Failed) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[
            DescribeShareGroupOffsetsResponseGroup(
                group_id=group.group_id, error_code=failed.code, error_message=failed.message
            )
            for group in request.groups
        ]
    )


def _state(request: Any, failed: Failed) -> Any:
    api = SHARE_STATE_APIS[request.API_KEY]
    message = MESSAGES[failed.code] if failed.message is None else failed.message
    return api.response_of(
        (key.topic_id, api.failed(key.partition, failed.code, message)) for key, _ in parts_of(request)
    )


SHARE_SHAPES: Final[Mapping[ApiKey, Callable[[Any, Failed], Any]]] = {
    ApiKey.SHARE_GROUP_DESCRIBE: _describe,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _describe_offsets,
    **{ApiKey(key): _state for key in SHARE_STATE_APIS},
}
