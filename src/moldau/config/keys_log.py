"""Broker keys of logs and of the log cleaner, most of them defaults for topics.

Facts only, in the order Kafka defines them; what each key means is in `docs`.
"""

from __future__ import annotations

from typing import Final

from moldau.config.rows import BOOLEAN, CLASS, DOUBLE, INT, LIST, LONG, LONG_MAX, STRING, broker
from moldau.config.validators import OneOf, Range, Words

CLEANER_KEYS: Final = (
    broker("log.cleaner.threads", INT, 1, Range(0), "medium", "cluster-wide"),
    broker("log.cleaner.io.max.bytes.per.second", DOUBLE, 1.7976931348623157e308, None, "medium", "cluster-wide"),
    broker("log.cleaner.dedupe.buffer.size", LONG, 134_217_728, None, "medium", "cluster-wide"),
    broker("log.cleaner.io.buffer.size", INT, 524_288, Range(0), "medium", "cluster-wide"),
    broker("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, None, "medium", "cluster-wide"),
    broker("log.cleaner.backoff.ms", LONG, 15_000, Range(0), "medium", "cluster-wide"),
    broker("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, Range(0, 1), "medium", "cluster-wide"),
    broker("log.cleaner.enable", BOOLEAN, True, None, "medium"),
    broker("log.cleaner.delete.retention.ms", LONG, 86_400_000, Range(0), "medium", "cluster-wide"),
    broker("log.cleaner.min.compaction.lag.ms", LONG, 0, Range(0), "medium", "cluster-wide"),
    broker("log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, Range(1), "medium", "cluster-wide"),
)

LOG_KEYS: Final = (
    broker("num.partitions", INT, 1, Range(1), "medium"),
    broker("log.dir", LIST, ("/tmp/kafka-logs",), Words(empty=False), "high"),  # noqa: S108 (Kafka's default, as a fact)
    broker("log.dirs", LIST, None, Words(empty=False, null=True), "high"),
    broker("cordoned.log.dirs", LIST, (), Words(null=True), "medium", "per-broker"),
    broker("log.segment.bytes", INT, 1_073_741_824, Range(1_048_576), "high", "cluster-wide"),
    broker("log.roll.ms", LONG, None, None, "high", "cluster-wide"),
    broker("log.roll.hours", INT, 168, Range(1), "high"),
    broker("log.roll.jitter.ms", LONG, None, None, "high", "cluster-wide"),
    broker("log.roll.jitter.hours", INT, 0, Range(0), "high"),
    broker("log.retention.ms", LONG, None, None, "high", "cluster-wide"),
    broker("log.retention.minutes", INT, None, None, "high"),
    broker("log.retention.hours", INT, 168, None, "high"),
    broker("log.retention.bytes", LONG, -1, None, "high", "cluster-wide"),
    broker("log.retention.check.interval.ms", LONG, 300_000, Range(1), "medium"),
    broker("log.cleanup.policy", LIST, ("delete",), Words("compact", "delete"), "medium", "cluster-wide"),
    broker("log.index.size.max.bytes", INT, 10_485_760, Range(4), "medium", "cluster-wide"),
    broker("log.index.interval.bytes", INT, 4096, Range(0), "medium", "cluster-wide"),
    broker("log.flush.interval.messages", LONG, LONG_MAX, Range(1), "high", "cluster-wide"),
    broker("log.segment.delete.delay.ms", LONG, 60_000, Range(0), "high", "cluster-wide"),
    broker("log.flush.scheduler.interval.ms", LONG, LONG_MAX, None, "high"),
    broker("log.flush.interval.ms", LONG, None, None, "high", "cluster-wide"),
    broker("log.flush.offset.checkpoint.interval.ms", INT, 60_000, Range(0), "high"),
    broker("log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, Range(0), "high"),
    broker("log.preallocate", BOOLEAN, False, None, "medium", "cluster-wide"),
    broker("num.recovery.threads.per.data.dir", INT, 2, Range(1), "high", "cluster-wide"),
    broker("auto.create.topics.enable", BOOLEAN, True, None, "high"),
    broker("min.insync.replicas", INT, 1, Range(1), "high", "cluster-wide"),
    broker(
        "log.message.timestamp.type",
        STRING,
        "CreateTime",
        OneOf("CreateTime", "LogAppendTime"),
        "medium",
        "cluster-wide",
    ),
    broker("log.message.timestamp.before.max.ms", LONG, LONG_MAX, Range(0), "medium", "cluster-wide"),
    broker("log.message.timestamp.after.max.ms", LONG, 3_600_000, Range(0), "medium", "cluster-wide"),
    broker("create.topic.policy.class.name", CLASS, None, None, "low"),
    broker("alter.config.policy.class.name", CLASS, None, None, "low"),
    broker("log.dir.failure.timeout.ms", LONG, 30_000, Range(1), "low"),
    broker("log.initial.task.delay.ms", LONG, 30_000, Range(0), "low", internal=True),
)
