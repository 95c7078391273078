"""Kafka's commands for groups, on whatever cluster there is: what they print, change and refuse."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.cli.kafka import console_share_consumer, groups, share_groups, streams_groups
from moldau.cli.kafka.consumer_groups import regex_verdict
from moldau.client.admin import Admin
from moldau.protocol.api import ApiKey
from tests.cli import group_zoo as zoo
from tests.cli.conftest import Done, spawn
from tests.cli.test_cli_startup import HEAVY, loaded_by
from tests.client.peer import Peer

Kafka = Callable[..., Done]
Moldau = Callable[..., Done]
Call = Callable[..., Done]


@pytest.fixture
def filled(moldau: Moldau, topic: str) -> str:
    """A topic with five records in partition 0, at 1000, 2000, … 5000 ms, and none in partition 1."""
    moldau("topic", "create", topic, "-p", 2)
    lines = [json.dumps({"value": str(n), "partition": 0, "timestamp": n * 1000}) for n in range(1, 6)]
    assert moldau("produce", topic, "--json", stdin="\n".join(lines).encode()).code == 0
    return topic


@pytest.fixture
def group(bootstrap: str, filled: str) -> str:
    """A group without members that stands at 2 in partition 0."""
    zoo.commit(bootstrap, f"g-{filled}", {(filled, 0): 2})
    return f"g-{filled}"


def offers(bootstrap: str, *keys: int) -> bool:
    with Admin(bootstrap) as admin:
        return all(admin.supports(key) for key in keys)


# Consumer groups


def test_listing(kafka: Kafka, group: str) -> None:
    assert group in kafka("consumer_groups", "--list").lines
    rows = [line.split() for line in kafka("consumer_groups", "--list", "--state", "--type").lines]
    assert rows[0] == ["GROUP", "TYPE", "STATE"]
    assert [group, "Classic", "Empty"] in rows
    assert group not in kafka("consumer_groups", "--list", "--state", "stable").out
    assert group in kafka("consumer_groups", "--list", "--state", "EMPTY,stable").out
    assert kafka("consumer_groups", "--list", "--state", "asleep").code == 1
    assert kafka("consumer_groups", "--list", "--type", "share").code == 1


def test_listing_groups_of_all_types(kafka: Kafka, group: str) -> None:
    assert kafka("groups", "--list").lines[0].split() == ["GROUP", "TYPE", "PROTOCOL"]
    for chosen in ((), ("--consumer",), ("--group-type", "classic"), ("--protocol", "consumer")):
        listed = [line.split()[0] for line in kafka("groups", "--list", *chosen).lines]
        # A group that only ever committed has no protocol in Kafka, and then is none of that protocol.
        assert group in listed or "--protocol" in chosen
    for chosen in (("--share",), ("--streams",), ("--group-type", "consumer"), ("--protocol", "connect")):
        assert group not in kafka("groups", "--list", *chosen).out
    assert kafka("groups", "--list", "--share", "--streams").code == 1
    assert kafka("groups", "--list", "--group-type", "none").code == 1
    assert kafka("groups").code == 1


def test_describing_without_members(kafka: Kafka, group: str, filled: str) -> None:
    done = kafka("consumer_groups", "--describe", "--group", group)
    assert done.err == f"\nConsumer group '{group}' has no active members.\n"
    assert done.lines[0] == ""
    assert done.lines[1].split()[:6] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert done.lines[2].split() == [group, filled, "0", "2", "5", "3", "-", "-", "-"]
    assert len(done.lines) == 3
    state = kafka("consumer_groups", "--describe", "--group", group, "--state")
    assert state.lines[2].split()[-2:] == ["Empty", "0"]
    absent = kafka("consumer_groups", "--describe", "--group", "cli-no-such")
    assert absent.out.startswith("\nError: Executing consumer group command failed due to ")
    assert "GroupIdNotFoundException" in absent.out
    assert absent.code == 0


def test_describing_with_a_member(kafka: Kafka, bootstrap: str, group: str, filled: str) -> None:
    with zoo.member(bootstrap, group, filled, client_id="reader", group_instance_id="static-1") as member:
        rows = [line.split() for line in kafka("consumer_groups", "--describe", "--group", group).lines[2:]]
        assert [row[2:6] for row in rows] == [["0", "2", "5", "3"], ["1", "-", "0", "-"]]
        assert {row[-1] for row in rows} == {"reader"}
        members = kafka("consumer_groups", "--describe", "--group", group, "--members", "--verbose")
        row = members.lines[2].split()
        assert (row[0], row[2], row[4], row[5]) == (group, "static-1", "reader", "2")
        assert f"{filled}:0,1" in row
        state = kafka("consumer_groups", "--describe", "--group", group, "--state").lines[2].split()
        assert state[-2:] == ["Stable", "1"]
        active = kafka(
            "consumer_groups", "--reset-offsets", "--group", group, "--to-latest", "--all-topics", "--execute"
        )
        assert "is inactive, but the current state is Stable." in active.out
        in_use = kafka("consumer_groups", "--delete", "--group", group)
        assert "GroupNotEmptyException" in in_use.out
        kept = kafka("consumer_groups", "--delete-offsets", "--group", group, "--topic", filled)
        assert "GroupSubscribedToTopicException" in kept.out
        assert member.assignment()


def test_a_group_of_the_newer_protocol(kafka: Kafka, bootstrap: str, filled: str) -> None:
    if not offers(bootstrap, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE):
        pytest.skip("the cluster does not serve consumer groups of the newer protocol")
    name = f"n-{filled}"
    with zoo.member(bootstrap, name, filled, client_id="reader", group_protocol="consumer"):
        assert [name, "Consumer", "Stable"] in [
            line.split() for line in kafka("consumer_groups", "--list", "--state", "--type").lines
        ]
        row = kafka("consumer_groups", "--describe", "--group", name, "--members", "--verbose").lines[2].split()
        assert row[3:5] == ["reader", "2"]
        assert row[6] == row[8] == f"{filled}:0,1"
        state = kafka("consumer_groups", "--describe", "--group", name, "--state", "--verbose").lines[2].split()
        assert (state[-4], state[-1]) == ("Stable", "1")


@pytest.mark.parametrize(
    ("scenario", "offset"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), 5),
        (("--to-current",), 2),
        (("--to-offset", "4"), 4),
        (("--to-offset", "44"), 5),
        (("--shift-by", "1"), 3),
        (("--shift-by", "-9"), 0),
        (("--to-datetime", "1970-01-01T00:00:03.000"), 2),
        (("--to-datetime", "1970-01-01T01:00:03.001+01:00"), 3),
        (("--by-duration", "P9999D"), 5),
    ],
)
def test_resetting(kafka: Kafka, group: str, filled: str, scenario: tuple[str, ...], offset: int) -> None:
    argv = ("--reset-offsets", "--group", group, "--topic", f"{filled}:0", *scenario)
    planned = kafka("consumer_groups", *argv, "--dry-run")
    assert planned.lines[-1].split() == [group, filled, "0", str(offset)]
    assert kafka("consumer_groups", "--describe", "--group", group).lines[2].split()[3] == "2"
    assert kafka("consumer_groups", *argv, "--execute").out == planned.out
    assert kafka("consumer_groups", "--describe", "--group", group).lines[2].split()[3] == str(offset)


def test_an_exported_plan_is_read_again(kafka: Kafka, group: str, filled: str, tmp_path: Path) -> None:
    argv = ("--reset-offsets", "--group", group)
    exported = kafka("consumer_groups", *argv, "--topic", filled, "--to-latest", "--export", "--dry-run")
    assert exported.out == f"{filled},0,5\n{filled},1,0\n\n"
    plan = tmp_path / "plan.csv"
    plan.write_text(exported.out)
    assert kafka("consumer_groups", *argv, "--from-file", plan, "--execute").code == 0
    rows = [line.split()[2:6] for line in kafka("consumer_groups", "--describe", "--group", group).lines[2:]]
    assert rows == [["0", "5", "5", "0"], ["1", "0", "0", "0"]]
    plan.write_text(f"other,{filled},0,5\n")
    assert f"No reset plan for group {group} found" in kafka("consumer_groups", *argv, "--from-file", plan).out
    plan.write_text("nonsense\n")
    assert "Line 1 of" in kafka("consumer_groups", *argv, "--from-file", plan).err


def test_a_reset_without_a_word_is_a_dry_run(kafka: Kafka, group: str, filled: str) -> None:
    done = kafka("consumer_groups", "--reset-offsets", "--group", group, "--all-topics", "--to-latest")
    assert "--execute is missing" in done.err
    assert kafka("consumer_groups", "--describe", "--group", group).lines[2].split()[3] == "2"


def test_deleting_offsets_and_groups(kafka: Kafka, bootstrap: str, group: str, filled: str) -> None:
    zoo.commit(bootstrap, group, {(filled, 1): 0})
    done = kafka("consumer_groups", "--delete-offsets", "--group", group, "--topic", f"{filled}:1")
    assert done.lines[0] == f"Request succeeded for deleting offsets from group {group}."
    assert done.lines[-1].split() == [filled, "1", "Successful"]
    assert len(kafka("consumer_groups", "--describe", "--group", group).lines) == 3
    done = kafka("consumer_groups", "--delete", "--group", group, "--group", "cli-no-such")
    assert f"These consumer groups were deleted successfully: '{group}'" in done.out
    assert (
        "* Group 'cli-no-such' could not be deleted due to: org.apache.kafka.common.errors.GroupIdNotFound" in done.out
    )
    assert group not in kafka("consumer_groups", "--list").lines


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("--list", "--describe"),
        ("--describe",),
        ("--describe", "--group", "g", "--members", "--state"),
        ("--describe", "--group", "g", "--state", "Stable"),
        ("--list", "--members"),
        ("--list", "--group", "g"),
        ("--delete",),
        ("--delete", "--group", "g", "--topic", "t"),
        ("--delete-offsets", "--group", "g"),
        ("--reset-offsets", "--to-latest"),
        ("--reset-offsets", "--group", "g", "--topic", "t", "--to-latest", "--to-earliest"),
        ("--reset-offsets", "--group", "g", "--topic", "t", "--to-latest", "--dry-run", "--execute"),
        ("--describe", "--group", "g", "--all-groups"),
        ("--describe", "--group", "g", "--type"),
        ("--delete", "--group", "g", "--state"),
    ],
)
def test_options_that_do_not_go_together(kafka: Kafka, argv: tuple[str, ...]) -> None:
    done = kafka("consumer_groups", *argv)
    assert (done.code, done.out) == (1, "")
    assert "--help" in done.err


def test_regular_expressions(call: Call) -> None:
    from moldau.cli.kafka.consumer_groups import main

    assert call(main, "--validate-regex", "a.*b|c[0-9]+").out == "The regular expression `a.*b|c[0-9]+` is valid.\n"
    for wrong in ("(", "[a", "a**", "(?=x)", r"(a)\1", "a++", "(?<!a)b"):
        assert f"`{wrong}` is invalid: " in regex_verdict(wrong)
    for right in (r"\(\?=", "(?i)x", r"\+\+", "(?P<n>x)", r"\d{2,3}?"):
        assert regex_verdict(right).endswith("is valid.")


# Share and streams groups


@pytest.mark.parametrize(
    ("main", "message"),
    [
        (share_groups.main, "share groups: the broker does not offer ShareGroupDescribe"),
        (streams_groups.main, "streams groups: the broker does not offer StreamsGroupDescribe"),
        (groups.main, "does not support ListGroups"),
    ],
)
def test_a_cluster_that_does_not_serve_them(call: Call, main: Callable[..., int], message: str) -> None:
    with Peer() as peer:
        done = call(main, "--bootstrap-server", peer.address, "--list")
    assert (done.code, done.out) == (1, "")
    assert message in done.err


def test_no_share_fetching(call: Call) -> None:
    with Peer() as peer:
        done = call(console_share_consumer.main, "--bootstrap-server", peer.address, "--topic", "t")
    assert done.code == 1
    assert "share groups: the broker does not offer ShareFetch" in done.err


@pytest.mark.parametrize("command", ["share_groups", "streams_groups"])
@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("--describe",),
        ("--describe", "--group", "g", "--members", "--offsets"),
        ("--delete",),
        ("--delete-offsets", "--group", "g"),
        ("--reset-offsets", "--group", "g", "--to-latest"),
        ("--reset-offsets", "--group", "g", "--to-latest", "--execute", "--dry-run"),
        ("--list", "--group", "g"),
    ],
)
def test_options_of_the_other_types(kafka: Kafka, command: str, argv: tuple[str, ...]) -> None:
    done = kafka(command, *argv)
    assert (done.code, done.out) == (1, "")
    assert "--help" in done.err


def test_a_share_group(kafka: Kafka, moldau: Moldau, bootstrap: str, filled: str) -> None:
    if not offers(bootstrap, ApiKey.SHARE_FETCH, ApiKey.SHARE_GROUP_DESCRIBE, ApiKey.ALTER_SHARE_GROUP_OFFSETS):
        pytest.skip("the cluster does not serve share groups")
    name = f"s-{filled}"
    reset = ("--reset-offsets", "--group", name, "--topic", filled, "--to-earliest", "--execute")
    assert kafka("share_groups", *reset).code == 0
    shown = ("--formatter-property", "print.offset=true", "--formatter-property", "print.delivery=true")
    first = _read_shared(bootstrap, filled, name, "--release", "--max-messages", 5, *shown)
    assert first.lines == [f"Offset:{n}\tDelivery:1\t{n + 1}" for n in range(5)]
    again = _read_shared(bootstrap, filled, name, "--max-messages", 2, *shown)
    assert [line.split("\t")[2] for line in again.lines] == ["1", "2"]
    assert {line.split("\t")[1] for line in again.lines} == {"Delivery:2"}
    rest = _read_shared(bootstrap, filled, name, "--reject", "--timeout-ms", 4000, *shown)
    assert [line.split("\t")[2] for line in rest.lines] == ["3", "4", "5"]
    assert _read_shared(bootstrap, filled, name, "--timeout-ms", 2000).out == ""
    # The start may trail what was rejected last; the lag does not.
    row = kafka("share_groups", "--describe", "--group", name).lines[2].split()
    assert (row[:3], row[-1]) == ([name, filled, "0"], "0")
    assert kafka("share_groups", "--delete", "--group", name).out.startswith("Deletion of requested share groups")


def _read_shared(bootstrap: str, topic: str, group: str, *argv: object) -> Done:
    done = spawn(
        "kafka.console_share_consumer", "--bootstrap-server", bootstrap, "--topic", topic, "--group", group, *argv
    )
    assert done.code == 0, done.err
    return done


def test_a_streams_group(kafka: Kafka, bootstrap: str, filled: str) -> None:
    if not offers(bootstrap, ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE):
        pytest.skip("the cluster does not serve streams groups")
    name = f"a-{filled}"
    member = zoo.StreamsMember(bootstrap, name, filled)
    rows = [line.split() for line in kafka("streams_groups", "--describe", "--group", name).lines[1:]]
    assert rows == [[name, filled, "0", "5"], [name, filled, "1", "0"]]
    assert "ACTIVE: 0:[0,1]; " in kafka("streams_groups", "--describe", "--group", name, "--members").out
    assert "is not EMPTY" in kafka("streams_groups", "--delete", "--group", name).out
    member.leave()
    zoo.commit(bootstrap, name, {(filled, 0): 3})
    argv = ("--reset-offsets", "--group", name, "--all-input-topics", "--to-earliest")
    assert kafka("streams_groups", *argv, "--execute").lines[-1].split() == [name, filled, "0", "0"]
    done = kafka("streams_groups", "--delete", "--group", name, "--delete-all-internal-topics")
    assert (done.code, done.out) == (0, f"Deletion of requested streams groups ('{name}') was successful.\n")


@pytest.mark.parametrize(
    "command", ["consumer_groups", "groups", "share_groups", "streams_groups", "console_share_consumer"]
)
def test_nothing_heavy_is_loaded_for_the_help(command: str) -> None:
    loaded = loaded_by(f"from moldau.cli.kafka.{command} import main; main(['--help'])")
    assert not loaded.intersection(HEAVY)


def test_timeouts(call: Call) -> None:
    from moldau.cli.kafka.consumer_groups import main

    began = time.monotonic()
    done = call(main, "--bootstrap-server", "localhost:1", "--list", "--timeout", 300)
    assert done.code == 1
    assert "Cannot reach a broker" in done.err
    assert time.monotonic() - began < 5
