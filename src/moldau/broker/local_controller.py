"""The way to the controller when it runs in this very process: a direct call, no network in between."""

from __future__ import annotations

from typing import Any, Final, cast

from moldau.controller.controller import Controller
from moldau.controller.handlers import HANDLERS
from moldau.ports import Clock, Pending
from moldau.protocol.api import ApiKey
from moldau.protocol.generated.wire.describe_quorum_request import DescribeQuorumRequest
from moldau.protocol.wire import WireMessage
from moldau.quorum.describe import describe_quorum
from moldau.quorum.quorum import Quorum

_VOTER_CHANGES: Final = frozenset({ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.UPDATE_RAFT_VOTER})
SERVED: Final = frozenset(
    {ApiKey.DESCRIBE_QUORUM, *_VOTER_CHANGES, *(cast(type[WireMessage], each).API_KEY for each in HANDLERS)}
)
"""What an active controller answers."""


class LocalController:
    """`ControllerChannel` to the controller of this process; one that is not active says so."""

    def __init__(self, controller: Controller, quorum: Quorum, clock: Clock) -> None:
        self._controller = controller
        self._quorum = quorum
        self._clock = clock

    def serves(self, api_key: int) -> bool:
        return api_key in SERVED

    def ask(self, request: Any, api_version: int, principal: str, *, host: str = "") -> Pending[Any]:
        if isinstance(request, DescribeQuorumRequest):
            return Pending.of(describe_quorum(self._quorum, request, api_version, self._clock))
        if request.API_KEY in _VOTER_CHANGES:
            answer = self._quorum.handlers()[ApiKey(request.API_KEY)](request, api_version)
            return answer if isinstance(answer, Pending) else Pending.of(answer)
        return self._controller.handle(request, api_version, principal)

    def leader_id(self) -> int:
        return self._quorum.leader_id

    def committed_offset(self) -> int:
        return self._quorum.high_watermark - 1
