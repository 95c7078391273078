"""One node for Kafka's Java programs, with topics enough for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.testing import Cluster
from tests.interop.programs import java_program


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The long versions run only when they are asked for by their marker (make programs)."""
    if "programs" in config.option.markexpr:
        return
    asked = [item for item in items if item.get_closest_marker("programs") is None]
    if len(asked) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in asked])
        items[:] = asked


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    reason = java_program.why_not()
    if reason is not None:
        pytest.skip(reason)
    settings = {
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        "group.streams.initial.rebalance.delay.ms": "500",
    }
    with Cluster(settings) as cluster:
        yield cluster
