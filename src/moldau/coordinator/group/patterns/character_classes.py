"""Sets of characters, as far as topics' names go: they are ASCII, so a set is a number with one bit per character.

What a set says about other characters does not matter, because no name has them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from typing import Final

ASCII: Final = 128
EVERYTHING: Final = (1 << ASCII) - 1


def where(holds: Callable[[str], bool]) -> int:
    return sum(1 << code for code in range(ASCII) if holds(chr(code)))


def single(code: int) -> int:
    return 1 << code if code < ASCII else 0


def span(low: int, high: int) -> int:
    """From low to high, both included."""
    low, high = min(low, ASCII), min(high, ASCII - 1)
    return ((1 << high + 1) - 1) & ~((1 << low) - 1) if low <= high else 0


def negated(mask: int) -> int:
    return EVERYTHING & ~mask


_UPPER: Final = span(ord("A"), ord("Z"))
_LOWER: Final = span(ord("a"), ord("z"))
_CASE: Final = 32
DIGIT: Final = span(ord("0"), ord("9"))
WORD: Final = _UPPER | _LOWER | DIGIT | single(ord("_"))
SPACE: Final = where(lambda c: c in "\t\n\f\r ")


def folded(mask: int) -> int:
    """With the other case of every letter."""
    return mask | (mask & _UPPER) << _CASE | (mask & _LOWER) >> _CASE


PERL: Final[Mapping[str, int]] = {
    "d": DIGIT,
    "D": negated(DIGIT),
    "s": SPACE,
    "S": negated(SPACE),
    "w": WORD,
    "W": negated(WORD),
}

POSIX: Final[Mapping[str, int]] = {
    "alnum": _UPPER | _LOWER | DIGIT,
    "alpha": _UPPER | _LOWER,
    "ascii": EVERYTHING,
    "blank": where(lambda c: c in "\t "),
    "cntrl": where(lambda c: c < " " or c == "\x7f"),
    "digit": DIGIT,
    "graph": span(0x21, 0x7E),
    "lower": _LOWER,
    "print": span(0x20, 0x7E),
    "punct": where(lambda c: "!" <= c <= "~" and not c.isalnum()),
    "space": where(lambda c: c in "\t\n\v\f\r "),
    "upper": _UPPER,
    "word": WORD,
    "xdigit": where(lambda c: c in "0123456789abcdefABCDEF"),
}

_CATEGORY_NAMES: Final = (
    "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs"
)
# Scripts without a single ASCII character; RE2/J knows exactly these.
_SCRIPT_NAMES: Final = """
    Arabic Armenian Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal
    Carian Cham Cherokee Coptic Cuneiform Cypriot Cyrillic Deseret Devanagari Egyptian_Hieroglyphs Ethiopic Georgian
    Glagolitic Gothic Greek Gujarati Gurmukhi Han Hangul Hanunoo Hebrew Hiragana Imperial_Aramaic Inherited
    Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kayah_Li Kharoshthi Khmer Lao Lepcha
    Limbu Linear_B Lisu Lycian Lydian Malayalam Mandaic Meetei_Mayek Mongolian Myanmar New_Tai_Lue Nko Ogham Ol_Chiki
    Old_Italic Old_Persian Old_South_Arabian Old_Turkic Oriya Osmanya Phags_Pa Phoenician Rejang Runic Samaritan
    Saurashtra Shavian Sinhala Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Tamil Telugu
    Thaana Thai Tibetan Tifinagh Ugaritic Vai Yi
"""
_CATEGORIES: Final = frozenset(_CATEGORY_NAMES.split())
_OTHER_SCRIPTS: Final = frozenset(_SCRIPT_NAMES.split())


def unicode_class(name: str) -> int | None:
    """The characters of a category or script; None when there is no such name."""
    if name == "Any":
        return EVERYTHING
    if name == "Latin":
        return _UPPER | _LOWER
    if name == "Common":
        return negated(_UPPER | _LOWER)
    if name in _CATEGORIES:
        return where(lambda c: unicodedata.category(c).startswith(name))
    return 0 if name in _OTHER_SCRIPTS else None
