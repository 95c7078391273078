"""JAAS configurations, in which Kafka keeps the users of PLAIN and a node's own name and password.

Reads the text of `sasl.jaas.config` and whole files with sections (`KafkaServer { ... };`). It only reads what is
written: which options mean something is decided by whoever asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*|\#[^\n]*|/\*.*?\*/)|"(?P<quoted>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'"""
    r"""|(?P<mark>[{};=])|(?P<word>[^\s{};="']+)""",
    re.DOTALL,
)
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_USER: Final = "user_"


class _Mark(str):
    """One of the characters that divide a configuration; the same character in quotes is only a text."""

    __slots__ = ()


class JaasError(ValueError):
    """A text that is no JAAS configuration. Says nothing of what is in it: that may be a password."""


class LoginModule(NamedTuple):
    """One module of a configuration, with its options."""

    name: str
    options: Mapping[str, str]

    @property
    def users(self) -> dict[str, str]:
        """Name -> password of those who may log in with PLAIN."""
        return {name.removeprefix(_USER): text for name, text in self.options.items() if name.startswith(_USER)}

    def is_for(self, mechanism: str) -> bool:
        """Whether this is the module of the mechanism, in Kafka's or in anybody's package."""
        kind = mechanism.partition("-")[0].lower()
        return self.name.rpartition(".")[2].lower() == f"{kind}loginmodule"


def parse_modules(text: str) -> list[LoginModule]:
    """The modules of a `sasl.jaas.config`."""
    tokens = _tokens(text)
    modules = []
    while (name := next(tokens, None)) is not None:
        modules.append(_module(name, tokens))
    if not modules:
        raise JaasError("there is no login module in it")
    return modules


def parse_sections(text: str) -> dict[str, list[LoginModule]]:
    """Name -> modules of the sections of a file."""
    tokens = _tokens(text)
    sections: dict[str, list[LoginModule]] = {}
    while (name := next(tokens, None)) is not None:
        _expect(tokens, "{")
        modules = sections.setdefault(name, [])
        while not _is(module := next(tokens, None), "}"):
            if module is None:
                raise JaasError("a section does not end with '}'")
            modules.append(_module(module, tokens))
        _expect(tokens, ";")
    return sections


def _module(name: str, tokens: Iterator[str]) -> LoginModule:
    flag = next(tokens, None)
    if flag is None or flag.lower() not in _FLAGS:
        raise JaasError(f"after the name of a module there must be one of {', '.join(sorted(_FLAGS))}")
    options: dict[str, str] = {}
    while not _is(option := next(tokens, None), ";"):
        if option is None:
            raise JaasError("a module does not end with a semicolon")
        _expect(tokens, "=")
        value = next(tokens, None)
        if value is None or _is(value, ";"):
            raise JaasError("an option has no value")
        options[option] = value
    return LoginModule(name, options)


def _expect(tokens: Iterator[str], mark: str) -> None:
    if not _is(next(tokens, None), mark):
        raise JaasError(f"a '{mark}' is missing")


def _is(token: str | None, mark: str) -> bool:
    return isinstance(token, _Mark) and token == mark


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError("a quotation mark is not closed")
        position = match.end()
        quoted = match["single"] if match["quoted"] is None else match["quoted"]
        if quoted is not None:
            yield re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        elif match["mark"] is not None:
            yield _Mark(match[0])
        elif match["space"] is None:
            yield match[0]
