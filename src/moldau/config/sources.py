"""Where a described value comes from, with the codes DescribeConfigs carries."""

from __future__ import annotations

from enum import IntEnum


class ConfigSource(IntEnum):
    """Of two sources of one setting the more specific wins: topic, group or subscription, then broker, then cluster."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8
