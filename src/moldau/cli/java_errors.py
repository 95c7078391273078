"""The names that Kafka's tools give to errors: those of Java classes, which scripts look for."""

from __future__ import annotations

from moldau.protocol.errors import ApiError, ErrorCode

_PACKAGE = "org.apache.kafka.common.errors."
_SPECIAL_NAMES = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "UnknownServerException",
    ErrorCode.KAFKA_STORAGE_ERROR: "KafkaStorageException",
    ErrorCode.REQUEST_TIMED_OUT: "TimeoutException",
    ErrorCode.TOPIC_ALREADY_EXISTS: "TopicExistsException",
    ErrorCode.INVALID_CONFIG: "InvalidConfigurationException",
    ErrorCode.CORRUPT_MESSAGE: "CorruptRecordException",
    ErrorCode.SECURITY_DISABLED: "SecurityDisabledException",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "InvalidTopicException",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "TopicAuthorizationException",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ClusterAuthorizationException",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "GroupAuthorizationException",
    ErrorCode.NON_EMPTY_GROUP: "GroupNotEmptyException",
}


def java_name(error: ApiError) -> str:
    """The class name Kafka's Java tools show for this error."""
    special = _SPECIAL_NAMES.get(error.code)
    if special is None:
        special = "".join(word.capitalize() for word in error.code.name.split("_")) + "Exception"
    return _PACKAGE + special


def java_text(error: ApiError) -> str:
    return f"{java_name(error)}: {error.message}"
