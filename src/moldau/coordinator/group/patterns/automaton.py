"""Matches names against a parsed expression, character by character, in time that grows with the name only.

The expression becomes an automaton that may be in several states at once. The sets of states that come up are
remembered, so that most characters cost one lookup. Nothing that a client writes can make a match take long.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from moldau.coordinator.group.patterns.character_classes import WORD
from moldau.coordinator.group.patterns.syntax import (
    At,
    Choice,
    InvalidPattern,
    Node,
    OneOf,
    Repeat,
    Sequence,
    Where,
    parse,
)

# Expressions that need more states are refused: `(a{1000}){1000}` would need a million.
_MOST_STATES: Final = 10_000
# How many states, in all sets together, are remembered; then remembering begins anew.
_MOST_REMEMBERED: Final = 50_000

_CONSUME, _SPLIT, _PLACE, _ACCEPT = range(4)
_BEFORE_FIRST, _AFTER_WORD, _AFTER_OTHER = range(3)
_END: Final = ""


class TopicPattern:
    """One expression, ready to match. Raises InvalidPattern when it is none."""

    __slots__ = ("_accept", "_moves", "_remembered", "_start", "_states", "expression")

    def __init__(self, expression: str) -> None:
        self.expression = expression
        # (kind, a mask or a place, next state, other next state)
        self._states: list[tuple[int, int | Where, int, int]] = []
        self._accept = self._add(_ACCEPT, 0, 0)
        self._start = (frozenset({self._build(parse(expression), self._accept)}), _BEFORE_FIRST)
        self._moves: dict[tuple[frozenset[int], int], dict[str, tuple[frozenset[int], int]]] = {}
        self._remembered = 0

    @property
    def size(self) -> int:
        """How many states there are: a character costs no more than to look at each."""
        return len(self._states)

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        moves = self._moves
        at = self._start
        for c in name:
            known = moves.get(at)
            if known is None:
                self._remembered += len(at[0])
                if self._remembered > _MOST_REMEMBERED:
                    moves.clear()
                    self._remembered = 0
                known = moves[at] = {}
            following = known.get(c)
            if following is None:
                following = known[c] = self._move(at, c)
            at = following
            if not at[0]:
                return False
        return self._accept in self._reachable(*at, _END)

    # ---- moving

    def _move(self, at: tuple[frozenset[int], int], c: str) -> tuple[frozenset[int], int]:
        bit = 1 << ord(c)
        states = self._states
        following: set[int] = set()
        for number in self._reachable(*at, c):
            kind, mask, to, _ = states[number]
            if kind == _CONSUME and isinstance(mask, int) and mask & bit:
                following.add(to)
        return frozenset(following), _AFTER_WORD if WORD & bit else _AFTER_OTHER

    def _reachable(self, core: frozenset[int], before: int, following: str) -> set[int]:
        """Every state that can be entered here without reading a character."""
        word_follows = bool(following) and bool(WORD >> ord(following) & 1)
        boundary = (before == _AFTER_WORD) != word_follows
        holds = {
            Where.BEGIN: before == _BEFORE_FIRST,
            Where.END: not following,
            Where.WORD_BOUNDARY: boundary,
            Where.NO_WORD_BOUNDARY: not boundary,
        }
        seen: set[int] = set()
        waiting = list(core)
        while waiting:
            number = waiting.pop()
            if number in seen:
                continue
            seen.add(number)
            kind, what, to, other = self._states[number]
            if kind == _SPLIT:
                waiting += (to, other)
            elif kind == _PLACE and isinstance(what, Where) and holds[what]:
                waiting.append(to)
        return seen

    # ---- building, from the end to the beginning

    def _add(self, kind: int, what: int | Where, to: int, other: int = 0) -> int:
        if len(self._states) >= _MOST_STATES:
            raise InvalidPattern("expression too large")
        self._states.append((kind, what, to, other))
        return len(self._states) - 1

    def _build(self, node: Node, to: int) -> int:
        """The state from which this node leads to `to`."""
        match node:
            case OneOf(mask):
                return self._add(_CONSUME, mask, to)
            case At(where):
                return self._add(_PLACE, where, to)
            case Sequence(parts):
                for part in reversed(parts):
                    to = self._build(part, to)
                return to
            case Choice(parts):
                first = self._build(parts[-1], to)
                for part in reversed(parts[:-1]):
                    first = self._add(_SPLIT, 0, self._build(part, to), first)
                return first
            case Repeat(part, least, most):
                return self._build_repeat(part, least, most, to)

    def _build_repeat(self, part: Node, least: int, most: int | None, to: int) -> int:
        if most is None:
            loop = self._add(_SPLIT, 0, to, to)
            self._states[loop] = (_SPLIT, 0, self._build(part, loop), to)
            to = loop
        else:
            end = to
            for _ in range(most - least):
                to = self._add(_SPLIT, 0, self._build(part, to), end)
        for _ in range(least):
            to = self._build(part, to)
        return to


@lru_cache(maxsize=256)
def topic_pattern(expression: str) -> TopicPattern:
    """The pattern of an expression; the same expressions come again and again."""
    return TopicPattern(expression)
