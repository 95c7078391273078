"""Who may do what: one table from each API to the operation and the resources it needs, consulted in one place.

An API that is missing here is refused at start-up: nothing is served that nobody thought about. With no authorizer
configured, `guard_for` gives None and the router does not look here at all, so that the hot path pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from moldau.broker.context import Caller
from moldau.metadata.access import CLUSTER_NAME
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode

NOT_ASKED: Final = -(2**31)
"""What a response carries where the authorized operations were not asked for."""


class Operation(IntEnum):
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceKind(IntEnum):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


_SUPPORTED: Final[Mapping[ResourceKind, frozenset[Operation]]] = {
    ResourceKind.TOPIC: frozenset(
        {
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DESCRIBE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceKind.GROUP: frozenset(
        {
            Operation.READ,
            Operation.DESCRIBE,
            Operation.DELETE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceKind.CLUSTER: frozenset(
        {
            Operation.CREATE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
            Operation.ALTER,
            Operation.DESCRIBE,
        }
    ),
}

_REFUSAL: Final[Mapping[ResourceKind, ErrorCode]] = {
    ResourceKind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceKind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceKind.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceKind.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceKind.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceKind.USER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


class Authorizer(Protocol):
    """Decides about one operation of one principal on one resource."""

    def allows(self, principal: str, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool: ...

    def allows_any(self, principal: str, host: str, operation: Operation, kind: ResourceKind) -> bool:
        """Whether there is, or may come to be, at least one resource of that kind on which it is allowed."""
        ...


class AllowAll:
    """What is in force when `authorizer.class.name` is empty."""

    def allows(self, principal: str, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return True

    def allows_any(self, principal: str, host: str, operation: Operation, kind: ResourceKind) -> bool:
        return True


Names: TypeAlias = Callable[[Any], Iterable[str]]


class Rule(NamedTuple):
    """One thing a request needs. Without `names` it needs it on the cluster itself."""

    operation: Operation
    kind: ResourceKind = ResourceKind.CLUSTER
    names: Names | None = None
    or_on_any: tuple[Operation, ResourceKind] | None = None
    """Whoever may do this to any resource of the kind needs no permission for the cluster."""


# ---- where a request names its resources


def _each(array: str, field: str) -> Names:
    def names(request: Any) -> Iterator[str]:
        for item in getattr(request, array) or ():
            name = getattr(item, field)
            if name is not None:
                yield name

    return names


def _listed(array: str) -> Names:
    return lambda request: getattr(request, array) or ()


def _single(field: str) -> Names:
    def names(request: Any) -> Iterator[str]:
        name = getattr(request, field)
        if name is not None:
            yield name

    return names


def _topics_of_log_dirs(request: Any) -> Iterator[str]:
    for directory in request.dirs:
        for topic in directory.topics:
            yield topic.name


def _coordinator_keys(kind: int) -> Names:
    def names(request: Any) -> Iterator[str]:
        if request.key_type == kind:
            if request.key:
                yield request.key
            yield from request.coordinator_keys

    return names


def _cluster_unless_transactional(request: Any) -> Iterator[str]:
    if request.transactional_id is None:
        yield CLUSTER_NAME


def _config_resources(*kinds: int) -> Names:
    def names(request: Any) -> Iterator[str]:
        for resource in request.resources:
            if resource.resource_type in kinds:
                yield resource.resource_name

    return names


_TOPIC, _GROUP, _TRANSACTION = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.TRANSACTIONAL_ID
_CONFIG_TOPIC, _CONFIG_GROUP = 2, 32

_CLUSTER_ACTION = (Rule(Operation.CLUSTER_ACTION),)
_CLUSTER_ALTER = (Rule(Operation.ALTER),)
_CLUSTER_DESCRIBE = (Rule(Operation.DESCRIBE),)
_CLUSTER_DESCRIBE_CONFIGS = (Rule(Operation.DESCRIBE_CONFIGS),)
_CLUSTER_ALTER_CONFIGS = (Rule(Operation.ALTER_CONFIGS),)
_GROUP_READ = (Rule(Operation.READ, _GROUP, _single("group_id")),)

# Rules that depend on more than the request (Metadata leaves out what may not be seen; Produce and Fetch never build
# a request) stand here too; `SELF_CHECKED` says whose handlers ask the guard item by item.
AUTHORIZATION: Final[Mapping[ApiKey, tuple[Rule, ...]]] = {
    # The data path.
    ApiKey.PRODUCE: (Rule(Operation.WRITE, _TOPIC),),
    ApiKey.FETCH: (Rule(Operation.READ, _TOPIC),),
    ApiKey.LIST_OFFSETS: (Rule(Operation.DESCRIBE, _TOPIC, _each("topics", "name")),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (Rule(Operation.DESCRIBE, _TOPIC, _each("topics", "topic")),),
    ApiKey.DELETE_RECORDS: (Rule(Operation.DELETE, _TOPIC, _each("topics", "name")),),
    # Discovery.
    ApiKey.API_VERSIONS: (),
    ApiKey.SASL_HANDSHAKE: (),
    ApiKey.SASL_AUTHENTICATE: (),
    ApiKey.METADATA: (Rule(Operation.DESCRIBE, _TOPIC),),
    ApiKey.DESCRIBE_CLUSTER: (),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (Rule(Operation.DESCRIBE, _TOPIC),),
    ApiKey.FIND_COORDINATOR: (
        Rule(Operation.DESCRIBE, _GROUP, _coordinator_keys(0)),
        Rule(Operation.DESCRIBE, _TRANSACTION, _coordinator_keys(1)),
        Rule(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER, _coordinator_keys(2)),
    ),
    # Offsets and groups.
    ApiKey.OFFSET_COMMIT: _GROUP_READ,
    ApiKey.OFFSET_FETCH: (Rule(Operation.DESCRIBE, _GROUP, _each("groups", "group_id")),),
    ApiKey.OFFSET_DELETE: (Rule(Operation.DELETE, _GROUP, _single("group_id")),),
    ApiKey.JOIN_GROUP: _GROUP_READ,
    ApiKey.HEARTBEAT: _GROUP_READ,
    ApiKey.LEAVE_GROUP: _GROUP_READ,
    ApiKey.SYNC_GROUP: _GROUP_READ,
    ApiKey.DESCRIBE_GROUPS: (Rule(Operation.DESCRIBE, _GROUP, _listed("groups")),),
    ApiKey.LIST_GROUPS: _CLUSTER_DESCRIBE,
    ApiKey.DELETE_GROUPS: (Rule(Operation.DELETE, _GROUP, _listed("groups_names")),),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _GROUP_READ,
    ApiKey.CONSUMER_GROUP_DESCRIBE: (Rule(Operation.DESCRIBE, _GROUP, _listed("group_ids")),),
    ApiKey.SHARE_GROUP_HEARTBEAT: _GROUP_READ,
    ApiKey.SHARE_GROUP_DESCRIBE: (Rule(Operation.DESCRIBE, _GROUP, _listed("group_ids")),),
    ApiKey.SHARE_FETCH: _GROUP_READ,
    ApiKey.SHARE_ACKNOWLEDGE: _GROUP_READ,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (Rule(Operation.DESCRIBE, _GROUP, _each("groups", "group_id")),),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _GROUP_READ,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (Rule(Operation.DELETE, _GROUP, _single("group_id")),),
    ApiKey.STREAMS_GROUP_HEARTBEAT: _GROUP_READ,
    ApiKey.STREAMS_GROUP_DESCRIBE: (Rule(Operation.DESCRIBE, _GROUP, _listed("group_ids")),),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _CLUSTER_ACTION,
    ApiKey.READ_SHARE_GROUP_STATE: _CLUSTER_ACTION,
    ApiKey.WRITE_SHARE_GROUP_STATE: _CLUSTER_ACTION,
    ApiKey.DELETE_SHARE_GROUP_STATE: _CLUSTER_ACTION,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _CLUSTER_ACTION,
    # Producers and transactions.
    ApiKey.INIT_PRODUCER_ID: (
        Rule(Operation.WRITE, _TRANSACTION, _single("transactional_id")),
        # Producers are idempotent unless told otherwise: whoever may write at all may be one.
        Rule(
            Operation.IDEMPOTENT_WRITE,
            ResourceKind.CLUSTER,
            _cluster_unless_transactional,
            or_on_any=(Operation.WRITE, _TOPIC),
        ),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (Rule(Operation.WRITE, _TRANSACTION, _single("v3_and_below_transactional_id")),),
    ApiKey.ADD_OFFSETS_TO_TXN: (
        Rule(Operation.WRITE, _TRANSACTION, _single("transactional_id")),
        Rule(Operation.READ, _GROUP, _single("group_id")),
    ),
    ApiKey.END_TXN: (Rule(Operation.WRITE, _TRANSACTION, _single("transactional_id")),),
    ApiKey.WRITE_TXN_MARKERS: _CLUSTER_ACTION,
    ApiKey.TXN_OFFSET_COMMIT: (
        Rule(Operation.WRITE, _TRANSACTION, _single("transactional_id")),
        Rule(Operation.READ, _GROUP, _single("group_id")),
    ),
    ApiKey.DESCRIBE_PRODUCERS: (Rule(Operation.READ, _TOPIC, _each("topics", "name")),),
    ApiKey.DESCRIBE_TRANSACTIONS: (Rule(Operation.DESCRIBE, _TRANSACTION, _listed("transactional_ids")),),
    ApiKey.LIST_TRANSACTIONS: (Rule(Operation.DESCRIBE, _TRANSACTION),),
    # Administration.
    ApiKey.CREATE_TOPICS: (Rule(Operation.CREATE, _TOPIC),),
    ApiKey.DELETE_TOPICS: (Rule(Operation.DELETE, _TOPIC),),
    ApiKey.CREATE_PARTITIONS: (Rule(Operation.ALTER, _TOPIC),),
    ApiKey.DESCRIBE_CONFIGS: (
        Rule(Operation.DESCRIBE_CONFIGS, _TOPIC, _config_resources(_CONFIG_TOPIC)),
        Rule(Operation.DESCRIBE_CONFIGS, _GROUP, _config_resources(_CONFIG_GROUP)),
        Rule(Operation.DESCRIBE_CONFIGS, ResourceKind.CLUSTER, _config_resources(4, 8, 16)),
    ),
    ApiKey.ALTER_CONFIGS: (
        Rule(Operation.ALTER_CONFIGS, _TOPIC, _config_resources(_CONFIG_TOPIC)),
        Rule(Operation.ALTER_CONFIGS, _GROUP, _config_resources(_CONFIG_GROUP)),
        Rule(Operation.ALTER_CONFIGS, ResourceKind.CLUSTER, _config_resources(4, 8, 16)),
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        Rule(Operation.ALTER_CONFIGS, _TOPIC, _config_resources(_CONFIG_TOPIC)),
        Rule(Operation.ALTER_CONFIGS, _GROUP, _config_resources(_CONFIG_GROUP)),
        Rule(Operation.ALTER_CONFIGS, ResourceKind.CLUSTER, _config_resources(4, 8, 16)),
    ),
    ApiKey.LIST_CONFIG_RESOURCES: _CLUSTER_DESCRIBE_CONFIGS,
    ApiKey.ELECT_LEADERS: _CLUSTER_ALTER,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _CLUSTER_ALTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _CLUSTER_DESCRIBE,
    ApiKey.UPDATE_FEATURES: _CLUSTER_ALTER,
    ApiKey.UNREGISTER_BROKER: _CLUSTER_ALTER,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _CLUSTER_DESCRIBE_CONFIGS,
    ApiKey.ALTER_CLIENT_QUOTAS: _CLUSTER_ALTER_CONFIGS,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _CLUSTER_ALTER,
    ApiKey.DESCRIBE_LOG_DIRS: _CLUSTER_DESCRIBE,
    # Security.
    ApiKey.DESCRIBE_ACLS: _CLUSTER_DESCRIBE,
    ApiKey.CREATE_ACLS: _CLUSTER_ALTER,
    ApiKey.DELETE_ACLS: _CLUSTER_ALTER,
    ApiKey.CREATE_DELEGATION_TOKEN: (),
    ApiKey.RENEW_DELEGATION_TOKEN: (),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _CLUSTER_DESCRIBE,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _CLUSTER_ALTER,
    # Telemetry asks for nothing: every client may say how it fares.
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (),
    ApiKey.PUSH_TELEMETRY: (),
    # The quorum and the brokers among themselves.
    ApiKey.VOTE: _CLUSTER_ACTION,
    ApiKey.BEGIN_QUORUM_EPOCH: _CLUSTER_ACTION,
    ApiKey.END_QUORUM_EPOCH: _CLUSTER_ACTION,
    ApiKey.DESCRIBE_QUORUM: _CLUSTER_DESCRIBE,
    ApiKey.FETCH_SNAPSHOT: _CLUSTER_ACTION,
    ApiKey.ADD_RAFT_VOTER: _CLUSTER_ALTER,
    ApiKey.REMOVE_RAFT_VOTER: _CLUSTER_ALTER,
    ApiKey.UPDATE_RAFT_VOTER: _CLUSTER_ACTION,
    ApiKey.ALTER_PARTITION: _CLUSTER_ACTION,
    ApiKey.ENVELOPE: _CLUSTER_ACTION,
    ApiKey.BROKER_REGISTRATION: _CLUSTER_ACTION,
    ApiKey.BROKER_HEARTBEAT: _CLUSTER_ACTION,
    ApiKey.ALLOCATE_PRODUCER_IDS: _CLUSTER_ACTION,
    ApiKey.CONTROLLER_REGISTRATION: _CLUSTER_ACTION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _CLUSTER_ACTION,
}

# Their handlers ask the guard themselves, item by item, because a refusal there is not the whole answer.
SELF_CHECKED: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.METADATA,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.FIND_COORDINATOR,
        ApiKey.OFFSET_FETCH,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.DELETE_GROUPS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.STREAMS_GROUP_DESCRIBE,
        # From brokers it needs another permission than from producers; an administrator's markers either of two.
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
        # Topic by topic, and by name or id (`topic_permissions.py`).
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
    }
)


class Guard:
    """Asks the authorizer on behalf of the router and the handlers."""

    __slots__ = ("_authorizer",)

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def allows(self, caller: Caller, operation: Operation, kind: ResourceKind, name: str = CLUSTER_NAME) -> bool:
        return self._authorizer.allows(caller.principal, caller.host, operation, kind, name)

    def check(self, request: Any, caller: Caller) -> None:
        """Raise ApiError unless the caller may have everything the request asks for."""
        key = ApiKey(caller.api_key)
        rules = AUTHORIZATION.get(key)
        if rules is None:
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{key.name} is not in the table of permissions.")
        if key in SELF_CHECKED:
            return
        for rule in rules:
            names = (CLUSTER_NAME,) if rule.names is None else rule.names(request)
            for name in names:
                target = CLUSTER_NAME if rule.kind is ResourceKind.CLUSTER else name
                if not self.allows(caller, rule.operation, rule.kind, target) and not self._otherwise(rule, caller):
                    raise ApiError(_REFUSAL[rule.kind])

    def _otherwise(self, rule: Rule, caller: Caller) -> bool:
        """Whether another permission stands in for the one that is missing."""
        return rule.or_on_any is not None and self._authorizer.allows_any(
            caller.principal, caller.host, *rule.or_on_any
        )


def guard_for(authorizer: Authorizer | None) -> Guard | None:
    """The guard in front of the handlers; None where everything is allowed anyway."""
    if authorizer is None or isinstance(authorizer, AllowAll):
        return None
    return Guard(authorizer)


def authorized_operations(guard: Guard | None, caller: Caller, kind: ResourceKind, name: str = CLUSTER_NAME) -> int:
    """The operations the caller may perform, as the bit field that Metadata and DescribeCluster carry."""
    field = 0
    for operation in _SUPPORTED[kind]:
        if guard is None or guard.allows(caller, operation, kind, name):
            field |= 1 << operation
    # The field is a signed 32-bit number on the wire; no operation has bit 31.
    return field
