"""docs/streams.md runs as it stands: every block of Python in order, and what it prints is what the page shows."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "streams.md"

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def test_the_page_runs_as_it_stands(spark: Any) -> None:
    blocks = re.findall(r"^```(python|text)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 7
    names: dict[str, Any] = {"__name__": "page"}
    printed = ""
    for number, (kind, text) in enumerate(blocks):
        if kind == "text":
            assert printed.strip() == text.strip(), f"what block {number - 1} prints is not what the page shows"
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(text, f"block {number} of {PAGE.name}", "exec"), names)
        printed = out.getvalue()
