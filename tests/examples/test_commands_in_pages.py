"""Every `moldau` command in the README and in docs/ is one that the command line accepts, option by option."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from moldau.cli.app import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[list[str]]:
    """The words behind `moldau` of every command in a page's blocks."""
    found = []
    for block in BLOCK.findall(page.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            if not re.match(r"(\$ )?(\S*/)?(moldau|echo|kafka-\S+) ", line):
                continue
            words = shlex.split(line.removeprefix("$ "), comments=True)
            at = [index for index, word in enumerate(words) if word.rpartition("/")[2] == "moldau"]
            # Only where a command can begin: at the start, and behind a pipe.
            found += [words[index + 1 :] for index in at if index == 0 or words[index - 1] == "|"]
    return found


def check(command: click.Command, words: list[str], context: click.Context) -> None:
    """Let click take the words apart and check them, and run nothing."""
    made = command.make_context(words[0] if words else None, words[1:], parent=context, resilient_parsing=False)
    if isinstance(command, click.Group):
        rest = [*made._protected_args, *made.args]
        _, below, _ = command.resolve_command(made, rest)
        assert below is not None, rest
        check(below, rest, made)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_is_accepted(page: Path) -> None:
    for words in commands(page):
        try:
            check(cli, ["moldau", *words], click.Context(cli))
        except click.ClickException as error:
            pytest.fail(f"{page.name}: moldau {shlex.join(words)}: {error.format_message()}")


def test_commands_are_found_and_mistakes_noticed() -> None:
    assert len(commands(ROOT / "README.md")) > 10
    with pytest.raises(click.NoSuchOption):
        check(cli, ["moldau", "run", "app.py", "--bootstrap", "x"], click.Context(cli))
    with pytest.raises(click.UsageError, match="There is no command 'topc'"):
        check(cli, ["moldau", "topc", "list"], click.Context(cli))
