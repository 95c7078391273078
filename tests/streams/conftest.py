"""Fixtures: topics, and drivers on the Spark session of all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: make setup")
pytest.importorskip("numba", reason="Spark's extra is not installed: make setup")

from tests.spark.conftest import new_topic  # noqa: F401 - a fixture that is used here too


@pytest.fixture
def start(spark: Any) -> Iterator[Callable[..., Any]]:
    """Starts a pipeline in a driver that is closed when the test ends."""
    from moldau.streams.testing import Driver

    drivers = []

    def run(pipeline: Callable[..., Any], **settings: Any) -> Any:
        driver = Driver(spark, **settings)
        drivers.append(driver)
        return driver.run(pipeline)

    yield run
    for each in drivers:
        each.close()
