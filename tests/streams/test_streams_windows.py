"""Windows: durations in words, and what is no window."""

from __future__ import annotations

import pytest

from moldau.client.errors import MoldauError
from moldau.streams import hopping, session, sliding, tumbling
from moldau.streams.windows import Kind, milliseconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 minutes", 600_000),
        ("1 hour 30 minutes", 5_400_000),
        ("500 milliseconds", 500),
        ("2 days", 172_800_000),
        (" 1 second ", 1000),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert milliseconds(text) == expected


@pytest.mark.parametrize("text", ["", "10", "ten minutes", "10 parsecs", "minutes 10", "5 minutes of fame"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(MoldauError, match="is not a duration"):
        milliseconds(text)


def test_kinds() -> None:
    kinds = [tumbling("1 minute"), hopping("1 minute", every="1 second"), session("1 minute"), sliding("1 minute")]
    assert [each.kind for each in kinds] == list(Kind)
    with pytest.raises(MoldauError, match="leave gaps"):
        hopping("1 minute", every="2 minutes")
