"""docs/values.md runs as it stands: every block of Python in order, and what it prints is what the page shows."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from moldau.spark.values.registry import forget_schemas
from moldau.testing import Cluster
from tests.spark.values_registry import registry_server

PAGE = Path(__file__).parents[2] / "docs" / "values.md"
TOPICS = ("orders", "orders.dead", "totals", "avro-orders", "proto-orders", "counts")

pytestmark = pytest.mark.timeout(600)


@pytest.mark.long
def test_the_page_runs_as_it_stands(spark: Any, tmp_path: Path) -> None:
    blocks = re.findall(r"^```(python|text)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 15
    names: dict[str, Any] = {"checkpoint": str(tmp_path)}
    printed = ""
    forget_schemas()
    # A node of its own: the names of a page's topics are everybody's.
    with Cluster() as cluster, registry_server() as registry:
        for topic in TOPICS:
            cluster.create_topic(topic)
        for number, (kind, text) in enumerate(blocks):
            if kind == "text":
                assert printed.strip() == text.strip(), f"what block {number - 1} prints is not what the page shows"
                continue
            code = text.replace("localhost:9092", cluster.bootstrap_servers)
            code = code.replace("http://localhost:8081", registry.url)
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(code, f"block {number} of {PAGE.name}", "exec"), names)
            printed = out.getvalue()
