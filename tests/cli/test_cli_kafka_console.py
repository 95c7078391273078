"""The console producer and consumer as processes of their own, talking to a live cluster."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from moldau.cli.clients import translate
from moldau.cli.errors import CliError
from moldau.cli.kafka.console_consumer import _parser as consumer_parser
from moldau.cli.kafka.console_consumer import consumer_settings, start_offset
from moldau.cli.kafka.console_producer import _parser as producer_parser
from moldau.cli.kafka.console_producer import producer_settings
from tests.cli.conftest import Done, spawn

Kafka = Callable[..., Done]


@pytest.fixture
def there(kafka: Kafka, topic: str) -> str:
    kafka("topics", "--create", "--topic", topic, "--partitions", 1)
    return topic


def produce(bootstrap: str, topic: str, text: bytes, *argv: str) -> Done:
    fast = ("--command-property", "enable.idempotence=false", "--timeout", "0")
    return spawn("kafka.console_producer", "--bootstrap-server", bootstrap, "--topic", topic, *fast, *argv, stdin=text)


def consume(bootstrap: str, *argv: object) -> Done:
    return spawn("kafka.console_consumer", "--bootstrap-server", bootstrap, *argv)


def shown(*names: str) -> list[str]:
    return [word for name in names for word in ("--formatter-property", f"print.{name}=true")]


def test_headers_keys_nulls_and_where_records_are(bootstrap: str, there: str) -> None:
    reading = [
        word
        for pair in ("parse.key=true", "parse.headers=true", "null.marker=NIL", "key.separator=|")
        for word in ("--reader-property", pair)
    ]
    text = "a:1,b:2\tk1|v1\nNIL\tNIL|grün\nx:NIL\tk3|NIL\n".encode()
    sent = produce(bootstrap, there, text, *reading)
    assert sent == Done(0, "", "")
    everything = shown("key", "headers", "partition", "offset")
    done = consume(bootstrap, "--topic", there, "--from-beginning", "--max-messages", 3, *everything)
    assert done.lines == [
        "Partition:0\tOffset:0\ta:1,b:2\tk1\tv1",
        "Partition:0\tOffset:1\tNO_HEADERS\tnull\tgrün",
        "Partition:0\tOffset:2\tx:null\tk3\tnull",
    ]
    assert done.err == "Processed a total of 3 messages\n"


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_compression_and_the_end_after_a_pause(bootstrap: str, there: str, codec: str) -> None:
    numbers = "".join(f"{n}\n" for n in range(500))
    assert produce(bootstrap, there, numbers.encode(), f"--compression-codec={codec}").code == 0
    done = consume(bootstrap, "--topic", there, "--from-beginning", "--timeout-ms", 700)
    assert done.out == numbers
    assert done.err.endswith("Processed a total of 500 messages\n")


def test_one_partition_from_an_offset(bootstrap: str, there: str) -> None:
    produce(bootstrap, there, b"a\nb\nc\n")
    done = consume(bootstrap, "--topic", there, "--partition", 0, "--offset", 1, "--max-messages", 2)
    assert done.lines == ["b", "c"]


def test_topics_by_pattern(bootstrap: str, there: str) -> None:
    produce(bootstrap, there, b"a\n")
    done = consume(bootstrap, "--include", f"{there[:-2]}..", "--from-beginning", "--max-messages", 1)
    assert done.out == "a\n"


def test_a_topic_that_appears_on_first_use(bootstrap: str, topic: str) -> None:
    """As in Kafka's quickstart, where nobody minds the order of the two terminals."""
    command = [sys.executable, "-m", "moldau.cli.kafka.console_consumer", "--bootstrap-server", bootstrap]
    command += ["--topic", topic, "--from-beginning", "--max-messages", "1", "--timeout-ms", "15000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as consumer:
        assert produce(bootstrap, topic, b"first\n").code == 0
        out, _ = consumer.communicate(timeout=20)
    assert out == b"first\n"


def test_a_consumer_that_is_told_to_stop_reports_what_it_read(bootstrap: str, there: str) -> None:
    produce(bootstrap, there, b"a\nb\n")
    command = [sys.executable, "-m", "moldau.cli.kafka.console_consumer", "--bootstrap-server", bootstrap]
    command += ["--topic", there, "--from-beginning", "--enable-systest-events"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as consumer:
        assert consumer.stdout is not None
        assert [consumer.stdout.readline() for _ in range(2)] == ["a\n", "b\n"]
        time.sleep(0.05)
        consumer.send_signal(signal.SIGTERM)
        out, err = consumer.communicate(timeout=10)
    assert (consumer.returncode, out, err) == (0, "shutdown_complete\n", "Processed a total of 2 messages\n")


def test_a_line_without_its_separator_ends_the_producer(bootstrap: str, there: str) -> None:
    done = produce(bootstrap, there, b"no key here\n", "--reader-property", "parse.key=true")
    assert done == Done(1, "", "No key separator found on line number 1: 'no key here'\n")


def test_nobody_there(topic: str) -> None:
    done = produce("localhost:1", topic, b"x\n", "--command-property", "delivery.timeout.ms=300")
    assert done.code == 1
    assert "Connection refused" in done.err
    assert f"ERROR when sending message to topic {topic} with key: null, value: 1 bytes" in done.err


# Settings


def test_options_beat_properties_and_properties_beat_defaults() -> None:
    given = ["--bootstrap-server", "b:1", "--topic", "t", "--command-property", "linger.ms=7", "--batch-size", "99"]
    settings = producer_settings(producer_parser().parse(given))
    assert (settings["linger.ms"], settings["batch.size"], settings["retries"]) == ("7", "99", "3")
    assert settings["enable.idempotence"] == "true"
    weak = producer_settings(producer_parser().parse([*given, "--request-required-acks", "1", "--compression-codec"]))
    assert (weak["enable.idempotence"], weak["compression.type"]) == ("false", "gzip")


def test_a_consumer_without_a_group_commits_nothing() -> None:
    given = ["--bootstrap-server", "b:1", "--topic", "t", "--from-beginning"]
    settings, has_group = consumer_settings(consumer_parser().parse(given))
    assert not has_group
    assert (settings["enable.auto.commit"], settings["auto.offset.reset"]) == ("false", "earliest")
    settings, has_group = consumer_settings(consumer_parser().parse([*given, "--command-property", "group.id=g"]))
    assert has_group
    assert settings["group.id"] == "g"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "Exactly one of --include/--topic is required"),
        (("--topic", "t", "--include", "x"), "Exactly one of --include/--topic is required"),
        (("--include", "x", "--partition", "0"), "The topic is required when partition is specified"),
        (("--topic", "t", "--offset", "3"), "The partition is required when offset is specified"),
        (("--topic", "t", "--partition", "0", "--offset", "-3"), "The provided offset value '-3' is incorrect"),
        (
            ("--topic", "t", "--partition", "0", "--group", "g"),
            "Options group and partition cannot be specified together",
        ),
        (("--topic", "t", "--group", "a", "--command-property", "group.id=b"), "Detected group ids: 'a', 'b'"),
        (("--topic", "t", "--from-beginning", "--command-property", "auto.offset.reset=latest"), "please remove one"),
        (("--topic", "t", "--property", "a=b", "--formatter-property", "c=d"), "cannot be specified together"),
        (("--topic", "t", "--formatter", "my.Formatter"), "The formatter my.Formatter is not one this tool knows"),
    ],
)
def test_the_consumer_refuses(kafka: Kafka, argv: tuple[str, ...], message: str) -> None:
    done = kafka("console_consumer", *argv)
    assert done.code == 1
    assert message in done.err


def test_where_to_start() -> None:
    def start(*argv: str) -> int:
        return start_offset(consumer_parser().parse(["--topic", "t", "--partition", "0", *argv]))

    assert [start(), start("--from-beginning"), start("--offset", "EARLIEST"), start("--offset", "12")] == [
        -1,
        -2,
        -2,
        12,
    ]


def test_java_settings_in_the_words_of_librdkafka() -> None:
    java = {
        "buffer.memory": "33554432",
        "send.buffer.bytes": "1",
        "key.serializer": "x",
        "max.block.ms": "5",
        "sasl.jaas.config": 'm required username="u" password="p";',
        "ssl.truststore.location": "ca.pem",
        "ssl.truststore.type": "PEM",
        "ssl.endpoint.identification.algorithm": "",
        "acks": "-1",
    }
    assert translate(java, consumer=False) == {
        "queue.buffering.max.kbytes": "32768",
        "socket.send.buffer.bytes": "1",
        "sasl.username": "u",
        "sasl.password": "p",
        "ssl.ca.location": "ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "acks": "-1",
    }
    assigned = translate({"partition.assignment.strategy": "org.x.RangeAssignor,org.x.StickyAssignor"}, consumer=True)
    assert assigned == {"partition.assignment.strategy": "range,cooperative-sticky"}
    with pytest.raises(CliError, match="cannot be read"):
        translate({"ssl.truststore.location": "x.jks"}, consumer=True)
