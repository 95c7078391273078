"""Error codes in answers as exceptions and texts.

Kafka's tools print Java class names for some errors, and scripts look for them; the names are derived here.
"""

from __future__ import annotations

from moldau.protocol.errors import ApiError, ErrorCode, error_code

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


def failure(code: int, message: str | None = None) -> ApiError:
    """The exception for an error in an answer, with the broker's own words when it sent some."""
    known = error_code(code)
    return ApiError(known, message) if message else ApiError(known)


def raise_for(code: int, message: str | None = None) -> None:
    if code != ErrorCode.NONE:
        raise failure(code, message)


def java_name(error: ApiError) -> str:
    """The class name Kafka's Java tools show for this error."""
    special = _SPECIAL_NAMES.get(error.code)
    if special is None:
        special = "".join(word.capitalize() for word in error.code.name.split("_")) + "Exception"
    return _PACKAGE + special


def java_text(error: ApiError) -> str:
    return f"{java_name(error)}: {error.message}"
