"""Tables, JSON and plain text from the same rows.

A command describes its columns once; this file decides how they look. Tables are for eyes, plain text (values
separated by tabs, no header) for shell scripts, JSON for programs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FORMATS = ("table", "json", "plain")
# Wide enough that nothing is cut or folded when the output is not a terminal.
UNLIMITED_WIDTH = 100_000


@dataclass(slots=True, frozen=True)
class Column:
    """One column: its key in a row, its heading, and whether it is a number or takes what space is left."""

    key: str
    title: str
    number: bool = False
    style: str | None = None


def show_rows(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[Column],
    output: str,
    *,
    title: str | None = None,
    empty: str = "Nothing to show.",
) -> None:
    """Print rows. JSON gets every key of a row, the other forms only the columns."""
    if output == "json":
        show_json(list(rows))
    elif output == "plain":
        for row in rows:
            print("\t".join(text_of(row.get(column.key)) for column in columns))
    elif rows:
        _show_table(rows, columns, title)
    else:
        print(empty)


def show_facts(facts: Mapping[str, Any], output: str) -> None:
    """Print names and values, one a line."""
    if output == "json":
        show_json(dict(facts))
    elif output == "plain":
        for name, value in facts.items():
            print(f"{name}\t{text_of(value)}")
    else:
        width = max((len(name) for name in facts), default=0)
        for name, value in facts.items():
            print(f"{name:<{width}}  {text_of(value)}")


def show_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def text_of(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(text_of(each) for each in value)
    if isinstance(value, dict):
        return ",".join(f"{name}={text_of(each)}" for name, each in value.items())
    return str(value)


def _show_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], title: str | None) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, width=None if sys.stdout.isatty() else UNLIMITED_WIDTH)
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(
            column.title, justify="right" if column.number else "left", style=column.style, overflow="fold"
        )
    for row in rows:
        table.add_row(*(_escaped(text_of(row.get(column.key))) for column in columns))
    console.print(table)


def _escaped(text: str) -> str:
    """Square brackets in data are not markup."""
    return text.replace("[", "\\[")


def bytes_text(count: int | float) -> str:
    """A size for people."""
    if count < 0:
        return "-"
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def time_text(milliseconds: int) -> str:
    from datetime import datetime

    if milliseconds < 0:
        return "-"
    return datetime.fromtimestamp(milliseconds / 1000).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
