"""Typed access to parsed settings by key name.

One reader per Python type, so that `config.integer("num.partitions")` is an `int` to the type checker too. Asking for
an unknown key, or for a key as a type it does not have, is a bug of the caller and fails loudly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from moldau.config.types import ConfigValue


class TypedSettings(ABC):
    """The readers; a subclass says where a value comes from."""

    __slots__ = ()

    @abstractmethod
    def __getitem__(self, name: str) -> ConfigValue: ...

    def integer(self, name: str) -> int:
        """A SHORT, INT or LONG that is always set."""
        value = self[name]
        assert isinstance(value, int), f"{name} is not an integer: {value!r}"
        assert not isinstance(value, bool), f"{name} is a boolean"
        return value

    def optional_integer(self, name: str) -> int | None:
        """A SHORT, INT or LONG that may be unset."""
        return None if self[name] is None else self.integer(name)

    def decimal(self, name: str) -> float:
        """A DOUBLE."""
        value = self[name]
        assert isinstance(value, float), f"{name} is not a double: {value!r}"
        return value

    def flag(self, name: str) -> bool:
        """A BOOLEAN."""
        value = self[name]
        assert isinstance(value, bool), f"{name} is not a boolean: {value!r}"
        return value

    def text(self, name: str) -> str:
        """A STRING or CLASS that is always set."""
        value = self[name]
        assert isinstance(value, str), f"{name} is not text: {value!r}"
        return value

    def optional_text(self, name: str) -> str | None:
        """A STRING, CLASS or PASSWORD that may be unset."""
        return None if self[name] is None else self.text(name)

    def words(self, name: str) -> tuple[str, ...]:
        """A LIST that is always set, perhaps to nothing."""
        value = self[name]
        assert isinstance(value, tuple), f"{name} is not a list: {value!r}"
        return value

    def optional_words(self, name: str) -> tuple[str, ...] | None:
        """A LIST that may be unset."""
        return None if self[name] is None else self.words(name)
