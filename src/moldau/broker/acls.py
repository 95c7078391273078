"""DescribeAcls: the access control entries that a filter means. Changing them is the controller's business."""

from __future__ import annotations

from collections.abc import Mapping

from moldau.broker.context import Caller
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.metadata.access import EntryFilter
from moldau.protocol.api import ApiKey
from moldau.protocol.generated.wire.describe_acls_request import DescribeAclsRequest
from moldau.protocol.generated.wire.describe_acls_response import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)


class AclHandlers:
    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {ApiKey.DESCRIBE_ACLS: self.describe}

    def describe(self, request: DescribeAclsRequest, _caller: Caller) -> DescribeAclsResponse:
        wanted = EntryFilter(
            request.resource_type_filter,
            request.resource_name_filter,
            request.pattern_type_filter,
            request.principal_filter,
            request.host_filter,
            request.operation,
            request.permission_type,
        )
        wanted.check()
        by_resource: dict[tuple[int, str, int], list[AclDescription]] = {}
        for entry in self._services.image.acls.values():
            if wanted.means(entry):
                resource = (entry.resource_type, entry.resource_name, entry.pattern_type)
                by_resource.setdefault(resource, []).append(
                    AclDescription(entry.principal, entry.host, entry.operation, entry.permission_type)
                )
        return DescribeAclsResponse(
            resources=[DescribeAclsResource(*resource, acls) for resource, acls in by_resource.items()]
        )
