"""DescribeAcls: the access control entries that a filter means. Changing them is the controller's business."""

from __future__ import annotations

from moldau.broker.context import Caller
from moldau.broker.router import Handler
from moldau.broker.services import BrokerServices
from moldau.metadata.access import EntryFilter
from moldau.protocol.generated.wire.describe_acls_request import DescribeAclsRequest
from moldau.protocol.generated.wire.describe_acls_response import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)


def describe_acls(services: BrokerServices) -> Handler:
    def describe(request: DescribeAclsRequest, _caller: Caller) -> DescribeAclsResponse:
        wanted = EntryFilter.of(request)
        by_resource: dict[tuple[int, str, int], list[AclDescription]] = {}
        for entry in services.image.acls.values():
            if wanted.means(entry):
                resource = (entry.resource_type, entry.resource_name, entry.pattern_type)
                by_resource.setdefault(resource, []).append(
                    AclDescription(entry.principal, entry.host, entry.operation, entry.permission_type)
                )
        return DescribeAclsResponse(
            resources=[DescribeAclsResource(*resource, acls) for resource, acls in by_resource.items()]
        )

    return describe
