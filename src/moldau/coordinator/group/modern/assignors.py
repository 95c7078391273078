"""The assignors that members of consumer groups can ask for, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.coordinator.group.modern.assignment import Assignor
from moldau.coordinator.group.modern.range_assignor import assign_ranges
from moldau.coordinator.group.modern.uniform_assignor import assign_uniformly

CONSUMER_ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}

# How the class that Apache Kafka ships is called, which settings may name as well.
_PACKAGE: Final = "org.apache.kafka.coordinator.group.assignor."
_CLASSES: Final[Mapping[str, str]] = {f"{_PACKAGE}UniformAssignor": "uniform", f"{_PACKAGE}RangeAssignor": "range"}


def assignor_names(configured: tuple[str, ...]) -> list[str]:
    """The names that members may ask for, of what `group.consumer.assignors` says; the first is the default."""
    names = [_CLASSES.get(word, word) for word in configured]
    known = [name for name in dict.fromkeys(names) if name in CONSUMER_ASSIGNORS]
    return known or list(CONSUMER_ASSIGNORS)
