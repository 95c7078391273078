"""What each key means and whether it does anything here, loaded only when somebody asks."""

from __future__ import annotations

from moldau.config.key import Effect


def doc_of(family: str, name: str) -> str:
    """What the key is for, in a sentence or two."""
    return ""


def effect_of(family: str, name: str) -> Effect:
    """Whether the key does anything here, or why not."""
    return Effect(True)
