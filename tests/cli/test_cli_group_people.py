"""`moldau group` on a live cluster, and what it is made of: rates, plans, times and names."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli.commands._group_reset import parse_moment
from moldau.cli.commands._group_watch import Rates, duration_text, frame
from moldau.cli.commands.group import ranges_text
from moldau.cli.errors import CliError
from moldau.cli.resets import parse_date_time, parse_duration, parse_partitions
from moldau.client.admin.streams_groups import is_internal_name
from tests.cli import group_zoo as zoo
from tests.cli.conftest import Done

Moldau = Callable[..., Done]


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


def test_lists_in_every_form(moldau: Moldau, group: str) -> None:
    table = moldau("group", "list", group)
    assert table.lines[0].split() == ["GROUP", "STATE", "TYPE", "PROTOCOL", "MEMBERS"]
    assert table.lines[2].split()[:3] == [group, "Empty", "Classic"]
    (row,) = json.loads(moldau("group", "list", group, "--lag", "-o", "json").out)
    assert (row["group"], row["members"], row["lag"]) == (group, 0, 3)
    assert moldau("group", "list", group, "-o", "plain").out.startswith(f"{group}\tEmpty\tClassic\t")
    assert moldau("group", "list", group, "-s", "stable", "-t", "classic").out.startswith("No groups.")
    wrong = moldau("group", "list", "-s", "stabel")
    assert wrong.err.splitlines() == ["Error: 'stabel' is not a state of a group", "Did you mean Stable?"]


def test_describing_a_group_without_members(moldau: Moldau, group: str, filled: str) -> None:
    (seen,) = json.loads(moldau("group", "describe", group, "-o", "json").out)
    assert (seen["state"], seen["members"], seen["lag"]) == ("Empty", [], 3)
    (partition,) = seen["partitions"]
    assert (partition["topic"], partition["partition"], partition["committed"]) == (filled, 0, 2)
    assert (partition["end"], partition["lag"], partition["member"]) == (5, 3, None)
    table = moldau("group", "describe", group)
    assert table.lines[0] == f"Group        {group}"
    assert table.lines[-1].split()[:5] == [filled, "0", "2", "5", "3"]
    assert moldau("group", "describe", group, "-o", "plain").out == f"{filled}\t0\t2\t5\t3\t-\t-\t-\n"
    assert moldau("group", "describe", group, "--members").lines[-1] == "No members."


def test_describing_a_group_at_work(moldau: Moldau, bootstrap: str, group: str, filled: str) -> None:
    with zoo.member(bootstrap, group, filled, client_id="reader") as member:
        (seen,) = json.loads(moldau("group", "describe", group, "-o", "json").out)
        (one,) = seen["members"]
        assert (one["clientId"], one["assignment"], one["lag"]) == ("reader", {filled: [0, 1]}, 3)
        assert [row["member"] for row in seen["partitions"]] == [one["id"]] * 2
        table = moldau("group", "describe", group).out
        assert f"{filled}:0-1" in table
        assert moldau("group", "describe", group, "--members", "-o", "plain").out.split("\t")[2] == "reader"
        for refused in (
            moldau("group", "reset", group, "--to", "earliest", "--execute"),
            moldau("group", "delete", group),
        ):
            assert refused.code == 1
            first, second = refused.err.splitlines()
            assert first.startswith(f"Error: Group '{group}' has 1 member: ")
            assert second.startswith("Stop its consumers first: reader on ")
        offsets = moldau("group", "delete", group, "--topic", filled)
        assert (offsets.code, "cannot be deleted" in offsets.err) == (1, True)
        assert member.assignment()


def test_watching(moldau: Moldau, bootstrap: str, group: str, filled: str) -> None:
    looks = moldau("group", "describe", group, "--watch", "--times", 2, "--interval", 0.1, "-o", "json")
    first, second = (json.loads(line) for line in looks.lines)
    assert (first["readRate"], second["readRate"], second["lag"]) == (None, 0.0, 3)
    assert second["secondsToCatchUp"] is None
    table = moldau("group", "describe", group, "--watch", "--times", 1)
    assert table.lines[0].startswith(f"{group}  Empty  0 members")
    assert table.lines[-1].split()[:5] == [filled, "0", "2", "5", "3"]
    plain = moldau("group", "describe", group, "--watch", "--times", 1, "-o", "plain")
    assert plain.out.split("\t")[1:7] == [group, filled, "0", "2", "5", "3"]
    assert moldau("group", "describe", group, "other", "--watch").code == 2


@pytest.mark.parametrize(
    ("where", "new"),
    [
        (("--to", "earliest"), 0),
        (("--to", "end"), 5),
        (("--to", "4"), 4),
        (("--to", "@3000"), 2),
        (("--to", "1970-01-01T00:00:03.500+00:00"), 3),
        (("--to", "PT1H"), 5),
        (("--to", "15m"), 5),
        (("--shift-by", "-1"), 1),
        (("--shift-by", "100"), 5),
    ],
)
def test_resets(moldau: Moldau, group: str, filled: str, where: tuple[str, ...], new: int) -> None:
    preview = json.loads(moldau("group", "reset", group, *where, "-o", "json").out)
    assert preview["executed"] is False
    (row,) = preview["partitions"]
    assert (row["topic"], row["partition"], row["current"], row["new"]) == (filled, 0, 2, new)
    assert (row["change"], row["lag"]) == (new - 2, 5 - new)
    assert _committed(moldau, group) == {0: 2}
    assert json.loads(moldau("group", "reset", group, *where, "--execute", "-o", "json").out)["executed"] is True
    assert _committed(moldau, group) == {0: new}


def _committed(moldau: Moldau, group: str) -> dict[int, int]:
    (seen,) = json.loads(moldau("group", "describe", group, "-o", "json").out)
    return {row["partition"]: row["committed"] for row in seen["partitions"]}


def test_a_preview_says_that_nothing_happened(moldau: Moldau, group: str, filled: str) -> None:
    done = moldau("group", "reset", group, "--to", "99", "--topic", filled)
    assert done.lines[0].split() == ["TOPIC", "PARTITION", "NOW", "NEW", "CHANGE", "END", "LAG", "AFTER", "REMARK"]
    assert done.lines[2].split()[:7] == [filled, "0", "2", "5", "+3", "5", "0"]
    assert "asked for 99, which is outside the log" in done.lines[2]
    assert done.lines[3].split()[:5] == [filled, "1", "-", "0", "new"]
    assert done.lines[-1] == "This is a preview: 2 of 2 would change, nothing did. Add --execute to do it."
    assert moldau("group", "reset", group, "--to", "3", "--execute").lines[-1] == (
        f"Reset 1 offset of group {group}; 1 changed."
    )


def test_offsets_from_a_file_and_for_a_group_to_come(moldau: Moldau, filled: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    plan.write_text(f"{filled},0,3\n{filled},1,0\n")
    fresh = f"fresh-{filled}"
    assert moldau("group", "reset", fresh, "--from-file", plan, "--topic", f"{filled}:0", "--execute").code == 0
    assert _committed(moldau, fresh) == {0: 3}
    assert moldau("group", "reset", f"{fresh}-2", "--to", "latest", "-t", filled, "--execute").code == 0
    assert _committed(moldau, f"{fresh}-2") == {0: 5, 1: 0}
    nothing = moldau("group", "reset", fresh, "--from-file", plan, "--topic", "other")
    assert "holds no offsets for group" in nothing.err


def test_resets_that_cannot_be(moldau: Moldau, group: str, filled: str) -> None:
    assert "There is no topic" in moldau("group", "reset", group, "--to", "end", "-t", filled + "x").err
    assert 'The partitions "' in moldau("group", "reset", group, "--to", "end", "-t", f"{filled}:9").err
    assert "is not a place to reset to" in moldau("group", "reset", group, "--to", "soon").err
    assert "no current committed offset" in moldau("group", "reset", group, "--shift-by", "1", "-t", f"{filled}:1").err
    assert moldau("group", "reset", group).code == 2
    assert moldau("group", "reset", group, "--to", "end", "--shift-by", "1").code == 2


def test_misspelt_groups_get_the_nearest_names(moldau: Moldau, group: str) -> None:
    for command in (("describe",), ("delete",), ("reset", "--to", "end"), ("describe", "--watch")):
        done = moldau("group", command[0], group + "x", *command[1:])
        assert (done.code, done.out) == (1, ""), command
        first, second = done.err.splitlines()
        assert first == f"Error: There is no group '{group}x'"
        assert second.startswith("Did you mean ")
        assert group in second
    assert moldau("group", "delete", group + "x", "--if-exists").code == 0


def test_deleting(moldau: Moldau, bootstrap: str, group: str, filled: str) -> None:
    zoo.commit(bootstrap, group, {(filled, 1): 0})
    done = moldau("group", "delete", group, "--topic", f"{filled}:1")
    assert done.out == f"Deleted the offsets of {group} for {filled}:1.\n"
    assert _committed(moldau, group) == {0: 2}
    assert moldau("group", "delete", group).out == f"Deleted group {group}.\n"
    assert moldau("group", "list", group, "-o", "json").out == "[]\n"


def test_completing_groups(moldau: Moldau, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = f"moldau group describe {group[:-3]}"
    for name, value in (("_MOLDAU_COMPLETE", "bash_complete"), ("COMP_WORDS", words), ("COMP_CWORD", "3")):
        monkeypatch.setenv(name, value)
    assert moldau().lines == [f"plain,{group}"]
    monkeypatch.setenv("MOLDAU_BOOTSTRAP", "localhost:1")
    assert moldau().out.strip() == ""


# What it is made of


def _view(committed: int, end: int) -> dict[str, object]:
    row = {"topic": "t", "partition": 0, "committed": committed, "end": end, "lag": end - committed}
    return {"group": "g", "state": "Stable", "members": [], "lag": end - committed, "partitions": [row]}


def test_rates_over_the_last_looks() -> None:
    rates = Rates(window=10)
    assert rates.add(0, _view(0, 100))["readRate"] is None
    second = rates.add(2, _view(20, 110))
    assert (second["readRate"], second["writeRate"], second["secondsToCatchUp"]) == (10.0, 5.0, 18.0)
    for moment in range(3, 40):
        last = rates.add(moment, _view(20, 110))
    assert (last["readRate"], last["writeRate"], last["secondsToCatchUp"]) == (0.0, 0.0, None)
    assert rates.add(41, _view(110, 110))["secondsToCatchUp"] == 0.0


def test_a_long_table_ends_where_the_screen_does() -> None:
    from rich.console import Console

    view = _view(0, 10)
    rows = [{"topic": "t", "partition": n, "committed": 0, "end": n, "lag": n} for n in range(50)]
    seen = Rates().add(0, {**view, "partitions": rows})
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(frame(seen, 3))
    text = console.export_text()
    assert "… and 47 partitions more" in text
    assert [line.split()[1] for line in text.splitlines() if line.startswith("t ")] == ["49", "48", "47"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(5, "5 s"), (90, "2 min"), (7200, "2.0 h"), (200_000, "2 days"), (172_900, "2 days")]
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1S", 1000),
        ("P1D", 86_400_000),
        ("P1DT2H30M4.5S", 95_404_500),
        ("-PT1M", -60_000),
        ("PT-1M", -60_000),
        ("pt0.001s", 1),
        ("PT-0,5S", -500),
    ],
)
def test_java_durations(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "1D", "P1H", "PT1D", "P1DT", "15m", "P1.5D"])
def test_no_java_durations(text: str) -> None:
    with pytest.raises(ValueError, match="Duration"):
        parse_duration(text)


def test_java_date_times() -> None:
    assert parse_date_time("1970-01-01T00:00:01.500") == 1500
    assert parse_date_time("1970-01-01T01:00:01.500Z") == 3_601_500
    assert parse_date_time("1970-01-01T01:00:00.000+01:00") == 0
    assert parse_date_time("1970-01-01T01:00:00.000-0130") == 9_000_000
    for wrong in ("1970-01-01", "1970-01-01T00:00", "1970-13-01T00:00:00.000", "soon"):
        with pytest.raises(ValueError, match="Unparseable date"):
            parse_date_time(wrong)


def test_moments() -> None:
    now = time.time() * 1000
    assert abs(parse_moment("PT1H") - (now - 3_600_000)) < 5000
    assert abs(parse_moment("2h") - (now - 7_200_000)) < 5000
    assert parse_moment("@5") == 5
    with pytest.raises(CliError):
        parse_moment("later")


def test_topics_with_partitions() -> None:
    assert parse_partitions(["a:0,2", "b", "c:1"]) == ([("a", 0), ("a", 2), ("c", 1)], ["b"])
    for wrong in ("a:", ":1", "a:x", "a:1:2"):
        with pytest.raises(CliError):
            parse_partitions([wrong])


@given(st.integers(1, 2**40))
def test_ranges_name_exactly_their_numbers(bits: int) -> None:
    numbers = [index for index in range(41) if bits >> index & 1]
    named: list[int] = []
    for part in ranges_text(numbers).split(","):
        low, _, high = part.partition("-")
        named += range(int(low), int(high or low) + 1)
    assert named == numbers


def test_topics_kafka_streams_makes() -> None:
    for name in (
        "app-store-changelog",
        "app-x-repartition",
        "app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic",
        "app-y-subscription-response-topic",
    ):
        assert is_internal_name(name, "app")
        assert not is_internal_name(name, "ap")
    assert not is_internal_name("app-input", "app")
