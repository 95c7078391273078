"""SQL as text: words, strings and comments, cut into statements. It knows how Spark quotes, and nothing of grammar.

Statements keep their text exactly as it was written, so that Spark's own errors point at the right place.
"""

from __future__ import annotations

from dataclasses import dataclass

from moldau.pipeline.errors import PipelineError

WORD, STRING, NAME, SYMBOL = "word", "string", "name", "symbol"
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b"}


class SqlError(PipelineError):
    """A mistake in a SQL text, with the line it is in."""

    def __init__(self, message: str, line: int, hint: str | None = None) -> None:
        super().__init__(f"line {line}: {message}", hint)
        self.line = line


@dataclass(slots=True, frozen=True)
class Token:
    """A word or number, a string, a name in backquotes, or a single other character.

    `value` is what it means (without quotes), `start` and `end` where it is in the whole text.
    """

    kind: str
    value: str
    line: int
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        return self.kind == WORD and self.value.upper() in words

    def is_symbol(self, symbol: str) -> bool:
        return self.kind == SYMBOL and self.value == symbol


@dataclass(slots=True, frozen=True)
class Statement:
    """One statement: its own text, its tokens (which count in the whole text) and the line it begins in."""

    text: str
    tokens: tuple[Token, ...]
    line: int

    def slice(self, first: Token, last: Token) -> str:
        """The text from one token to another, both included."""
        begin = self.tokens[0].start
        return self.text[first.start - begin : last.end - begin]


def split_statements(text: str) -> list[Statement]:
    """The statements of a text, which a semicolon outside of quotes and comments ends.

    >>> [each.text for each in split_statements("SELECT ';' -- no; not here\\n; SELECT 2")]
    ["SELECT ';'", 'SELECT 2']
    """
    statements: list[Statement] = []
    current: list[Token] = []
    for token in tokenize(text):
        if not token.is_symbol(";"):
            current.append(token)
        elif current:
            statements.append(_statement(text, current))
            current = []
    if current:
        statements.append(_statement(text, current))
    return statements


def _statement(text: str, tokens: list[Token]) -> Statement:
    return Statement(text[tokens[0].start : tokens[-1].end], tuple(tokens), tokens[0].line)


def tokenize(text: str) -> list[Token]:
    """The tokens of a text; white space and comments are left out."""
    tokens: list[Token] = []
    at, line = 0, 1
    while at < len(text):
        character = text[at]
        end = _skipped(text, at, line)
        if end > at:
            pass
        elif character in "'\"`":
            raw = bool(tokens) and tokens[-1].end == at and tokens[-1].is_word("R")
            value, end = _quoted(text, at, line, raw=raw)
            tokens.append(Token(NAME if character == "`" else STRING, value, line, at, end))
        elif character.isalnum() or character == "_":
            end = at + 1
            while end < len(text) and (text[end].isalnum() or text[end] == "_"):
                end += 1
            tokens.append(Token(WORD, text[at:end], line, at, end))
        else:
            end = at + 1
            tokens.append(Token(SYMBOL, character, line, at, end))
        line += text.count("\n", at, end)
        at = end
    return tokens


def _skipped(text: str, at: int, line: int) -> int:
    """The end of the white space or comment that begins here; the same place when none does."""
    if text[at].isspace():
        return at + 1
    if text.startswith("--", at):
        end = text.find("\n", at)
        return len(text) if end < 0 else end
    if not text.startswith("/*", at):
        return at
    depth, end = 1, at + 2
    while depth:
        opening, closing = text.find("/*", end), text.find("*/", end)
        if closing < 0:
            raise SqlError("this comment is never closed: its */ is missing", line)
        depth += 1 if 0 <= opening < closing else -1
        end = (opening if 0 <= opening < closing else closing) + 2
    return end


def _quoted(text: str, at: int, line: int, *, raw: bool) -> tuple[str, int]:
    """What stands between quotes, and where it ends. A doubled quote is one; strings have escapes, names do not."""
    quote = text[at]
    escapes = quote != "`" and not raw
    found: list[str] = []
    end = at + 1
    while end < len(text):
        character = text[end]
        if character == "\\" and escapes and end + 1 < len(text):
            found.append(_ESCAPES.get(text[end + 1], text[end + 1]))
            end += 2
        elif character != quote:
            found.append(character)
            end += 1
        elif text.startswith(quote * 2, end) and not raw:
            found.append(quote)
            end += 2
        else:
            return "".join(found), end + 1
    raise SqlError(f"this {quote} is never closed", line)
