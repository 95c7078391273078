"""Regular expressions of subscriptions: RE2/J's syntax and answers (seen with RE2/J 1.8), and no way to be slow."""

from __future__ import annotations

import re
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.coordinator.group.patterns.automaton import TopicPattern
from moldau.coordinator.group.patterns.syntax import InvalidPattern

REFUSED = {
    "[": "missing closing ]",
    "[a-": "missing closing ]",
    "(": "missing closing )",
    "a)": "unexpected )",
    "a**": "invalid nested repetition operator",
    "a*+": "invalid nested repetition operator",
    "a++": "invalid nested repetition operator",
    "a???": "invalid nested repetition operator",
    "a{1}{2}": "invalid nested repetition operator",
    "{+": "invalid nested repetition operator",
    "*": "missing argument to repetition operator",
    "a|*": "missing argument to repetition operator",
    "(*)": "missing argument to repetition operator",
    "{2}": "missing argument to repetition operator",
    "(?=a)": "invalid or unsupported Perl syntax",
    "(?!a)": "invalid or unsupported Perl syntax",
    "(?>a)": "invalid or unsupported Perl syntax",
    "(?#c)a": "invalid or unsupported Perl syntax",
    "(?P=n)": "invalid or unsupported Perl syntax",
    "(?z)a": "invalid or unsupported Perl syntax",
    "(?i": "invalid or unsupported Perl syntax",
    "(?i-)a": "invalid or unsupported Perl syntax",
    "(?--i)a": "invalid or unsupported Perl syntax",
    "(?<=a)b": "invalid named capture",
    "(?<!a)b": "invalid named capture",
    "(?P<>a)": "invalid named capture",
    "(?P<n->a)": "invalid named capture",
    "(?P<n>a)(?P<n>b)": "duplicate capture group name",
    r"(a)\1": "invalid escape sequence",
    r"\y": "invalid escape sequence",
    r"\Z": "invalid escape sequence",
    r"\x4": "invalid escape sequence",
    r"\x{}": "invalid escape sequence",
    r"[a-\d]": "invalid escape sequence",
    r"a\\"[:-1]: "trailing backslash at end of expression",
    "[z-a]": "invalid character class range",
    "[[:foo:]]": "invalid character class range",
    r"\p{Foo}": "invalid character class range",
    r"\p": "invalid character class range",
    "a{1001}": "invalid repeat count",
    "a{2,1}": "invalid repeat count",
    "a{99999999999999999999}": "invalid repeat count",
    # These two are limits of ours: RE2/J lets them through and needs a million states, or a deep stack.
    "(a{999}){999}": "expression too large",
    "(" * 500 + ")" * 500: "expression nests too deeply",
}

# Expression, names that match, names that do not.
ANSWERS = [
    ("foo", ["foo"], ["", "fo", "foo1", "xfoo"]),
    ("foo.*", ["foo", "foobar"], ["barfoo"]),
    ("^foo-[0-9]+$", ["foo-1", "foo-42"], ["foo-", "foo-x"]),
    ("a|b|c", ["a", "b", "c"], ["d", "ab"]),
    ("a||b", ["a", "", "b"], ["ab"]),
    ("(a|b)*c", ["c", "ababc"], ["abab"]),
    ("(a*)*", ["", "aaa"], ["b"]),
    ("a{2,3}", ["aa", "aaa"], ["a", "aaaa"]),
    ("a{2,}", ["aa", "aaaaa"], ["a"]),
    ("a{0}", [""], ["a"]),
    ("a{,2}", ["a{,2}"], ["aa"]),
    ("a{", ["a{"], ["a"]),
    (r"\Qa.b\E+", ["a.b", "a.bb"], ["axb", "a.ba.b"]),
    (r"\.", ["."], ["a"]),
    (r"\bfoo\b.*", ["foo", "foo-bar"], ["foobar"]),
    (r".*\Bo", ["foo"], ["o"]),
    (r"[\w.-]+", ["a.b-c_9"], ["a b"]),
    (r"\d\D\W", ["1a-"], ["aa-"]),
    ("[]a]", ["]", "a"], ["b"]),
    ("[^]a]", ["b"], ["]", "a"]),
    ("[a-c-e]+", ["a-e", "b"], ["d"]),
    ("[[:alpha:]]+", ["abC"], ["a1"]),
    ("[[:^digit:]]", ["a"], ["1"]),
    (r"\pL+", ["abC"], ["1"]),
    (r"\p{Lu}\P{Lu}", ["Aa"], ["aA"]),
    (r"\p{^Lu}", ["a"], ["A"]),
    (r"\p{Greek}", [], ["a"]),
    ("(?i)FOO-[a-c]", ["foo-B"], ["foo-d"]),
    ("x(?i)Y(?-i)Z", ["xyZ", "xYZ"], ["xyz", "XyZ"]),
    ("((?i)x)Y", ["XY"], ["Xy"]),
    ("(?i:a)b", ["Ab"], ["AB"]),
    ("(?P<name>a)(?<other>b)", ["ab"], ["a"]),
    (r"\x41\x{42}\103", ["ABC"], ["abc"]),
    (r"x\z", ["x"], ["xx"]),
    ("^x^", [], ["x"]),
    ("ü.*", [], ["u"]),
]


@pytest.mark.parametrize("expression", REFUSED)
def test_refused(expression: str) -> None:
    with pytest.raises(InvalidPattern) as refused:
        TopicPattern(expression)
    assert str(refused.value) == REFUSED[expression]


@pytest.mark.parametrize(("expression", "matching", "others"), ANSWERS, ids=[each[0] for each in ANSWERS])
def test_answers(expression: str, matching: list[str], others: list[str]) -> None:
    pattern = TopicPattern(expression)
    assert [name for name in matching + others if pattern.matches(name)] == matching


PLAIN = st.text(alphabet="abc.-0", max_size=6)
EXPRESSIONS = st.recursive(
    st.sampled_from(["a", "b", "c", "[ab]", "[^a]", r"\d", r"\.", ".", "-", r"\b"]),
    lambda inner: st.one_of(
        st.builds(lambda x, y: f"{x}{y}", inner, inner),
        st.builds(lambda x, y: f"(?:{x}|{y})", inner, inner),
        st.builds(lambda x, times: f"(?:{x}){times}", inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?"])),
    ),
    max_leaves=8,
)


@given(EXPRESSIONS, st.lists(PLAIN, max_size=10))
@settings(max_examples=200)
def test_agrees_with_python_where_both_mean_the_same(expression: str, names: list[str]) -> None:
    pattern, reference = TopicPattern(expression), re.compile(expression, re.ASCII)
    assert [pattern.matches(name) for name in names] == [bool(reference.fullmatch(name)) for name in names]


@given(st.text(alphabet=st.sampled_from("ab(|)[]^$*+?{}\\,-:<>?PQEpd1xi="), max_size=12))
@settings(max_examples=300)
def test_any_text_is_an_expression_or_refused(expression: str) -> None:
    with suppress(InvalidPattern):
        assert TopicPattern(expression).matches("ab-1") in (True, False)


@pytest.mark.parametrize("expression", ["(a+)+b", "(a|aa)*b", "(a*)*(a*)*b", "(.*a){20}", "([a-z]+)*-"])
def test_no_expression_makes_a_match_take_long(expression: str) -> None:
    pattern = TopicPattern(expression)
    began = time.process_time()
    assert not pattern.matches("a" * 248 + "!")
    assert time.process_time() - began < 1
