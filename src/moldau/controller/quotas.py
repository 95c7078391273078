"""Client quotas: limits by user, client id and address."""

from __future__ import annotations

import ipaddress

from moldau.config.client_config import quota_keys, validate_quota
from moldau.config.types import ConfigError
from moldau.controller.decision import Decision, Situation
from moldau.metadata.image import QuotaEntity
from moldau.metadata.records import MetadataRecord, quota_entity_data
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.metadata.client_quota_record import ClientQuotaRecord
from moldau.protocol.generated.wire import alter_client_quotas_request, alter_client_quotas_response
from moldau.protocol.generated.wire.alter_client_quotas_request import AlterClientQuotasRequest
from moldau.protocol.generated.wire.alter_client_quotas_response import AlterClientQuotasResponse

ENTITY_TYPES = frozenset({"user", "client-id", "ip"})


def alter_client_quotas(s: Situation, request: AlterClientQuotasRequest) -> Decision[AlterClientQuotasResponse]:
    records: list[MetadataRecord] = []
    entries = []
    seen: set[QuotaEntity] = set()
    for entry in request.entries:
        error = None
        try:
            entity = _entity(entry)
            if entity in seen:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {_text(entity)}")
            seen.add(entity)
            records += _changes(s, entity, entry.ops)
        except ApiError as refused:
            error = refused
        entries.append(_answer(entry, error))
    return Decision([] if request.validate_only else records, AlterClientQuotasResponse(entries=entries))


def refuse_alter_client_quotas(request: AlterClientQuotasRequest, error: ApiError) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(entries=[_answer(entry, error) for entry in request.entries])


def _answer(
    entry: alter_client_quotas_request.EntryData, error: ApiError | None
) -> alter_client_quotas_response.EntryData:
    return alter_client_quotas_response.EntryData(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        entity=[
            alter_client_quotas_response.EntityData(entity_type=data.entity_type, entity_name=data.entity_name)
            for data in entry.entity
        ],
    )


def _text(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind}={name if name is not None else '<default>'}" for kind, name in entity)


def _entity(entry: alter_client_quotas_request.EntryData) -> QuotaEntity:
    entity: dict[str, str | None] = {}
    for data in entry.entity:
        kind, name = data.entity_type, data.entity_name
        if kind in entity:
            reason = f"Invalid client quota entity, duplicate entity entry {kind}"
            raise ApiError(ErrorCode.INVALID_REQUEST, reason)
        if kind not in ENTITY_TYPES:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
        entity[kind] = name
    _check_address(entity.get("ip"))
    return tuple(sorted(entity.items()))


def _check_address(text: str | None) -> None:
    """Quotas hold for addresses; looking up a name is not the controller's business."""
    if text is None:
        return
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{text} is not a valid IP or resolvable host.") from None


def _changes(s: Situation, entity: QuotaEntity, ops: list[alter_client_quotas_request.OpData]) -> list[MetadataRecord]:
    try:
        keys = quota_keys(frozenset(kind for kind, _ in entity))
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
    current = s.state.sections.client_quotas.get(entity, {})
    records: list[MetadataRecord] = []
    seen: set[str] = set()
    for op in ops:
        if op.key in seen:
            reason = f"Duplicate quota key {op.key} not updating quota for this entity {_text(entity)}"
            raise ApiError(ErrorCode.INVALID_REQUEST, reason)
        seen.add(op.key)
        if op.remove:
            if op.key in current:
                records.append(ClientQuotaRecord(entity=quota_entity_data(entity), key=op.key, remove=True))
            continue
        try:
            validate_quota(keys, op.key, op.value)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
        if current.get(op.key) != op.value:
            records.append(ClientQuotaRecord(entity=quota_entity_data(entity), key=op.key, value=op.value))
    return records
