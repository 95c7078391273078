"""The keys a group may override.

Facts only, in the order Kafka defines them; what each key means is in `docs`.
"""

from __future__ import annotations

from typing import Final

from moldau.config.rows import BOOLEAN, INT, STRING, group
from moldau.config.validators import OneOf, Range, ShareOffsetReset

GROUP_KEYS: Final = (
    group("consumer.session.timeout.ms", INT, 45_000, Range(1), "medium"),
    group("consumer.heartbeat.interval.ms", INT, 5000, Range(1), "medium"),
    group("consumer.assignment.interval.ms", INT, 1000, Range(0), "medium"),
    group("share.session.timeout.ms", INT, 45_000, Range(1), "medium"),
    group("share.heartbeat.interval.ms", INT, 5000, Range(1), "medium"),
    group("share.record.lock.duration.ms", INT, 30_000, Range(1000), "medium"),
    group("share.delivery.count.limit", INT, 5, Range(2), "medium"),
    group("share.partition.max.record.locks", INT, 2000, Range(100), "medium"),
    group("share.auto.offset.reset", STRING, "latest", ShareOffsetReset(), "medium"),
    group("share.isolation.level", STRING, "read_uncommitted", OneOf("read_committed", "read_uncommitted"), "medium"),
    group("share.renew.acknowledge.enable", BOOLEAN, True, None, "medium"),
    group("share.assignment.interval.ms", INT, 1000, Range(0), "medium"),
    group("streams.session.timeout.ms", INT, 45_000, Range(1), "medium"),
    group("streams.heartbeat.interval.ms", INT, 5000, Range(1), "medium"),
    group("streams.num.standby.replicas", INT, 0, Range(0), "medium"),
    group("streams.initial.rebalance.delay.ms", INT, 3000, Range(0), "medium"),
    group("streams.assignment.interval.ms", INT, 1000, Range(0), "medium"),
)
