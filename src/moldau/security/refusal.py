"""A login that does not succeed."""

from __future__ import annotations


class LoginRefused(Exception):
    """Why, for the log of the one who refuses. The other side is told less: never which part was wrong."""
