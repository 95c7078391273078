"""What the broker keys of groups, share state and transactions mean. Data only; loaded by `docs` when somebody asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

COORDINATORS: Final[Mapping[str, str]] = {
    "group.coordinator.rebalance.protocols": (
        "Which kinds of groups are served: classic always, consumer, streams and share."
    ),
    "group.coordinator.threads": "How many threads run group coordinators in Kafka.",
    "group.coordinator.background.threads": "How many threads compute assignments and match topic patterns in Kafka.",
    "group.coordinator.append.linger.ms": (
        "How long Kafka's group coordinator collects records before it writes them; -1 adapts to the load."
    ),
    "offsets.commit.timeout.ms": "How long an offset commit waits for the replicas of the offsets topic.",
    "offsets.load.buffer.size": "How many bytes of the offsets topic are read at a time when a coordinator takes over.",
    "offsets.topic.replication.factor": (
        "How many replicas the offsets topic gets; it is not created until there are that many brokers."
    ),
    "offsets.topic.num.partitions": (
        "How many partitions the offsets topic gets. Changing it later sends groups to other coordinators."
    ),
    "offsets.topic.segment.bytes": "Segment size of the offsets topic; small segments load faster.",
    "offsets.topic.compression.codec": "Codec, by number, in which the offsets topic is written; 0 is none.",
    "group.coordinator.cached.buffer.max.bytes": "How large a write buffer Kafka's group coordinator keeps for reuse.",
    "offset.metadata.max.bytes": "Largest note a consumer may commit along with an offset.",
    "offsets.retention.minutes": (
        "How long offsets are kept after their group has become empty, or since the last commit of a consumer without"
        " a group."
    ),
    "offsets.retention.check.interval.ms": "How often expired offsets are looked for.",
    "group.min.session.timeout.ms": "Shortest session timeout a member of a classic group may ask for.",
    "group.max.session.timeout.ms": "Longest session timeout a member of a classic group may ask for.",
    "group.initial.rebalance.delay.ms": (
        "How long the first rebalance of an empty classic group waits for more members."
    ),
    "group.max.size": "How many members a classic group may have.",
    "group.consumer.session.timeout.ms": (
        "How long a member of a consumer group may be silent before it is taken for dead, unless the group says "
        "otherwise."
    ),
    "group.consumer.min.session.timeout.ms": "Smallest session timeout a consumer group may be given.",
    "group.consumer.max.session.timeout.ms": "Largest session timeout a consumer group may be given.",
    "group.consumer.heartbeat.interval.ms": (
        "How often members of consumer groups are told to send heartbeats, unless the group says otherwise."
    ),
    "group.consumer.min.heartbeat.interval.ms": "Smallest heartbeat interval a consumer group may be given.",
    "group.consumer.max.heartbeat.interval.ms": "Largest heartbeat interval a consumer group may be given.",
    "group.consumer.max.size": "How many members a consumer group may have.",
    "group.consumer.assignors": (
        "Assignors of consumer groups: uniform, range. The first is used by groups that name none."
    ),
    "group.consumer.migration.policy": (
        "Whether a group may change between the classic and the consumer protocol while members of both are in it."
    ),
    "group.consumer.assignment.interval.ms": (
        "Shortest time between two new assignments of a consumer group, unless the group says otherwise."
    ),
    "group.consumer.min.assignment.interval.ms": "Smallest assignment interval a consumer group may be given.",
    "group.consumer.max.assignment.interval.ms": "Largest assignment interval a consumer group may be given.",
    "group.consumer.regex.refresh.interval.ms": (
        "How often topic patterns are matched again although nobody subscribed anew."
    ),
    "group.share.session.timeout.ms": (
        "How long a member of a share group may be silent before it is taken for dead, unless the group says otherwise."
    ),
    "group.share.min.session.timeout.ms": "Smallest session timeout a share group may be given.",
    "group.share.max.session.timeout.ms": "Largest session timeout a share group may be given.",
    "group.share.heartbeat.interval.ms": (
        "How often members of share groups are told to send heartbeats, unless the group says otherwise."
    ),
    "group.share.min.heartbeat.interval.ms": "Smallest heartbeat interval a share group may be given.",
    "group.share.max.heartbeat.interval.ms": "Largest heartbeat interval a share group may be given.",
    "group.share.max.size": "How many members a share group may have.",
    "group.share.assignors": "The assignor of share groups; exactly one.",
    "group.share.assignment.interval.ms": (
        "Shortest time between two new assignments of a share group, unless the group says otherwise."
    ),
    "group.share.min.assignment.interval.ms": "Smallest assignment interval a share group may be given.",
    "group.share.max.assignment.interval.ms": "Largest assignment interval a share group may be given.",
    "group.share.initialize.retry.interval.ms": (
        "How long a share group waits before it tries again to initialise a partition's state."
    ),
    "group.streams.session.timeout.ms": (
        "How long a member of a streams group may be silent before it is taken for dead, unless the group says "
        "otherwise."
    ),
    "group.streams.min.session.timeout.ms": "Smallest session timeout a streams group may be given.",
    "group.streams.max.session.timeout.ms": "Largest session timeout a streams group may be given.",
    "group.streams.heartbeat.interval.ms": (
        "How often members of streams groups are told to send heartbeats, unless the group says otherwise."
    ),
    "group.streams.min.heartbeat.interval.ms": "Smallest heartbeat interval a streams group may be given.",
    "group.streams.max.heartbeat.interval.ms": "Largest heartbeat interval a streams group may be given.",
    "group.streams.max.size": "How many members a streams group may have.",
    "group.streams.num.standby.replicas": (
        "How many warm copies of each task's state a streams group keeps, unless the group says otherwise."
    ),
    "group.streams.max.standby.replicas": "Largest number of warm copies a streams group may be given.",
    "group.streams.initial.rebalance.delay.ms": (
        "How long the first rebalance of an empty streams group waits for more members, unless the group says "
        "otherwise."
    ),
    "group.streams.assignment.interval.ms": (
        "Shortest time between two new assignments of a streams group, unless the group says otherwise."
    ),
    "group.streams.min.assignment.interval.ms": "Smallest assignment interval a streams group may be given.",
    "group.streams.max.assignment.interval.ms": "Largest assignment interval a streams group may be given.",
    "group.share.delivery.count.limit": (
        "How often a record is delivered in a share group before it is given up, unless the group says otherwise."
    ),
    "group.share.max.delivery.count.limit": "Largest delivery limit a share group may be given.",
    "group.share.min.delivery.count.limit": "Smallest delivery limit a share group may be given.",
    "group.share.record.lock.duration.ms": (
        "How long a record stays with a share group's consumer before it is offered to others, unless the group says "
        "otherwise."
    ),
    "group.share.min.record.lock.duration.ms": "Smallest lock duration a share group may be given.",
    "group.share.max.record.lock.duration.ms": "Largest lock duration a share group may be given.",
    "group.share.partition.max.record.locks": (
        "How many records of one partition may be with a share group's consumers at a time, unless the group says "
        "otherwise."
    ),
    "group.share.max.partition.max.record.locks": "Largest number of locked records a share group may be given.",
    "group.share.min.partition.max.record.locks": "Smallest number of locked records a share group may be given.",
    "share.fetch.purgatory.purge.interval.requests": (
        "After how many requests Kafka removes answered share fetches from its list of waiting ones."
    ),
    "group.share.max.share.sessions": "How many share sessions a broker remembers.",
    "group.share.persister.class.name": (
        "Where the state of share groups is kept: in the share-state topic, or nowhere if this is empty or "
        "names Kafka's NoOpStatePersister."
    ),
    "share.coordinator.state.topic.num.partitions": (
        "How many partitions the share-state topic gets. Do not change it once the topic exists."
    ),
    "share.coordinator.state.topic.replication.factor": (
        "How many replicas the share-state topic gets; it is not created until there are that many brokers."
    ),
    "share.coordinator.state.topic.min.isr": "The min.insync.replicas of the share-state topic.",
    "share.coordinator.state.topic.segment.bytes": "Segment size of the share-state topic.",
    "share.coordinator.threads": "How many threads run share coordinators in Kafka.",
    "share.coordinator.snapshot.update.records.per.snapshot": (
        "How many changes of a share partition's state are written between two complete snapshots of it."
    ),
    "share.coordinator.load.buffer.size": (
        "How many bytes of the share-state topic are read at a time when a coordinator takes over."
    ),
    "share.coordinator.state.topic.compression.codec": (
        "Codec, by number, in which the share-state topic is written; 0 is none."
    ),
    "share.coordinator.append.linger.ms": (
        "How long Kafka's share coordinator collects records before it writes them; -1 adapts to the load."
    ),
    "share.coordinator.write.timeout.ms": "How long a change of share state waits for the replicas of its topic.",
    "share.coordinator.state.topic.prune.interval.ms": (
        "How often records of the share-state topic that nobody needs any more are deleted."
    ),
    "share.coordinator.cold.partition.snapshot.interval.ms": (
        "How often the state of share partitions without traffic is written anew, so that older records can go."
    ),
    "share.coordinator.cached.buffer.max.bytes": "How large a write buffer Kafka's share coordinator keeps for reuse.",
    "transaction.state.log.min.isr": "The min.insync.replicas of the transaction-state topic.",
    "transaction.state.log.load.buffer.size": (
        "How many bytes of the transaction-state topic are read at a time when a coordinator takes over."
    ),
    "transaction.state.log.replication.factor": (
        "How many replicas the transaction-state topic gets; it is not created until there are that many brokers."
    ),
    "transaction.state.log.num.partitions": (
        "How many partitions the transaction-state topic gets. Do not change it once the topic exists."
    ),
    "transaction.state.log.segment.bytes": "Segment size of the transaction-state topic; small segments load faster.",
    "transaction.partition.verification.enable": (
        "Whether a transactional write is checked with the coordinator first, so that no transaction is left hanging."
    ),
    "producer.id.expiration.ms": (
        "How long a partition remembers an idle producer's sequence numbers; after that its retries could be stored "
        "twice."
    ),
    "producer.id.expiration.check.interval.ms": "How often idle producers are looked for.",
    "transactional.id.expiration.ms": "How long a transactional id is kept without any transaction.",
    "transaction.max.timeout.ms": "Longest transaction timeout a producer may ask for.",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": (
        "How often transactions that have timed out are looked for and rolled back."
    ),
    "transaction.remove.expired.transaction.cleanup.interval.ms": (
        "How often expired transactional ids are looked for and removed."
    ),
    "transaction.two.phase.commit.enable": (
        "Whether producers may take part in two-phase commit, whose prepared transactions never time out."
    ),
    "add.partitions.to.txn.retry.backoff.max.ms": (
        "How long a broker goes on retrying by itself to add partitions to a transaction while the previous one is "
        "still completing."
    ),
    "add.partitions.to.txn.retry.backoff.ms": "How long a broker waits between those retries.",
}
