"""Broker keys of the coordinators: groups of every kind, share state and transactions.

Facts only, in the order Kafka defines them; what each key means is in `docs`.
"""

from __future__ import annotations

from typing import Final

from moldau.config.rows import BOOLEAN, INT, INT_MAX, LIST, LONG, SHORT, STRING, broker
from moldau.config.validators import OneOfAnyCase, Range, Words

GROUP_COORDINATOR_KEYS: Final = (
    broker(
        "group.coordinator.rebalance.protocols",
        LIST,
        ("classic", "consumer", "streams"),
        Words("consumer", "classic", "share", "streams", empty=False),
        "medium",
    ),
    broker("group.coordinator.threads", INT, 4, Range(1), "high"),
    broker("group.coordinator.background.threads", INT, 2, Range(1), "high"),
    broker("group.coordinator.append.linger.ms", INT, -1, Range(-1), "medium"),
    broker("offsets.commit.timeout.ms", INT, 5000, Range(1), "high"),
    broker("offsets.load.buffer.size", INT, 5_242_880, Range(1), "high"),
    broker("offsets.topic.replication.factor", SHORT, 3, Range(1), "high"),
    broker("offsets.topic.num.partitions", INT, 50, Range(1), "high"),
    broker("offsets.topic.segment.bytes", INT, 104_857_600, Range(1), "high"),
    broker("offsets.topic.compression.codec", INT, 0, None, "high"),
    broker("group.coordinator.cached.buffer.max.bytes", INT, 1_048_588, Range(524_288), "medium", "cluster-wide"),
    broker("offset.metadata.max.bytes", INT, 4096, None, "high"),
    broker("offsets.retention.minutes", INT, 10_080, Range(1), "high"),
    broker("offsets.retention.check.interval.ms", LONG, 600_000, Range(1), "high"),
    broker("group.min.session.timeout.ms", INT, 6000, None, "medium"),
    broker("group.max.session.timeout.ms", INT, 1_800_000, None, "medium"),
    broker("group.initial.rebalance.delay.ms", INT, 3000, None, "medium"),
    broker("group.max.size", INT, INT_MAX, Range(1), "medium"),
    broker("group.consumer.session.timeout.ms", INT, 45_000, Range(1), "medium"),
    broker("group.consumer.min.session.timeout.ms", INT, 45_000, Range(1), "medium"),
    broker("group.consumer.max.session.timeout.ms", INT, 60_000, Range(1), "medium"),
    broker("group.consumer.heartbeat.interval.ms", INT, 5000, Range(1), "medium"),
    broker("group.consumer.min.heartbeat.interval.ms", INT, 5000, Range(1), "medium"),
    broker("group.consumer.max.heartbeat.interval.ms", INT, 15_000, Range(1), "medium"),
    broker("group.consumer.max.size", INT, INT_MAX, Range(1), "medium"),
    broker("group.consumer.assignors", LIST, ("uniform", "range"), Words(empty=False), "medium"),
    broker(
        "group.consumer.migration.policy",
        STRING,
        "bidirectional",
        OneOfAnyCase("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
        "medium",
    ),
    broker("group.consumer.assignment.interval.ms", INT, 1000, Range(0), "medium", "cluster-wide"),
    broker("group.consumer.min.assignment.interval.ms", INT, 0, Range(0), "medium"),
    broker("group.consumer.max.assignment.interval.ms", INT, 15_000, Range(0), "medium"),
    broker("group.consumer.regex.refresh.interval.ms", INT, 600_000, Range(10_000), "medium", internal=True),
    broker("group.share.session.timeout.ms", INT, 45_000, Range(1), "medium"),
    broker("group.share.min.session.timeout.ms", INT, 45_000, Range(1), "medium"),
    broker("group.share.max.session.timeout.ms", INT, 60_000, Range(1), "medium"),
    broker("group.share.heartbeat.interval.ms", INT, 5000, Range(1), "medium"),
    broker("group.share.min.heartbeat.interval.ms", INT, 5000, Range(1), "medium"),
    broker("group.share.max.heartbeat.interval.ms", INT, 15_000, Range(1), "medium"),
    broker("group.share.max.size", INT, 200, Range(1, 1000), "medium"),
    broker("group.share.assignors", LIST, ("simple",), Words(empty=False), "medium"),
    broker("group.share.assignment.interval.ms", INT, 1000, Range(0), "medium", "cluster-wide"),
    broker("group.share.min.assignment.interval.ms", INT, 0, Range(0), "medium"),
    broker("group.share.max.assignment.interval.ms", INT, 15_000, Range(0), "medium"),
    broker("group.share.initialize.retry.interval.ms", INT, 30_000, Range(1), "low", internal=True),
    broker("group.streams.session.timeout.ms", INT, 45_000, Range(1), "medium"),
    broker("group.streams.min.session.timeout.ms", INT, 45_000, Range(1), "medium"),
    broker("group.streams.max.session.timeout.ms", INT, 60_000, Range(1), "medium"),
    broker("group.streams.heartbeat.interval.ms", INT, 5000, Range(1), "medium"),
    broker("group.streams.min.heartbeat.interval.ms", INT, 5000, Range(1), "medium"),
    broker("group.streams.max.heartbeat.interval.ms", INT, 15_000, Range(1), "medium"),
    broker("group.streams.max.size", INT, INT_MAX, Range(1), "medium"),
    broker("group.streams.num.standby.replicas", INT, 0, Range(0), "medium"),
    broker("group.streams.max.standby.replicas", INT, 2, Range(0), "medium"),
    broker("group.streams.initial.rebalance.delay.ms", INT, 3000, Range(0), "medium"),
    broker("group.streams.assignment.interval.ms", INT, 1000, Range(0), "medium", "cluster-wide"),
    broker("group.streams.min.assignment.interval.ms", INT, 0, Range(0), "medium"),
    broker("group.streams.max.assignment.interval.ms", INT, 15_000, Range(0), "medium"),
)

SHARE_GROUP_KEYS: Final = (
    broker("group.share.delivery.count.limit", INT, 5, Range(2, 10), "medium"),
    broker("group.share.max.delivery.count.limit", INT, 10, Range(5, 25), "medium"),
    broker("group.share.min.delivery.count.limit", INT, 2, Range(2, 5), "medium"),
    broker("group.share.record.lock.duration.ms", INT, 30_000, Range(1000, 3_600_000), "medium"),
    broker("group.share.min.record.lock.duration.ms", INT, 15_000, Range(1000, 30_000), "medium"),
    broker("group.share.max.record.lock.duration.ms", INT, 60_000, Range(30_000, 3_600_000), "medium"),
    broker("group.share.partition.max.record.locks", INT, 2000, Range(100, 10_000), "medium"),
    broker("group.share.max.partition.max.record.locks", INT, 4000, Range(2000, 10_000), "medium"),
    broker("group.share.min.partition.max.record.locks", INT, 100, Range(100, 2000), "medium"),
    broker("share.fetch.purgatory.purge.interval.requests", INT, 1000, None, "medium"),
    broker("group.share.max.share.sessions", INT, 2000, Range(1), "medium"),
    broker(
        "group.share.persister.class.name",
        STRING,
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        None,
        "medium",
        internal=True,
    ),
)

SHARE_COORDINATOR_KEYS: Final = (
    broker("share.coordinator.state.topic.num.partitions", INT, 50, Range(1), "high"),
    broker("share.coordinator.state.topic.replication.factor", SHORT, 3, Range(1), "high"),
    broker("share.coordinator.state.topic.min.isr", SHORT, 2, Range(1), "high"),
    broker("share.coordinator.state.topic.segment.bytes", INT, 104_857_600, Range(1), "high"),
    broker("share.coordinator.threads", INT, 1, Range(1), "medium"),
    broker("share.coordinator.snapshot.update.records.per.snapshot", INT, 500, Range(0, 500), "medium"),
    broker("share.coordinator.load.buffer.size", INT, 5_242_880, Range(1), "high"),
    broker("share.coordinator.state.topic.compression.codec", INT, 0, None, "high"),
    broker("share.coordinator.append.linger.ms", INT, -1, Range(-1), "medium"),
    broker("share.coordinator.write.timeout.ms", INT, 5000, Range(1), "high"),
    broker("share.coordinator.state.topic.prune.interval.ms", INT, 300_000, Range(1), "low", internal=True),
    broker("share.coordinator.cold.partition.snapshot.interval.ms", INT, 300_000, Range(1), "low", internal=True),
    broker("share.coordinator.cached.buffer.max.bytes", INT, 1_048_588, Range(524_288), "medium", "cluster-wide"),
)

TRANSACTION_KEYS: Final = (
    broker("transaction.state.log.min.isr", INT, 2, Range(1), "high"),
    broker("transaction.state.log.load.buffer.size", INT, 5_242_880, Range(1), "high"),
    broker("transaction.state.log.replication.factor", SHORT, 3, Range(1), "high"),
    broker("transaction.state.log.num.partitions", INT, 50, Range(1), "high"),
    broker("transaction.state.log.segment.bytes", INT, 104_857_600, Range(1), "high"),
    broker("transaction.partition.verification.enable", BOOLEAN, True, None, "low", "cluster-wide"),
    broker("producer.id.expiration.ms", INT, 86_400_000, Range(1), "low", "cluster-wide"),
    broker("producer.id.expiration.check.interval.ms", INT, 600_000, Range(1), "low", internal=True),
    broker("transactional.id.expiration.ms", INT, 604_800_000, Range(1), "high"),
    broker("transaction.max.timeout.ms", INT, 900_000, Range(1), "high"),
    broker("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, Range(1), "low"),
    broker("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, Range(1), "low"),
    broker("transaction.two.phase.commit.enable", BOOLEAN, False, None, "low"),
)

TRANSACTION_RETRY_KEYS: Final = (
    broker("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, Range(0), "high"),
    broker("add.partitions.to.txn.retry.backoff.ms", INT, 20, Range(1), "high"),
)
