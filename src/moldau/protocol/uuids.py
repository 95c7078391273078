"""Kafka's text form of a UUID: sixteen bytes as 22 characters of URL-safe base64 without padding.

Inside the broker a UUID is always plain bytes; only tools, logs and files that people read use the text.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

UUID_BYTES: Final = 16
ZERO_UUID: Final = bytes(UUID_BYTES)
# Reserved by Kafka: the topic id of the metadata log, and what stands for a log directory that is not known.
METADATA_TOPIC_ID: Final = (1).to_bytes(UUID_BYTES, "big")
MIGRATING_DIRECTORY: Final = ZERO_UUID  # the replica's directory was never told
UNASSIGNED_DIRECTORY: Final = (1).to_bytes(UUID_BYTES, "big")  # the broker has yet to choose one
LOST_DIRECTORY: Final = (2).to_bytes(UUID_BYTES, "big")  # the directory is offline

_TEXT_LENGTH: Final = 22


def uuid_to_string(uuid: bytes) -> str:
    if len(uuid) != UUID_BYTES:
        raise ValueError(f"a UUID has {UUID_BYTES} bytes, not {len(uuid)}")
    return base64.urlsafe_b64encode(uuid)[:_TEXT_LENGTH].decode("ascii")


def uuid_from_string(text: str) -> bytes:
    """The bytes of a UUID in text form; ValueError when it is none."""
    if len(text) != _TEXT_LENGTH:
        raise ValueError(f"{text!r} is not a UUID: it must have {_TEXT_LENGTH} characters")
    try:
        return base64.b64decode(text.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(f"{text!r} is not a UUID in URL-safe base64") from error
