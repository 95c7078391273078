"""A small blocking client for administration: one socket per broker, the generated messages, nothing asynchronous.

`Admin` (client.py) finds brokers and routes requests; the other modules offer the operations commands need, as plain
functions that take an `Admin` and return values. Producing and consuming is left to confluent-kafka.
"""

from __future__ import annotations

from moldau.cli.admin.client import Admin

__all__ = ["Admin"]
