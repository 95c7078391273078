"""The examples of docs/spark.md, one after the other, as a reader would type them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from moldau.spark.options import SINK_OPTIONS, SOURCE_OPTIONS
from moldau.testing import Cluster
from tests.spark.world import read_values, rows, settings_for, write_settings

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ORDERS = ["tea", "coffee", "tea"]

pytestmark = pytest.mark.timeout(600)


@pytest.mark.long
def test_the_examples_run(spark: Any, fresh_moldau_cluster: Cluster, tmp_path: Path) -> None:
    from moldau.spark.task_writing import TaskWriter

    servers = fresh_moldau_cluster.bootstrap_servers
    for topic in ("orders", "totals", "shouted", "counts"):
        fresh_moldau_cluster.create_topic(topic, 2)
    client = settings_for(servers)
    TaskWriter(write_settings(client, "orders"), 0).write_at_least_once(rows(ORDERS, keys=ORDERS))
    examples = EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))
    assert len(examples) == 6
    names: dict[str, Any] = {"spark": spark, "servers": servers, "checkpoint": str(tmp_path / "checkpoint")}
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), names)
    assert read_values(client, "totals", 2) == ["1", "2"]
    assert read_values(client, "shouted", 2) == ["COFFEE", "TEA", "TEA"]
    assert names["shouted"].count() == len(ORDERS)
    assert read_values(client, "counts", 2) == ["1", "2"]


def test_every_option_is_in_the_tables() -> None:
    text = PAGE.read_text(encoding="utf-8")
    missing = [name for name in (*SOURCE_OPTIONS, *SINK_OPTIONS) if f"`{name}`" not in text]
    assert missing == []
