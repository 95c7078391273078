"""Kafka's StandardAuthorizer: who may do what, by the access control entries of the cluster's image.

A denial that matches beats every permission. Where entries are about a resource and none permits, it is refused; where
none is about it, `allow.everyone.if.no.acl.found` decides, which says no unless told otherwise. Super users may do
everything. Permission to read, write, delete or alter is permission to describe as well; a denial is just what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from moldau.broker.authorization import Operation, ResourceKind
from moldau.config.node_config import NodeConfig
from moldau.config.types import ConfigError
from moldau.metadata.access import ALL_OPERATIONS, DENY, EVERYTHING, PREFIXED
from moldau.metadata.image import AccessControlEntry, ClusterImage

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_SUPER_USERS_SEPARATOR: Final = ";"
_ANY_USER: Final = "User:*"
# What also permits the operation.
_IMPLYING: Final[Mapping[Operation, frozenset[int]]] = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
_NOTHING: Final[frozenset[int]] = frozenset()
# The name that Kafka asks about as well.
_ANY_NAME: Final = "hardcode"

Entries = list[AccessControlEntry]


def authorizer_of(config: NodeConfig, image: Callable[[], ClusterImage]) -> AccessRules | None:
    """The configured authorizer; None when everybody may do everything."""
    name = config.text("authorizer.class.name")
    if not name:
        return None
    if name != STANDARD_AUTHORIZER:
        reason = f"the only authorizer there is here is {STANDARD_AUTHORIZER}"
        raise ConfigError("authorizer.class.name", name, reason)
    named = (config.text("super.users") or "").split(_SUPER_USERS_SEPARATOR)
    return AccessRules(
        image,
        super_users=frozenset(user.strip() for user in named if user.strip()),
        open_by_default=config.flag("allow.everyone.if.no.acl.found"),
    )


class AccessRules:
    """`authorization.Authorizer` over the entries of the image, looked up by the kind and name of the resource."""

    def __init__(
        self, image: Callable[[], ClusterImage], *, super_users: frozenset[str], open_by_default: bool
    ) -> None:
        self._image = image
        self._super_users = super_users
        self._open_by_default = open_by_default
        # Made anew when the image has other entries.
        self._of: Mapping[bytes, AccessControlEntry] | None = None
        self._literal: dict[tuple[int, str], Entries] = {}
        self._prefixed: dict[int, Entries] = {}

    def allows(self, principal: str, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
        if principal in self._super_users:
            return True
        implying = _IMPLYING.get(operation, _NOTHING)
        about_it = permitted = False
        for entry in self._about(kind, name):
            about_it = True
            if entry.principal not in (principal, _ANY_USER) or entry.host not in (host, EVERYTHING):
                continue
            meant = entry.operation in (operation, ALL_OPERATIONS)
            if entry.permission_type == DENY:
                if meant:
                    return False
            elif meant or entry.operation in implying:
                permitted = True
        return permitted or (not about_it and self._open_by_default)

    def allows_any(self, principal: str, host: str, operation: Operation, kind: ResourceKind) -> bool:
        # Super users, and a cluster that is open where nothing is said, are asked about a name like any other.
        if self.allows(principal, host, operation, kind, _ANY_NAME):
            return True
        permitted: Entries = []
        denied: Entries = []
        for entry in self._image().acls.values():
            if (
                entry.resource_type == kind
                and entry.principal in (principal, _ANY_USER)
                and entry.host in (host, EVERYTHING)
                and entry.operation in (operation, ALL_OPERATIONS)
            ):
                (denied if entry.permission_type == DENY else permitted).append(entry)
        if any(_is_everything(denial) for denial in denied):
            return False
        return any(not any(_takes_away(denial, each) for denial in denied) for each in permitted)

    def _about(self, kind: int, name: str) -> Iterator[AccessControlEntry]:
        entries = self._image().acls
        if entries is not self._of:
            self._arrange(entries)
        yield from self._literal.get((kind, name), ())
        yield from self._literal.get((kind, EVERYTHING), ())
        for entry in self._prefixed.get(kind, ()):
            if name.startswith(entry.resource_name):
                yield entry

    def _arrange(self, entries: Mapping[bytes, AccessControlEntry]) -> None:
        self._literal, self._prefixed = {}, {}
        for entry in entries.values():
            if entry.pattern_type == PREFIXED:
                self._prefixed.setdefault(entry.resource_type, []).append(entry)
            else:
                self._literal.setdefault((entry.resource_type, entry.resource_name), []).append(entry)
        self._of = entries


def _is_everything(entry: AccessControlEntry) -> bool:
    return entry.pattern_type != PREFIXED and entry.resource_name == EVERYTHING


def _takes_away(denial: AccessControlEntry, permission: AccessControlEntry) -> bool:
    """Whether the denial leaves nothing of the permission."""
    if _is_everything(permission):
        return False
    if denial.pattern_type == PREFIXED:
        return permission.resource_name.startswith(denial.resource_name)
    return permission.pattern_type != PREFIXED and permission.resource_name == denial.resource_name
