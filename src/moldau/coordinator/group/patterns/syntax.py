"""Reads a regular expression as RE2/J does, with the same things refused: look-around, back references, possessive
and nested repetition. Gives a tree; what it matches is decided by `automaton.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from moldau.coordinator.group.patterns.character_classes import (
    EVERYTHING,
    PERL,
    POSIX,
    folded,
    negated,
    single,
    span,
    unicode_class,
)


class InvalidPattern(Exception):
    """The expression is not one of RE2/J's; the message says why, in RE2/J's words where there are some."""


class Where(Enum):
    BEGIN = "begin"
    END = "end"
    WORD_BOUNDARY = "boundary"
    NO_WORD_BOUNDARY = "no boundary"


@dataclass(frozen=True, slots=True)
class OneOf:
    """Exactly one character of a set."""

    mask: int


@dataclass(frozen=True, slots=True)
class At:
    """Nothing, but only at certain places."""

    where: Where


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    part: Node
    least: int
    # None: as often as one likes.
    most: int | None


Node: TypeAlias = OneOf | At | Sequence | Choice | Repeat

EMPTY: Final = Sequence(())
_LARGEST_COUNT: Final = 1000
# Deeper expressions are refused, so that nobody can exhaust the stack.
_DEEPEST: Final = 100
_FLAGS: Final = "imsU"
_PLAIN_ESCAPES: Final = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_PLACES: Final = {"A": Where.BEGIN, "z": Where.END, "b": Where.WORD_BOUNDARY, "B": Where.NO_WORD_BOUNDARY}
_OCTAL: Final = "01234567"
_HEXADECIMAL: Final = "0123456789abcdefABCDEF"
_LAST_CHARACTER: Final = 0x10FFFF

_ESCAPE: Final = "invalid escape sequence"
_RANGE: Final = "invalid character class range"
_BRACKET: Final = "missing closing ]"
_PARENTHESIS: Final = "missing closing )"
_PERL_SYNTAX: Final = "invalid or unsupported Perl syntax"
_NAMED: Final = "invalid named capture"


def parse(expression: str) -> Node:
    parser = _Parser(expression)
    node = parser.choice(0, frozenset())
    if not parser.at_end:
        raise InvalidPattern("unexpected )")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._names: set[str] = set()

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._text)

    def _peek(self, length: int = 1) -> str:
        return self._text[self._at : self._at + length]

    def _next(self) -> str:
        found = self._text[self._at]
        self._at += 1
        return found

    def _skip(self, prefix: str) -> bool:
        if self._text.startswith(prefix, self._at):
            self._at += len(prefix)
            return True
        return False

    # ---- structure

    def choice(self, depth: int, flags: frozenset[str]) -> Node:
        """Up to the end, or to the parenthesis that closes this one; flags set here end here."""
        if depth > _DEEPEST:
            raise InvalidPattern("expression nests too deeply")
        branches: list[Node] = []
        parts: list[Node] = []
        repeatable = repeated = False
        while not self.at_end and self._peek() != ")":
            if self._skip("|"):
                branches.append(Sequence(tuple(parts)))
                parts = []
                repeatable = repeated = False
                continue
            count = self._repetition()
            if count is not None:
                if repeated:
                    raise InvalidPattern("invalid nested repetition operator")
                if not repeatable:
                    raise InvalidPattern("missing argument to repetition operator")
                parts[-1] = Repeat(parts[-1], *count)
                repeated = True
                continue
            # A brace that stands for itself cannot be repeated either, in RE2/J.
            repeated = self._peek() == "{"
            if self._peek(2) == "(?" and not self._is_named():
                changed = self._flags(flags)
                if not self._skip(":"):
                    self._next()
                    flags = changed
                    continue
                parts.append(self._group(depth, changed))
            elif self._skip("("):
                if self._skip("?"):
                    self._name()
                parts.append(self._group(depth, flags))
            elif self._skip("\\Q"):
                if not self._literally(parts, flags):
                    continue
            else:
                parts.append(self._atom(flags))
            repeatable = True
        branches.append(Sequence(tuple(parts)))
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def _group(self, depth: int, flags: frozenset[str]) -> Node:
        inner = self.choice(depth + 1, flags)
        if not self._skip(")"):
            raise InvalidPattern(_PARENTHESIS)
        return inner

    def _is_named(self) -> bool:
        return self._peek(4) == "(?P<" or self._peek(3) == "(?<"

    def _name(self) -> None:
        self._skip("P")
        self._next()
        end = self._text.find(">", self._at)
        if end < 0:
            raise InvalidPattern(_NAMED)
        name = self._text[self._at : end]
        if not name or not all(c.isascii() and (c.isalnum() or c == "_") for c in name):
            raise InvalidPattern(_NAMED)
        if name in self._names:
            raise InvalidPattern("duplicate capture group name")
        self._names.add(name)
        self._at = end + 1

    def _flags(self, flags: frozenset[str]) -> frozenset[str]:
        """The flags in force after `(?...`; stops in front of `)` or `:`."""
        self._at += 2
        adding, said = True, True
        while not self.at_end:
            c = self._peek()
            if c in ":)":
                if not said:
                    break
                return flags
            self._next()
            if c in _FLAGS:
                flags = flags | {c} if adding else flags - {c}
                said = True
            elif c == "-" and adding:
                adding = said = False
            else:
                break
        raise InvalidPattern(_PERL_SYNTAX)

    def _repetition(self) -> tuple[int, int | None] | None:
        """How often what stands before is to come; None (and nothing read) when that is not said here."""
        count: tuple[int, int | None]
        if self._skip("*"):
            count = (0, None)
        elif self._skip("+"):
            count = (1, None)
        elif self._skip("?"):
            count = (0, 1)
        else:
            counted = self._counted()
            if counted is None:
                return None
            count = counted
        # Whether it likes more or less does not matter: a name matches as a whole, or not.
        self._skip("?")
        return count

    def _counted(self) -> tuple[int, int | None] | None:
        if self._peek() != "{":
            return None
        end = self._text.find("}", self._at)
        if end < 0:
            return None
        low, comma, high = self._text[self._at + 1 : end].partition(",")
        if not _is_number(low) or (high and not _is_number(high)):
            return None
        self._at = end + 1
        # Long numbers are refused before they are read.
        if max(len(low), len(high)) > len(str(_LARGEST_COUNT)):
            raise InvalidPattern("invalid repeat count")
        least = int(low)
        most = int(high) if high else (None if comma else least)
        if least > _LARGEST_COUNT or (most is not None and not least <= most <= _LARGEST_COUNT):
            raise InvalidPattern("invalid repeat count")
        return least, most

    # ---- single characters

    def _atom(self, flags: frozenset[str]) -> Node:
        c = self._next()
        if c == "^":
            return At(Where.BEGIN)
        if c == "$":
            return At(Where.END)
        if c == ".":
            return OneOf(EVERYTHING if "s" in flags else negated(single(10)))
        if c == "[":
            return OneOf(self._class(flags))
        if c != "\\":
            return OneOf(_character(ord(c), flags))
        following = self._peek()
        if following and following in _PLACES:
            self._next()
            return At(_PLACES[following])
        known = self._escaped_class(flags)
        return OneOf(_character(self._escape(), flags) if known is None else known)

    def _literally(self, parts: list[Node], flags: frozenset[str]) -> bool:
        """Everything up to \\E as it stands; whether there was anything."""
        end = self._text.find("\\E", self._at)
        quoted = self._text[self._at :] if end < 0 else self._text[self._at : end]
        self._at = len(self._text) if end < 0 else end + 2
        parts += [OneOf(_character(ord(c), flags)) for c in quoted]
        return bool(quoted)

    def _escaped_class(self, flags: frozenset[str]) -> int | None:
        """The set that a backslash (already read) and what follows stand for; None for a single character."""
        c = self._peek()
        if c and c in PERL:
            self._next()
            return PERL[c]
        if c not in ("p", "P") or not c:
            return None
        self._next()
        negate = c == "P"
        if self._skip("{"):
            end = self._text.find("}", self._at)
            if end < 0:
                raise InvalidPattern(_RANGE)
            name = self._text[self._at : end]
            self._at = end + 1
        else:
            if self.at_end:
                raise InvalidPattern(_RANGE)
            name = self._next()
        if name.startswith("^"):
            name, negate = name[1:], not negate
        found = unicode_class(name)
        if found is None:
            raise InvalidPattern(_RANGE)
        found = folded(found) if "i" in flags else found
        return negated(found) if negate else found

    def _escape(self) -> int:
        """The character that a backslash (already read) and what follows stand for."""
        if self.at_end:
            raise InvalidPattern("trailing backslash at end of expression")
        c = self._next()
        if c in _PLAIN_ESCAPES:
            return _PLAIN_ESCAPES[c]
        if c in _OCTAL:
            return self._octal(c)
        if c == "x":
            return self._hexadecimal()
        if ord(c) < 128 and not c.isalnum():
            return ord(c)
        raise InvalidPattern(_ESCAPE)

    def _octal(self, digits: str) -> int:
        # A single digit other than zero would be a back reference.
        if digits != "0" and (self.at_end or self._peek() not in _OCTAL):
            raise InvalidPattern(_ESCAPE)
        while len(digits) < 3 and not self.at_end and self._peek() in _OCTAL:
            digits += self._next()
        return int(digits, 8)

    def _hexadecimal(self) -> int:
        if self._skip("{"):
            end = self._text.find("}", self._at)
            digits = self._text[self._at : end] if end >= 0 else ""
            self._at = end + 1
        else:
            digits = self._peek(2)
            if len(digits) < 2:
                raise InvalidPattern(_ESCAPE)
            self._at += 2
        if not digits or not all(c in _HEXADECIMAL for c in digits) or int(digits, 16) > _LAST_CHARACTER:
            raise InvalidPattern(_ESCAPE)
        return int(digits, 16)

    # ---- [classes]

    def _class(self, flags: frozenset[str]) -> int:
        negate = self._skip("^")
        mask = 0
        first = True
        while first or self._peek() != "]":
            first = False
            if self.at_end:
                raise InvalidPattern(_BRACKET)
            found = self._named_class()
            if found is None and self._peek() == "\\":
                self._next()
                found = self._escaped_class(flags)
                if found is None:
                    self._at -= 1
            mask |= self._range() if found is None else found
        self._next()
        mask = folded(mask) if "i" in flags else mask
        return negated(mask) if negate else mask

    def _named_class(self) -> int | None:
        """[:alpha:] and the like."""
        if self._peek(2) != "[:":
            return None
        end = self._text.find(":]", self._at + 2)
        if end < 0:
            return None
        name = self._text[self._at + 2 : end]
        self._at = end + 2
        negate = name.startswith("^")
        found = POSIX.get(name.removeprefix("^"))
        if found is None:
            raise InvalidPattern(_RANGE)
        return negated(found) if negate else found

    def _range(self) -> int:
        low = high = self._class_character()
        if self._peek() == "-" and self._peek(2) not in ("-", "-]"):
            self._next()
            high = self._class_character()
            if high < low:
                raise InvalidPattern(_RANGE)
        return span(low, high)

    def _class_character(self) -> int:
        if self.at_end:
            raise InvalidPattern(_BRACKET)
        return self._escape() if self._skip("\\") else ord(self._next())


def _character(code: int, flags: frozenset[str]) -> int:
    mask = single(code)
    return folded(mask) if "i" in flags else mask


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
