"""Requests that only the active controller can answer: passed on as they are, in the caller's name.

Decides nothing about their content. An answer that changed the cluster is held back until this broker's own image
has the change, so that whoever made it and asks here next sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moldau.broker.context import Caller
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.ports import Pending
from moldau.protocol.api import ApiKey

# What the broker passes on without looking at it. AlterConfigs and its sibling are not here: a broker checks those of
# its own settings first (`configs.py`).
CHANGING = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
)
READING = (
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_QUORUM,
)


class Forwarder:
    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """Only what the controller serves: the rest is not advertised either."""
        serves = self._services.controller.serves
        handlers: dict[ApiKey, Handler] = {key: self.change for key in CHANGING if serves(key)}
        handlers.update({key: self.read for key in READING if serves(key)})
        return handlers

    def read(self, request: Any, caller: Caller) -> Pending[Any]:
        return self._services.controller.ask(request, caller.api_version, caller.principal)

    def change(self, request: Any, caller: Caller) -> Pending[Any]:
        services = self._services
        if services.guard is None:
            return forward_change(services, request, caller)
        # Loaded where somebody asks who may do what.
        from moldau.broker.topic_permissions import ask_about_permitted_topics

        return ask_about_permitted_topics(
            services.guard, services.image, request, caller, lambda allowed: forward_change(services, allowed, caller)
        )


def forward_change(services: BrokerServices, request: Any, caller: Caller) -> Pending[Any]:
    """The controller's answer, once this broker sees what it changed."""
    answer: Pending[Any] = Pending()

    def answered(response: Any) -> None:
        wait = services.when_image_reaches
        offset = services.controller.committed_offset()
        if wait is None or offset <= services.image.offset:
            answer.resolve(response)
        else:
            wait(offset, lambda: answer.resolve(response))

    asked = services.controller.ask(request, caller.api_version, caller.principal, host=caller.host)
    asked.then(answered)
    return answer
