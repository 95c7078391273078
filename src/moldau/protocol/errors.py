"""Kafka's error codes: their numbers, which of them are worth a retry, and a default sentence for each.

A code is what the peer sees in an answer. `ApiError` carries one from where the trouble is found to where the answer is
shaped; it is for the peer's faults and for refusals, never for bugs of our own, which are assertions.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133


# A client may send the same request again and hope: the condition passes by itself or after fresh metadata.
RETRIABLE: frozenset[ErrorCode] = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)

# The client's picture of the cluster is out of date: it should fetch metadata before it tries again.
INVALID_METADATA: frozenset[ErrorCode] = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)

MESSAGES: dict[ErrorCode, str] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "The broker met an error it did not expect.",
    ErrorCode.NONE: "No error.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The log does not hold the offset asked for.",
    ErrorCode.CORRUPT_MESSAGE: "The data is damaged: its checksum, size or content is wrong.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "There is no such topic or partition here.",
    ErrorCode.INVALID_FETCH_SIZE: "The fetch size is not valid.",
    ErrorCode.LEADER_NOT_AVAILABLE: "The partition has no leader at the moment; one is being elected.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "This broker does not lead the partition, or holds no replica of it.",
    ErrorCode.REQUEST_TIMED_OUT: "The request was not done within its time.",
    ErrorCode.BROKER_NOT_AVAILABLE: "The broker cannot be reached.",
    ErrorCode.REPLICA_NOT_AVAILABLE: "The replica is not to be had on this broker.",
    ErrorCode.MESSAGE_TOO_LARGE: "A batch is larger than the broker or topic allows.",
    ErrorCode.STALE_CONTROLLER_EPOCH: "Another controller has taken over.",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "The text stored with an offset is too long.",
    ErrorCode.NETWORK_EXCEPTION: "The connection broke before the answer came.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is still reading its state.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "There is no coordinator at the moment.",
    ErrorCode.NOT_COORDINATOR: "This broker is not the coordinator asked for.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The topic's name is not valid, or the topic does not allow this.",
    ErrorCode.RECORD_LIST_TOO_LARGE: "The batches are larger than a log segment may be.",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Fewer replicas are in sync than the topic demands; nothing was written.",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "Written, but fewer replicas are in sync than the topic demands.",
    ErrorCode.INVALID_REQUIRED_ACKS: "The number of acknowledgements must be -1, 0 or 1.",
    ErrorCode.ILLEGAL_GENERATION: "The generation is not the group's current one.",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "The member shares no protocol with the rest of the group, or named none.",
    ErrorCode.INVALID_GROUP_ID: "The group id is not valid.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The group has no such member.",
    ErrorCode.INVALID_SESSION_TIMEOUT: "The session timeout is outside the range that the broker allows.",
    ErrorCode.REBALANCE_IN_PROGRESS: "The group is rebalancing; the member has to rejoin.",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "The offsets to commit are too large.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Not allowed on this topic.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Not allowed on this group.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Not allowed on the cluster.",
    ErrorCode.INVALID_TIMESTAMP: "A record's timestamp is outside the range that the topic accepts.",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "The broker does not offer this SASL mechanism.",
    ErrorCode.ILLEGAL_SASL_STATE: "The request does not fit the state of the authentication.",
    ErrorCode.UNSUPPORTED_VERSION: "The broker does not speak this version of the API.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "There is a topic with this name already.",
    ErrorCode.INVALID_PARTITIONS: "The number of partitions is not valid.",
    ErrorCode.INVALID_REPLICATION_FACTOR: "The replication factor must be between 1 and the number of usable brokers.",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "The assignment of replicas is not valid.",
    ErrorCode.INVALID_CONFIG: "A configuration value is not valid.",
    ErrorCode.NOT_CONTROLLER: "This node is not the active controller.",
    ErrorCode.INVALID_REQUEST: "The request contradicts itself or does not make sense to this broker.",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "The record format in use cannot do this.",
    ErrorCode.POLICY_VIOLATION: "A policy of this cluster forbids it.",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "The batch does not follow the producer's previous one.",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "The batch was received before.",
    ErrorCode.INVALID_PRODUCER_EPOCH: "The producer's epoch is out of date.",
    ErrorCode.INVALID_TXN_STATE: "The transaction's state does not allow this.",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "The producer id does not belong to this transactional id.",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "The transaction timeout is outside the range that the broker allows.",
    ErrorCode.CONCURRENT_TRANSACTIONS: "Another operation on the same transaction is not finished yet.",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "A newer transaction coordinator has taken over.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Not allowed on this transactional id.",
    ErrorCode.SECURITY_DISABLED: "No authorizer is configured on this cluster.",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "Not tried, because another part of the same request failed.",
    ErrorCode.KAFKA_STORAGE_ERROR: "The broker's disk failed under this log.",
    ErrorCode.LOG_DIR_NOT_FOUND: "The broker has no such log directory.",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "Authentication failed.",
    ErrorCode.UNKNOWN_PRODUCER_ID: "The broker remembers nothing of this producer; its records may have expired.",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "The partition's replicas are being moved.",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "Delegation tokens are not enabled on this cluster.",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "There is no such delegation token.",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "The principal neither owns the delegation token nor may renew it.",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "This kind of connection cannot ask for delegation tokens.",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Not allowed on this delegation token.",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "The delegation token has expired.",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "The broker does not know this type of principal.",
    ErrorCode.NON_EMPTY_GROUP: "The group still has members.",
    ErrorCode.GROUP_ID_NOT_FOUND: "There is no such group.",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "The broker no longer has this fetch session.",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "The fetch session is at another epoch.",
    ErrorCode.LISTENER_NOT_FOUND: "The leader has no listener of this name.",
    ErrorCode.TOPIC_DELETION_DISABLED: "Topics cannot be deleted on this cluster.",
    ErrorCode.FENCED_LEADER_EPOCH: "The leader epoch is older than the broker's.",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "The leader epoch is newer than the broker's.",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "The codec cannot be used with this version of the API.",
    ErrorCode.STALE_BROKER_EPOCH: "The broker has registered again since.",
    ErrorCode.OFFSET_NOT_AVAILABLE: "The new leader does not know yet how far the partition is committed.",
    ErrorCode.MEMBER_ID_REQUIRED: "Join again with the member id given in this answer.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader is not available.",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "The group has as many members as it may have.",
    ErrorCode.FENCED_INSTANCE_ID: "Another member has registered with the same instance id.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No replica that may lead the partition is available.",
    ErrorCode.ELECTION_NOT_NEEDED: "The partition has the right leader already.",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "The partition's replicas are not being moved.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "The group still consumes this topic, so its offsets cannot be deleted.",
    ErrorCode.INVALID_RECORD: "The broker does not accept this record.",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "A transaction that writes these offsets is still open.",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "The quota is used up.",
    ErrorCode.PRODUCER_FENCED: "A newer producer uses the same transactional id.",
    ErrorCode.RESOURCE_NOT_FOUND: "There is no such resource.",
    ErrorCode.DUPLICATE_RESOURCE: "The request names the same resource twice.",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "The credential does not meet the cluster's demands.",
    ErrorCode.INCONSISTENT_VOTER_SET: "Sender and receiver disagree about who the voters are.",
    ErrorCode.INVALID_UPDATE_VERSION: "The version to update from is not the current one.",
    ErrorCode.FEATURE_UPDATE_FAILED: "The features could not be updated.",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "The forwarded request's principal cannot be read.",
    ErrorCode.SNAPSHOT_NOT_FOUND: "There is no such snapshot.",
    ErrorCode.POSITION_OUT_OF_RANGE: "The position is outside the snapshot.",
    ErrorCode.UNKNOWN_TOPIC_ID: "There is no topic with this id here.",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "A live broker uses this id.",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "No broker with this id is registered.",
    ErrorCode.INCONSISTENT_TOPIC_ID: "The log belongs to a topic with another id.",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "The request is meant for another cluster.",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "There is no such transactional id.",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "The fetch session mixes topic ids with topic names.",
    ErrorCode.INELIGIBLE_REPLICA: "A replica that is to join the in-sync set may not.",
    ErrorCode.NEW_LEADER_ELECTED: "The change was made, and gave the partition another leader.",
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "The offset is no longer on local disk, only in remote storage.",
    ErrorCode.FENCED_MEMBER_EPOCH: "The member's epoch is fenced; it must give up its partitions and rejoin.",
    ErrorCode.UNRELEASED_INSTANCE_ID: "Another member still holds this instance id.",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "The group does not know this assignor.",
    ErrorCode.STALE_MEMBER_EPOCH: "The member's epoch is out of date; its next heartbeat brings the new one.",
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "The request went to the wrong kind of endpoint.",
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "This kind of endpoint is not supported.",
    ErrorCode.UNKNOWN_CONTROLLER_ID: "There is no controller with this id.",
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: "The telemetry subscription is not the current one.",
    ErrorCode.TELEMETRY_TOO_LARGE: "The pushed metrics are larger than the broker accepts.",
    ErrorCode.INVALID_REGISTRATION: "The controller does not accept the broker's registration.",
    ErrorCode.TRANSACTION_ABORTABLE: "The transaction failed; abort it and begin another.",
    ErrorCode.INVALID_RECORD_STATE: "The record is not in a state that can be acknowledged.",
    ErrorCode.SHARE_SESSION_NOT_FOUND: "The broker no longer has this share session.",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "The share session is at another epoch.",
    ErrorCode.FENCED_STATE_EPOCH: "The share group's state is at another epoch.",
    ErrorCode.INVALID_VOTER_KEY: "The voter's id and directory are not those of this replica.",
    ErrorCode.DUPLICATE_VOTER: "The voter is one of the voters already.",
    ErrorCode.VOTER_NOT_FOUND: "The voter is not one of the voters.",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "The regular expression is not valid.",
    ErrorCode.REBOOTSTRAP_REQUIRED: "The client's metadata is of no use; it should bootstrap again.",
    ErrorCode.STREAMS_INVALID_TOPOLOGY: "The topology is not valid.",
    ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH: "The topology's epoch is not valid.",
    ErrorCode.STREAMS_TOPOLOGY_FENCED: "The topology's epoch is out of date.",
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: "The broker has as many share sessions as it may have.",
}


class ApiError(Exception):
    """A refusal that goes back to the peer: an error code, and a sentence for the person who reads it."""

    def __init__(
        self, code: ErrorCode, message: str | None = None, record_errors: list[tuple[int, str | None]] | None = None
    ) -> None:
        self.code = code
        # For a refused record batch: (index of the record in the batch, what is wrong with it).
        self.record_errors = record_errors
        self.message = MESSAGES[code] if message is None else message
        super().__init__(f"{code.name}: {self.message}")


def error_code(value: int) -> ErrorCode:
    """The code with this number; numbers of a newer Kafka count as an unknown server error."""
    if value == 0:
        return ErrorCode.NONE
    try:
        return ErrorCode(value)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
