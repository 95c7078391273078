"""The name in a client's certificate, as Kafka writes it, and the user that the operator's rules make of it.

Names are written as RFC 2253 has them (the last part first, special characters escaped), because access rules are
compared letter by letter: `CN=alice,OU=Sales,O=Example`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from moldau.security.refusal import LoginRefused

RelativeNames = Iterable[Iterable[tuple[str, str]]]
"""The subject of a certificate as `ssl` gives it: in the certificate's order, by OpenSSL's long names."""

_KEYWORDS: Final = {
    "commonName": "CN",
    "countryName": "C",
    "stateOrProvinceName": "ST",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
# Attributes that RFC 2253 has no keyword for are written by number, with their bytes in hexadecimal, the first of which
# says what kind of text it is: the usual kind of each attribute.
_TEXT, _PRINTABLE, _ASCII = 0x0C, 0x13, 0x16
_NUMBERS: Final = {
    "emailAddress": ("1.2.840.113549.1.9.1", _ASCII),
    "serialNumber": ("2.5.4.5", _PRINTABLE),
    "dnQualifier": ("2.5.4.46", _PRINTABLE),
    "surname": ("2.5.4.4", _TEXT),
    "title": ("2.5.4.12", _TEXT),
    "businessCategory": ("2.5.4.15", _TEXT),
    "postalCode": ("2.5.4.17", _TEXT),
    "name": ("2.5.4.41", _TEXT),
    "givenName": ("2.5.4.42", _TEXT),
    "initials": ("2.5.4.43", _TEXT),
    "generationQualifier": ("2.5.4.44", _TEXT),
    "pseudonym": ("2.5.4.65", _TEXT),
}
_SHORT_LENGTH_MAX: Final = 127

_DEFAULT: Final = "DEFAULT"
_RULE: Final = re.compile(r"\s*(?:DEFAULT|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")


def distinguished_name(subject: RelativeNames) -> str:
    """The subject of a certificate in RFC 2253's form."""
    return ",".join("+".join(_attribute(name, value) for name, value in part) for part in reversed(list(subject)))


def _attribute(name: str, value: str) -> str:
    if name in _NUMBERS and len(value.encode()) <= _SHORT_LENGTH_MAX:
        number, kind = _NUMBERS[name]
        return f"{number}=#{bytes((kind, len(value.encode()))).hex()}{value.encode().hex()}"
    return f"{_KEYWORDS.get(name, name)}={_escaped(value)}"


def _escaped(value: str) -> str:
    text = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if text.startswith((" ", "#")):
        text = "\\" + text
    if len(text) > 1 and text.endswith(" "):
        text = text[:-1] + "\\ "
    return text


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None: every name is taken as it is."""
    replacement: str
    case: str


def principal_mapper(rules: str) -> Callable[[str], str]:
    """`ssl.principal.mapping.rules` as a function; ValueError if there is something in them that is no rule. The
    function raises LoginRefused for a name that no rule is about."""
    parsed = _parse_rules(rules)

    def name_of(distinguished: str) -> str:
        for rule in parsed:
            if rule.pattern is None:
                return distinguished
            match = rule.pattern.fullmatch(distinguished)
            if match is not None:
                return _CASES[rule.case](match.expand(rule.replacement)).strip()
        raise LoginRefused("no rule of ssl.principal.mapping.rules is about the client's certificate")

    return name_of


_CASES: Final[dict[str, Callable[[str], str]]] = {"": str, "L": str.lower, "U": str.upper}


def _parse_rules(rules: str) -> list[_Rule]:
    parsed: list[_Rule] = []
    position = 0
    while position < len(rules):
        match = _RULE.match(rules, position)
        if match is None or match.end() == position:
            raise ValueError(f"there is no rule at {rules[position:][:60]!r}")
        position = match.end()
        parsed.append(_rule(match))
    return parsed or [_Rule(None, "", "")]


def _rule(match: re.Match[str]) -> _Rule:
    if match[1] is None:
        return _Rule(None, "", "")
    try:
        pattern = re.compile(re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", match[1]))
        # Java refers to a group as $1; in Python a backslash of the text itself must be doubled.
        replacement = re.sub(r"\$(\d)", r"\\g<\1>", match[2].replace("\\", "\\\\"))
        _check_references(pattern, replacement)
    except re.error as error:
        raise ValueError(f"{match[1]!r} is no pattern: {error}") from None
    return _Rule(pattern, replacement, match[3])


def _check_references(pattern: re.Pattern[str], replacement: str) -> None:
    for used in re.findall(r"\\g<(\d)>", replacement):
        if int(used) > pattern.groups:
            raise re.error(f"there is no group {used}")
