"""Java's .properties format, read and written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.config.properties import PropertiesError, format_properties, parse_properties, read_properties


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a  =  b  ", {"a": "b  "}),
        ("a : = b", {"a": "= b"}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        ("# comment\n! other\n \t# third\na=1", {"a": "1"}),
        ("a=1\nb=2\ra=3\r\nc=4", {"a": "3", "b": "2", "c": "4"}),
        ("listeners=PLAINTEXT\\://h\\:9092", {"listeners": "PLAINTEXT://h:9092"}),
        ("listeners=PLAINTEXT://h:9092", {"listeners": "PLAINTEXT://h:9092"}),
        ("a\\=b\\ c=d\\=e", {"a=b c": "d=e"}),
        ("a=one,\\\n   two,\\\n\tthree", {"a": "one,two,three"}),
        ("a=one\\\\\nb=2", {"a": "one\\", "b": "2"}),
        ("# no continuation \\\na=1", {"a": "1"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("a=\\u00e9\\t\\n\\q", {"a": "\u00e9\t\nq"}),
        ("a=\\uD83D\\uDE00", {"a": "\U0001f600"}),
        ("a=\x85b\u2028c", {"a": "\x85b\u2028c"}),
        ("a=b\\", {"a": "b"}),
    ],
)
def test_reading(text: str, settings: dict[str, str]) -> None:
    assert parse_properties(text) == settings


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u00g0", "\\uxyzw=b"])
def test_a_broken_escape_is_refused(text: str) -> None:
    with pytest.raises(PropertiesError, match="Malformed"):
        parse_properties(text)


def test_both_encodings_are_read_as_they_were_meant() -> None:
    assert read_properties("dir=/dätä".encode()) == {"dir": "/dätä"}
    assert read_properties("dir=/dätä".encode("iso-8859-1")) == {"dir": "/dätä"}


def test_writing() -> None:
    text = format_properties({"a b": " c d", "url": "x://y:1", "é": "\U0001f600\t", "#": "!"}, comments=["hello"])
    assert text == (
        "# hello\n"
        "a\\ b=\\ c d\n"
        "url=x\\://y\\:1\n"
        "\\u00E9=\\uD83D\\uDE00\\t\n"
        "\\#=\\!\n"
    )  # fmt: skip


@given(st.dictionaries(st.text(), st.text(), max_size=5))
def test_what_is_written_is_read_back(settings: dict[str, str]) -> None:
    text = format_properties(settings)
    assert text.isascii()
    assert parse_properties(text) == settings
    assert read_properties(text.encode("ascii")) == settings


@given(st.text(alphabet="ab=: \t\f\\\n\r#!u04n", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        settings = parse_properties(text)
    except PropertiesError:
        return
    assert parse_properties(format_properties(settings)) == settings
