"""What changed between two images: names of things, so that a reader looks up the values in the images themselves.

A delta is filled by `ImageBuilder` while it replays and belongs to whoever receives it. It must never hold values
that an image holds already, except topics that are gone (a reader still has to close what belonged to them).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from moldau.metadata.image import ClusterImage, ConfigResource, QuotaEntity, TopicImage

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class ImageDelta:
    created_topics: set[bytes] = field(default_factory=set)
    """Ids of topics that the older image did not have."""
    deleted_topics: dict[bytes, TopicImage] = field(default_factory=dict)
    """Topics that the newer image no longer has, as they were last."""
    changed_partitions: dict[bytes, set[int]] = field(default_factory=dict)
    """Partitions that are new or different, by topic id; topics that are gone are not here."""
    configs: set[ConfigResource] = field(default_factory=set)
    features: set[str] = field(default_factory=set)
    brokers: set[int] = field(default_factory=set)
    controllers: set[int] = field(default_factory=set)
    client_quotas: set[QuotaEntity] = field(default_factory=set)
    producer_ids: bool = False
    acls: set[bytes] = field(default_factory=set)
    scram: set[tuple[int, str]] = field(default_factory=set)
    delegation_tokens: set[str] = field(default_factory=set)


def _differing(old: Mapping[K, V], new: Mapping[K, V]) -> set[K]:
    if old is new:
        return set()
    return {key for key in old.keys() | new.keys() if key not in old or key not in new or old[key] != new[key]}


def difference(old: ClusterImage, new: ClusterImage) -> ImageDelta:
    """The delta from one image to another by comparing them, for when nobody followed the records in between
    (a snapshot replaces everything)."""
    delta = ImageDelta(
        created_topics=set(new.topics_by_id.keys() - old.topics_by_id.keys()),
        deleted_topics={
            topic_id: old.topics_by_id[topic_id] for topic_id in old.topics_by_id.keys() - new.topics_by_id
        },
        configs=_differing(old.configs, new.configs),
        features=_differing(old.features, new.features),
        brokers=_differing(old.brokers, new.brokers),
        controllers=_differing(old.controllers, new.controllers),
        client_quotas=_differing(old.client_quotas, new.client_quotas),
        producer_ids=old.producer_ids != new.producer_ids,
        acls=_differing(old.acls, new.acls),
        scram=_differing(old.scram, new.scram),
        delegation_tokens=_differing(old.delegation_tokens, new.delegation_tokens),
    )
    for topic_id, topic in new.topics_by_id.items():
        before = old.topics_by_id.get(topic_id)
        if before is topic:
            continue
        changed = _differing({} if before is None else before.partitions, topic.partitions)
        if changed:
            delta.changed_partitions[topic_id] = changed
    return delta
