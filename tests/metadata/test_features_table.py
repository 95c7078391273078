"""Releases and features: names, defaults, dependencies."""

from __future__ import annotations

import pytest

from moldau.metadata import features
from moldau.metadata.features import FEATURES, FeatureError


@pytest.mark.parametrize(
    ("text", "unstable", "level"),
    [
        ("3.3", False, 7),
        ("4.0", False, 25),
        ("4.1.1", False, 27),
        ("4.3", False, 30),
        ("4.3.1", False, 30),
        ("4.3-IV0", False, 30),
        ("4.4-IV0", True, 31),
    ],
)
def test_release_names(text: str, unstable: bool, level: int) -> None:
    assert features.release_from_string(text, unstable=unstable).level == level


@pytest.mark.parametrize(("text", "unstable"), [("4.4-IV0", False), ("4.4", True), ("4.4", False), ("bogus", True)])
def test_unknown_releases_are_refused_by_name(text: str, unstable: bool) -> None:
    with pytest.raises(FeatureError, match=f"Unknown metadata.version '{text}'"):
        features.release_from_string(text, unstable=unstable)


@pytest.mark.parametrize(
    ("level", "defaults"),
    [
        (20, {}),
        (21, {"kraft.version": 1}),
        (24, {"kraft.version": 1, "transaction.version": 2, "group.version": 1}),
        (30, dict.fromkeys(FEATURES, 1) | {"transaction.version": 2}),
    ],
)
def test_what_a_release_starts_with(level: int, defaults: dict[str, int]) -> None:
    assert {f.name: f.default_level(level) for f in FEATURES.values() if f.default_level(level)} == defaults


def test_dependencies() -> None:
    with pytest.raises(FeatureError, match=r"depends on metadata\.version level 23"):
        features.check_dependencies(features.ELR_VERSION, 1, {features.METADATA_VERSION: 22})
    features.check_dependencies(features.ELR_VERSION, 1, {features.METADATA_VERSION: 23})


def test_going_back_over_a_change_of_records() -> None:
    assert features.changes_records(30, 29)
    assert not features.changes_records(29, 24)
    assert features.changes_records(24, 22)
    assert not features.changes_records(31, 30)
