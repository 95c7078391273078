"""From a topic's effective configuration to what its logs need to know.

The one place where names of topic settings meet the log's own settings; the log never sees a configuration key.
"""

from __future__ import annotations

from moldau.config.node_config import NodeConfig
from moldau.config.topic_config import TopicConfig
from moldau.log.config import LogConfig


def log_config(topic: TopicConfig, node: NodeConfig) -> LogConfig:
    return LogConfig(
        segment_bytes=topic.segment_bytes,
        segment_ms=_segment_ms(topic),
        segment_jitter_ms=topic.segment_jitter_ms,
        segment_index_bytes=topic.segment_index_bytes,
        index_interval_bytes=topic.index_interval_bytes,
        max_message_bytes=topic.max_message_bytes,
        message_timestamp_type=topic.message_timestamp_type,
        message_timestamp_before_max_ms=topic.message_timestamp_before_max_ms,
        message_timestamp_after_max_ms=topic.message_timestamp_after_max_ms,
        compression_type=topic.compression_type,
        compression_level=_compression_level(topic),
        cleanup_delete=topic.cleanup_policy_delete,
        cleanup_compact=topic.cleanup_policy_compact,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
        file_delete_delay_ms=topic.file_delete_delay_ms,
        flush_messages=topic.flush_messages,
        flush_ms=topic.flush_ms,
        preallocate=topic.preallocate,
        min_cleanable_dirty_ratio=topic.min_cleanable_dirty_ratio,
        min_compaction_lag_ms=topic.min_compaction_lag_ms,
        max_compaction_lag_ms=topic.max_compaction_lag_ms,
        delete_retention_ms=topic.delete_retention_ms,
        producer_id_expiration_ms=node.integer("producer.id.expiration.ms"),
        transaction_verification=node.flag("transaction.partition.verification.enable"),
    )


def _segment_ms(topic: TopicConfig) -> int:
    """The active segment is never compacted: to keep max.compaction.lag.ms it must be rolled by then."""
    if topic.cleanup_policy_compact:
        return min(topic.segment_ms, topic.max_compaction_lag_ms)
    return topic.segment_ms


def _compression_level(topic: TopicConfig) -> int | None:
    match topic.compression_type:
        case "gzip":
            return topic.compression_gzip_level
        case "lz4":
            return topic.compression_lz4_level
        case "zstd":
            return topic.compression_zstd_level
        case _:
            return None
