"""Brokers joining, reporting and leaving, and controllers announcing themselves.

Decides when a broker is fenced, unfenced and allowed to stop. A broker's epoch is the offset at which its
registration stands in the log: a later incarnation always has a higher one, and everything the cluster tells an
older one to do is refused by that.
"""

from __future__ import annotations

from enum import Enum

from moldau.controller import leadership
from moldau.controller.decision import Decision, Situation
from moldau.metadata.features import (
    CONTROLLER_REGISTRATION_SINCE,
    CORDONED_DIRECTORIES_SINCE,
    DIRECTORIES_SINCE,
    METADATA_VERSION,
    UNSUPPORTED,
    VersionRange,
)
from moldau.metadata.image import RESERVED_DIRECTORIES, BrokerRegistration
from moldau.metadata.records import MetadataRecord
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.metadata.broker_registration_change_record import BrokerRegistrationChangeRecord
from moldau.protocol.generated.metadata.register_broker_record import (
    BrokerEndpoint,
    BrokerFeature,
    RegisterBrokerRecord,
)
from moldau.protocol.generated.metadata.register_controller_record import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)
from moldau.protocol.generated.metadata.unregister_broker_record import UnregisterBrokerRecord
from moldau.protocol.generated.wire.broker_heartbeat_request import BrokerHeartbeatRequest
from moldau.protocol.generated.wire.broker_heartbeat_response import BrokerHeartbeatResponse
from moldau.protocol.generated.wire.broker_registration_request import BrokerRegistrationRequest
from moldau.protocol.generated.wire.broker_registration_response import BrokerRegistrationResponse
from moldau.protocol.generated.wire.controller_registration_request import ControllerRegistrationRequest
from moldau.protocol.generated.wire.controller_registration_response import ControllerRegistrationResponse
from moldau.protocol.generated.wire.unregister_broker_request import UnregisterBrokerRequest
from moldau.protocol.generated.wire.unregister_broker_response import UnregisterBrokerResponse
from moldau.protocol.uuids import uuid_to_string

FENCE = 1
UNFENCE = -1
ENTER_CONTROLLED_SHUTDOWN = 1


# ---- registration


def register_broker(s: Situation, request: BrokerRegistrationRequest) -> Decision[BrokerRegistrationResponse]:
    if request.cluster_id != s.cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {s.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    existing = s.state.brokers.get(request.broker_id)
    same_incarnation = existing is not None and existing.incarnation_id == request.incarnation_id
    if existing is not None and not same_incarnation and s.sessions.is_certainly_alive(request.broker_id):
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted, its session "
            "expires soon and this resolves itself.",
        )
    if request.is_migrating_zk_broker:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers.")
    _check_directories(s, request)
    _check_features(s, request)
    record = _registration(s, request)
    records: list[MetadataRecord] = []
    if existing is not None and same_incarnation:
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
        record.broker_epoch = existing.epoch
        if existing.cordoned_log_dirs is not None:
            record.cordoned_log_dirs = list(existing.cordoned_log_dirs)
    else:
        record.broker_epoch = s.next_offset
        if existing is not None:
            records += _previous_incarnation_ends(s, existing, request.previous_broker_epoch)
        s.sessions.begin(request.broker_id, fenced=True)
    records.append(record)
    return Decision(records, BrokerRegistrationResponse(broker_epoch=record.broker_epoch))


def _previous_incarnation_ends(s: Situation, existing: BrokerRegistration, previous_epoch: int) -> list[MetadataRecord]:
    """A broker that says it shut down in the epoch we know has everything it ever acknowledged."""
    if s.state.elr_enabled and previous_epoch != existing.epoch:
        return list(leadership.broker_crashed(s, existing.id))
    return list(leadership.broker_leaves(s, existing.id))


def _registration(s: Situation, request: BrokerRegistrationRequest) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in request.listeners
        ],
        features=[
            BrokerFeature(
                name=f.name,
                min_supported_version=f.min_supported_version,
                max_supported_version=f.max_supported_version,
            )
            for f in request.features
        ],
        rack=request.rack,
        fenced=True,
        log_dirs=list(request.log_dirs) if s.state.metadata_version >= DIRECTORIES_SINCE else [],
    )


def _check_directories(s: Situation, request: BrokerRegistrationRequest) -> None:
    if s.state.metadata_version < DIRECTORIES_SINCE:
        return
    directories = request.log_dirs
    if not directories:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
    if any(directory in RESERVED_DIRECTORIES for directory in directories):
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
    if len(set(directories)) != len(directories):
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
    for broker in s.state.brokers.values():
        if broker.id == request.broker_id:
            continue
        for directory in directories:
            if directory in broker.log_dirs:
                raise ApiError(
                    ErrorCode.INVALID_REGISTRATION,
                    f"Broker {broker.id} is already registered with directory {uuid_to_string(directory)}",
                )


def _check_features(s: Situation, request: BrokerRegistrationRequest) -> None:
    """The broker must be able to work with everything the cluster has finalised."""
    offered = {f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in request.features}
    if METADATA_VERSION not in offered:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "Request features do not contain 'metadata.version'")
    finalised = s.state.features
    for name in offered.keys() | finalised.keys():
        level, levels = finalised.get(name, 0), offered.get(name, UNSUPPORTED)
        if level not in levels:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. The "
                f"broker wants a version between {levels.min} and {levels.max}, inclusive.",
            )


# ---- heartbeats


class _State(Enum):
    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "moving its leaders away"
    SHUTDOWN_NOW = "may stop"


def heartbeat(s: Situation, request: BrokerHeartbeatRequest) -> Decision[BrokerHeartbeatResponse]:
    broker = s.state.check_broker_epoch(request.broker_id, request.broker_epoch)
    current = _current_state(broker)
    next_ = _next_state(s, broker, current, request)
    records: list[MetadataRecord] = []
    if next_ is not current:
        records += _transition(s, broker, next_)
    fenced = next_ in (_State.FENCED, _State.SHUTDOWN_NOW)
    s.sessions.touch(broker.id, fenced=fenced, metadata_offset=request.current_metadata_offset)
    if next_ is _State.CONTROLLED_SHUTDOWN:
        session = s.sessions.of(broker.id)
        if not session.is_shutting_down:
            # Leaders have moved once the other brokers have read this decision.
            session.shutdown_offset = s.next_offset + len(records) - 1
    if s.state.metadata_version >= DIRECTORIES_SINCE:
        records += _offline_directories(s, broker, request.offline_log_dirs)
    if s.state.metadata_version >= CORDONED_DIRECTORIES_SINCE:
        records += _cordoned_directories(broker, request.cordoned_log_dirs)
    response = BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= s.state.registered_at(broker.id),
        is_fenced=fenced,
        should_shut_down=next_ is _State.SHUTDOWN_NOW,
    )
    return Decision(records, response)


def _current_state(broker: BrokerRegistration) -> _State:
    if broker.fenced:
        return _State.FENCED
    return _State.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else _State.UNFENCED


def _next_state(s: Situation, broker: BrokerRegistration, current: _State, request: BrokerHeartbeatRequest) -> _State:
    if current is _State.FENCED:
        if request.want_shut_down:
            return _State.SHUTDOWN_NOW
        caught_up = request.current_metadata_offset >= s.state.registered_at(broker.id)
        # A broker that was on its way out comes back as a new incarnation only.
        may_serve = caught_up and not request.want_fence and not broker.in_controlled_shutdown
        return _State.UNFENCED if may_serve else _State.FENCED
    if current is _State.UNFENCED:
        if request.want_fence:
            return _State.SHUTDOWN_NOW if request.want_shut_down else _State.FENCED
        if not request.want_shut_down:
            return _State.UNFENCED
        leads = leadership.leads_anything(s, broker.id)
        return _State.CONTROLLED_SHUTDOWN if leads else _State.SHUTDOWN_NOW
    if leadership.leads_anything(s, broker.id):
        return _State.CONTROLLED_SHUTDOWN
    lowest = s.sessions.lowest_active_offset()
    others_know = lowest is None or s.sessions.of(broker.id).shutdown_offset <= lowest
    return _State.SHUTDOWN_NOW if others_know else _State.CONTROLLED_SHUTDOWN


def _transition(s: Situation, broker: BrokerRegistration, next_: _State) -> list[MetadataRecord]:
    if next_ is _State.UNFENCED:
        change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=UNFENCE)
        return [change, *leadership.broker_arrives(s, broker.id)]
    if next_ is _State.CONTROLLED_SHUTDOWN:
        change = BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=ENTER_CONTROLLED_SHUTDOWN
        )
        return [change, *leadership.broker_leaves(s, broker.id)]
    return fence(s, broker) if not broker.fenced else []


def fence(s: Situation, broker: BrokerRegistration) -> list[MetadataRecord]:
    """Take a broker out of service: the cluster no longer counts on it."""
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE)
    return [*leadership.broker_leaves(s, broker.id), change]


def fence_expired(s: Situation, broker_id: int) -> Decision[None]:
    """A broker whose session ran out without a heartbeat."""
    broker = s.state.brokers.get(broker_id)
    if broker is None:
        s.sessions.end(broker_id)
        return Decision([], None)
    s.sessions.of(broker_id).fenced = True
    return Decision([] if broker.fenced else fence(s, broker), None)


def _offline_directories(s: Situation, broker: BrokerRegistration, offline: list[bytes]) -> list[MetadataRecord]:
    lost = [directory for directory in broker.log_dirs if directory in offline]
    if not lost:
        return []
    records: list[MetadataRecord] = []
    for directory in lost:
        records += leadership.directory_is_lost(s, broker.id, directory)
    left = [directory for directory in broker.log_dirs if directory not in offline]
    records.append(BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=left))
    return records


def _cordoned_directories(broker: BrokerRegistration, cordoned: list[bytes] | None) -> list[MetadataRecord]:
    if cordoned is None:
        return []
    known = broker.cordoned_log_dirs
    if known is not None and set(known) == set(cordoned):
        return []
    return [
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=list(cordoned))
    ]


# ---- unregistration and controllers


def unregister_broker(s: Situation, request: UnregisterBrokerRequest) -> Decision[UnregisterBrokerResponse]:
    broker = s.state.brokers.get(request.broker_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {request.broker_id} is not currently registered")
    records: list[MetadataRecord] = [*leadership.broker_is_gone(s, broker.id)]
    records.append(UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch))
    s.sessions.end(broker.id)
    return Decision(records, UnregisterBrokerResponse(error_message=None))


def register_controller(
    s: Situation, request: ControllerRegistrationRequest
) -> Decision[ControllerRegistrationResponse]:
    if s.state.metadata_version < CONTROLLER_REGISTRATION_SINCE:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller registrations.",
        )
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=False,
        end_points=[
            ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in request.listeners
        ],
        features=[
            ControllerFeature(
                name=f.name,
                min_supported_version=f.min_supported_version,
                max_supported_version=f.max_supported_version,
            )
            for f in request.features
        ],
    )
    return Decision([record], ControllerRegistrationResponse(error_message=None))
