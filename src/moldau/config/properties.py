"""Java .properties text, read and written exactly as Java does it.

server.properties, meta.properties and client settings are in this format. The functions take and give text or bytes;
opening files is the caller's work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

_BLANKS: Final = " \t\f"
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")
_WRITTEN: Final = {
    "\t": "\\t",
    "\n": "\\n",
    "\r": "\\r",
    "\f": "\\f",
    "\\": "\\\\",
    "=": "\\=",
    ":": "\\:",
    "#": "\\#",
    "!": "\\!",
}


class PropertiesError(ValueError):
    """Text that is no .properties text; the only way to fail is a broken Unicode escape."""


def read_properties(data: bytes) -> dict[str, str]:
    """The settings in the bytes of a file. A name that occurs twice has its last value.

    Such a file is UTF-8 or, as it was for Java's first decades, ISO-8859-1. Text in the latter with anything beyond
    ASCII is next to never valid UTF-8, so trying UTF-8 first reads both as they were meant.
    """
    try:
        return parse_properties(data.decode("utf-8"))
    except UnicodeDecodeError:
        return parse_properties(data.decode("iso-8859-1"))


def parse_properties(text: str) -> dict[str, str]:
    """The settings in a text. A name that occurs twice has its last value."""
    return dict(_split(line) for line in _logical_lines(text))


def format_properties(settings: Mapping[str, str], comments: Iterable[str] = ()) -> str:
    """The settings as text, one a line and in the order given, in ASCII only."""
    lines = [f"# {comment}" for comment in comments]
    lines += [f"{_escape(name, is_name=True)}={_escape(value, is_name=False)}" for name, value in settings.items()]
    return "".join(f"{line}\n" for line in lines)


def _logical_lines(text: str) -> Iterator[str]:
    """The lines that hold a setting, continuations joined, without leading blanks and comments.

    A line goes on below when it ends in an odd number of backslashes. A comment never does.
    """
    line = ""
    continued = False
    natural_lines = _natural_lines(text)
    for number, natural in enumerate(natural_lines, start=1):
        stripped = natural.lstrip(_BLANKS)
        if not line:
            if not natural and continued and number == len(natural_lines) and not text.endswith("\r\n"):
                break  # a lone backslash at the very end is, to Java, a setting with no name and no value
            if not stripped or stripped[0] in "#!":
                continued = False
                continue
        line += stripped
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if continued:
            line = line[:-1]
            continue
        yield line
        line = ""
    if line or continued:
        yield line


def _natural_lines(text: str) -> list[str]:
    # str.splitlines knows many more line ends than Java does.
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _split(line: str) -> tuple[str, str]:
    """Name and value: separated by the first =, : or blank that is not escaped, with blanks around it."""
    end = 0
    while end < len(line) and line[end] not in "=: \t\f":
        end += 2 if line[end] == "\\" else 1
    start = end
    while start < len(line) and line[start] in _BLANKS:
        start += 1
    if start < len(line) and line[start] in "=:":
        start += 1
        while start < len(line) and line[start] in _BLANKS:
            start += 1
    return _unescape(line[:end]), _unescape(line[start:])


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while (backslash := text.find("\\", position)) >= 0:
        parts.append(text[position:backslash])
        code = text[backslash + 1 : backslash + 2]
        position = backslash + 2
        if code == "u":
            digits = text[position : position + 4]
            if len(digits) != 4 or not _HEX_DIGITS.issuperset(digits):
                raise PropertiesError(f"Malformed \\uxxxx encoding: \\u{digits}")
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            parts.append(_ESCAPED.get(code, code))
    parts.append(text[position:])
    # Two escapes may be the halves of one character beyond the basic plane.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _escape(text: str, *, is_name: bool) -> str:
    written: list[str] = []
    for position, character in enumerate(text):
        if character == " ":
            written.append("\\ " if is_name or position == 0 else " ")
        elif character in _WRITTEN:
            written.append(_WRITTEN[character])
        elif " " <= character <= "~":
            written.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass")
            written += (f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))
    return "".join(written)
