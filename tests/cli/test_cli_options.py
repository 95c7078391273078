"""The option parser of Kafka's commands: what scripts give them must mean here what it means there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli.kafka._options import HelpShown, OptionError, OptionParser, Options, integer


def parser() -> OptionParser:
    made = OptionParser("kafka-thing", "Does a thing.")
    made.connection()
    made.flag("list", "List.")
    made.flag("describe", "Describe.")
    made.value("topic", "NAME", "The topic.")
    made.value("topic-id", "UUID", "Its id.")
    made.value("time", "TIME", "When.", default="latest")
    made.value("partitions", "N", "How many.", convert=integer)
    made.value("codec", "CODEC", "Which.", optional=True)
    made.value("delete-config", "A,B", "What.", separator=",")
    return made


def parse(*argv: str) -> Options:
    return parser().parse(argv)


@pytest.mark.parametrize(
    "argv",
    [
        ("--topic", "a", "--list"),
        ("--topic=a", "--list"),
        ("-topic", "a", "-list"),
        ("--list", "--topic", "a"),
        ("stray", "--topic", "a", "--list"),
    ],
)
def test_every_way_to_write_an_option(argv: tuple[str, ...]) -> None:
    options = parse(*argv)
    assert options.value("topic") == "a"
    assert options.has("list")
    assert not options.has("describe")


def test_a_value_may_look_like_an_option() -> None:
    assert parse("--time", "-1").value("time") == "-1"
    assert parse("--topic", "--list").value("topic") == "--list"
    assert parse("--time=").value("time") == ""


def test_defaults_and_numbers() -> None:
    options = parse("--partitions", "3")
    assert options.value("partitions") == 3
    assert options.value("time") == "latest"
    assert options.value("topic") is None


def test_an_exact_name_wins_over_a_longer_one_and_prefixes_work_when_they_are_clear() -> None:
    assert parse("--topic", "a").value("topic") == "a"
    assert parse("--topic-i", "x").value("topic-id") == "x"
    assert parse("--bootstrap", "h:1").value("bootstrap-server") == "h:1"
    with pytest.raises(OptionError, match="could mean any of: delete-config, describe"):
        parse("--de")


def test_an_optional_value_is_taken_only_when_there_is_one() -> None:
    assert parse("--codec", "lz4").value("codec") == "lz4"
    for argv in (("--codec",), ("--codec", "--list")):
        options = parse(*argv)
        assert options.has("codec")
        assert options.value("codec") is None


def test_repeated_and_separated_values_keep_their_order() -> None:
    options = parse("--delete-config", "a,b", "--delete-config", "c")
    assert options.values("delete-config") == ["a", "b", "c"]
    assert [name for name, _ in parse("--list", "--topic", "x", "--describe").given] == ["list", "topic", "describe"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--nonsense",), "nonsense is not a recognized option"),
        (("--topic",), "Option topic requires an argument"),
        (("--partitions", "many"), "Cannot parse argument 'many' of option partitions"),
    ],
)
def test_wrong_command_lines_are_named(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse(*argv)
    assert refused.value.message == message
    assert "kafka-thing --help" in (refused.value.hint or "")


def test_one_value_is_asked_for_but_two_were_given() -> None:
    with pytest.raises(OptionError, match="Found multiple arguments for option topic"):
        parse("--topic", "a", "--topic", "b").value("topic")


def test_required_and_excluded_options() -> None:
    options = parse("--list", "--describe")
    with pytest.raises(OptionError, match=r'Missing required argument "\[topic\]"'):
        options.require("list", "topic")
    with pytest.raises(OptionError, match=r'"\[list\]" can\'t be used with option "\[describe\]"'):
        options.forbid("list", "topic", "describe")


def test_help_and_version_answer_and_end(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(HelpShown):
        parse("--help")
    shown = capsys.readouterr().out
    assert "--topic-id UUID" in shown
    assert "(default: latest)" in shown
    with pytest.raises(HelpShown):
        parse("--version")
    assert capsys.readouterr().out.startswith("4.3.1 ")


@given(st.lists(st.tuples(st.sampled_from(["topic", "time", "topic-id"]), st.text(max_size=8)), max_size=6))
def test_whatever_the_values_are_they_come_back_in_order(pairs: list[tuple[str, str]]) -> None:
    spaced = parse(*(word for name, value in pairs for word in (f"--{name}", value)))
    joined = parse(*(f"--{name}={value}" for name, value in pairs))
    assert spaced.given == joined.given == pairs
