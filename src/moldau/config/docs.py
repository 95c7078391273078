"""What each key means and whether it does anything here, loaded only when somebody asks.

The words are in `docs_*`, the exceptions in `effects`; this module only finds them. A key without words is a mistake,
and a test says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.config import (
    docs_cluster,
    docs_coordinators,
    docs_log,
    docs_overrides,
    docs_security,
    docs_server,
)
from moldau.config.effects import BROKER_WITHOUT_EFFECT, TOPIC_WITHOUT_EFFECT
from moldau.config.key import Effect

DOCS: Final[Mapping[str, Mapping[str, str]]] = {
    "broker": {
        **docs_server.SERVER,
        **docs_log.LOG,
        **docs_log.TIERED,
        **docs_coordinators.COORDINATORS,
        **docs_cluster.CLUSTER,
        **docs_security.SECURITY,
    },
    "topic": docs_overrides.TOPIC,
    "group": docs_overrides.GROUP,
    "client_metrics": docs_overrides.CLIENT_METRICS,
    "quota": docs_overrides.QUOTA,
}
WITHOUT_EFFECT: Final[Mapping[str, Mapping[str, str]]] = {
    "broker": BROKER_WITHOUT_EFFECT,
    "topic": TOPIC_WITHOUT_EFFECT,
}
_ACTIVE: Final = Effect(True)


def doc_of(family: str, name: str) -> str:
    """What the key is for, in a sentence or two."""
    return DOCS[family][name]


def effect_of(family: str, name: str) -> Effect:
    """Whether the key does anything here, or why not."""
    reason = WITHOUT_EFFECT.get(family, {}).get(name)
    return _ACTIVE if reason is None else Effect(False, reason)
