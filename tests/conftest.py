"""Fixtures that several rooms share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings

from moldau import ports

# How long one example takes says something about the machine, nothing about the code. At a desk every run looks at
# other examples; where a run decides whether a change lands it looks at the same ones, and fails for the change alone.
settings.register_profile("moldau", deadline=None, derandomize=bool(os.environ.get("MOLDAU_SAME_EXAMPLES")))
settings.load_profile("moldau")

# These compare as well, and shall show what differs.
pytest.register_assert_rewrite("tests.clients.admin_tour", "tests.clients.java_tools", "tests.clients.kcat")

from tests.clients import java_tools as java  # noqa: E402
from tests.spark_session import spark  # noqa: E402, F401 - a fixture of three rooms

# Whether this is the wheel with its hot path compiled (`make native`) and not the sources.
COMPILED = not str(ports.__file__).endswith(".py")
# The first test that needs Apache's jars may have to fetch them.
JAVA_SECONDS_MAX = 900


def pytest_configure() -> None:
    if os.environ.get("MOLDAU_COMPILED") and not COMPILED:
        raise pytest.UsageError(f"this is not what was compiled, but {ports.__file__}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("java") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(JAVA_SECONDS_MAX))


@pytest.fixture(scope="session")
def java_tools() -> Iterator[java.JavaTools]:
    """Apache Kafka's Java programs in one virtual machine for the whole session."""
    reason = java.why_not()
    if reason is not None:
        pytest.skip(reason)
    with java.JavaTools() as tools:
        yield tools


@pytest.fixture
def monkeypatch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """pytest's own, which gives up where it would change nothing: compiled modules call each other directly."""
    replace = monkeypatch.setattr

    def setattr_or_skip(target: Any, *args: Any, **kwargs: Any) -> None:
        if COMPILED and _is_compiled(target):
            pytest.skip("calls between compiled modules cannot be replaced")
        replace(target, *args, **kwargs)

    monkeypatch.setattr = setattr_or_skip  # type: ignore[method-assign]
    return monkeypatch


def _is_compiled(target: object) -> bool:
    if isinstance(target, str):
        target = sys.modules.get(target.rpartition(".")[0])
    elif not isinstance(target, ModuleType):
        owner = target if isinstance(target, type) else type(target)
        target = sys.modules.get(owner.__module__)
    return str(getattr(target, "__file__", "")).endswith(".so")
