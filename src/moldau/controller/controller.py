"""The controller: while this node leads the quorum, it decides, appends, and answers when its records are committed.

It holds the state that decisions look at, which includes records not committed yet; an answer therefore leaves only
when everything appended before it is committed. It must never decide while this node does not lead, and never touch
the state except by replaying what it appends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from moldau.config.node_config import NodeConfig
from moldau.controller.activation import activation_records
from moldau.controller.brokers import fence_expired
from moldau.controller.decision import Situation
from moldau.controller.elections import elect_uncleanly, rebalance_leaders
from moldau.controller.failovers import Failovers, leaders_moved
from moldau.controller.handlers import HANDLERS, Handler
from moldau.controller.periodic import Periodic
from moldau.controller.sessions import BrokerSessions
from moldau.controller.state import ControllerState
from moldau.controller.suspicion import Probe, Suspicions
from moldau.metadata.features import LATEST_METADATA_VERSION, TRANSACTIONS_SINCE, supported_features
from moldau.metadata.image import BrokerRegistration
from moldau.metadata.publisher import MetadataLoader
from moldau.metadata.records import MetadataRecord
from moldau.ports import Clock, Pending, Timer
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.metadata.begin_transaction_record import BeginTransactionRecord
from moldau.protocol.generated.metadata.end_transaction_record import EndTransactionRecord
from moldau.protocol.generated.metadata.no_op_record import NoOpRecord
from moldau.protocol.wire import WireMessage
from moldau.quorum.encoding import encode_records, fits_one_batch
from moldau.quorum.quorum import Quorum

log = logging.getLogger("moldau.controller")

# Appends after which the state goes on from the published image: bounds what it remembers beside it.
APPENDS_PER_REBASE: Final = 100


class Controller:
    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        quorum: Quorum,
        loader: MetadataLoader,
        clock: Clock,
        random: Random,
        config: Callable[[], NodeConfig],
        bootstrap: Sequence[MetadataRecord],
        unstable_features: bool = False,
        probe: Probe | None = None,
    ) -> None:
        """`config` gives the node's settings of the moment; `bootstrap` are the records of a new cluster; `probe`
        finds out whether a broker's process is gone, where there is a network to ask over."""
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._loader = loader
        self._clock = clock
        self._random = random
        self._config = config
        self._bootstrap = bootstrap
        self._supported = supported_features(unstable=unstable_features)
        self._state: ControllerState | None = None
        self._sessions: BrokerSessions | None = None
        self._probe = probe
        self._suspicions: Suspicions | None = None
        self._in_flight: Pending[ErrorCode] | None = None
        self._appends = 0
        self._expiry: Timer | None = None
        self._periodic: list[Periodic] = []
        self._offset_when_idle = -1
        self.failovers = Failovers(clock)

    @property
    def is_active(self) -> bool:
        return self._state is not None

    # ---- leadership

    def lead(self, epoch: int) -> None:
        image = self._loader.image
        log.info("Controller %d is active in epoch %d from offset %d", self._node_id, epoch, image.offset)
        self._state = ControllerState(image)
        timeout_ms = self._config().integer("broker.session.timeout.ms")
        self._sessions = BrokerSessions(self._clock, timeout_ms, image.brokers.values())
        records = activation_records(
            image,
            transaction_open=self._loader.transaction_open,
            bootstrap=self._bootstrap,
            config=self._config(),
        )
        if records:
            self._append(self._state, records)
        self._watch_sessions()
        if self._probe is not None:
            state, sessions = self._state, self._sessions
            self._suspicions = Suspicions(self._clock, sessions, self._probe, lambda: state.brokers, self._broker_died)
        self._periodic = self._tasks(self._config())
        for task in self._periodic:
            task.start()

    def _tasks(self, config: NodeConfig) -> list[Periodic]:
        tasks = [
            Periodic(self._clock, config.integer("metadata.max.idle.interval.ms"), self._show_life),
            Periodic(
                self._clock,
                config.integer("unclean.leader.election.interval.ms"),
                lambda: self._decide_by_itself(elect_uncleanly),
            ),
        ]
        if config.flag("auto.leader.rebalance.enable"):
            interval_ms = config.integer("leader.imbalance.check.interval.seconds") * 1000
            tasks.append(Periodic(self._clock, interval_ms, lambda: self._decide_by_itself(rebalance_leaders)))
        return tasks

    def resign(self) -> None:
        self._state = None
        self._sessions = None
        self._in_flight = None
        if self._suspicions is not None:
            self._suspicions.stop()
            self._suspicions = None
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        for task in self._periodic:
            task.stop()
        self._periodic = []

    # ---- requests

    def handle(self, request: WireMessage, api_version: int, principal: str) -> Pending[WireMessage]:
        """The answer to a request that only the active controller may decide."""
        handler = HANDLERS[type(request)]
        try:
            situation = self._situation(api_version)
            decision = handler.decide(situation, request)
        except ApiError as error:
            return Pending.of(handler.refuse(request, error))
        records = decision.records
        if decision.dynamic_voters:
            # A record behind the voters' own: when it is committed, so are they.
            refused = self._quorum.voter_changes.upgrade()
            assert refused is None, f"decided, and then refused: {refused}"
            records = [*records, NoOpRecord()]
        if records:
            self._append(situation.state, records)
            self._watch_sessions()
        return self._when_committed(handler, request, decision.response)

    def _situation(self, api_version: int) -> Situation:
        if self._state is None or self._sessions is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")
        return Situation(
            state=self._state,
            sessions=self._sessions,
            config=self._config(),
            random=self._random,
            node_id=self._node_id,
            cluster_id=self._cluster_id,
            next_offset=self._quorum.next_offset,
            supported=self._supported,
            voter_ids=tuple(self._quorum.voters),
            kraft_version=self._quorum.kraft_version,
            why_not_dynamic_voters=self._quorum.voter_changes.why_not_dynamic,
            api_version=api_version,
        )

    def _when_committed(self, handler: Handler, request: Any, response: WireMessage) -> Pending[WireMessage]:
        in_flight = self._in_flight
        if in_flight is None:
            return Pending.of(response)
        answer: Pending[WireMessage] = Pending()

        def committed(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                answer.resolve(response)
            else:
                answer.resolve(handler.refuse(request, ApiError(code)))

        in_flight.then(committed)
        return answer

    # ---- appending

    def _append(self, state: ControllerState, records: Sequence[MetadataRecord]) -> Pending[ErrorCode]:
        """Replay, then append: what commits the records at once must already find the state changed. The promise is
        kept when they are committed, or never will be."""
        level = state.metadata_version or LATEST_METADATA_VERSION
        values = encode_records(records, level)
        if not fits_one_batch(values) and level >= TRANSACTIONS_SINCE:
            begin, end = BeginTransactionRecord(name="Large decision"), EndTransactionRecord()
            first, last = encode_records([begin, end], level)
            records, values = [begin, *records, end], [first, *values, last]
        state.replay(records, self._quorum.next_offset)
        committed: Pending[ErrorCode] = Pending()
        self._in_flight = committed
        self._quorum.append(records, values).committed.then(lambda code: self._committed(committed, code))
        return committed

    def _committed(self, which: Pending[ErrorCode], code: ErrorCode) -> None:
        if self._in_flight is which:
            self._in_flight = None
            self._appends += 1
            if self._state is not None and self._appends >= APPENDS_PER_REBASE and self._is_published():
                self._appends = 0
                self._state.rebase(self._loader.image)
        which.resolve(code)

    def _is_published(self) -> bool:
        return self._loader.image.offset == self._quorum.next_offset - 1

    # ---- what nobody asked for

    def _decide_by_itself(self, decide: Callable[[Situation], Sequence[MetadataRecord]]) -> None:
        situation = self._situation(api_version=0)
        records = decide(situation)
        if records:
            self._append(situation.state, records)

    def _show_life(self) -> None:
        """While nothing happens, a record from time to time shows the other nodes that they are up to date."""
        others = len(self._quorum.voters) > 1 or any(broker != self._node_id for broker in self._loader.image.brokers)
        if others and self._offset_when_idle == self._quorum.next_offset:
            self._decide_by_itself(lambda _: [NoOpRecord()])
        self._offset_when_idle = self._quorum.next_offset

    # ---- sessions

    def broker_connection_lost(self, broker_id: int, broker_epoch: int) -> None:
        """A broker's connection to this controller ended."""
        if self._suspicions is not None:
            self._suspicions.connection_lost(broker_id, broker_epoch)

    def _broker_died(self, broker: BrokerRegistration, since_ms: int) -> None:
        if self._state is None:
            return
        log.warning("Broker %d is gone: nobody listens at its address. Fencing it", broker.id)
        self._fence(broker.id, since_ms)

    def _fence(self, broker_id: int, since_ms: int) -> None:
        situation = self._situation(api_version=0)
        records = fence_expired(situation, broker_id).records
        if not records:
            return
        moved = leaders_moved(records)
        committed = self._append(situation.state, records)
        if moved:
            committed.then(lambda code: self.failovers.committed(since_ms, moved) if code is ErrorCode.NONE else None)

    def _watch_sessions(self) -> None:
        if self._expiry is None and self._sessions is not None:
            delay = self._sessions.next_expiry_in_ms()
            if delay is not None:
                self._expiry = self._clock.call_later(delay, self._check_sessions)

    def _check_sessions(self) -> None:
        self._expiry = None
        if self._sessions is None:
            return
        for broker_id in list(self._sessions.expired()):
            log.warning("Broker %d was not heard of for %d ms: fencing it", broker_id, self._sessions.timeout_ms)
            self._fence(broker_id, self._sessions.of(broker_id).last_contact_ms)
        self._watch_sessions()
