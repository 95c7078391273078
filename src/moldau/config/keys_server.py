"""Broker keys of the process itself: identity, roles, the metadata log, listeners and connections.

Facts only, in the order Kafka defines them; what each key means is in `docs`.
"""

from __future__ import annotations

from typing import Final

from moldau.config.rows import BOOLEAN, INT, INT_MAX, LIST, LONG, LONG_MAX, STRING, broker
from moldau.config.validators import GzipLevel, NotNull, OneOf, Range, Words

SERVER_KEYS: Final = (
    broker("broker.id", INT, -1, None, "high"),
    broker("message.max.bytes", INT, 1_048_588, Range(0), "high", "cluster-wide"),
    broker("num.io.threads", INT, 8, Range(1), "high", "cluster-wide"),
    broker("num.replica.alter.log.dirs.threads", INT, None, None, "high"),
    broker("background.threads", INT, 10, Range(1), "high", "cluster-wide"),
    broker("request.timeout.ms", INT, 30_000, None, "high"),
    broker("socket.connection.setup.timeout.ms", LONG, 10_000, None, "medium"),
    broker("socket.connection.setup.timeout.max.ms", LONG, 30_000, None, "medium"),
    broker("config.providers", LIST, (), Words(), "low", "cluster-wide"),
    broker("authorizer.class.name", STRING, "", NotNull(), "low"),
    broker("early.start.listeners", LIST, None, Words(null=True), "high"),
    broker("broker.rack", STRING, None, None, "medium"),
    broker("controlled.shutdown.enable", BOOLEAN, True, None, "medium"),
    broker("delete.topic.enable", BOOLEAN, True, None, "high"),
    broker(
        "compression.type",
        STRING,
        "producer",
        OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "high",
        "cluster-wide",
    ),
    broker("compression.gzip.level", INT, -1, GzipLevel(), "medium", "cluster-wide"),
    broker("compression.lz4.level", INT, 9, Range(1, 17), "medium", "cluster-wide"),
    broker("compression.zstd.level", INT, 3, Range(-131_072, 22), "medium", "cluster-wide"),
    broker("max.incremental.fetch.session.cache.slots", INT, 1000, Range(0), "medium"),
    broker("fetch.max.bytes", INT, 57_671_680, Range(1024), "medium"),
    broker("max.request.partition.size.limit", INT, 2000, Range(1), "medium"),
    broker("unstable.api.versions.enable", BOOLEAN, False, None, "high", internal=True),
    broker("unstable.feature.versions.enable", BOOLEAN, False, None, "high", internal=True),
)

ROLE_KEYS: Final = (
    broker("process.roles", LIST, None, Words("broker", "controller", empty=False), "high", required=True),
    broker("node.id", INT, None, Range(0), "high", required=True),
    broker("initial.broker.registration.timeout.ms", INT, 60_000, None, "medium"),
    broker("broker.heartbeat.interval.ms", INT, 2000, None, "medium"),
    broker("broker.session.timeout.ms", INT, 9000, None, "medium"),
    broker("controller.listener.names", LIST, None, Words(empty=False), "high", required=True),
    broker("sasl.mechanism.controller.protocol", STRING, "GSSAPI", None, "high"),
    broker("controller.performance.sample.period.ms", LONG, 60_000, Range(100), "medium", internal=True),
    broker("controller.performance.always.log.threshold.ms", LONG, 2000, Range(0), "medium", internal=True),
    broker("server.max.startup.time.ms", LONG, LONG_MAX, Range(0), "medium", internal=True),
)

METADATA_LOG_KEYS: Final = (
    broker("metadata.log.max.record.bytes.between.snapshots", LONG, 20_971_520, Range(1), "high"),
    broker("metadata.log.max.snapshot.interval.ms", LONG, 3_600_000, Range(0), "high"),
    broker("metadata.log.dir", STRING, None, None, "high"),
    broker("metadata.log.segment.bytes", INT, 1_073_741_824, Range(8_388_608), "high"),
    broker("metadata.log.segment.ms", LONG, 604_800_000, None, "high"),
    broker("metadata.max.retention.bytes", LONG, 104_857_600, None, "high"),
    broker("metadata.max.retention.ms", LONG, 604_800_000, None, "high"),
    broker("metadata.max.idle.interval.ms", INT, 500, Range(0), "low"),
    broker("internal.metadata.log.segment.bytes", INT, None, None, "low", internal=True),
    broker("internal.metadata.max.batch.size.in.bytes", INT, 8_388_608, None, "low", internal=True),
    broker("internal.metadata.delete.delay.millis", LONG, 60_000, None, "low", internal=True),
)

LISTENER_KEYS: Final = (
    broker("listeners", LIST, ("PLAINTEXT://:9092",), Words(empty=False), "high", "per-broker"),
    broker("advertised.listeners", LIST, None, Words(empty=False, null=True), "high"),
    broker(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        None,
        "low",
        "per-broker",
    ),
    broker("socket.send.buffer.bytes", INT, 102_400, None, "high"),
    broker("socket.receive.buffer.bytes", INT, 102_400, None, "high"),
    broker("socket.request.max.bytes", INT, 104_857_600, Range(1), "high"),
    broker("socket.listen.backlog.size", INT, 50, Range(1), "medium"),
    broker("max.connections.per.ip", INT, INT_MAX, Range(0), "medium", "cluster-wide"),
    broker("max.connections.per.ip.overrides", STRING, "", None, "medium", "cluster-wide"),
    broker("max.connections", INT, INT_MAX, Range(0), "medium", "cluster-wide"),
    broker("max.connection.creation.rate", INT, INT_MAX, Range(0), "medium", "cluster-wide"),
    broker("connections.max.idle.ms", LONG, 600_000, None, "medium"),
    broker("connection.failed.authentication.delay.ms", INT, 100, Range(0), "low"),
    broker("queued.max.requests", INT, 500, Range(1), "high"),
    broker("queued.max.request.bytes", LONG, -1, None, "medium"),
    broker("num.network.threads", INT, 3, Range(1), "high", "cluster-wide"),
)
