"""`kafka-storage` and `moldau storage`: formatting directories and telling what they belong to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.cli.kafka.storage import main
from moldau.protocol.uuids import uuid_from_string
from tests.cli.conftest import Done

Call = Callable[..., Done]
CLUSTER = "4L6g3nShT-eMCtK--X86sw"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A combined node with two directories and a dynamic quorum."""
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=3\nlisteners=PLAINTEXT://localhost:0,CONTROLLER://localhost:9093\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
        f"log.dirs={tmp_path}/one,{tmp_path}/two\n"
    )
    return path


def test_a_quorum_of_one(call: Call, config: Path, tmp_path: Path) -> None:
    undecided = call(main, "format", "-c", config, "-t", CLUSTER)
    assert (undecided.code, "you must specify one of the following" in undecided.err) == (1, True)
    done = call(main, "format", "-c", config, "-t", CLUSTER, "--standalone")
    assert done.code == 0
    assert done.lines[1:] == [
        f"Formatting dynamic metadata voter directory {tmp_path}/one with metadata.version 4.3-IV0.",
        f"Formatting data directory {tmp_path}/two with metadata.version 4.3-IV0.",
    ]
    info = call(main, "info", "-c", config)
    assert info.lines[:3] == ["Found log directories:", f"  {tmp_path}/one", f"  {tmp_path}/two"]
    assert info.lines[4].startswith(f"Found metadata: {{cluster.id={CLUSTER}, directory.id=")
    again = call(main, "format", "-c", config, "-t", CLUSTER, "-s")
    assert (again.code, "is already formatted" in again.err) == (1, True)
    ignored = call(main, "format", "-c", config, "-t", CLUSTER, "-s", "-g")
    assert ignored == Done(0, "All of the log directories are already formatted.\n", "")


def test_initial_controllers(call: Call, config: Path, tmp_path: Path) -> None:
    voters = "3@localhost:9093:JEXY6aqzQY-32P5TStzaFg,4@localhost:9094:MvDxzVmcRsaTz33bUuRU6A"
    assert call(main, "format", "-c", config, "-t", CLUSTER, "-I", voters).code == 0
    assert "directory.id=JEXY6aqzQY-32P5TStzaFg" in (tmp_path / "one" / "meta.properties").read_text()
    wrong = call(main, "format", "-c", config, "-t", CLUSTER, "-I", "3@localhost")
    assert (wrong.code, wrong.err.startswith("--initial-controllers: ")) == (1, True)


def test_joining_later_with_features_and_users(call: Call, config: Path) -> None:
    user = "SCRAM-SHA-256=[name=alice,password=secret]"
    done = call(main, "format", "-c", config, "-t", CLUSTER, "-N", "-f", "transaction.version=1", "-S", user)
    assert "transaction.version=1" in done.lines[0]
    assert "secret" not in done.out


def test_what_is_wrong_is_told(call: Call, config: Path, tmp_path: Path) -> None:
    for argv, message in (
        (("-f", "x"), "Can't parse feature=level string x: equals sign not found."),
        (("-f", "x=y"), "unable to parse y as a short"),
        (("-f", "nonsense=1"), "Unsupported feature: nonsense"),
        (("-r", "1.0"), "Unknown metadata.version '1.0'"),
        (("-S", "nonsense"), "Failed to find equals sign in SCRAM argument"),
    ):
        done = call(main, "format", "-c", config, "-t", CLUSTER, "-s", *argv)
        assert done.code == 1, argv
        assert message in done.err
    config.write_text(config.read_text() + "log.segment.bytes=-1\n")
    assert "log.segment.bytes" in call(main, "format", "-c", config, "-t", CLUSTER, "-s").err
    assert call(main, "info", "-c", tmp_path / "none").err.startswith("Cannot read ")
    blocked = tmp_path / "server2.properties"
    (tmp_path / "file").write_text("")
    blocked.write_text(config.read_text().replace("log.segment.bytes=-1\n", "").replace("/one", "/file"))
    assert call(main, "info", "-c", blocked).lines[:3] == [
        "Found problems:",
        f"  {tmp_path}/file is not a directory",
        f"  {tmp_path}/two does not exist",
    ]
    with pytest.raises(SystemExit) as ended:
        main(["format"])
    assert ended.value.code == 1


def test_ids(call: Call, moldau: Call) -> None:
    ids = {call(main, "random-uuid").out.strip(), moldau("storage", "random-uuid").out.strip()}
    assert len(ids) == 2
    assert all(len(uuid_from_string(each)) == 16 for each in ids)


def test_people_format_the_same_way(moldau: Call, config: Path) -> None:
    assert moldau("storage", "format", "-c", config, "-t", CLUSTER, "-s").code == 0
    assert moldau("storage", "info", "-c", config).code == 0
