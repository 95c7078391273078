"""Fixtures that several rooms share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients import java_tools as java


@pytest.fixture(scope="session")
def java_tools() -> Iterator[java.JavaTools]:
    """Apache Kafka's Java programs in one virtual machine for the whole session."""
    reason = java.why_not()
    if reason is not None:
        pytest.skip(reason)
    with java.JavaTools() as tools:
        yield tools
