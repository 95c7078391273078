"""Which keys do nothing here, and why.

Kafka's settings are all accepted, so that a properties file can be taken over as it is. Some of them have no meaning in
a process with one event loop and no Java: they are listed here with the reason, so that nobody tunes a setting in
vain. A key that is not listed takes effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

_ONE_LOOP: Final = "one event loop does all the work; there is no thread pool to size"
_NO_PURGATORY: Final = "a waiting request is forgotten the moment it is answered; there is nothing to purge"
_JAVA: Final = "it names a Java class, and there is no Java here"
_JAVA_SECURITY: Final = "it configures Java's security library; TLS here is OpenSSL"
_NO_TIERING: Final = "there is no tiered storage; every record stays on local disks"
_NO_KERBEROS: Final = "Kerberos (GSSAPI) is not offered"
_NO_OAUTH: Final = "OAuth (OAUTHBEARER) is not offered"
_NO_TOKENS: Final = "there are no delegation tokens"
_NO_JMX: Final = "metrics are counters on a page for Prometheus, which does its own sampling"
_NO_QUEUE: Final = "requests are not queued between threads; a connection is not read further while its request waits"
_NO_LINGER: Final = "a coordinator's records are written in the same turn of the event loop that decided them"
_NO_BUFFERS: Final = "coordinators keep no write buffers"


def _all(reason: str, names: Iterable[str]) -> dict[str, str]:
    return dict.fromkeys(names, reason)


BROKER_WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    **_all(
        _ONE_LOOP,
        (
            "num.io.threads",
            "num.network.threads",
            "background.threads",
            "num.replica.fetchers",
            "num.replica.alter.log.dirs.threads",
            "num.recovery.threads.per.data.dir",
            "group.coordinator.threads",
            "group.coordinator.background.threads",
            "share.coordinator.threads",
            "log.cleaner.threads",
        ),
    ),
    **_all(_NO_QUEUE, ("queued.max.requests", "queued.max.request.bytes")),
    **_all(
        _NO_PURGATORY,
        (
            "fetch.purgatory.purge.interval.requests",
            "producer.purgatory.purge.interval.requests",
            "delete.records.purgatory.purge.interval.requests",
            "share.fetch.purgatory.purge.interval.requests",
        ),
    ),
    **_all(_NO_LINGER, ("group.coordinator.append.linger.ms", "share.coordinator.append.linger.ms")),
    **_all(_NO_BUFFERS, ("group.coordinator.cached.buffer.max.bytes", "share.coordinator.cached.buffer.max.bytes")),
    "log.cleaner.io.buffer.load.factor": "keys are kept in a dictionary, which grows; there is no table to fill",
    "controller.performance.sample.period.ms": "how long the controller's work takes is on the metrics page",
    "controller.performance.always.log.threshold.ms": "how long the controller's work takes is on the metrics page",
    "server.max.startup.time.ms": "a start is not bounded; whatever supervises the process decides when to give up",
    **_all(
        _NO_JMX,
        (
            "metrics.num.samples",
            "metrics.sample.window.ms",
            "metrics.recording.level",
            "metric.reporters",
            "kafka.metrics.reporters",
            "kafka.metrics.polling.interval.secs",
        ),
    ),
    **_all(
        _JAVA,
        (
            "config.providers",
            "create.topic.policy.class.name",
            "alter.config.policy.class.name",
            "client.quota.callback.class",
            "principal.builder.class",
            "ssl.engine.factory.class",
            "sasl.server.callback.handler.class",
            "sasl.client.callback.handler.class",
            "sasl.login.class",
            "sasl.login.callback.handler.class",
            "sasl.oauthbearer.jwt.retriever.class",
            "sasl.oauthbearer.jwt.validator.class",
        ),
    ),
    **_all(
        _JAVA_SECURITY,
        (
            "security.providers",
            "ssl.provider",
            "ssl.keymanager.algorithm",
            "ssl.trustmanager.algorithm",
            "ssl.secure.random.implementation",
        ),
    ),
    **_all(
        _NO_KERBEROS,
        (
            "sasl.kerberos.service.name",
            "sasl.kerberos.kinit.cmd",
            "sasl.kerberos.ticket.renew.window.factor",
            "sasl.kerberos.ticket.renew.jitter",
            "sasl.kerberos.min.time.before.relogin",
            "sasl.kerberos.principal.to.local.rules",
        ),
    ),
    **_all(
        _NO_OAUTH,
        (
            "sasl.login.refresh.window.factor",
            "sasl.login.refresh.window.jitter",
            "sasl.login.refresh.min.period.seconds",
            "sasl.login.refresh.buffer.seconds",
            "sasl.login.connect.timeout.ms",
            "sasl.login.read.timeout.ms",
            "sasl.login.retry.backoff.max.ms",
            "sasl.login.retry.backoff.ms",
            "sasl.oauthbearer.scope",
            "sasl.oauthbearer.client.credentials.client.id",
            "sasl.oauthbearer.client.credentials.client.secret",
            "sasl.oauthbearer.assertion.algorithm",
            "sasl.oauthbearer.assertion.claim.aud",
            "sasl.oauthbearer.assertion.claim.exp.seconds",
            "sasl.oauthbearer.assertion.claim.iss",
            "sasl.oauthbearer.assertion.claim.jti.include",
            "sasl.oauthbearer.assertion.claim.nbf.seconds",
            "sasl.oauthbearer.assertion.claim.sub",
            "sasl.oauthbearer.assertion.file",
            "sasl.oauthbearer.assertion.private.key.file",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.oauthbearer.assertion.template.file",
            "sasl.oauthbearer.token.endpoint.url",
            "sasl.oauthbearer.scope.claim.name",
            "sasl.oauthbearer.sub.claim.name",
            "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.clock.skew.seconds",
            "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer",
        ),
    ),
    **_all(
        _NO_TOKENS,
        (
            "delegation.token.secret.key",
            "delegation.token.max.lifetime.ms",
            "delegation.token.expiry.time.ms",
            "delegation.token.expiry.check.interval.ms",
        ),
    ),
    "ssl.protocol": "versions are chosen with ssl.enabled.protocols",
    "ssl.allow.dn.changes": "a renewed certificate may have any name; clients check it",
    "ssl.allow.san.changes": "a renewed certificate may have any name; clients check it",
    **_all(
        _NO_TIERING,
        (
            "remote.log.storage.system.enable",
            "remote.log.storage.manager.impl.prefix",
            "remote.log.metadata.manager.impl.prefix",
            "remote.log.storage.manager.class.name",
            "remote.log.storage.manager.class.path",
            "remote.log.metadata.manager.class.name",
            "remote.log.metadata.manager.class.path",
            "remote.log.metadata.manager.listener.name",
            "remote.log.metadata.custom.metadata.max.bytes",
            "remote.log.index.file.cache.total.size.bytes",
            "remote.log.index.file.cache.ttl.ms",
            "remote.log.manager.thread.pool.size",
            "remote.log.manager.copier.thread.pool.size",
            "remote.log.manager.expiration.thread.pool.size",
            "remote.log.manager.follower.thread.pool.size",
            "remote.log.manager.task.interval.ms",
            "remote.log.manager.task.retry.backoff.ms",
            "remote.log.manager.task.retry.backoff.max.ms",
            "remote.log.manager.task.retry.jitter",
            "remote.log.reader.threads",
            "remote.log.reader.max.pending.tasks",
            "log.local.retention.ms",
            "log.local.retention.bytes",
            "remote.log.manager.copy.max.bytes.per.second",
            "remote.log.manager.copy.quota.window.num",
            "remote.log.manager.copy.quota.window.size.seconds",
            "remote.log.manager.fetch.max.bytes.per.second",
            "remote.log.manager.fetch.quota.window.num",
            "remote.log.manager.fetch.quota.window.size.seconds",
            "remote.fetch.max.wait.ms",
            "remote.list.offsets.request.timeout.ms",
            "follower.fetch.last.tiered.offset.enable",
        ),
    ),
}

TOPIC_WITHOUT_EFFECT: Final[Mapping[str, str]] = _all(
    _NO_TIERING,
    (
        "remote.storage.enable",
        "local.retention.ms",
        "local.retention.bytes",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
    ),
)
