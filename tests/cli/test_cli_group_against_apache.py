"""Our commands for groups and Apache Kafka's own print the same about the same groups, on Apache Kafka and on Moldau.

Apache's tools print some rows in the order of a hash table; ours are in order. There the lines are compared sorted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from moldau.cli.main import main as moldau_main
from tests.cli import group_zoo as zoo
from tests.cli.conftest import Done
from tests.clients.java_tools import JavaTools
from tests.interop.apache_kafka import ApacheKafka, shared_properties

pytestmark = pytest.mark.java

TOOLS = {
    "consumer_groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "share_groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "streams_groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
}
CLUSTER_ID = "groups-of-every-kindAAA"[:22]
BEATS = {
    f"group.{kind}.{limit}heartbeat.interval.ms": "1000"
    for kind in ("consumer", "share", "streams")
    for limit in ("", "min.")
}

Call = Callable[..., Done]
Both = Callable[..., tuple[Done, Done]]


@pytest.fixture(scope="module")
def broker(java_tools: JavaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Apache Kafka, because it serves groups of every type."""
    given = os.environ.get("MOLDAU_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    home = tmp_path_factory.mktemp("apache")
    kafka = ApacheKafka({**shared_properties([home / "data"]), **BEATS}, home)
    kafka.format(java_tools, CLUSTER_ID, "--standalone")
    with kafka:
        yield kafka.bootstrap_servers


@pytest.fixture(scope="module")
def inhabited(broker: str) -> Iterator[str]:
    """A broker with topics t1 (3 partitions, 60 records) and t2, and groups of every kind."""
    for argv in (("topic", "create", "t1", "-p", "3"), ("topic", "create", "t2")):
        assert moldau_main([*argv, "-b", broker]) == 0
    for partition in ("0", "1", "2"):
        assert moldau_main(["produce", "t1", "-q", "-b", broker, "-p", partition, *(str(n) for n in range(20))]) == 0
    zoo.commit(broker, "left", {("t1", 0): 5, ("t1", 2): 20, ("t2", 0): 0})
    zoo.commit(broker, "one", {("t1", 1): 7})
    with ExitStack() as members:
        members.enter_context(zoo.member(broker, "classic", "t1", client_id="c-1", group_instance_id="i-1"))
        members.enter_context(zoo.member(broker, "newer", "t1", client_id="n-1", group_protocol="consumer"))
        members.enter_context(zoo.share_member(broker, "shared", "t1"))
        streams = zoo.StreamsMember(broker, "streaming", "t1")
        members.callback(streams.leave)
        yield broker


@pytest.fixture
def both(call: Call, inhabited: str, java_tools: JavaTools) -> Both:
    """Run a command of ours and Apache's: both("groups", "--list")."""
    from importlib import import_module

    def run(command: str, *argv: object) -> tuple[Done, Done]:
        ours = call(import_module(f"moldau.cli.kafka.{command}").main, "--bootstrap-server", inhabited, *argv)
        theirs = java_tools.attempt(TOOLS[command], "--bootstrap-server", inhabited, *argv)
        return ours, Done(theirs.exit, theirs.out, theirs.err)

    return run


def same(both: Both, command: str, *argv: object, ordered: bool = True) -> str:
    ours, theirs = both(command, *argv)
    if ordered:
        assert (ours.out, ours.code) == (theirs.out, theirs.code), (argv, ours.err, theirs.err)
    else:
        assert (sorted(ours.lines), ours.code) == (sorted(theirs.lines), theirs.code), (argv, ours.err, theirs.err)
    return ours.out


def without_reason(text: str) -> str:
    """Without the default text of an error code, which we have in our own words."""
    return re.sub("(?<=Exception: ).*", "", text)


def test_lists(both: Both) -> None:
    for argv in (
        (),
        ("--state",),
        ("--type",),
        ("--state", "--type"),
        ("--state", "stable,empty", "--type", "consumer"),
        ("--type", "Classic"),
    ):
        assert "newer" in same(both, "consumer_groups", "--list", *argv, ordered=False) or "Classic" in argv
    for argv in (
        (),
        ("--consumer",),
        ("--share",),
        ("--streams",),
        ("--group-type", "classic"),
        ("--protocol", "share"),
    ):
        same(both, "groups", "--list", *argv, ordered=False)
    for kind in ("share", "streams"):
        for argv in ((), ("--state",), ("--state", "empty")):
            same(both, f"{kind}_groups", "--list", *argv, ordered=False)


@pytest.mark.parametrize("group", ["left", "classic", "newer", "absent"])
def test_consumer_groups(both: Both, group: str) -> None:
    for view in ((), ("--offsets",), ("--members",), ("--state",)):
        for detail in ((), ("--verbose",)):
            same(both, "consumer_groups", "--describe", "--group", group, *view, *detail)


def test_all_consumer_groups(both: Both) -> None:
    for view in ((), ("--members",), ("--state",)):
        same(both, "consumer_groups", "--describe", "--all-groups", *view)


def test_share_groups(both: Both) -> None:
    for view in ((), ("--offsets",), ("--members",), ("--state",)):
        for detail in ((), ("--verbose",)):
            assert "shared" in same(both, "share_groups", "--describe", "--group", "shared", *view, *detail)
    same(both, "share_groups", "--describe", "--group", "absent")


def test_streams_groups(both: Both) -> None:
    for view in ((), ("--offsets",), ("--members",), ("--state",)):
        for detail in ((), ("--verbose",)):
            argv = ("--describe", "--group", "streaming", *view, *detail)
            assert "streaming" in same(both, "streams_groups", *argv, ordered=bool(view) and "--offsets" not in view)
    same(both, "streams_groups", "--describe", "--group", "absent")


def test_plans(both: Both, tmp_path: Path) -> None:
    """Every scenario as a dry run, of several partitions and of a single one, where order cannot differ."""
    plan = tmp_path / "plan.csv"
    plan.write_text("t1,0,3\nt1,2,99\n")
    by_group = tmp_path / "groups.csv"
    by_group.write_text("one,t1,1,4\nleft,t1,0,3\n")
    scenarios: tuple[tuple[object, ...], ...] = (
        ("--to-earliest",),
        ("--to-latest",),
        ("--to-current",),
        ("--to-offset", 4),
        ("--to-offset", 99),
        ("--shift-by", -2),
        ("--shift-by", 100),
        ("--by-duration", "PT1H"),
        ("--to-datetime", "2020-01-31T12:30:00.000"),
        ("--to-datetime", "2090-01-31T12:30:00.000+02:00"),
    )
    for scenario in scenarios:
        argv = ("--reset-offsets", "--dry-run", *scenario)
        same(both, "consumer_groups", *argv, "--group", "left", "--all-topics", ordered=False)
        same(both, "consumer_groups", *argv, "--group", "one", "--topic", "t1:1")
    argv = ("--reset-offsets", "--dry-run", "--group", "left")
    same(both, "consumer_groups", *argv, "--from-file", plan, ordered=False)
    same(both, "consumer_groups", *argv, "--to-earliest", "--topic", "t1:0,1", "--export", ordered=False)
    several = ("--reset-offsets", "--dry-run", "--group", "left", "--group", "one")
    same(both, "consumer_groups", *several, "--from-file", by_group, ordered=False)
    same(both, "consumer_groups", *several, "--to-latest", "--topic", "t1", "--export", ordered=False)
    same(both, "consumer_groups", "--reset-offsets", "--dry-run", "--to-earliest", "--all-topics", "--group", "newer")
    same(both, "consumer_groups", "--reset-offsets", "--to-earliest", "--topic", "t2", "--group", "not-yet")


def test_plans_that_cannot_be(both: Both) -> None:
    for argv in (
        ("--to-earliest", "--topic", "t1:7"),
        ("--shift-by", 1, "--topic", "t1:1"),
        ("--to-earliest", "--topic", "t1:x"),
        ("--to-earliest", "--to-latest", "--topic", "t1"),
        ("--to-earliest",),
        ("--by-duration", "soon", "--topic", "t1"),
        ("--to-datetime", "2020-01-31T12:30", "--topic", "t1"),
        ("--all-topics",),
    ):
        ours, theirs = both("consumer_groups", "--reset-offsets", "--dry-run", "--group", "left", *argv)
        assert ours.code == theirs.code, argv
        # Where the tool ended the process, what it printed after that is an artefact of not letting it.
        expected = theirs.out if theirs.code == 0 else ""
        assert ours.out == expected, argv


def test_doing_it(both: Both, inhabited: str) -> None:
    """What each tool did is what both then see."""
    for number, scenario in enumerate((("--to-offset", "9"), ("--shift-by", "2"))):
        zoo.commit(inhabited, f"moved-{number}", {("t1", 1): 7})
        argv = ("--reset-offsets", "--execute", "--group", f"moved-{number}", "--topic", "t1:1", *scenario)
        ours, _ = both("consumer_groups", *argv)
        assert ours.out.split()[-1] == "9"
    assert " 9 " in same(both, "consumer_groups", "--describe", "--group", "moved-0")
    assert " 11 " in same(both, "consumer_groups", "--describe", "--group", "moved-1")
    for topic in ("t1:1", "t2", "t1:7"):
        zoo.commit(inhabited, "forgetful", {("t1", 1): 7, ("t2", 0): 0})
        zoo.commit(inhabited, "forgetful-too", {("t1", 1): 7, ("t2", 0): 0})
        ours, _ = both("consumer_groups", "--delete-offsets", "--group", "forgetful", "--topic", topic)
        _, theirs = both("consumer_groups", "--delete-offsets", "--group", "forgetful-too", "--topic", topic)
        expected = theirs.out.replace("forgetful-too", "forgetful")
        assert without_reason(ours.out) == without_reason(expected), topic


def test_deleting(both: Both, inhabited: str) -> None:
    for kind, active in (("consumer", "newer"), ("share", "shared"), ("streams", "streaming")):
        for group in (active, "absent"):
            ours, theirs = both(f"{kind}_groups", "--delete", "--group", group)
            assert ours.code == theirs.code
            assert without_reason(ours.out) == without_reason(theirs.out), group
    zoo.commit(inhabited, "doomed", {("t1", 1): 7})
    ours, theirs = both("consumer_groups", "--delete", "--group", "doomed")
    assert ours.out == "Deletion of requested consumer groups ('doomed') was successful.\n"
    assert "could not be deleted" in theirs.out
    zoo.commit(inhabited, "doomed", {("t1", 1): 7})
    assert both("groups", "--list")[1].out.count("doomed") == 1


def test_share_groups_that_change(both: Both, inhabited: str) -> None:
    with zoo.share_member(inhabited, "shared-2", "t2"):
        ours, theirs = both(
            "share_groups", "--reset-offsets", "--group", "shared-2", "--topic", "t2", "--to-latest", "--dry-run"
        )
        assert ours.code == theirs.code == 1
        assert "is not empty" in ours.err
    for argv in (
        ("--reset-offsets", "--group", "shared-2", "--topic", "t2", "--to-latest", "--dry-run"),
        ("--reset-offsets", "--group", "shared-2", "--topic", "t2", "--to-earliest", "--execute"),
        (
            "--reset-offsets",
            "--group",
            "shared-2",
            "--all-topics",
            "--to-datetime",
            "2020-01-31T12:30:00.000",
            "--dry-run",
        ),
        ("--reset-offsets", "--group", "shared-2", "--topic", "t2", "--to-latest"),
        ("--describe", "--group", "shared-2"),
        ("--delete-offsets", "--group", "shared", "--topic", "t1"),
        ("--delete-offsets", "--group", "shared-2", "--topic", "absent"),
    ):
        same(both, "share_groups", *argv)
    ours, _ = both("share_groups", "--delete-offsets", "--group", "shared-2", "--topic", "t2")
    assert ours.lines[-1].split() == ["t2", "Successful"]
    same(both, "share_groups", "--describe", "--group", "shared-2")
