"""Describing groups of one kind (consumer, share, streams): many in one request, and only what the caller may see.

Decides about permissions; what is said of a group is the coordinator's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from moldau.broker.authorization import Operation, ResourceKind, authorized_operations
from moldau.broker.context import Caller
from moldau.broker.gathering import after, gather
from moldau.broker.services import BrokerServices
from moldau.ports import Pending
from moldau.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.runtime import CoordinatorRuntime


class Description(Protocol):
    """What the answers for all kinds have in common."""

    group_id: str
    error_code: int
    error_message: str | None
    authorized_operations: int


DescriptionT = TypeVar("DescriptionT", bound=Description)
AnswerT = TypeVar("AnswerT")


class GroupDescriptions(Generic[DescriptionT]):
    def __init__(
        self,
        services: BrokerServices,
        runtime: CoordinatorRuntime[GroupShard],
        *,
        blank: Callable[[], DescriptionT],
        look_up: Callable[[GroupShard, str], DescriptionT],
        topics: Callable[[DescriptionT], Iterable[str]],
        hidden: str,
    ) -> None:
        self._services = services
        self._runtime = runtime
        self._blank = blank
        self._look_up = look_up
        # The topics that a description gives away.
        self._topics = topics
        # What is said instead to callers that must not know of one of them.
        self._hidden = hidden

    def refused(self, group_id: str, code: int, message: str | None = None) -> DescriptionT:
        description = self._blank()
        description.group_id, description.error_code, description.error_message = group_id, code, message
        return description

    def describe(
        self,
        group_ids: list[str],
        caller: Caller,
        answer: Callable[[list[DescriptionT]], AnswerT],
        *,
        with_operations: bool,
    ) -> AnswerT | Pending[AnswerT]:
        def finished(groups: list[DescriptionT]) -> AnswerT:
            if with_operations:
                for group in groups:
                    if not group.error_code:
                        group.authorized_operations = authorized_operations(
                            self._services.guard, caller, ResourceKind.GROUP, group.group_id
                        )
            return answer([self._seen(group, caller) for group in groups])

        return gather([self._describe_one(group_id, caller) for group_id in group_ids], finished)

    def _describe_one(self, group_id: str, caller: Caller) -> DescriptionT | Pending[DescriptionT]:
        guard = self._services.guard
        if guard is not None and not guard.allows(caller, Operation.DESCRIBE, ResourceKind.GROUP, group_id):
            return self.refused(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not group_id:
            return self.refused(group_id, ErrorCode.INVALID_GROUP_ID)
        try:
            host = self._runtime.host_of(group_id)
        except ApiError as error:
            return self.refused(group_id, error.code)
        found = self._runtime.read(host, lambda shard: self._look_up(shard, group_id))
        return after(found, lambda group: self.refused(group_id, group.code) if isinstance(group, ApiError) else group)

    def _seen(self, group: DescriptionT, caller: Caller) -> DescriptionT:
        """A group that reads a topic the caller must not know of is not shown at all."""
        guard = self._services.guard
        if guard is None or all(
            guard.allows(caller, Operation.DESCRIBE, ResourceKind.TOPIC, topic) for topic in self._topics(group)
        ):
            return group
        return self.refused(group.group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, self._hidden)
