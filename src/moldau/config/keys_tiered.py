"""Broker keys of tiered storage (remote log segments).

Facts only, in the order Kafka defines them; what each key means is in `docs`.
"""

from __future__ import annotations

from typing import Final

from moldau.config.rows import BOOLEAN, DOUBLE, INT, LONG, LONG_MAX, STRING, broker
from moldau.config.validators import NonEmpty, Range

TIERED_KEYS: Final = (
    broker("remote.log.storage.system.enable", BOOLEAN, False, None, "medium"),
    broker("remote.log.storage.manager.impl.prefix", STRING, "rsm.config.", NonEmpty(), "medium"),
    broker("remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.", NonEmpty(), "medium"),
    broker("remote.log.storage.manager.class.name", STRING, None, NonEmpty(), "medium"),
    broker("remote.log.storage.manager.class.path", STRING, None, None, "medium"),
    broker(
        "remote.log.metadata.manager.class.name",
        STRING,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        NonEmpty(),
        "medium",
    ),
    broker("remote.log.metadata.manager.class.path", STRING, None, None, "medium"),
    broker("remote.log.metadata.manager.listener.name", STRING, None, NonEmpty(), "medium"),
    broker("remote.log.metadata.custom.metadata.max.bytes", INT, 128, Range(0), "low"),
    broker("remote.log.index.file.cache.total.size.bytes", LONG, 1_073_741_824, Range(1), "low", "cluster-wide"),
    broker("remote.log.index.file.cache.ttl.ms", LONG, 900_000, Range(-1), "low", internal=True),
    broker("remote.log.manager.thread.pool.size", INT, 2, Range(1), "medium"),
    broker("remote.log.manager.copier.thread.pool.size", INT, 10, Range(1), "medium", "cluster-wide"),
    broker("remote.log.manager.expiration.thread.pool.size", INT, 10, Range(1), "medium", "cluster-wide"),
    broker("remote.log.manager.follower.thread.pool.size", INT, 2, Range(1), "medium", "cluster-wide"),
    broker("remote.log.manager.task.interval.ms", LONG, 30_000, Range(1), "low"),
    broker("remote.log.manager.task.retry.backoff.ms", LONG, 500, Range(1), "low", internal=True),
    broker("remote.log.manager.task.retry.backoff.max.ms", LONG, 30_000, Range(1), "low", internal=True),
    broker("remote.log.manager.task.retry.jitter", DOUBLE, 0.2, Range(0, 0.5), "low", internal=True),
    broker("remote.log.reader.threads", INT, 10, Range(1), "medium", "cluster-wide"),
    broker("remote.log.reader.max.pending.tasks", INT, 100, Range(1), "medium"),
    broker("log.local.retention.ms", LONG, -2, Range(-2), "medium", "cluster-wide"),
    broker("log.local.retention.bytes", LONG, -2, Range(-2), "medium", "cluster-wide"),
    broker("remote.log.manager.copy.max.bytes.per.second", LONG, LONG_MAX, Range(1), "medium", "cluster-wide"),
    broker("remote.log.manager.copy.quota.window.num", INT, 11, Range(1), "medium"),
    broker("remote.log.manager.copy.quota.window.size.seconds", INT, 1, Range(1), "medium"),
    broker("remote.log.manager.fetch.max.bytes.per.second", LONG, LONG_MAX, Range(1), "medium", "cluster-wide"),
    broker("remote.log.manager.fetch.quota.window.num", INT, 11, Range(1), "medium"),
    broker("remote.log.manager.fetch.quota.window.size.seconds", INT, 1, Range(1), "medium"),
    broker("remote.fetch.max.wait.ms", INT, 500, Range(1), "medium", "cluster-wide"),
    broker("remote.list.offsets.request.timeout.ms", LONG, 30_000, Range(1), "medium", "cluster-wide"),
)
