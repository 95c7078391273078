"""Broker keys of replication between brokers.

Facts only, in the order Kafka defines them; what each key means is in `docs`.
"""

from __future__ import annotations

from typing import Final

from moldau.config.rows import BOOLEAN, INT, LONG, STRING, broker
from moldau.config.validators import OneOf, Range

REPLICATION_KEYS: Final = (
    broker("controller.socket.timeout.ms", INT, 30_000, None, "medium"),
    broker("default.replication.factor", INT, 1, None, "medium"),
    broker("replica.lag.time.max.ms", LONG, 30_000, None, "high"),
    broker("replica.socket.timeout.ms", INT, 30_000, None, "high"),
    broker("replica.socket.receive.buffer.bytes", INT, 65_536, None, "high"),
    broker("replica.fetch.max.bytes", INT, 1_048_576, Range(0), "medium"),
    broker("replica.fetch.wait.max.ms", INT, 500, None, "high"),
    broker("replica.fetch.backoff.ms", INT, 1000, Range(0), "medium"),
    broker("replica.fetch.min.bytes", INT, 1, None, "high"),
    broker("replica.fetch.response.max.bytes", INT, 10_485_760, Range(0), "medium"),
    broker("num.replica.fetchers", INT, 1, Range(1), "high", "cluster-wide"),
    broker("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, None, "high"),
    broker("fetch.purgatory.purge.interval.requests", INT, 1000, None, "medium"),
    broker("producer.purgatory.purge.interval.requests", INT, 1000, None, "medium"),
    broker("delete.records.purgatory.purge.interval.requests", INT, 1, None, "medium"),
    broker("auto.leader.rebalance.enable", BOOLEAN, True, None, "high"),
    broker("leader.imbalance.check.interval.seconds", LONG, 300, Range(1), "high"),
    broker("unclean.leader.election.interval.ms", LONG, 300_000, Range(1), "medium", internal=True),
    broker("unclean.leader.election.enable", BOOLEAN, False, None, "high", "cluster-wide"),
    broker(
        "security.inter.broker.protocol",
        STRING,
        "PLAINTEXT",
        OneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "medium",
    ),
    broker("inter.broker.listener.name", STRING, None, None, "medium"),
    broker("replica.selector.class", STRING, None, None, "medium"),
    broker("follower.fetch.last.tiered.offset.enable", BOOLEAN, False, None, "medium", "cluster-wide"),
)
