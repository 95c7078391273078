"""Apache's Java clients: the console tools as people use them, and the producer and consumer behind them."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from moldau.testing import Cluster
from tests.clients.java_tools import CONSOLE_CONSUMER, CONSOLE_PRODUCER, JavaTools
from tests.clients.python_clients import CONSUMERS, PRODUCERS
from tests.clients.sample import CODECS, Sample, samples

pytestmark = pytest.mark.java

PRINT_EVERYTHING = [
    item
    for name in ("timestamp", "partition", "offset", "headers", "key")
    for item in ("--formatter-property", f"print.{name}=true")
]


def console_produce(java: JavaTools, servers: str, topic: str, codec: str, lines: list[str], *options: str) -> None:
    java.run(
        CONSOLE_PRODUCER,
        *("--bootstrap-server", servers, "--topic", topic, "--compression-codec", codec),
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        *("--reader-property", "null.marker=NULL", *options),
        text="".join(line + "\n" for line in lines),
    )


def console_consume(java: JavaTools, servers: str, topic: str, count: int) -> list[list[str]]:
    printed = java.run(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", servers, "--topic", topic, "--partition", "0", "--offset", "earliest"),
        *("--max-messages", str(count), "--timeout-ms", "15000", *PRINT_EVERYTHING),
    )
    return [line.split("\t") for line in printed.splitlines()]


@pytest.mark.parametrize("codec", CODECS)
def test_the_console_tools_write_and_read(
    moldau_cluster: Cluster, new_topic: Callable[..., str], java_tools: JavaTools, codec: str
) -> None:
    servers, topic = moldau_cluster.bootstrap_servers, new_topic()
    began = time.time_ns() // 1_000_000
    lines = ["a:1,b:2\tkey\tvalue", "NULL\tNULL\tno key", "x:NULL\tžluť\tkůň 🐎", "NULL\tgone\tNULL"]
    lines += [f"n:{i}\tk{i}\t{'v' * 100 * i}" for i in range(20)]
    console_produce(java_tools, servers, topic, codec, lines)
    ended = time.time_ns() // 1_000_000
    printed = console_consume(java_tools, servers, topic, len(lines))
    for offset, (line, fields) in enumerate(zip(lines, printed, strict=True)):
        headers, key, value = line.split("\t")
        kind, _, timestamp = fields[0].partition(":")
        assert kind == "CreateTime"
        assert began <= int(timestamp) <= ended
        headers = "NO_HEADERS" if headers == "NULL" else headers
        expected = ["Partition:0", f"Offset:{offset}", headers, key, value]
        assert fields[1:] == [each.replace("NULL", "null") for each in expected]
    for name, consume in CONSUMERS.items():
        found = consume(servers, topic, len(lines))
        assert [each.value for each in found[:4]] == [b"value", b"no key", "kůň 🐎".encode(), None], name
        assert found[0].headers == (("a", b"1"), ("b", b"2")), name


@pytest.mark.parametrize("codec", CODECS)
def test_what_the_java_producer_writes_every_client_reads(
    moldau_cluster: Cluster, new_topic: Callable[..., str], java_tools: JavaTools, codec: str
) -> None:
    servers, topic = moldau_cluster.bootstrap_servers, new_topic()
    written = samples()
    sent = java_tools.produce(servers, topic, written, {"compression.type": codec})
    assert [each["offset"] for each in sent] == list(range(len(written)))
    for name, consume in CONSUMERS.items():
        assert consume(servers, topic, len(written)) == written, f"read by {name}"
    assert java_tools.read_samples(servers, topic, len(written)) == written


@pytest.mark.parametrize("producer", PRODUCERS)
def test_the_java_consumer_reads_what_every_client_writes(
    moldau_cluster: Cluster, new_topic: Callable[..., str], java_tools: JavaTools, producer: str
) -> None:
    servers, topic = moldau_cluster.bootstrap_servers, new_topic()
    written: list[Sample] = []
    for codec in CODECS:
        PRODUCERS[producer](servers, topic, codec, samples())
        written += samples()
    found = java_tools.consume(servers, topic, len(written))
    assert [Sample(r["key"], r["value"], r["headers"], r["timestamp"]) for r in found] == written
    assert [r["offset"] for r in found] == list(range(len(written)))
    assert {r["timestamp_type"] for r in found} == {"CreateTime"}
    assert {r["leader_epoch"] for r in found} == {0}
