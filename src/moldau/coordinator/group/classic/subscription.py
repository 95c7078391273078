"""The topics in the metadata of a member whose protocol type is "consumer".

Only the beginning is read, which is the same in all versions; what a client writes after it is its own business.
"""

from __future__ import annotations

from moldau.protocol.wire import ProtocolError, Reader

CONSUMER = "consumer"


def subscribed_topics(metadata: bytes) -> list[str] | None:
    """None when the metadata is not what consumers write."""
    reader = Reader(metadata)
    try:
        if reader.int16() < 0:
            return None
        return [reader.string() for _ in range(reader.array_length())]
    except ProtocolError:
        return None
