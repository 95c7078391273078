"""The topics that streams applications need for themselves: asked for in the member's name, one at a time each.

What could not be created is remembered for a while: it is not tried again until then, and members are told why. Decides
nothing about the topics; their names, partitions and settings come with the group's topology.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from moldau.broker.services import BrokerServices
from moldau.protocol.errors import ApiError, ErrorCode, error_code
from moldau.protocol.generated.wire.create_topics_request import CreatableTopic, CreateTopicsRequest
from moldau.protocol.generated.wire.create_topics_response import CreateTopicsResponse

log = logging.getLogger("moldau.broker")

_CREATE_TOPICS_VERSION = 7
_REMEMBERED = 1000


class StreamsTopics:
    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._in_flight: set[str] = set()
        # By topic: why it was refused, and until when that is remembered.
        self._refused: dict[str, tuple[str, int]] = {}

    def create(self, topics: Mapping[str, CreatableTopic], principal: str, remember_ms: int) -> None:
        refused = self.refusals(topics)
        wanted = [topic for name, topic in topics.items() if name not in refused and name not in self._in_flight]
        if not wanted:
            return
        names = [topic.name for topic in wanted]
        self._in_flight.update(names)
        services = self._services
        request = CreateTopicsRequest(topics=wanted, timeout_ms=services.config.integer("request.timeout.ms"))

        def answered(response: CreateTopicsResponse | ApiError) -> None:
            self._in_flight.difference_update(names)
            if isinstance(response, ApiError):
                self._remember(dict.fromkeys(names, response.message or response.code.name), remember_ms)
                return
            failures: dict[str, str] = {}
            for result in response.topics:
                code = error_code(result.error_code)
                if code is not ErrorCode.NONE:
                    failures[result.name] = result.error_message or ApiError(code).message
            self._remember(failures, remember_ms)

        log.info("creating topics %s for a streams group", ", ".join(names))
        services.controller.ask(request, _CREATE_TOPICS_VERSION, principal).then(answered)

    def refusals(self, topics: Iterable[str]) -> dict[str, str]:
        """Which of these topics were refused lately, and why."""
        now = self._services.clock.monotonic_ms()
        found = ((name, self._refused.get(name)) for name in topics)
        return {name: refusal[0] for name, refusal in found if refusal is not None and refusal[1] > now}

    def _remember(self, failures: Mapping[str, str], remember_ms: int) -> None:
        now = self._services.clock.monotonic_ms()
        self._refused = {name: refusal for name, refusal in self._refused.items() if refusal[1] > now}
        for name, reason in failures.items():
            log.warning("topic %s could not be created for a streams group: %s", name, reason)
            self._refused.pop(name, None)
            self._refused[name] = (reason, now + remember_ms)
        for name in list(self._refused)[: len(self._refused) - _REMEMBERED]:
            del self._refused[name]
