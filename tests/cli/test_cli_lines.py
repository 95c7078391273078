"""Lines into records: separators, headers, null markers, and lines that do not have what they should."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli.errors import CliError
from moldau.cli.lines import LineFormat, LineParser, LineRecord


def parse(line: bytes, **properties: str) -> LineRecord:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return LineParser(LineFormat.from_properties(named)).parse(line)


def test_a_plain_line_is_a_value() -> None:
    for line in (b"hello\n", b"hello\r\n", b"hello"):
        assert parse(line) == LineRecord(None, b"hello", [])


def test_key_and_headers() -> None:
    record = parse(b"a:1,b:2\tkey\tvalue\twith tab\n", parse_key="true", parse_headers="TRUE")
    assert record == LineRecord(b"key", b"value\twith tab", [("a", b"1"), ("b", b"2")])
    assert parse(b"k::v:w\n", parse_key="true", key_separator="::") == LineRecord(b"k", b"v:w", [])


def test_bytes_that_are_no_text_arrive_as_they_are() -> None:
    assert parse(b"\xff\t\xfe\n", parse_key="true") == LineRecord(b"\xff", b"\xfe", [])


def test_the_null_marker_stands_for_null_everywhere_but_in_header_names() -> None:
    settings = {"parse_key": "true", "parse_headers": "true", "null_marker": "NIL"}
    assert parse(b"h:NIL\tNIL\tNIL\n", **settings) == LineRecord(None, None, [("h", None)])
    assert parse(b"NIL\tk\tv\n", **settings) == LineRecord(b"k", b"v", [])
    with pytest.raises(CliError, match="Header keys should not be equal to the null marker"):
        parse(b"NIL:x\tk\tv\n", **settings)


def test_a_missing_separator_names_the_line_unless_it_may_be_ignored() -> None:
    parser = LineParser(LineFormat(parse_key=True))
    parser.parse(b"a\tb\n")
    with pytest.raises(CliError, match="No key separator found on line number 2: 'oops'"):
        parser.parse(b"oops\n")
    assert parse(b"oops\n", parse_key="true", ignore_error="true") == LineRecord(None, b"oops", [])
    with pytest.raises(CliError, match="No header key separator found in pair 'x' on line number 1"):
        parse(b"x\tv\n", parse_headers="true")


def test_separators_that_could_not_be_told_apart_are_refused() -> None:
    with pytest.raises(CliError, match=r"headers.delimiter and headers.separator may not be equal"):
        parse(b"", headers_separator="\t")
    with pytest.raises(CliError, match=r"null.marker and key.separator may not be equal"):
        parse(b"", null_marker="\t")


@given(st.binary(max_size=20), st.binary(max_size=20), st.sampled_from([b"\t", b"::", b"=>"]))
def test_what_was_joined_comes_apart_again(key: bytes, value: bytes, separator: bytes) -> None:
    if separator in key + separator[:-1] or b"\n" in key + value or value.endswith(b"\r"):
        return
    parser = LineParser(LineFormat(parse_key=True, key_separator=separator))
    assert parser.parse(key + separator + value + b"\n") == LineRecord(key, value, [])
