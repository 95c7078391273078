"""Broker keys of the controller quorum, of metrics and of quotas.

Facts only, in the order Kafka defines them; what each key means is in `docs`.
"""

from __future__ import annotations

from typing import Final

from moldau.config.rows import BOOLEAN, CLASS, INT, LIST, LONG, LONG_MAX, STRING, broker
from moldau.config.validators import QuorumServers, QuorumVoters, Range, Words

QUORUM_KEYS: Final = (
    broker("controller.quorum.voters", LIST, (), QuorumVoters(), "high"),
    broker("controller.quorum.bootstrap.servers", LIST, (), QuorumServers(), "high"),
    broker("controller.quorum.election.timeout.ms", INT, 1000, Range(0), "high"),
    broker("controller.quorum.fetch.timeout.ms", INT, 2000, Range(0), "high"),
    broker("controller.quorum.election.backoff.max.ms", INT, 1000, Range(0), "high"),
    broker("controller.quorum.append.linger.ms", INT, 25, Range(0), "medium"),
    broker("controller.quorum.request.timeout.ms", INT, 2000, Range(0), "medium"),
    broker("controller.quorum.retry.backoff.ms", INT, 20, Range(0), "low"),
    broker("controller.quorum.auto.join.enable", BOOLEAN, False, None, "low"),
    broker("controller.quorum.fetch.snapshot.max.bytes", INT, 1_048_576, Range(1), "low"),
    broker("controller.quorum.fetch.max.bytes", INT, 1_048_576, Range(1), "low"),
)

METRIC_KEYS: Final = (
    broker("metrics.num.samples", INT, 2, Range(1), "low"),
    broker("metrics.sample.window.ms", LONG, 30_000, Range(1), "low"),
    broker("metric.reporters", LIST, ("org.apache.kafka.common.metrics.JmxReporter",), Words(), "low", "cluster-wide"),
    broker("metrics.recording.level", STRING, "INFO", None, "low"),
    broker("kafka.metrics.reporters", LIST, (), Words(), "low"),
    broker("kafka.metrics.polling.interval.secs", INT, 10, Range(1), "low"),
    broker("telemetry.max.bytes", INT, 1_048_576, Range(1), "low"),
)

QUOTA_KEYS: Final = (
    broker("quota.window.num", INT, 11, Range(1), "low"),
    broker("replication.quota.window.num", INT, 11, Range(1), "low"),
    broker("alter.log.dirs.replication.quota.window.num", INT, 11, Range(1), "low"),
    broker("controller.quota.window.num", INT, 11, Range(1), "low"),
    broker("quota.window.size.seconds", INT, 1, Range(1), "low"),
    broker("replication.quota.window.size.seconds", INT, 1, Range(1), "low"),
    broker("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, Range(1), "low"),
    broker("controller.quota.window.size.seconds", INT, 1, Range(1), "low"),
    broker("client.quota.callback.class", CLASS, None, None, "low"),
)

# These exist only as dynamic settings; a properties file cannot set them.
DYNAMIC_ONLY_KEYS: Final = (
    broker("leader.replication.throttled.rate", LONG, LONG_MAX, Range(0), "medium", "cluster-wide"),
    broker("follower.replication.throttled.rate", LONG, LONG_MAX, Range(0), "medium", "cluster-wide"),
    broker("replica.alter.log.dirs.io.max.bytes.per.second", LONG, LONG_MAX, Range(0), "medium", "cluster-wide"),
)
