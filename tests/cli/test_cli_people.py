"""People's commands on a live cluster: what they print in each form, and how they help when something is wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from moldau.cli.commands.consume import parse_time
from moldau.cli.errors import CliError
from moldau.cli.output import bytes_text
from tests.cli.conftest import Done

Moldau = Callable[..., Done]


@pytest.fixture
def there(moldau: Moldau, topic: str) -> str:
    assert moldau("topic", "create", topic, "-p", 2).code == 0
    return topic


# Topics


def test_topics_in_every_form(moldau: Moldau, topic: str) -> None:
    created = moldau("topic", "create", topic, "-p", 2, "-c", "retention.ms=1000")
    assert created.out == f"Created topic {topic} with 2 partitions and 1 replica each.\n"
    table = moldau("topic", "list", topic)
    assert table.lines[0].split() == ["TOPIC", "PARTITIONS", "REPLICAS"]
    assert table.lines[2].split() == [topic, "2", "1"]
    assert moldau("topic", "list", topic, "-o", "plain").out == f"{topic}\t2\t1\n"
    (listed,) = json.loads(moldau("topic", "list", topic, "-o", "json").out)
    assert (listed["name"], listed["partitions"], listed["internal"]) == (topic, 2, False)
    assert moldau("topic", "delete", topic).out == f"Deleted topic {topic}.\n"
    assert moldau("topic", "list", topic).out == "No topics. Create one with 'moldau topic create NAME'.\n"


def test_describing_shows_offsets_and_sizes(moldau: Moldau, there: str) -> None:
    moldau("produce", there, "-p", 1, "a", "b", "c")
    (described,) = json.loads(moldau("topic", "describe", there, "-o", "json").out)
    first, second = described["partitions"]
    assert (first["earliest"], first["latest"], first["size"]) == (0, 0, 0)
    assert (second["leader"], second["isr"], second["latest"]) == (1, [1], 3)
    assert second["size"] > 60
    table = moldau("topic", "describe", there)
    assert table.lines[0] == f"Topic       {there}"
    assert table.lines[-1].split()[:6] == ["1", "1", "1", "1", "0", "3"]
    plain = moldau("topic", "describe", there, "-o", "plain")
    assert [line.split("\t")[0] for line in plain.lines] == ["0", "1"]


def test_altering(moldau: Moldau, there: str) -> None:
    assert moldau("topic", "alter", there, "-p", 3, "-c", "segment.ms=9").out == f"Altered topic {there}.\n"
    (described,) = json.loads(moldau("topic", "describe", there, "-o", "json").out)
    assert (len(described["partitions"]), described["configs"]["segment.ms"]) == (3, "9")
    moldau("topic", "alter", there, "--unset", "segment.ms")
    assert "segment.ms" not in json.loads(moldau("topic", "describe", there, "-o", "json").out)[0]["configs"]
    nothing = moldau("topic", "alter", there)
    assert (nothing.code, "Say what to change" in nothing.err) == (2, True)


def test_a_dry_run_creates_nothing(moldau: Moldau, topic: str) -> None:
    assert moldau("topic", "create", topic, "--dry-run").out.startswith(f"Could create topic {topic}")
    assert moldau("topic", "list", topic, "-o", "json").out == "[]\n"


def test_misspelt_topics_get_the_nearest_names(moldau: Moldau, there: str) -> None:
    wrong = there + "x"
    for command in (
        ("topic", "describe", wrong),
        ("topic", "delete", wrong),
        ("topic", "alter", wrong, "-p", 9),
        ("consume", wrong),
        ("config", "describe", "topic", wrong),
        ("config", "set", "topic", wrong, "segment.ms=1"),
    ):
        done = moldau(*command)
        assert (done.code, done.out) == (1, ""), command
        first, second = done.err.splitlines()
        assert first == f"Error: There is no topic '{wrong}'"
        assert second.startswith("Did you mean ")
        assert there in second
    assert moldau("topic", "delete", wrong, "--if-exists").code == 0


def test_nobody_there(moldau: Moldau) -> None:
    for command in (("topic", "list"), ("produce", "t", "x"), ("consume", "t"), ("cluster", "info")):
        done = moldau(*command, "-b", "localhost:1")
        assert done.code == 1
        assert done.err == (
            "Error: Cannot reach a broker: localhost:1: connection refused\n"
            "Is one running there? Start one with 'moldau start', or name another with --bootstrap-server.\n"
        )


def test_commands_that_do_not_exist(moldau: Moldau) -> None:
    assert "There is no command 'topc'. Did you mean 'topic'?" in moldau("topc").err
    assert moldau("topic", "list", "--nonsense").code == 2
    assert moldau("--help").out.count("\n  ") > 9
    assert moldau("--version").out.startswith("moldau ")


# Producing and consuming


def test_from_arguments_lines_and_files(moldau: Moldau, there: str, tmp_path: Path) -> None:
    sent = moldau("produce", there, "-p", 0, "-k", "key", "-H", "trace=7", "one", "two")
    assert sent.err.startswith(f"2 records to {there}, ")
    moldau("produce", there, "-p", 0, "-K", "=", "--null", "NIL", stdin=b"a=1\nb=NIL\n")
    file = tmp_path / "lines"
    file.write_text("from file\n")
    moldau("produce", there, "-p", 0, "-f", file, "-z", "gzip", "-q")
    read = moldau("consume", there, "--from-beginning", "-f", "{partition}:{offset}|{key}|{value}|{header:trace}")
    assert read.lines == [
        "0:0|key|one|7",
        "0:1|key|two|7",
        "0:2|a|1|null",
        "0:3|b|null|null",
        "0:4|null|from file|null",
    ]
    assert moldau("consume", there, "--from-beginning").lines == ["one", "two", "1", "null", "from file"]


def test_json_out_goes_in_again(moldau: Moldau, there: str, topic: str) -> None:
    record = {
        "partition": 1,
        "timestamp": 1234,
        "key": None,
        "valueBase64": "/w==",
        "headers": [{"name": "h", "value": "x"}],
    }
    moldau("produce", there, "--json", stdin=json.dumps(record).encode())
    first = moldau("consume", there, "--from-beginning", "-o", "json").out
    assert json.loads(first) == {"topic": there, "offset": 0, **record}
    other = f"{topic}-copy"
    moldau("topic", "create", other, "-p", 2)
    moldau("produce", other, "--json", stdin=first.encode())
    assert json.loads(moldau("consume", other, "--from-beginning", "-o", "json").out) == {
        **json.loads(first),
        "topic": other,
    }
    broken = moldau("produce", there, "--json", stdin=b"{}\nnot json\n")
    assert (broken.code, "Line 2 is not a record in JSON" in broken.err) == (1, True)


@pytest.mark.parametrize(
    ("where", "values"),
    [
        (("--from", "3"), ["3", "4", "5"]),
        (("--from", "-2"), ["4", "5"]),
        (("--from", "@5000"), ["4", "5"]),
        (("--from", "1h"), []),
        (("--from", "beginning", "-n", "2"), ["0", "1"]),
        (("--from-beginning", "-p", "0"), []),
        (("--from", "99"), []),
    ],
)
def test_places_to_read_from(moldau: Moldau, there: str, where: tuple[str, ...], values: list[str]) -> None:
    lines = [json.dumps({"value": str(n), "partition": 1, "timestamp": (n + 1) * 1000}) for n in range(6)]
    moldau("produce", there, "--json", "-q", stdin="\n".join(lines).encode())
    assert moldau("consume", there, *where).lines == values


def test_places_that_are_none(moldau: Moldau, there: str) -> None:
    assert "has no partition 7" in moldau("consume", there, "-p", 7).err
    assert "is not a place to read from" in moldau("consume", there, "--from", "soon").err
    assert "is not a field of a record" in moldau("consume", there, "-f", "{nonsense}").err
    assert moldau("consume", there, "--from", "1", "--from-beginning").code == 2


def test_times() -> None:
    assert parse_time("@5") == 5
    assert abs(parse_time("10m") - (time.time() - 600) * 1000) < 5000
    noon = datetime(2026, 1, 31, 12, 0)
    assert parse_time("2026-01-31T12:00") == int(noon.timestamp() * 1000)
    assert parse_time("2026-01-31T12:00+00:00") == 1769860800000
    assert parse_time("2026-02-01") - parse_time("2026-01-31") == timedelta(days=1) / timedelta(milliseconds=1)
    with pytest.raises(CliError):
        parse_time("x")


# Settings


def test_settings(moldau: Moldau, there: str) -> None:
    changed = moldau("config", "set", "topic", there, "segment.ms=77")
    assert changed.out == f"Set segment.ms=77 for topic {there}.\n"
    rows = json.loads(moldau("config", "describe", "topic", there, "segment.ms", "-o", "json").out)
    assert [(row["name"], row["value"], row["source"]) for row in rows] == [("segment.ms", "77", "dynamic topic")]
    assert f"topic\t{there}\tsegment.ms\t77" in moldau("config", "list", "topic", "-o", "plain").lines
    moldau("config", "unset", "topic", there, "segment.ms")
    assert f"topic\t{there}\t" not in moldau("config", "list", "topic", "-o", "plain").out
    documented = moldau("config", "describe", "broker", 1, "num.io.threads", "--docs", "-o", "json")
    assert json.loads(documented.out)[0]["type"] == "int"
    assert json.loads(documented.out)[0]["documentation"]


def test_settings_that_are_wrong(moldau: Moldau, there: str) -> None:
    unknown = moldau("config", "set", "topic", there, "segmnt.ms=1")
    assert unknown.err.splitlines() == [
        "Error: Unknown topic config name: segmnt.ms",
        "Did you mean segment.ms or segment.bytes or segment.jitter.ms?",
    ]
    value = moldau("config", "set", "topic", there, "segment.ms=soon")
    assert (value.code, "segment.ms" in value.err) == (1, True)
    assert "'x' is not a broker id" in moldau("config", "describe", "broker", "x").err
    assert "Did you mean num.io.threads" in moldau("config", "describe", "broker", 1, "num.io.thread").err
    assert moldau("config", "set", "topic", there, "novalue").code == 2


# The cluster


def test_the_cluster(moldau: Moldau) -> None:
    info = json.loads(moldau("cluster", "info", "-o", "json").out)
    assert [broker["id"] for broker in info["brokers"]] == [1]
    assert len(info["clusterId"]) == 22
    status = moldau("cluster", "status")
    assert (status.code, status.lines[-1], status.err) == (0, "The cluster is healthy.", "")
    assert moldau("cluster", "status", "-o", "plain").out == "healthy\n"
    told = json.loads(moldau("cluster", "status", "-o", "json").out)
    assert (told["healthy"], told["problems"], told["offline"]) == (True, [], 0)
    features = {row["name"]: row["finalized"] for row in json.loads(moldau("cluster", "features", "-o", "json").out)}
    assert features["metadata.version"] > 20
    (directory,) = json.loads(moldau("cluster", "log-dirs", "-o", "json").out)
    assert (directory["broker"], directory["state"]) == (1, "ok")
    quorum = json.loads(moldau("cluster", "quorum", "-o", "json").out)
    assert (quorum["leader"], [each["role"] for each in quorum["replicas"]]) == (1, ["leader"])
    for command in ("info", "features", "log-dirs", "quorum"):
        assert moldau("cluster", command).code == 0


# The rest


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(moldau: Moldau, shell: str) -> None:
    assert "_MOLDAU_COMPLETE" in moldau("completion", shell).out


def test_completing_topics(moldau: Moldau, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = f"moldau topic describe {there[:-3]}"
    for name, value in (("_MOLDAU_COMPLETE", "bash_complete"), ("COMP_WORDS", words), ("COMP_CWORD", "3")):
        monkeypatch.setenv(name, value)
    assert moldau().lines == [f"plain,{there}"]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 1024**4, "5.0 TiB"), (-1, "-")]
)
def test_sizes_for_people(count: int, text: str) -> None:
    assert bytes_text(count) == text
