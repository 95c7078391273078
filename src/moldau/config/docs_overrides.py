"""What the keys of topics, groups, client-metrics subscriptions and client quotas mean.

Data only; loaded by `docs` when somebody asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TOPIC: Final[Mapping[str, str]] = {
    "segment.bytes": (
        "Size at which the active segment of a partition is closed and a new one begun. Retention and compaction work"
        " on closed segments only."
    ),
    "segment.ms": (
        "Age at which the active segment is closed even if it is not full, so that retention and compaction can reach"
        " its records."
    ),
    "segment.jitter.ms": (
        "Upper bound of a random time subtracted from segment.ms, so that many partitions do not roll at the same "
        "moment."
    ),
    "segment.index.bytes": "Largest size of a segment's offset index; a full index closes the segment.",
    "flush.messages": (
        "Number of records after which a partition is forced to disk. 1 means every append is on disk before it is "
        "acknowledged; the default leaves it to the operating system."
    ),
    "flush.ms": (
        "Longest time records wait in memory before they are forced to disk. The default leaves it to the operating "
        "system."
    ),
    "retention.bytes": (
        "How much of a partition is kept under the delete policy before the oldest segments go; -1 is no limit. It "
        "counts for each partition, not for the topic."
    ),
    "retention.ms": "How long records are kept under the delete policy; -1 is for ever.",
    "max.message.bytes": "Largest record batch a producer may append, as it arrives (compressed, if it is).",
    "index.interval.bytes": (
        "How many bytes of records lie between two entries of the offset index: fewer find a position faster and make"
        " the index larger."
    ),
    "delete.retention.ms": (
        "How long a compacted topic keeps the tombstone of a deleted key, which bounds how far behind a consumer may "
        "be and still learn of the deletion."
    ),
    "min.compaction.lag.ms": "How long a record stays exempt from compaction after it was written.",
    "max.compaction.lag.ms": "How long a record may wait at most before it becomes due for compaction.",
    "file.delete.delay.ms": "How long a deleted segment's file stays on disk, for reads that are still under way.",
    "min.cleanable.dirty.ratio": (
        "Share of a log that must be new since its last compaction before it is compacted again. Lower means less "
        "waste and more work."
    ),
    "cleanup.policy": (
        "What happens to old records: delete by age and size, compact to the last value of each key, both, or (empty)"
        " nothing at all."
    ),
    "unclean.leader.election.enable": (
        "Whether a replica that is behind may become leader when no other is left, which trades lost records for "
        "availability."
    ),
    "min.insync.replicas": (
        "How many in-sync replicas must have a record of an acks=all producer before it is acknowledged; with fewer "
        "in sync, such writes are refused."
    ),
    "compression.type": (
        "Codec in which batches are stored: one of the codecs, uncompressed, or producer to keep each batch as it came."
    ),
    "compression.gzip.level": (
        "Level at which batches are recompressed when compression.type is gzip; -1 is the library's default."
    ),
    "compression.lz4.level": "Level at which batches are recompressed when compression.type is lz4.",
    "compression.zstd.level": "Level at which batches are recompressed when compression.type is zstd.",
    "preallocate": "Whether a new segment's file is given its full size at once.",
    "message.timestamp.type": (
        "Whose clock stamps records: the producer's (CreateTime) or the broker's as it appends (LogAppendTime)."
    ),
    "message.timestamp.before.max.ms": (
        "How far in the past a record's own timestamp may lie when it arrives; older ones are refused. Ignored with "
        "LogAppendTime."
    ),
    "message.timestamp.after.max.ms": (
        "How far in the future a record's own timestamp may lie when it arrives; later ones are refused. Ignored with"
        " LogAppendTime."
    ),
    "leader.replication.throttled.replicas": (
        "Replicas, as partition:broker pairs or *, whose leaders send under leader.replication.throttled.rate."
    ),
    "follower.replication.throttled.replicas": (
        "Replicas, as partition:broker pairs or *, whose followers fetch under follower.replication.throttled.rate."
    ),
    "remote.storage.enable": "Whether closed segments of the topic are moved to remote storage.",
    "local.retention.ms": (
        "How long records stay on local disks when remote storage has them too; -2 is as long as retention.ms."
    ),
    "local.retention.bytes": (
        "How much of a partition stays on local disks when remote storage has it too; -2 is as much as retention.bytes."
    ),
    "remote.log.copy.disable": "Stops copying to remote storage while what is there stays readable.",
    "remote.log.delete.on.disable": "Whether turning remote storage off deletes what the topic has there.",
    "internal.segment.bytes": (
        "Replaces segment.bytes without its lower limit, so that tests can make many small segments."
    ),
}

GROUP: Final[Mapping[str, str]] = {
    "consumer.session.timeout.ms": (
        "How long a member of this consumer group may be silent before it is taken for dead."
    ),
    "consumer.heartbeat.interval.ms": "How often members of this consumer group are told to send heartbeats.",
    "consumer.assignment.interval.ms": (
        "Shortest time between two new assignments of this consumer group, so that many joins become one rebalance."
    ),
    "share.session.timeout.ms": "How long a member of this share group may be silent before it is taken for dead.",
    "share.heartbeat.interval.ms": "How often members of this share group are told to send heartbeats.",
    "share.record.lock.duration.ms": (
        "How long a record given to a consumer of this share group stays with it before it is offered to others."
    ),
    "share.delivery.count.limit": (
        "How often a record is delivered in this share group before it is given up as undeliverable."
    ),
    "share.partition.max.record.locks": (
        "How many records of one partition may be with the consumers of this share group at a time."
    ),
    "share.auto.offset.reset": (
        "Where this share group starts on a partition it has not read: earliest, latest, or by_duration:<ISO 8601 "
        "duration> before now."
    ),
    "share.isolation.level": (
        "Whether this share group is given records of transactions that are still open or were aborted."
    ),
    "share.renew.acknowledge.enable": "Whether consumers of this share group may extend the time they hold a record.",
    "share.assignment.interval.ms": "Shortest time between two new assignments of this share group.",
    "streams.session.timeout.ms": "How long a member of this streams group may be silent before it is taken for dead.",
    "streams.heartbeat.interval.ms": "How often members of this streams group are told to send heartbeats.",
    "streams.num.standby.replicas": "How many warm copies of each task's state this streams group keeps.",
    "streams.initial.rebalance.delay.ms": (
        "How long the first rebalance of an empty streams group waits for more members."
    ),
    "streams.assignment.interval.ms": "Shortest time between two new assignments of this streams group.",
}

CLIENT_METRICS: Final[Mapping[str, str]] = {
    "metrics": "Name prefixes of the metrics that matching clients push; * is all of them, nothing is none.",
    "interval.ms": "How often matching clients push their metrics.",
    "match": "Which clients the subscription is for, as field=regular expression pairs; none means every client.",
}

QUOTA: Final[Mapping[str, str]] = {
    "producer_byte_rate": (
        "Bytes a second that the producers of this user or client id may send to one broker before they are slowed "
        "down."
    ),
    "consumer_byte_rate": (
        "Bytes a second that the consumers of this user or client id may fetch from one broker before they are slowed"
        " down."
    ),
    "request_percentage": (
        "Share of a broker's time, in percent of one thread, that requests of this user or client id may take."
    ),
    "controller_mutation_rate": "Partitions a second that this user or client id may create or delete.",
    "connection_creation_rate": "Connections a second that one address may open to a broker.",
}
