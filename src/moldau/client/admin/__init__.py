"""What administrators ask a cluster and order it to do: plain functions that take an `Admin` and return values.

Producing and consuming is left to confluent-kafka.
"""

from __future__ import annotations

from moldau.client.admin.client import Admin

__all__ = ["Admin"]
