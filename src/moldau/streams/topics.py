"""Where streams come from and results go: brokers, or a test's memory (see `testing`).

A pipeline only ever talks to `Topics`, which is what lets the same function run against a cluster and in a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from moldau.client.cluster import Cluster
from moldau.client.errors import MoldauError, unknown_topic
from moldau.protocol.errors import ErrorCode
from moldau.spark.brokers import client_settings
from moldau.spark.sink import AT_LEAST_ONCE, EXACTLY_ONCE, each_batch
from moldau.streams.records import encoded

APPEND, UPDATE = "append", "update"
_SERVERS = "kafka.bootstrap.servers"
# Brokers that do not answer so soon are left to the query, which waits for them.
_LOOK_MS = "5000"


@dataclass(slots=True, frozen=True)
class Output:
    """A result on its way to a topic: a frame with the columns `key` and `value`, not encoded yet."""

    query: str
    topic: str
    frame: Any
    key: Any
    value: Any
    mode: str = APPEND
    exactly_once: bool = True
    trigger: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


class Topics(Protocol):
    """Reads a topic as a stream with the columns of format("moldau"), and starts queries that write to one."""

    def read(self, topic: str, key: Any, value: Any, options: Mapping[str, str]) -> Any: ...

    def write(self, output: Output) -> Any: ...


class BrokerTopics:
    """Topics of a cluster."""

    def __init__(self, spark: Any, name: str, connection: Mapping[str, str], checkpoint_dir: str | None) -> None:
        self._spark = spark
        self._name = name
        self._connection = dict(connection)
        self._checkpoint_dir = checkpoint_dir

    def read(self, topic: str, key: Any, value: Any, options: Mapping[str, str]) -> Any:
        self._check_connection()
        # What others have not committed is not there: a pipeline that reads another's result counts it once.
        given = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
        subscription = {"subscribe": topic}
        if any(name in options for name in ("assign", "subscribePattern")):
            subscription = {}
        return (
            self._spark.readStream.format("moldau")
            .options(**{**given, **self._connection, **subscription, **options})
            .load()
        )

    def write(self, output: Output) -> Any:
        self._check_connection()
        refuse_missing(output.topic, self._connection)
        frame = encoded(output.frame, key=output.key, value=output.value)
        options = {
            **{name: value for name, value in self._connection.items() if name.lower().startswith("kafka.")},
            **output.options,
            "topic": output.topic,
            "transactionalId": f"{self._name}-{output.query}",
            "deliveryGuarantee": EXACTLY_ONCE if output.exactly_once else AT_LEAST_ONCE,
        }
        writer = frame.writeStream.queryName(output.query)
        if output.trigger:
            writer = writer.trigger(**output.trigger)
        checkpoint = self._checkpoint(output)
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", checkpoint)
        if output.mode == UPDATE:
            # Spark lets no sink written in Python take updates; written batch by batch they count once all the same.
            if not output.exactly_once:
                del options["transactionalId"]
            return writer.outputMode(UPDATE).foreachBatch(_batches(options, output.exactly_once)).start()
        return writer.format("moldau").options(**options).outputMode(APPEND).start()

    def _checkpoint(self, output: Output) -> str | None:
        if output.checkpoint is not None:
            return output.checkpoint
        if self._checkpoint_dir is not None:
            return f"{self._checkpoint_dir.rstrip('/')}/{output.query}"
        # `moldau run` and spark.sql.streaming.checkpointLocation place checkpoints themselves.
        return None

    def _check_connection(self) -> None:
        if _SERVERS not in self._connection:
            raise MoldauError(
                'Where the brokers are is not said: Streams(bootstrap_servers="localhost:9092"), or set '
                "spark.moldau.bootstrap.servers on the session"
            )


def refuse_missing(topic: str, options: Mapping[str, str]) -> None:
    """A MoldauError if there is no such topic to write to. The sink would say so only after the first micro-batch."""
    properties = {name[len("kafka.") :]: value for name, value in options.items() if name.startswith("kafka.")}
    cluster = Cluster(client_settings({**properties, "default.api.timeout.ms": _LOOK_MS}))
    try:
        found = cluster.topics([topic])
    except MoldauError:
        return
    finally:
        cluster.close()
    if topic in found and found[topic].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise unknown_topic(topic, found[topic].error)


def _batches(options: dict[str, str], exactly_once: bool) -> Any:
    if exactly_once:
        return each_batch(**options)

    def write(frame: Any, _batch: int) -> None:
        frame.write.format("moldau").options(**options).mode("append").save()

    return write
