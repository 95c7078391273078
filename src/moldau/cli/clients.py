"""confluent-kafka clients from Kafka's own (Java) client settings.

Kafka's documentation, and so people's property files, name settings as the Java client does; librdkafka knows most of
them by the same name. This file decides how the others are translated, which mean nothing outside Java and are
dropped, and how errors of the client read. It must not decide any default of a command.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from moldau.cli.errors import CliError
from moldau.client.settings import parse_jaas

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer, ShareConsumer

_RENAMED = {
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "compression.gzip.level": "compression.level",
    "compression.lz4.level": "compression.level",
    "compression.zstd.level": "compression.level",
}
# Settings of the Java client that have no counterpart because there is nothing here they could act on.
_WITHOUT_MEANING = frozenset(
    {
        "auto.include.jmx.reporter",
        "config.providers",
        "default.api.timeout.ms",
        "exclude.internal.topics",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "max.block.ms",
        "max.poll.records",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.class",
        "partitioner.ignore.keys",
        "sasl.client.callback.handler.class",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "security.providers",
        "socket.connection.setup.timeout.max.ms",
        "ssl.enabled.protocols",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.keystore.type",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "ssl.truststore.password",
        "ssl.truststore.type",
        "value.deserializer",
        "value.serializer",
    }
)
_CONSUMER_ONLY_DROPPED = frozenset({"request.timeout.ms", "retries"})
_ASSIGNORS = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
    "StickyAssignor": "cooperative-sticky",
}


def translate(settings: Mapping[str, str], *, consumer: bool) -> dict[str, Any]:
    """Java client settings as librdkafka's."""
    out: dict[str, Any] = {}
    for name, value in settings.items():
        if name in _WITHOUT_MEANING or (consumer and name in _CONSUMER_ONLY_DROPPED):
            continue
        if name == "sasl.jaas.config":
            out["sasl.username"], out["sasl.password"] = parse_jaas(value)
        elif name == "buffer.memory":
            out["queue.buffering.max.kbytes"] = str(max(1, int(value) // 1024))
        elif name == "partition.assignment.strategy":
            classes = [each.strip().rpartition(".")[2] for each in value.split(",")]
            out[name] = ",".join(dict.fromkeys(_ASSIGNORS.get(each, each) for each in classes))
        elif name == "ssl.endpoint.identification.algorithm":
            out[name] = value or "none"
        elif name in ("ssl.truststore.location", "ssl.keystore.location"):
            _translate_store(name, value, settings, out)
        elif name == "group.protocol":
            out[name] = value.lower()
        else:
            out[_RENAMED.get(name, name)] = value
    return out


def _translate_store(name: str, path: str, settings: Mapping[str, str], out: dict[str, Any]) -> None:
    kind = settings.get(name.replace(".location", ".type"), "JKS").upper()
    if kind == "PEM":
        if name == "ssl.truststore.location":
            out["ssl.ca.location"] = path
        else:
            out["ssl.certificate.location"] = out["ssl.key.location"] = path
    elif kind == "PKCS12" and name == "ssl.keystore.location":
        out["ssl.keystore.location"] = path
    else:
        raise CliError(
            f"{name} in {kind} cannot be read", hint="Convert it to PEM (keytool, openssl) and set its type."
        )


class ErrorReporter:
    """Shows what the client library complains about, each complaint once, and remembers the last."""

    def __init__(self) -> None:
        self.last: str | None = None
        self._shown: set[str] = set()

    def __call__(self, error: KafkaError) -> None:
        text = re.sub(r" \(after \d+ms.*?\)|^.*?: (?=Connect to)", "", error.str())
        self.last = text
        if text not in self._shown:
            self._shown.add(text)
            print(f"WARN {text}", file=sys.stderr, flush=True)


def make_producer(settings: Mapping[str, str], reporter: ErrorReporter) -> Producer:
    from confluent_kafka import KafkaException, Producer

    config = translate(settings, consumer=False)
    # Keys go to the partitions the Java client would choose, so that both can write to one topic.
    config.setdefault("partitioner", "murmur2_random")
    try:
        return Producer({**config, "error_cb": reporter, "log_level": 0})
    except KafkaException as error:
        raise _refused(error) from None


def make_consumer(settings: Mapping[str, str], reporter: ErrorReporter) -> Consumer:
    from confluent_kafka import Consumer, KafkaException

    config = translate(settings, consumer=True)
    try:
        return Consumer({**config, "error_cb": reporter, "log_level": 0})
    except KafkaException as error:
        raise _refused(error) from None


def make_share_consumer(settings: Mapping[str, str], reporter: ErrorReporter) -> ShareConsumer:
    from confluent_kafka import KafkaException, ShareConsumer

    config = translate(settings, consumer=True)
    try:
        return ShareConsumer({**config, "error_cb": reporter, "log_level": 0})
    except KafkaException as error:
        raise _refused(error) from None


def _refused(error: Exception) -> CliError:
    details = error.args[0].str() if error.args else str(error)
    return CliError(f"The client does not accept its settings: {details}")
