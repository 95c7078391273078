"""What only reading with Spark can run into; every other exception people see is one of the client's.

Spark wraps whatever a data source raises in a stack trace of its own, so the message must say by itself what is wrong
and what to do about it.
"""

from __future__ import annotations

from moldau.client.errors import MoldauError


class DataLossError(MoldauError):
    """Records that were to be read are not there any more."""
