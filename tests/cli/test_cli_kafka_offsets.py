"""`kafka-get-offsets`, `kafka-delete-records` and `kafka-log-dirs` on a live cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.cli.errors import CliError
from moldau.cli.kafka.delete_records import parse_offsets
from moldau.cli.kafka.get_offsets import parse_time
from tests.cli.conftest import Done

Kafka = Callable[..., Done]
Moldau = Callable[..., Done]


@pytest.fixture
def filled(kafka: Kafka, moldau: Moldau, topic: str) -> str:
    """A topic with five records in partition 0, at 1000, 2000, … 5000 ms, and none in the other two partitions."""
    kafka("topics", "--create", "--topic", topic, "--partitions", 3)
    lines = [json.dumps({"value": str(n), "partition": 0, "timestamp": n * 1000}) for n in range(1, 6)]
    assert moldau("produce", topic, "--json", stdin="\n".join(lines).encode()).code == 0
    return topic


@pytest.mark.parametrize(
    ("time", "offsets"),
    [
        ((), ["0:5", "1:0", "2:0"]),
        (("--time", "-1"), ["0:5", "1:0", "2:0"]),
        (("--time", "earliest"), ["0:0", "1:0", "2:0"]),
        (("--time", "-3"), ["0:4"]),
        (("--time", "3000"), ["0:2"]),
        (("--time", "3001"), ["0:3"]),
        (("--time", "9999999999999"), []),
        (("--time", "earliest-local"), ["0:0", "1:0", "2:0"]),
    ],
)
def test_offsets_at_a_time(kafka: Kafka, filled: str, time: tuple[str, ...], offsets: list[str]) -> None:
    done = kafka("get_offsets", "--topic", filled, *time)
    assert done.lines == [f"{filled}:{each}" for each in offsets]


def test_which_partitions(kafka: Kafka, filled: str) -> None:
    def asked(*argv: str) -> list[str]:
        return [line.removeprefix(f"{filled}:") for line in kafka("get_offsets", *argv).lines]

    assert asked("--topic", filled, "--partitions", "2,0") == ["0:5", "2:0"]
    assert asked("--topic-partitions", f"{filled}:1") == ["1:0"]
    assert asked("--topic-partitions", f"{filled}:1-") == ["1:0", "2:0"]
    assert asked("--topic-partitions", f"{filled}:-1") == ["0:5"]
    assert asked("--topic-partitions", f"{filled}:0-2") == ["0:5", "1:0"]
    assert asked("--topic", filled[:-1] + ".", "--partitions", "0") == ["0:5"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--topic", "cli-no-such"), "Could not match any topic-partitions with the specified filters"),
        (("--time", "yesterday"), "Malformed time argument yesterday. Please use -1 or latest / -2 or earliest"),
        (("--partitions", "a"), "--partitions expects a comma separated list of numeric partition ids"),
        (("--topic", "a", "--topic-partitions", "b"), "--topic-partitions cannot be used with --topic or --partitions"),
        (("--topic-partitions", "a:b"), "Invalid rule specification: a:b"),
    ],
)
def test_get_offsets_refuses(kafka: Kafka, argv: tuple[str, ...], message: str) -> None:
    done = kafka("get_offsets", *argv)
    assert done.code == 1
    assert done.err.startswith(f"Error occurred: {message}")


def test_every_name_of_a_time_has_its_number() -> None:
    names = ["latest", "earliest", "max-timestamp", "earliest-local", "latest-tiered", "earliest-pending-upload"]
    assert [parse_time(name) for name in names] == [-1, -2, -3, -4, -5, -6]


def test_deleting_records(kafka: Kafka, filled: str, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    wanted = [(filled, 0, 3), (filled, 1, 7), ("cli-no-such", 0, 0)]
    file.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": t, "partition": p, "offset": o} for t, p, o in wanted]})
    )
    done = kafka("delete_records", "--offset-json-file", file)
    assert done.code == 0
    assert done.lines[:2] == ["Executing records delete operation", "Records delete operation completed:"]
    results = dict(line.split("\t") for line in done.lines[2:])
    assert results[f"partition: {filled}-0"] == "low_watermark: 3"
    assert results[f"partition: {filled}-1"].startswith(
        "error: org.apache.kafka.common.errors.OffsetOutOfRangeException: "
    )
    assert "UnknownTopicOrPartitionException" in results["partition: cli-no-such-0"]
    assert kafka("get_offsets", "--topic", filled, "--partitions", "0", "--time", "-2").lines == [f"{filled}:0:3"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "The input string is not a valid JSON"),
        ('{"version":2}', "Not supported version field value 2"),
        ("{}", "Missing partitions field"),
        ('{"partitions":[{"topic":"t"}]}', "Every partition needs the fields"),
        ('{"partitions":[{"topic":"t","partition":"0","offset":1}]}', "must be numbers"),
        (
            '{"partitions":[{"topic":"t","partition":0,"offset":1},{"topic":"t","partition":0,"offset":2}]}',
            "duplicate topic partitions: t-0",
        ),
    ],
)
def test_offset_files_that_are_wrong(text: str, message: str) -> None:
    with pytest.raises(CliError, match=message):
        parse_offsets(text)


def test_log_directories(kafka: Kafka, filled: str) -> None:
    done = kafka("log_dirs", "--describe", "--topic-list", filled)
    assert done.lines[:2] == [
        "Querying brokers for log directories information",
        "Received log directory information from brokers 1",
    ]
    (broker,) = json.loads(done.lines[2])["brokers"]
    assert broker["broker"] == 1
    (directory,) = broker["logDirs"]
    assert directory["error"] is None
    sizes = {each["partition"]: each["size"] for each in directory["partitions"]}
    assert set(sizes) == {f"{filled}-{index}" for index in range(3)}
    assert sizes[f"{filled}-0"] > 0 == sizes[f"{filled}-1"]
    missing = kafka("log_dirs", "--describe", "--broker-list", "8,9")
    assert missing.err == (
        "ERROR: The given brokers do not exist from --broker-list: 8,9. Current existent brokers: 1\n"
    )
