"""Topics that come into being because a client asked about them (`auto.create.topics.enable`).

Decides which unknown names become a CreateTopics request to the controller, and makes sure that a name is asked for
only once at a time however many clients wait for it. The client is told UNKNOWN_TOPIC_OR_PARTITION meanwhile and asks
again, as with Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from moldau.broker.context import Caller
from moldau.broker.services import BrokerServices
from moldau.broker.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from moldau.controller.topic_names import reason_against
from moldau.ports import Pending
from moldau.protocol.errors import ApiError, ErrorCode, error_code
from moldau.protocol.generated.wire.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.protocol.generated.wire.create_topics_response import CreatableTopicResult, CreateTopicsResponse

log = logging.getLogger("moldau.broker")

_CREATE_TOPICS_VERSION = 7
# Topics named in one line of the log.
_NAMED = 3
# Clients ask again at once; the same complaint is not repeated sooner than this.
_COMPLAIN_EVERY_MS = 10_000

# For each internal topic: its settings for partitions and replicas, and what else it is created with.
_INTERNAL = {
    CONSUMER_OFFSETS: (
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        {"cleanup.policy": "compact", "compression.type": "producer"},
        {"segment.bytes": "offsets.topic.segment.bytes"},
    ),
    TRANSACTION_STATE: (
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
        {
            "unclean.leader.election.enable": "false",
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
        },
        {
            "min.insync.replicas": "transaction.state.log.min.isr",
            "segment.bytes": "transaction.state.log.segment.bytes",
        },
    ),
    SHARE_GROUP_STATE: (
        "share.coordinator.state.topic.num.partitions",
        "share.coordinator.state.topic.replication.factor",
        {"cleanup.policy": "delete", "compression.type": "producer", "retention.ms": "-1"},
        {
            "segment.bytes": "share.coordinator.state.topic.segment.bytes",
            "min.insync.replicas": "share.coordinator.state.topic.min.isr",
        },
    ),
}


class TopicAutoCreator:
    """Asks the controller for missing topics, each at most once at a time."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._in_flight: dict[str, Pending[ErrorCode]] = {}
        # What was said last, and until when it is not said again.
        self._complaint = ""
        self._silent_until_ms = 0

    def create(self, names: Iterable[str], caller: Caller) -> dict[str, ErrorCode]:
        """Have these topics created; gives what each is answered with for now."""
        answers: dict[str, ErrorCode] = {}
        wanted: list[str] = []
        for name in names:
            if reason_against(name) is not None:
                answers[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
                continue
            answers[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if name not in self._in_flight:
                wanted.append(name)
        if wanted:
            self._ask(wanted, caller.principal)
        return answers

    def ensure(self, name: str, principal: str) -> Pending[ErrorCode]:
        """Have one topic created; the promise is kept when the controller has answered, NONE if it exists now."""
        known = self._in_flight.get(name)
        return self._ask([name], principal)[name] if known is None else known

    def _ask(self, names: list[str], principal: str) -> dict[str, Pending[ErrorCode]]:
        promises: dict[str, Pending[ErrorCode]] = {name: Pending() for name in names}
        self._in_flight.update(promises)
        services = self._services
        request = CreateTopicsRequest(
            topics=[self._creatable(name) for name in names],
            timeout_ms=services.config.integer("request.timeout.ms"),
        )

        def answered(response: CreateTopicsResponse | ApiError) -> None:
            if isinstance(response, ApiError):
                self._complain(names, str(response))
                results = dict.fromkeys(names, response.code)
            else:
                results = self._outcomes(response.topics)
            for name in names:
                self._in_flight.pop(name).resolve(results.get(name, ErrorCode.UNKNOWN_SERVER_ERROR))

        services.controller.ask(request, _CREATE_TOPICS_VERSION, principal).then(answered)
        return promises

    def _creatable(self, name: str) -> CreatableTopic:
        config = self._services.config
        internal = _INTERNAL.get(name)
        if internal is None:
            # What is not set here is left to the controller, whose own defaults may differ.
            return CreatableTopic(
                name=name,
                num_partitions=config.integer("num.partitions") if config.is_set("num.partitions") else -1,
                replication_factor=(
                    config.integer("default.replication.factor") if config.is_set("default.replication.factor") else -1
                ),
            )
        partitions, replicas, fixed, taken = internal
        settings = {**fixed, **{key: str(config.integer(setting)) for key, setting in taken.items()}}
        return CreatableTopic(
            name=name,
            num_partitions=config.integer(partitions),
            replication_factor=config.integer(replicas),
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
        )

    def _outcomes(self, results: Iterable[CreatableTopicResult]) -> dict[str, ErrorCode]:
        outcomes: dict[str, ErrorCode] = {}
        refused: dict[str, list[str]] = {}
        for result in results:
            code = error_code(result.error_code)
            outcomes[result.name] = ErrorCode.NONE if code is ErrorCode.TOPIC_ALREADY_EXISTS else code
            if outcomes[result.name] is not ErrorCode.NONE:
                refused.setdefault(f"{code.name}: {result.error_message}", []).append(result.name)
        for reason, names in refused.items():
            self._complain(names, reason)
        return outcomes

    def _complain(self, names: list[str], reason: str) -> None:
        """One line, however many topics a client asked for and however often."""
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        complaint = f"topics {', '.join(names[:_NAMED])}{more} could not be created automatically: {reason[:500]}"
        now_ms = self._services.clock.monotonic_ms()
        if complaint != self._complaint or now_ms >= self._silent_until_ms:
            self._complaint = complaint
            self._silent_until_ms = now_ms + _COMPLAIN_EVERY_MS
            log.warning("%s", complaint)
