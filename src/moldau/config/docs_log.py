"""What the broker keys of logs and of tiered storage mean. Data only; loaded by `docs` when somebody asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LOG: Final[Mapping[str, str]] = {
    "log.cleaner.threads": "How many threads compact logs in Kafka.",
    "log.cleaner.io.max.bytes.per.second": "Upper limit of the bytes a second that compaction reads and writes.",
    "log.cleaner.dedupe.buffer.size": (
        "Memory for the last offset of each key while a log is compacted; a log with more keys is compacted in "
        "several passes."
    ),
    "log.cleaner.io.buffer.size": "How many bytes compaction reads and writes at a time.",
    "log.cleaner.io.buffer.load.factor": "How full Kafka's table of keys may get in one pass of compaction.",
    "log.cleaner.backoff.ms": "How long compaction sleeps when there is nothing to do.",
    "log.cleaner.min.cleanable.ratio": (
        "Share of a log that must be new since its last compaction before it is compacted again, unless the topic "
        "says otherwise."
    ),
    "log.cleaner.enable": (
        "Whether compaction runs at all. Turning it off lets compacted topics, consumer offsets among them, grow "
        "without end."
    ),
    "log.cleaner.delete.retention.ms": "How long compacted topics keep tombstones, unless the topic says otherwise.",
    "log.cleaner.min.compaction.lag.ms": (
        "How long a record stays exempt from compaction, unless the topic says otherwise."
    ),
    "log.cleaner.max.compaction.lag.ms": (
        "How long a record may wait at most before it becomes due for compaction, unless the topic says otherwise."
    ),
    "num.partitions": "How many partitions a topic gets when its creator does not say, automatic creation included.",
    "log.dir": "The directory for logs when log.dirs is not set.",
    "log.dirs": (
        "The directories for logs. Partitions are spread over them, and one that fails takes only its own partitions "
        "offline."
    ),
    "cordoned.log.dirs": "Log directories that are given no new partitions; * is all of them.",
    "log.segment.bytes": "Size at which a segment is closed, unless the topic says otherwise.",
    "log.roll.ms": "Age at which a segment is closed, unless the topic says otherwise; stronger than log.roll.hours.",
    "log.roll.hours": "Age in hours at which a segment is closed, when log.roll.ms is not set.",
    "log.roll.jitter.ms": (
        "Upper bound of a random time subtracted from log.roll.ms; stronger than log.roll.jitter.hours."
    ),
    "log.roll.jitter.hours": (
        "Upper bound in hours of a random time subtracted from the age at which segments are closed."
    ),
    "log.retention.ms": (
        "How long records are kept, unless the topic says otherwise; -1 is for ever. Stronger than the minutes and "
        "hours."
    ),
    "log.retention.minutes": "How many minutes records are kept, when log.retention.ms is not set.",
    "log.retention.hours": (
        "How many hours records are kept, when neither log.retention.ms nor log.retention.minutes is set."
    ),
    "log.retention.bytes": "How much of each partition is kept, unless the topic says otherwise; -1 is no limit.",
    "log.retention.check.interval.ms": "How often logs are searched for segments that may be deleted.",
    "log.cleanup.policy": (
        "What happens to old records, unless the topic says otherwise: delete, compact, both or nothing."
    ),
    "log.index.size.max.bytes": "Largest size of a segment's offset index, unless the topic says otherwise.",
    "log.index.interval.bytes": (
        "How many bytes of records lie between two index entries, unless the topic says otherwise."
    ),
    "log.flush.interval.messages": (
        "Number of records after which a partition is forced to disk, unless the topic says otherwise."
    ),
    "log.segment.delete.delay.ms": "How long a deleted segment's file stays on disk, unless the topic says otherwise.",
    "log.flush.scheduler.interval.ms": (
        "How often partitions are checked for records that have waited too long to be forced to disk."
    ),
    "log.flush.interval.ms": (
        "Longest time records wait in memory before they are forced to disk; log.flush.scheduler.interval.ms unless "
        "set."
    ),
    "log.flush.offset.checkpoint.interval.ms": (
        "How often the offset up to which each log is safely on disk is written down; recovery after a crash starts "
        "there."
    ),
    "log.flush.start.offset.checkpoint.interval.ms": (
        "How often the start offset of each log is written down, so that deleted records stay deleted."
    ),
    "log.preallocate": "Whether a new segment's file is given its full size at once, unless the topic says otherwise.",
    "num.recovery.threads.per.data.dir": (
        "How many threads recover each log directory's logs at start, and flush them at shutdown, in Kafka."
    ),
    "auto.create.topics.enable": (
        "Whether naming a topic that does not exist creates it, when the client allows it too."
    ),
    "min.insync.replicas": (
        "How many in-sync replicas must have a record of an acks=all producer, unless the topic says otherwise."
    ),
    "log.message.timestamp.type": (
        "Whose clock stamps records, unless the topic says otherwise: CreateTime or LogAppendTime."
    ),
    "log.message.timestamp.before.max.ms": (
        "How far in the past a record's own timestamp may lie, unless the topic says otherwise."
    ),
    "log.message.timestamp.after.max.ms": (
        "How far in the future a record's own timestamp may lie, unless the topic says otherwise."
    ),
    "create.topic.policy.class.name": "A plugin that may refuse the creation of topics.",
    "alter.config.policy.class.name": "A plugin that may refuse changes of settings.",
    "log.dir.failure.timeout.ms": (
        "How long a broker keeps running when it cannot tell the controller that a directory with leaders has failed."
    ),
    "log.initial.task.delay.ms": "How long after the start the housekeeping of logs begins.",
}

TIERED: Final[Mapping[str, str]] = {
    "remote.log.storage.system.enable": "Whether tiered storage is available to topics at all.",
    "remote.log.storage.manager.impl.prefix": "What the names of settings for the remote storage plugin start with.",
    "remote.log.metadata.manager.impl.prefix": "What the names of settings for the remote metadata plugin start with.",
    "remote.log.storage.manager.class.name": "The plugin that reads and writes remote segments.",
    "remote.log.storage.manager.class.path": "Where the remote storage plugin's code is.",
    "remote.log.metadata.manager.class.name": "The plugin that remembers which segments are remote.",
    "remote.log.metadata.manager.class.path": "Where the remote metadata plugin's code is.",
    "remote.log.metadata.manager.listener.name": (
        "The listener through which the remote metadata plugin reaches the brokers."
    ),
    "remote.log.metadata.custom.metadata.max.bytes": (
        "Largest note of its own that the remote storage plugin may keep about a segment."
    ),
    "remote.log.index.file.cache.total.size.bytes": "How much disk the local cache of remote indexes may take.",
    "remote.log.index.file.cache.ttl.ms": "How long an unused remote index stays in the local cache.",
    "remote.log.manager.thread.pool.size": (
        "Size of the thread pool for tiered storage tasks; replaced by one pool for each kind of task."
    ),
    "remote.log.manager.copier.thread.pool.size": "Size of the thread pool that copies segments to remote storage.",
    "remote.log.manager.expiration.thread.pool.size": "Size of the thread pool that deletes expired remote segments.",
    "remote.log.manager.follower.thread.pool.size": (
        "Size of the thread pool that follows remote storage for partitions led elsewhere."
    ),
    "remote.log.manager.task.interval.ms": "How often tiered storage looks for segments to copy or delete.",
    "remote.log.manager.task.retry.backoff.ms": "How long a failed tiered storage task waits before its first retry.",
    "remote.log.manager.task.retry.backoff.max.ms": (
        "How long a failed tiered storage task waits at most between retries."
    ),
    "remote.log.manager.task.retry.jitter": "How much the waits between those retries vary at random.",
    "remote.log.reader.threads": "Size of the thread pool that reads remote segments for consumers.",
    "remote.log.reader.max.pending.tasks": "How many remote reads may wait for a thread.",
    "log.local.retention.ms": (
        "How long records stay on local disks when remote storage has them too, unless the topic says otherwise."
    ),
    "log.local.retention.bytes": (
        "How much of a partition stays on local disks when remote storage has it too, unless the topic says otherwise."
    ),
    "remote.log.manager.copy.max.bytes.per.second": "Bytes a second that may be copied to remote storage.",
    "remote.log.manager.copy.quota.window.num": "How many samples the limit on copying looks back at.",
    "remote.log.manager.copy.quota.window.size.seconds": "Length of one such sample.",
    "remote.log.manager.fetch.max.bytes.per.second": "Bytes a second that may be read from remote storage.",
    "remote.log.manager.fetch.quota.window.num": "How many samples the limit on remote reads looks back at.",
    "remote.log.manager.fetch.quota.window.size.seconds": "Length of one such sample.",
    "remote.fetch.max.wait.ms": "How long a fetch waits at most for remote data.",
    "remote.list.offsets.request.timeout.ms": "How long a search for an offset in remote storage may take.",
}
