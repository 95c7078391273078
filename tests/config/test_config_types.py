"""Values as text: what is read, what is written back, what is refused and how that is said."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.config import table
from moldau.config.key import ConfigKey
from moldau.config.sources import ConfigSource
from moldau.config.types import ConfigError, ConfigRequestError, ConfigType, java_text, parse, render
from moldau.config.validators import Range, ShareOffsetReset, Words, duration_ms, host_and_port, parse_voters

ALL_KEYS = [
    key
    for family in (
        table.ALL_NODE_KEYS,
        table.TOPIC_KEYS,
        table.GROUP_KEYS,
        table.CLIENT_METRICS_KEYS,
        table.USER_QUOTA_KEYS,
        table.IP_QUOTA_KEYS,
    )
    for key in family.values()
]
BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


def test_the_wire_codes_are_kafkas() -> None:
    assert [(kind.name, int(kind)) for kind in ConfigType] == [
        ("UNKNOWN", 0),
        ("BOOLEAN", 1),
        ("STRING", 2),
        ("INT", 3),
        ("SHORT", 4),
        ("LONG", 5),
        ("DOUBLE", 6),
        ("LIST", 7),
        ("CLASS", 8),
        ("PASSWORD", 9),
    ]
    assert [int(source) for source in ConfigSource] == list(range(9))
    assert ConfigSource.DYNAMIC_TOPIC == 1
    assert ConfigSource.GROUP == 8


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (False, "false"),
        (-5, "-5"),
        (0.5, "0.5"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (0.00099, "9.9E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (2147483647.0, "2.147483647E9"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (-123.25, "-123.25"),
        (100.0, "100.0"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (math.inf, "Infinity"),
        (math.nan, "NaN"),
        ("text", "text"),
        ((), ""),
        (("a", "b"), "a,b"),
    ],
)
def test_values_are_written_as_java_writes_them(value: object, text: str | None) -> None:
    assert render(value) == text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        (" TRUE ", ConfigType.BOOLEAN, True),
        ("False", ConfigType.BOOLEAN, False),
        ("+7", ConfigType.INT, 7),
        ("-32768", ConfigType.SHORT, -32768),
        (" 007 ", ConfigType.LONG, 7),
        ("1e3", ConfigType.DOUBLE, 1000.0),
        (".5", ConfigType.DOUBLE, 0.5),
        ("2d", ConfigType.DOUBLE, 2.0),
        ("a , b,c ", ConfigType.LIST, ("a", "b", "c")),
        ("", ConfigType.LIST, ()),
        ("a,,b", ConfigType.LIST, ("a", "", "b")),
        ("  spaced  ", ConfigType.STRING, "spaced"),
        ("", ConfigType.STRING, ""),
        (" p ", ConfigType.PASSWORD, "p"),
        (None, ConfigType.INT, None),
    ],
)
def test_text_is_read_by_type(text: str | None, kind: ConfigType, value: object) -> None:
    assert parse("key", text, kind) == value


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("yes", ConfigType.BOOLEAN, "Invalid value yes for configuration k: Expected value to be either true or false"),
        ("x", ConfigType.INT, "Invalid value x for configuration k: Not a number of type INT"),
        ("1_000", ConfigType.INT, "Invalid value 1_000 for configuration k: Not a number of type INT"),
        ("2147483648", ConfigType.INT, "Invalid value 2147483648 for configuration k: Not a number of type INT"),
        ("32768", ConfigType.SHORT, "Invalid value 32768 for configuration k: Not a number of type SHORT"),
        ("9" * 5000, ConfigType.LONG, f"Invalid value {'9' * 5000} for configuration k: Not a number of type LONG"),
        ("inf", ConfigType.DOUBLE, "Invalid value inf for configuration k: Not a number of type DOUBLE"),
    ],
)
def test_text_of_another_type_is_refused_in_kafkas_words(text: str, kind: ConfigType, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse("k", text, kind)
    assert str(refused.value) == message
    assert (refused.value.name, refused.value.value) == ("k", text)


def test_errors_print_values_as_java_does() -> None:
    assert str(ConfigError("k", ("a", "b"), "no")) == "Invalid value [a, b] for configuration k: no"
    assert str(ConfigError("k", None)) == "Invalid value null for configuration k"
    assert java_text((1.0, True, None)) == "[1.0, true, null]"
    assert isinstance(ConfigRequestError.saying("k", "whole text"), ConfigError)
    assert str(ConfigRequestError.saying("k", "whole text")) == "whole text"


@given(st.floats(allow_nan=False))
def test_doubles_survive_being_written(value: float) -> None:
    again = parse("k", render(value), ConfigType.DOUBLE)
    assert again == value
    assert math.copysign(1, value) == math.copysign(1, again)


def values_for(key: ConfigKey) -> st.SearchStrategy[object]:
    """Values the key's validator accepts, as far as they can be described."""
    match key.type, key.validator:
        case ConfigType.BOOLEAN, _:
            return st.booleans()
        case (ConfigType.SHORT | ConfigType.INT | ConfigType.LONG) as kind, Range() as limits:
            most = 2 ** (BITS[kind] - 1) - 1
            return st.integers(int(limits.minimum), most if limits.maximum is None else int(limits.maximum))
        case (ConfigType.SHORT | ConfigType.INT | ConfigType.LONG) as kind, None:
            return st.integers(-(2 ** (BITS[kind] - 1)), 2 ** (BITS[kind] - 1) - 1)
        case ConfigType.DOUBLE, Range() as limits:
            return st.floats(float(limits.minimum), None if limits.maximum is None else float(limits.maximum))
        case ConfigType.DOUBLE, None:
            return st.floats(allow_nan=False)
        case ConfigType.LIST, Words(choices=(), empty=True):
            word = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=","), min_size=1)
            return st.lists(word, unique=True).map(tuple)
        case _:
            return st.just(key.default)


@given(st.data())
def test_every_key_reads_back_what_it_writes(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(ALL_KEYS))
    value = data.draw(values_for(key))
    if value is not None:
        assert key.parse(render(value)) == value  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ALL_KEYS, ids=lambda key: f"{key.family}-{key.name}")
def test_every_default_is_a_value_its_own_key_accepts(key: ConfigKey) -> None:
    if key.default is not None:
        assert key.parse(render(key.default)) == key.default


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31), st.integers(0, 2**31))
def test_a_range_accepts_what_lies_in_it_and_nothing_else(value: int, least: int, size: int) -> None:
    limits = Range(least, least + size)
    if least <= value <= least + size:
        assert limits.checked("k", value) == value
    else:
        with pytest.raises(ConfigError, match=r"Value must be (at least|no more than)"):
            limits.checked("k", value)


def test_a_list_is_freed_of_duplicates_before_it_is_judged() -> None:
    policies = table.TOPIC_KEYS["cleanup.policy"]
    assert policies.parse("compact,delete,compact") == ("compact", "delete")
    with pytest.raises(ConfigError, match=r"Configuration 'cleanup\.policy' values must not be empty\."):
        policies.parse("compact,")
    with pytest.raises(ConfigError, match="String must be one of: compact, delete"):
        policies.parse("Compact")
    with pytest.raises(ConfigError, match=r"must not be empty\. Valid values include: any non-empty value"):
        Words(empty=False).checked("k", ())


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1H", 3_600_000),
        ("P1D", 86_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt0.001s", 1),
        ("PT-1H", -3_600_000),
        ("-PT1H", -3_600_000),
        ("PT", None),
        ("P", None),
        ("P1DT", None),
        ("1h", None),
        ("P1Y", None),
    ],
)
def test_durations_are_iso_8601(text: str, milliseconds: int | None) -> None:
    assert duration_ms(text) == milliseconds


def test_a_share_group_cannot_start_in_the_future() -> None:
    reset = ShareOffsetReset()
    assert reset.checked("k", "by_duration:PT1H") == "by_duration:PT1H"
    with pytest.raises(ConfigError, match="must be either 'earliest', 'latest' or of the format"):
        reset.checked("k", "by_duration:-PT1H")


def test_addresses() -> None:
    assert host_and_port("localhost:9093") == ("localhost", 9093)
    assert host_and_port("[::1]:9093") == ("::1", 9093)
    assert host_and_port("SSL://host:1") == ("host", 1)
    assert host_and_port("host") is None
    assert host_and_port("a b:1") is None
    assert parse_voters(("1@a:1", "2@[::1]:2")) == {1: ("a", 1), 2: ("::1", 2)}
