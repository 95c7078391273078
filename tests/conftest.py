"""Fixtures that several rooms share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

# These compare as well, and shall show what differs.
pytest.register_assert_rewrite("tests.clients.admin_tour", "tests.clients.java_tools", "tests.clients.kcat")

from tests.clients import java_tools as java  # noqa: E402


@pytest.fixture(scope="session")
def java_tools() -> Iterator[java.JavaTools]:
    """Apache Kafka's Java programs in one virtual machine for the whole session."""
    reason = java.why_not()
    if reason is not None:
        pytest.skip(reason)
    with java.JavaTools() as tools:
        yield tools
