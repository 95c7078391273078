"""What one partition's log is told: exactly the topic settings it uses, already typed.

The broker builds a `LogConfig` from the topic's effective configuration; the log never parses a setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

LONG_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Topic settings by Kafka's names with dots as underscores; the defaults are Kafka's."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1048588
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3600 * 1000
    compression_type: str = "producer"
    # Level for the codec in `compression_type`; None leaves the codec's own default.
    compression_level: int | None = None
    cleanup_delete: bool = True
    cleanup_compact: bool = False
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    preallocate: bool = False
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    delete_retention_ms: int = 24 * 3600 * 1000
    # Broker-wide settings that reach the log with the topic's.
    producer_id_expiration_ms: int = 24 * 3600 * 1000
    transaction_verification: bool = True
    # Open every record of a client's batch to check it, as well as the header. Costs about a microsecond a record.
    deep_validation: bool = False

    def segment_jitter(self, random: Random | None) -> int:
        """How much earlier than `segment_ms` a new segment is rolled, so that not all of them roll at once."""
        limit = min(self.segment_jitter_ms, self.segment_ms)
        return random.randrange(limit) if random is not None and limit > 0 else 0
