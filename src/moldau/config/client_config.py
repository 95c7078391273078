"""Settings about clients: metrics subscriptions, and quotas.

It decides which subscriptions and quota values may be stored. Which client a subscription or a quota applies to at run
time is decided elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from moldau.config.key import ConfigKey
from moldau.config.table import CLIENT_METRICS_KEYS, IP_QUOTA_KEYS, USER_QUOTA_KEYS
from moldau.config.types import ConfigError, ConfigRequestError, ConfigType, ConfigValue

ALL_METRICS: Final = "*"
"""The one entry of `metrics` that subscribes to everything."""

MATCH_FIELDS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
_MIN_INTERVAL_MS: Final = 100
_MAX_INTERVAL_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetricsConfig:
    """One subscription: which metrics which clients push, and how often."""

    metrics: tuple[str, ...] = ()
    interval_ms: int = 300_000
    match: Mapping[str, re.Pattern[str]]  # a client matches when each pattern matches the whole of its field

    @classmethod
    def effective(cls, overrides: Mapping[str, str]) -> ClientMetricsConfig:
        values = effective_client_metrics_values(overrides)
        metrics, interval, match = values["metrics"], values["interval.ms"], values["match"]
        assert isinstance(metrics, tuple)
        assert isinstance(interval, int)
        assert isinstance(match, tuple)
        return cls(metrics=metrics, interval_ms=interval, match=_patterns(match))


def effective_client_metrics_values(overrides: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Every key of a subscription with its parsed value."""
    return {
        name: key.parse(overrides[name]) if name in overrides else key.default
        for name, key in CLIENT_METRICS_KEYS.items()
    }


def validate_client_metrics(subscription: str, overrides: Mapping[str, str]) -> None:
    """Raises ConfigError unless a subscription of that name may have these settings."""
    if not subscription:
        raise ConfigRequestError.saying("name", "Subscription name can't be empty")
    for name in overrides:
        if name not in CLIENT_METRICS_KEYS:
            raise ConfigRequestError.saying(name, f"Unknown client metrics configuration: {name}", overrides[name])
    values = effective_client_metrics_values(overrides)
    interval, match = values["interval.ms"], values["match"]
    assert isinstance(interval, int)
    assert isinstance(match, tuple)
    if not _MIN_INTERVAL_MS <= interval <= _MAX_INTERVAL_MS:
        raise ConfigRequestError.saying(
            "interval.ms",
            f"Invalid value {interval} for interval.ms, interval must be between 100 and 3600000 (1 hour)",
            interval,
        )
    _patterns(match)


def _patterns(match: tuple[str, ...]) -> dict[str, re.Pattern[str]]:
    patterns: dict[str, re.Pattern[str]] = {}
    for entry in match:
        field, equals, pattern = entry.rstrip("=").partition("=")  # as Java splits: empty parts at the end do not count
        field = field.strip()
        if not equals or "=" in pattern or field not in MATCH_FIELDS:
            raise ConfigError.saying("match", f"Illegal client matching pattern: {entry}", entry)
        try:
            patterns[field] = re.compile(pattern.strip())
        except re.error as error:
            raise ConfigError.saying("match", f"Illegal client matching pattern: {entry}", entry) from error
    return patterns


def quota_keys(entity_types: frozenset[str]) -> Mapping[str, ConfigKey]:
    """The keys a quota may have for an entity made of these types ("user", "client-id", "ip")."""
    if "ip" in entity_types:
        if len(entity_types) > 1:
            raise ConfigRequestError.saying(
                "ip", "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
            )
        return IP_QUOTA_KEYS
    if not entity_types:
        raise ConfigRequestError.saying("entity", "Invalid empty client quota entity")
    return USER_QUOTA_KEYS


def validate_quota(keys: Mapping[str, ConfigKey], name: str, value: float) -> None:
    """Raises ConfigRequestError unless a quota of these keys (see `quota_keys`) may have this value."""
    key = keys.get(name)
    if key is None:
        raise ConfigRequestError.saying(name, f"Invalid configuration key {name}", value)
    if not value > 0:
        raise ConfigRequestError.saying(name, f"Quota {name} must be greater than 0", value)
    if key.type is ConfigType.DOUBLE:
        return
    limit, article = (2**31 - 1, "an INT") if key.type is ConfigType.INT else (2**63 - 1, "a LONG")
    if value > limit:
        raise ConfigRequestError.saying(name, f"Proposed value for {name} is too large for {article}.", value)
    if value % 1.0 > 1e-6:
        raise ConfigRequestError.saying(name, f"{name} cannot be a fractional value.", value)
