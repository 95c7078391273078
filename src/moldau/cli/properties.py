"""Java's properties files as client settings: reading them, with errors that name the file.

Only reading; the server's own configuration is `moldau.config`'s business.
"""

from __future__ import annotations

from moldau.cli.errors import CliError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def load(path: str) -> dict[str, str]:
    """The settings of a properties file; a later line wins over an earlier one."""
    try:
        with open(path, encoding="utf-8") as file:
            return parse(file.read())
    except OSError as error:
        raise CliError(f"Cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CliError(f"Cannot read {path}: it is not text in UTF-8") from None


def parse(text: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        settings[_unescape(key)] = _unescape(value)
    return settings


def _logical_lines(text: str) -> list[str]:
    """Lines with continuations joined and comments and empty lines left out."""
    lines: list[str] = []
    pending: str | None = None
    for raw in text.splitlines():
        stripped = raw.lstrip(" \t\f")
        if pending is None and (not stripped or stripped[0] in "#!"):
            continue
        line = stripped if pending is None else pending + stripped
        trailing_backslashes = len(line) - len(line.rstrip("\\"))
        if trailing_backslashes % 2:
            pending = line[:-1]
        else:
            lines.append(line)
            pending = None
    if pending is not None:
        lines.append(pending)
    return lines


def _split(line: str) -> tuple[str, str]:
    """The key ends at the first unescaped '=', ':' or blank; one '=' or ':' between blanks belongs to the separator."""
    index = 0
    while index < len(line) and line[index] not in "=: \t\f":
        index += 2 if line[index] == "\\" else 1
    key = line[:index]
    rest = line[index:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return key, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    index = 0
    while index < len(text):
        char = text[index]
        if char != "\\" or index + 1 == len(text):
            out.append(char)
            index += 1
            continue
        escaped = text[index + 1]
        if escaped == "u":
            digits = text[index + 2 : index + 6]
            try:
                out.append(chr(int(digits, 16)))
            except ValueError:
                raise CliError(f"Malformed \\u escape in '{text}'") from None
            index += 6
        else:
            out.append(_ESCAPES.get(escaped, escaped))
            index += 2
    return "".join(out)
