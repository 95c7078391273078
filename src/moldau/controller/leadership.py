"""What happens to partitions when a broker comes, goes or is asked to go.

Looks at every partition of the cluster once per such event, which is quick enough: brokers come and go seldom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from moldau.controller.configs import MIN_ISR
from moldau.controller.decision import Situation
from moldau.controller.partition_change import Election, PartitionChange, without
from moldau.metadata.image import NO_LEADER, PartitionRegistration, TopicImage
from moldau.metadata.records import MetadataRecord

UNCLEAN_ENABLE = "unclean.leader.election.enable"


def effective_min_isr(s: Situation, topic: str) -> int:
    override = s.state.topic_configs(topic).get(MIN_ISR)
    return int(override) if override is not None else s.config.integer(MIN_ISR)


def unclean_allowed(s: Situation, topic: str) -> bool:
    override = s.state.topic_configs(topic).get(UNCLEAN_ENABLE)
    return override.strip().lower() == "true" if override is not None else s.config.flag(UNCLEAN_ENABLE)


def change_of(
    s: Situation, topic: TopicImage, index: int, is_alive: Callable[[int], bool] | None = None
) -> PartitionChange:
    """A change of one partition under the topic's settings; election is unclean where the topic allows it."""
    change = PartitionChange(s.state, topic, index, min_isr=effective_min_isr(s, topic.name), is_alive=is_alive)
    if unclean_allowed(s, topic.name):
        change.election = Election.UNCLEAN
    return change


def _changed(
    s: Situation,
    where: Callable[[PartitionRegistration], bool],
    is_alive: Callable[[int], bool],
    *,
    remove: int | None = None,
    uncleanly: bool = False,
) -> Iterator[MetadataRecord]:
    for topic in s.state.topics.values():
        concerned = [index for index, partition in topic.partitions.items() if where(partition)]
        if not concerned:
            continue
        min_isr = effective_min_isr(s, topic.name)
        election = Election.UNCLEAN if unclean_allowed(s, topic.name) else Election.ONLINE
        for index in concerned:
            change = PartitionChange(s.state, topic, index, min_isr=min_isr, is_alive=is_alive)
            change.election = election
            if remove is not None:
                change.isr = without(change.isr, remove)
                if uncleanly:
                    change.unclean_shutdown = (remove,)
            record = change.build()
            if record is not None:
                yield record


def broker_leaves(s: Situation, broker_id: int) -> Iterable[MetadataRecord]:
    """It is fenced, unregistered or on its way out: others lead what it led, and it leaves the in-sync sets."""
    return _changed(
        s,
        lambda partition: broker_id in partition.isr,
        lambda other: other != broker_id and s.state.is_active(other),
        remove=broker_id,
    )


def broker_is_gone(s: Situation, broker_id: int) -> Iterable[MetadataRecord]:
    """It is unregistered: it must not stay an eligible leader either."""
    return _changed(
        s,
        lambda partition: broker_id in partition.isr or broker_id in partition.elr,
        lambda other: other != broker_id and s.state.is_active(other),
        remove=broker_id,
    )


def broker_crashed(s: Situation, broker_id: int) -> Iterable[MetadataRecord]:
    """It came back without having shut down: what it had not synced is lost, so it is no eligible leader."""
    return _changed(
        s,
        lambda partition: broker_id in partition.isr or broker_id in partition.elr,
        lambda other: other != broker_id and s.state.is_active(other),
        remove=broker_id,
        uncleanly=True,
    )


def broker_arrives(s: Situation, broker_id: int) -> Iterable[MetadataRecord]:
    """It is unfenced: partitions without a leader may have one again."""
    return _changed(
        s,
        lambda partition: partition.leader == NO_LEADER,
        lambda other: other == broker_id or s.state.is_active(other),
    )


def directory_is_lost(s: Situation, broker_id: int, directory: bytes) -> Iterable[MetadataRecord]:
    """One log directory of a live broker failed."""
    return _changed(
        s,
        lambda partition: broker_id in partition.isr and partition.directory_of(broker_id) == directory,
        lambda other: other != broker_id and s.state.is_active(other),
        remove=broker_id,
    )


def leads_anything(s: Situation, broker_id: int) -> bool:
    return any(partition.leader == broker_id for _, _, partition in s.state.partitions())
