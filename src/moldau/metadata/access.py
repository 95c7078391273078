"""Access control entries: the words they are made of, which of them a filter means, and when one is no entry at all.

Only facts about single entries; who may do what with all of them together is decided in `moldau.broker.access_rules`.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from moldau.metadata.image import AccessControlEntry
from moldau.protocol.errors import ApiError, ErrorCode

# "Whatever it is", of kinds of resources, patterns, operations and permissions alike; 0 is "not known".
ANY: Final = 1
ALL_OPERATIONS: Final = 2
LAST_OPERATION: Final = 15
DENY: Final = 2
ALLOW: Final = 3
MATCH: Final = 2
LITERAL: Final = 3
PREFIXED: Final = 4
CLUSTER: Final = 4
LAST_RESOURCE: Final = 7
CLUSTER_NAME: Final = "kafka-cluster"
EVERYTHING: Final = "*"
NO_ID: Final = bytes(16)


class AskedFilter(Protocol):
    """A filter as DescribeAcls and DeleteAcls carry it."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class EntryFilter(NamedTuple):
    """What DescribeAcls and DeleteAcls ask for; None and ANY stand for whatever it is."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    @classmethod
    def of(cls, asked: AskedFilter) -> EntryFilter:
        """What a request asks for; raises unless it means something."""
        made = cls(
            asked.resource_type_filter,
            asked.resource_name_filter,
            asked.pattern_type_filter,
            asked.principal_filter,
            asked.host_filter,
            asked.operation,
            asked.permission_type,
        )
        made._check()
        return made

    def _check(self) -> None:
        """Raise unless every part of the filter means something here."""
        for what, value, last in (
            ("resource type", self.resource_type, LAST_RESOURCE),
            ("pattern type", self.pattern_type, PREFIXED),
            ("operation", self.operation, LAST_OPERATION),
            ("permission type", self.permission_type, ALLOW),
        ):
            if not ANY <= value <= last:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"The filter has an unknown {what}.")

    def means(self, entry: AccessControlEntry) -> bool:
        return (
            self.resource_type in (ANY, entry.resource_type)
            and self.operation in (ANY, entry.operation)
            and self.permission_type in (ANY, entry.permission_type)
            and self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self._means_pattern(entry)
        )

    def _means_pattern(self, entry: AccessControlEntry) -> bool:
        if self.pattern_type not in (ANY, MATCH, entry.pattern_type):
            return False
        name = self.resource_name
        if name is None:
            return True
        if self.pattern_type != MATCH:
            return name == entry.resource_name
        if entry.pattern_type == PREFIXED:
            return name.startswith(entry.resource_name)
        return entry.resource_name in (name, EVERYTHING)


def check_entry(entry: AccessControlEntry) -> None:
    """Raise unless somebody can be allowed or denied something by this entry."""
    reason = None
    if not ANY < entry.resource_type <= LAST_RESOURCE:
        reason = "Invalid resourceType"
    elif entry.pattern_type not in (LITERAL, PREFIXED):
        reason = "Invalid patternType"
    elif not ANY < entry.operation <= LAST_OPERATION:
        reason = "Invalid operation"
    elif entry.permission_type not in (DENY, ALLOW):
        reason = "Invalid permissionType"
    elif not entry.resource_name:
        reason = "Invalid empty resource name"
    elif entry.resource_type == CLUSTER and entry.resource_name != CLUSTER_NAME:
        reason = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif ":" not in entry.principal:
        reason = f"A principal is its type, a colon and its name, which `{entry.principal}` is not"
    if reason is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, reason)
