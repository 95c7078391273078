"""The SASL mechanisms there are here, on both sides of a login."""

from __future__ import annotations

from typing import Final

from moldau.security.scram_keys import SCRAM_MECHANISMS

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS)
