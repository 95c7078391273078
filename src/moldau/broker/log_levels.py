"""Log levels that an administrator can read and change while the node runs: the BROKER_LOGGER resource.

Kafka's level names over Python's logging. The logger `root` is the top of this node's own loggers; those of libraries
are not offered.
"""

from __future__ import annotations

import logging
from typing import Final

from moldau.config.alter import AlterOp
from moldau.protocol.errors import ApiError, ErrorCode

log = logging.getLogger("moldau.broker")

ROOT: Final = "root"
_TOP: Final = "moldau"
_LEVELS: Final = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG - 5,
}


def levels() -> dict[str, str]:
    """Every logger of this node with its level in force."""
    found = {ROOT: _name(logging.getLogger(_TOP).getEffectiveLevel())}
    for name, logger in sorted(logging.root.manager.loggerDict.items()):
        if name.startswith(f"{_TOP}.") and isinstance(logger, logging.Logger):
            found[name] = _name(logger.getEffectiveLevel())
    return found


def check(name: str, operation: int, level: str | None) -> None:
    """Raise unless this change may be made."""
    if operation not in (AlterOp.SET, AlterOp.DELETE):
        known = operation in (AlterOp.APPEND, AlterOp.SUBTRACT)
        what = f"{AlterOp(operation).name} operation" if known else f"Unknown operation type {operation}"
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{what} is not allowed for the BROKER_LOGGER resource")
    if name not in levels():
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == AlterOp.SET and level not in _LEVELS:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. Valid log levels are "
            f"{', '.join(sorted(_LEVELS))}",
        )
    if operation == AlterOp.DELETE and name == ROOT:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")


def change(name: str, operation: int, level: str | None) -> None:
    """Make a change that `check` let pass."""
    logger = logging.getLogger(_TOP if name == ROOT else name)
    if operation == AlterOp.DELETE:
        logger.setLevel(logging.NOTSET)
        log.warning("the log level of %s is no longer its own", name)
    else:
        logger.setLevel(_LEVELS[level or ""])
        log.warning("the log level of %s is %s from now on", name, level)


def _name(level: int) -> str:
    for name, number in _LEVELS.items():
        if level >= number:
            return name
    return "TRACE"
