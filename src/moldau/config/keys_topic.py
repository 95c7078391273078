"""The keys a topic may override.

Facts only, in the order Kafka defines them; what each key means is in `docs`.
"""

from __future__ import annotations

from typing import Final

from moldau.config.rows import BOOLEAN, DOUBLE, INT, LIST, LONG, LONG_MAX, STRING, topic
from moldau.config.validators import GzipLevel, OneOf, Range, ThrottledReplicas, Words

TOPIC_KEYS: Final = (
    topic("segment.bytes", INT, 1_073_741_824, Range(1_048_576), "medium"),
    topic("segment.ms", LONG, 604_800_000, Range(1), "medium"),
    topic("segment.jitter.ms", LONG, 0, Range(0), "medium"),
    topic("segment.index.bytes", INT, 10_485_760, Range(4), "medium"),
    topic("flush.messages", LONG, LONG_MAX, Range(1), "medium"),
    topic("flush.ms", LONG, LONG_MAX, Range(0), "medium"),
    topic("retention.bytes", LONG, -1, None, "medium"),
    topic("retention.ms", LONG, 604_800_000, Range(-1), "medium"),
    topic("max.message.bytes", INT, 1_048_588, Range(0), "medium"),
    topic("index.interval.bytes", INT, 4096, Range(0), "medium"),
    topic("delete.retention.ms", LONG, 86_400_000, Range(0), "medium"),
    topic("min.compaction.lag.ms", LONG, 0, Range(0), "medium"),
    topic("max.compaction.lag.ms", LONG, LONG_MAX, Range(1), "medium"),
    topic("file.delete.delay.ms", LONG, 60_000, Range(0), "medium"),
    topic("min.cleanable.dirty.ratio", DOUBLE, 0.5, Range(0, 1), "medium"),
    topic("cleanup.policy", LIST, ("delete",), Words("compact", "delete"), "medium"),
    topic("unclean.leader.election.enable", BOOLEAN, False, None, "medium"),
    topic("min.insync.replicas", INT, 1, Range(1), "medium"),
    topic(
        "compression.type",
        STRING,
        "producer",
        OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "medium",
    ),
    topic("compression.gzip.level", INT, -1, GzipLevel(), "medium"),
    topic("compression.lz4.level", INT, 9, Range(1, 17), "medium"),
    topic("compression.zstd.level", INT, 3, Range(-131_072, 22), "medium"),
    topic("preallocate", BOOLEAN, False, None, "medium"),
    topic("message.timestamp.type", STRING, "CreateTime", OneOf("CreateTime", "LogAppendTime"), "medium"),
    topic("message.timestamp.before.max.ms", LONG, LONG_MAX, Range(0), "medium"),
    topic("message.timestamp.after.max.ms", LONG, 3_600_000, Range(0), "medium"),
    topic("leader.replication.throttled.replicas", LIST, (), ThrottledReplicas(), "medium"),
    topic("follower.replication.throttled.replicas", LIST, (), ThrottledReplicas(), "medium"),
    topic("remote.storage.enable", BOOLEAN, False, None, "medium"),
    topic("local.retention.ms", LONG, -2, Range(-2), "medium"),
    topic("local.retention.bytes", LONG, -2, Range(-2), "medium"),
    topic("remote.log.copy.disable", BOOLEAN, False, None, "medium"),
    topic("remote.log.delete.on.disable", BOOLEAN, False, None, "medium"),
    topic("internal.segment.bytes", INT, None, None, "medium", internal=True),
)
