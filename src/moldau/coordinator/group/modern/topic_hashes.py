"""Whether the topics of a group are still what they were: one number for each topic, one for all topics of a group.

Both are computed as Kafka does, since the second one stands in records. A change of partitions, of their racks or of
the topic's identity gives another number.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from moldau.coordinator.group.modern.xxh3 import xxh3_64
from moldau.metadata.image import ClusterImage, TopicImage

_INT = Struct("<i").pack
_LONG = Struct("<Q").pack
_BE_LONGS = Struct(">QQ").unpack
_NO_TOPICS = 0


class TopicHashes:
    """Numbers of topics, remembered until told that a topic has changed."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def forget(self, topic: str) -> None:
        self._known.pop(topic, None)

    def of_group(self, topics: Iterable[str], image: ClusterImage) -> int:
        """The number of a group that reads these topics, as records carry it: signed."""
        parts: list[bytes] = []
        for name in sorted(topics, key=_java_order):
            topic = image.topic(name)
            if topic is not None:
                parts.append(_LONG(self._of_topic(topic, image)))
        if not parts:
            return _NO_TOPICS
        number = xxh3_64(b"".join(parts))
        return number - (1 << 64) if number >> 63 else number

    def _of_topic(self, topic: TopicImage, image: ClusterImage) -> int:
        known = self._known.get(topic.name)
        if known is None:
            known = self._known[topic.name] = xxh3_64(_described(topic, image))
        return known


def _described(topic: TopicImage, image: ClusterImage) -> bytes:
    high, low = _BE_LONGS(topic.id)
    parts = [b"\0", _LONG(high), _LONG(low), *_string(topic.name), _INT(len(topic.partitions))]
    brokers = image.brokers
    racks_of: dict[tuple[int, ...], bytes] = {}
    for index in range(len(topic.partitions)):
        parts.append(_INT(index))
        partition = topic.partitions.get(index)
        if partition is None:
            continue
        replicas = partition.replicas
        racks = racks_of.get(replicas)
        if racks is None:
            found = (brokers[replica].rack for replica in replicas if replica in brokers)
            names = sorted((rack for rack in found if rack is not None), key=_java_order)
            pieces = (piece for rack in names for piece in (_INT(_java_length(rack)), *_string(rack)))
            racks = racks_of[replicas] = b"".join(pieces)
        parts.append(racks)
    return b"".join(parts)


def _string(text: str) -> tuple[bytes, bytes]:
    """Java's characters, then how many there are."""
    encoded = text.encode("utf-16-le", "surrogatepass")
    return encoded, _INT(len(encoded) // 2)


def _java_length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _java_order(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
