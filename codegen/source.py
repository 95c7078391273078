"""Lines of Python with indentation, and the names that one generated function uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from codegen.specification import Specification, Versions


class Source:
    """Collects lines; blocks indent. A block that stays empty vanishes together with its header."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0

    def add(self, *lines: str) -> None:
        self.lines.extend("    " * self._depth + line if line else "" for line in lines)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.add(header)
        before = len(self.lines)
        self._depth += 1
        yield
        self._depth -= 1
        if len(self.lines) == before:
            self.lines.pop()

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


class FunctionScope:
    """What the body of one generated function needs decided once: version flags, and names not used twice."""

    def __init__(self, specification: Specification, taken: set[str]) -> None:
        self.specification = specification
        self.flags: dict[str, str] = {}
        self._taken = set(taken)

    def unique(self, name: str) -> str:
        candidate, number = name, 1
        while candidate in self._taken:
            number += 1
            candidate = f"{name}_{number}"
        self._taken.add(candidate)
        return candidate

    def flexible(self, context: Versions, override: Versions | None = None) -> bool | None:
        """Whether the compact encodings are used: always, never, or (None) as the flag `flexible` says."""
        flexible = self.specification.flexible if override is None else override
        if not flexible & context:
            return False
        if flexible.covers(context):
            return True
        assert override is None, "a field's own flexible versions must not depend on the version"
        self.flags["flexible"] = f"version >= {flexible.low}"
        return None

    def condition(self, versions: Versions, context: Versions) -> str | None:
        """An expression that tells whether the version is one of these; None when the context already says yes."""
        versions = versions & context
        assert versions, "the caller handles fields that cannot be there"
        if versions == context:
            return None
        if versions.high == context.high:
            name, test = f"since_{versions.low}", f"version >= {versions.low}"
            if versions.low == self.specification.flexible.low:
                name = "flexible"
        elif versions.low == context.low:
            name, test = f"until_{versions.high}", f"version <= {versions.high}"
        else:
            name, test = f"from_{versions.low}_to_{versions.high}", f"{versions.low} <= version <= {versions.high}"
        self.flags[name] = test
        return name

    def flag_lines(self) -> list[str]:
        return [f"{name} = {test}" for name, test in sorted(self.flags.items())]
