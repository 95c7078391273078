"""The features a cluster can finalise, and what each level of `metadata.version` means for the records we write.

This file is a table of facts about Apache Kafka 4.3.1: release names, levels, which level of one feature a release
starts with, and what a level depends on. It decides nothing about a particular cluster, and it must never read one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"
ELR_VERSION: Final = "eligible.leader.replicas.version"


class FeatureError(ValueError):
    """A feature or level that does not exist here, or whose dependencies are not met."""


@dataclass(frozen=True, slots=True)
class Release:
    """One level of `metadata.version`: `changed` says that it changed the shape of the records."""

    level: int
    name: str
    changed: bool
    stable: bool = True

    @property
    def short_name(self) -> str:
        return self.name.partition("-")[0]


RELEASES: Final[tuple[Release, ...]] = (
    Release(7, "3.3-IV3", True),
    Release(8, "3.4-IV0", True),
    Release(9, "3.5-IV0", False),
    Release(10, "3.5-IV1", False),
    Release(11, "3.5-IV2", True),
    Release(12, "3.6-IV0", False),
    Release(13, "3.6-IV1", True),
    Release(14, "3.6-IV2", True),
    Release(15, "3.7-IV0", True),
    Release(16, "3.7-IV1", False),
    Release(17, "3.7-IV2", True),
    Release(18, "3.7-IV3", False),
    Release(19, "3.7-IV4", False),
    Release(20, "3.8-IV0", False),
    Release(21, "3.9-IV0", False),
    Release(22, "4.0-IV0", False),
    Release(23, "4.0-IV1", True),
    Release(24, "4.0-IV2", False),
    Release(25, "4.0-IV3", False),
    Release(26, "4.1-IV0", False),
    Release(27, "4.1-IV1", False),
    Release(28, "4.2-IV0", False),
    Release(29, "4.2-IV1", False),
    Release(30, "4.3-IV0", True),
    Release(31, "4.4-IV0", False, stable=False),
)
_BY_LEVEL: Final = {release.level: release for release in RELEASES}

MINIMUM_METADATA_VERSION: Final = RELEASES[0].level
LATEST_METADATA_VERSION: Final = max(release.level for release in RELEASES if release.stable)
LATEST_UNSTABLE_METADATA_VERSION: Final = RELEASES[-1].level

# From which level of metadata.version on something exists.
SCRAM_SINCE: Final = 11
NO_EPOCH_BUMP_ON_SHRINK_SINCE: Final = 12
TRANSACTIONS_SINCE: Final = 13
DELEGATION_TOKENS_SINCE: Final = 14
CONTROLLER_REGISTRATION_SINCE: Final = 15
DIRECTORIES_SINCE: Final = 17
ELR_SINCE: Final = 23
CORDONED_DIRECTORIES_SINCE: Final = 30


@dataclass(frozen=True, slots=True)
class FeatureLevel:
    """One level of a feature, the release that first starts with it, and what it depends on."""

    level: int
    since_release: int
    depends_on: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Feature:
    name: str
    levels: tuple[FeatureLevel, ...]

    @property
    def min_level(self) -> int:
        return self.levels[0].level

    @property
    def max_level(self) -> int:
        return self.levels[-1].level

    def level(self, number: int) -> FeatureLevel:
        for level in self.levels:
            if level.level == number:
                return level
        raise FeatureError(f"No feature:{self.name} with feature level {number}")

    def default_level(self, metadata_version: int) -> int:
        """The level a cluster formatted with this release starts with."""
        return max(level.level for level in self.levels if level.since_release <= metadata_version)


_FIRST: Final = FeatureLevel(0, MINIMUM_METADATA_VERSION)

FEATURES: Final[Mapping[str, Feature]] = {
    feature.name: feature
    for feature in (
        Feature(KRAFT_VERSION, (_FIRST, FeatureLevel(1, 21))),
        Feature(TRANSACTION_VERSION, (_FIRST, FeatureLevel(1, 24), FeatureLevel(2, 24))),
        Feature(GROUP_VERSION, (_FIRST, FeatureLevel(1, 22))),
        Feature(ELR_VERSION, (_FIRST, FeatureLevel(1, 26, {METADATA_VERSION: ELR_SINCE}))),
        Feature(SHARE_VERSION, (_FIRST, FeatureLevel(1, 28))),
        Feature(STREAMS_VERSION, (_FIRST, FeatureLevel(1, 29))),
    )
}


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The levels of one feature that a node can work with, both ends included."""

    min: int
    max: int

    def __contains__(self, level: int) -> bool:
        return self.min <= level <= self.max

    def __str__(self) -> str:
        return str(self.min) if self.min == self.max else f"{self.min}-{self.max}"


UNSUPPORTED: Final = VersionRange(0, 0)


def supported_features(*, unstable: bool = False) -> dict[str, VersionRange]:
    """What this software supports, as brokers and controllers announce it."""
    latest = LATEST_UNSTABLE_METADATA_VERSION if unstable else LATEST_METADATA_VERSION
    ranges = {METADATA_VERSION: VersionRange(MINIMUM_METADATA_VERSION, latest)}
    for feature in FEATURES.values():
        ranges[feature.name] = VersionRange(feature.min_level, feature.max_level)
    return ranges


def release_of(level: int) -> Release:
    release = _BY_LEVEL.get(level)
    if release is None:
        raise FeatureError(
            f"No metadata.version with feature level {level}. Valid feature levels are from "
            f"{MINIMUM_METADATA_VERSION} to {LATEST_UNSTABLE_METADATA_VERSION}."
        )
    return release


def release_from_string(text: str, *, unstable: bool) -> Release:
    """`4.3-IV0`, or `4.3` and `4.3.1` for the last stable level of that release."""
    known = [release for release in RELEASES if release.stable or unstable]
    short = ".".join(text.split(".")[:2])
    found = None
    for release in known:
        if release.name == text or (release.stable and release.short_name == short):
            found = release
    if found is None:
        names = ", ".join(release.name for release in known)
        raise FeatureError(f"Unknown metadata.version '{text}'. Supported metadata.version are: {names}")
    return found


def check_dependencies(name: str, level: int, proposed: Mapping[str, int]) -> None:
    """Raise unless every feature that `name` at `level` depends on is proposed at a sufficient level."""
    for other, needed in FEATURES[name].level(level).depends_on.items():
        if proposed.get(other, 0) < needed:
            raise FeatureError(f"{name} could not be set to {level} because it depends on {other} level {needed}")


def changes_records(one: int, other: int) -> bool:
    """Whether any release between the two levels changed the shape of the records (so that going back loses data)."""
    low, high = sorted((one, other))
    return any(release.changed for release in RELEASES if low < release.level <= high)
