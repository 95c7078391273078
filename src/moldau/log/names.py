"""The names of the files in a partition's directory. Only names: nothing here touches a disk."""

from __future__ import annotations

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"

# What a file's name ends with while it is on its way in or out.
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

# What a partition directory's name ends with while it is on its way out, or in from another log directory.
DELETED_DIRECTORY_SUFFIX = "-delete"
FUTURE_DIRECTORY_SUFFIX = "-future"
STRAY_DIRECTORY_SUFFIX = "-stray"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"

SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
INDEX_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
OFFSET_DIGITS = 20


def file_name(base_offset: int, suffix: str) -> str:
    """The base offset in twenty digits, then the suffix: names sort as offsets do."""
    return f"{base_offset:020d}{suffix}"


def offset_in_name(name: str) -> int | None:
    """The base offset a file's name begins with, or None for a file that is not a segment's."""
    digits = name[:OFFSET_DIGITS]
    return int(digits) if len(digits) == OFFSET_DIGITS and digits.isdigit() and digits.isascii() else None


def partition_directory(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"
