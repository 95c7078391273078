"""The node's settings that `LogManager` needs, by meaning instead of by key."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.config.node_config import NodeConfig


@dataclass(frozen=True, slots=True)
class LogManagerSettings:
    """The node's settings for its logs; the defaults are Kafka's."""

    retention_check_ms: int = 300_000
    producer_check_ms: int = 600_000
    recovery_checkpoint_ms: int = 60_000
    log_start_checkpoint_ms: int = 60_000
    high_watermark_checkpoint_ms: int = 5_000
    # How long after the start the periodic work begins.
    initial_delay_ms: int = 30_000
    # For partitions that are removed before anybody opened them; otherwise the topic's setting counts.
    file_delete_delay_ms: int = 60_000
    move_bytes_per_second: float = float("inf")

    @classmethod
    def of(cls, config: NodeConfig) -> LogManagerSettings:
        return cls(
            retention_check_ms=config.integer("log.retention.check.interval.ms"),
            producer_check_ms=config.integer("producer.id.expiration.check.interval.ms"),
            recovery_checkpoint_ms=config.integer("log.flush.offset.checkpoint.interval.ms"),
            log_start_checkpoint_ms=config.integer("log.flush.start.offset.checkpoint.interval.ms"),
            high_watermark_checkpoint_ms=config.integer("replica.high.watermark.checkpoint.interval.ms"),
            initial_delay_ms=config.integer("log.initial.task.delay.ms"),
            file_delete_delay_ms=config.integer("log.segment.delete.delay.ms"),
            move_bytes_per_second=config.integer("replica.alter.log.dirs.io.max.bytes.per.second"),
        )
