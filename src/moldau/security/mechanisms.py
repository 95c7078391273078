"""The SASL mechanisms there are here, on both sides of a login: names and facts, no cryptography to load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

PLAIN: Final = "PLAIN"


class ScramMechanism(NamedTuple):
    name: str
    number: int
    """How metadata records and requests call it."""
    hash_name: str


SCRAM_MECHANISMS: Final[Mapping[str, ScramMechanism]] = {
    mechanism.name: mechanism
    for mechanism in (ScramMechanism("SCRAM-SHA-256", 1, "sha256"), ScramMechanism("SCRAM-SHA-512", 2, "sha512"))
}

MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS)
