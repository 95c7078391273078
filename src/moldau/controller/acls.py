"""CreateAcls and DeleteAcls: which access control entries there are.

Decides about each entry and each filter by itself: one that makes no sense is refused, the others take effect. Whether
the caller may do this at all was decided before; what the entries mean is `moldau.broker.access_rules`' business.
"""

from __future__ import annotations

from typing import Final

from moldau.controller.decision import Decision, Situation
from moldau.metadata.access import NO_ID, EntryFilter, check_entry
from moldau.metadata.image import AccessControlEntry
from moldau.metadata.records import MetadataRecord
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.metadata.access_control_entry_record import AccessControlEntryRecord
from moldau.protocol.generated.metadata.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from moldau.protocol.generated.wire.create_acls_request import AclCreation, CreateAclsRequest
from moldau.protocol.generated.wire.create_acls_response import AclCreationResult, CreateAclsResponse
from moldau.protocol.generated.wire.delete_acls_request import DeleteAclsRequest
from moldau.protocol.generated.wire.delete_acls_response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from moldau.quorum.meta_properties import new_uuid

# Records of one decision: they take effect together, and a client must not be able to fill the log with one request.
MOST_AT_ONCE: Final = 10_000


def create_acls(s: Situation, request: CreateAclsRequest) -> Decision[CreateAclsResponse]:
    _require_authorizer(s)
    # An entry that is there already is a success and no record, in this request too.
    known = {entry._replace(id=NO_ID) for entry in s.state.acls.values()}
    records: list[MetadataRecord] = []
    results = []
    for creation in request.creations:
        entry = _entry(creation)
        try:
            check_entry(entry)
            if entry not in known:
                known.add(entry)
                records.append(AccessControlEntryRecord(*entry._replace(id=new_uuid(s.random))))
        except ApiError as error:
            results.append(AclCreationResult(error_code=error.code, error_message=error.message))
        else:
            results.append(AclCreationResult())
    _require_few(records)
    return Decision(records, CreateAclsResponse(results=results))


def refuse_create_acls(request: CreateAclsRequest, error: ApiError) -> CreateAclsResponse:
    result = AclCreationResult(error_code=error.code, error_message=error.message)
    return CreateAclsResponse(results=[result for _ in request.creations])


def delete_acls(s: Situation, request: DeleteAclsRequest) -> Decision[DeleteAclsResponse]:
    _require_authorizer(s)
    gone: dict[bytes, None] = {}
    results = []
    for asked in request.filters:
        try:
            wanted = EntryFilter.of(asked)
        except ApiError as error:
            results.append(DeleteAclsFilterResult(error_code=error.code, error_message=error.message))
            continue
        found = [entry for entry in s.state.acls.values() if wanted.means(entry)]
        gone.update(dict.fromkeys(entry.id for entry in found))
        results.append(DeleteAclsFilterResult(matching_acls=[_matching(entry) for entry in found]))
    records: list[MetadataRecord] = [RemoveAccessControlEntryRecord(id=each) for each in gone]
    _require_few(records)
    return Decision(records, DeleteAclsResponse(filter_results=results))


def refuse_delete_acls(request: DeleteAclsRequest, error: ApiError) -> DeleteAclsResponse:
    result = DeleteAclsFilterResult(error_code=error.code, error_message=error.message)
    return DeleteAclsResponse(filter_results=[result for _ in request.filters])


def _require_authorizer(s: Situation) -> None:
    if not s.config.text("authorizer.class.name"):
        raise ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")


def _require_few(records: list[MetadataRecord]) -> None:
    if len(records) > MOST_AT_ONCE:
        reason = f"{len(records)} access control entries would change at once; at most {MOST_AT_ONCE} may"
        raise ApiError(ErrorCode.INVALID_REQUEST, reason)


def _entry(creation: AclCreation) -> AccessControlEntry:
    return AccessControlEntry(
        NO_ID,
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _matching(entry: AccessControlEntry) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=entry.resource_type,
        resource_name=entry.resource_name,
        pattern_type=entry.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )
