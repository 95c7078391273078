"""Lines of text as records: headers, key and value by separators, the way Kafka's console producer reads them.

Works on bytes throughout, so that a value that is not UTF-8 arrives as it was.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from moldau.cli.errors import CliError


@dataclass(slots=True)
class LineFormat:
    parse_key: bool = False
    key_separator: bytes = b"\t"
    parse_headers: bool = False
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    ignore_error: bool = False
    null_marker: bytes | None = None

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> LineFormat:
        """Kafka's reader properties: parse.key, key.separator and so on."""

        def flag(name: str) -> bool:
            return properties.get(name, "false").strip().lower() == "true"

        def text(name: str, default: str) -> bytes:
            return properties.get(name, default).encode()

        marker = properties.get("null.marker")
        form = LineFormat(
            parse_key=flag("parse.key"),
            key_separator=text("key.separator", "\t"),
            parse_headers=flag("parse.headers"),
            headers_delimiter=text("headers.delimiter", "\t"),
            headers_separator=text("headers.separator", ","),
            headers_key_separator=text("headers.key.separator", ":"),
            ignore_error=flag("ignore.error"),
            null_marker=None if marker is None else marker.encode(),
        )
        form.check()
        return form

    def check(self) -> None:
        """Separators that are equal could not be told apart."""
        names = {
            "headers.delimiter": self.headers_delimiter,
            "headers.separator": self.headers_separator,
            "headers.key.separator": self.headers_key_separator,
        }
        pairs = [
            ("headers.delimiter", "headers.separator"),
            ("headers.delimiter", "headers.key.separator"),
            ("headers.separator", "headers.key.separator"),
        ]
        for one, other in pairs:
            if names[one] == names[other]:
                raise CliError(f"{one} and {other} may not be equal")
        for name, value in {"key.separator": self.key_separator, **names}.items():
            if value == self.null_marker:
                raise CliError(f"null.marker and {name} may not be equal")


@dataclass(slots=True)
class LineRecord:
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]


class LineParser:
    """Turns lines into records; a line that lacks a separator is an error that names it, unless told to ignore it."""

    def __init__(self, form: LineFormat) -> None:
        self.form = form
        self.line_number = 0
        self._split_headers = re.compile(form.headers_separator)

    def parse(self, line: bytes) -> LineRecord:
        self.line_number += 1
        form = self.form
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        headers, start = self._take(form.parse_headers, line, 0, form.headers_delimiter, "headers delimiter")
        key, start = self._take(form.parse_key, line, start, form.key_separator, "key separator")
        value: bytes | None = line[start:]
        return LineRecord(
            None if key == form.null_marker else key,
            None if value == form.null_marker else value,
            [] if headers is None or headers == form.null_marker else self._headers(headers),
        )

    def _take(self, wanted: bool, line: bytes, start: int, separator: bytes, what: str) -> tuple[bytes | None, int]:
        if not wanted:
            return None, start
        end = line.find(separator, start)
        if end >= 0:
            return line[start:end], end + len(separator)
        if self.form.ignore_error:
            return None, start
        shown = line.decode("utf-8", "replace")
        raise CliError(f"No {what} found on line number {self.line_number}: '{shown}'")

    def _headers(self, text: bytes) -> list[tuple[str, str | bytes | None]]:
        headers: list[tuple[str, str | bytes | None]] = []
        pairs = self._split_headers.split(text)
        while pairs and not pairs[-1]:
            pairs.pop()
        for pair in pairs or [b""]:
            name, separator, value = pair.partition(self.form.headers_key_separator)
            shown = pair.decode("utf-8", "replace")
            if not separator:
                if not self.form.ignore_error:
                    raise CliError(f"No header key separator found in pair '{shown}' on line number {self.line_number}")
                headers.append((shown, None))
                continue
            if name == self.form.null_marker:
                marker = name.decode("utf-8", "replace")
                raise CliError(f"Header keys should not be equal to the null marker '{marker}' as they can't be null")
            headers.append((name.decode("utf-8", "replace"), None if value == self.form.null_marker else value))
        return headers
