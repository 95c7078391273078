"""Reading topics without joining a consumer group: find the partitions, assign them, notice new ones.

A person who looks at a topic is not a member of anything, so nothing is left behind on the cluster and reading starts
without a rebalance. Commands that were given a group subscribe instead and do not come here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.cli.errors import CliError

if TYPE_CHECKING:
    from confluent_kafka import Consumer

REFRESH_SECONDS = 5.0
# A partition with nothing to read holds up the others that share its fetch for this long.
FETCH_WAIT_MS = "100"
METADATA_TIMEOUT = 5.0
CREATION_PAUSE = 0.1

Partition = tuple[str, int]


class PartitionReader:
    """The assignment of a group-less consumer: all partitions of the topics a predicate accepts.

    `start` says from where to read a partition that is there when reading begins; one that appears later is read from
    its beginning, since all of it is newer than the command.
    """

    def __init__(
        self, consumer: Consumer, accepts: Callable[[str], bool], start: int, topic: str | None = None
    ) -> None:
        self._consumer = consumer
        self._accepts = accepts
        self._start = start
        self._topic = topic
        self._known: set[Partition] = set()
        self._next_refresh = 0.0

    def begin(self, timeout: float | None = None) -> None:
        """Assign what is there now; wait for the cluster, and for a topic that is being created, up to `timeout`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self._find(_remaining(deadline))
            if found or self._topic is None or (deadline is not None and time.monotonic() >= deadline):
                break
            time.sleep(CREATION_PAUSE)
        self._assign(found, self._start)

    def refresh(self) -> None:
        """From time to time, look for new partitions."""
        from confluent_kafka import OFFSET_BEGINNING

        if time.monotonic() < self._next_refresh:
            return
        self._assign(self._find(METADATA_TIMEOUT) - self._known, OFFSET_BEGINNING)

    def _assign(self, partitions: set[Partition], offset: int) -> None:
        from confluent_kafka import TopicPartition

        self._next_refresh = time.monotonic() + REFRESH_SECONDS
        if not partitions:
            return
        added = [TopicPartition(topic, index, offset) for topic, index in sorted(partitions)]
        self._consumer.incremental_assign(added)
        self._known |= partitions

    def _find(self, timeout: float) -> set[Partition]:
        from confluent_kafka import KafkaException

        try:
            metadata = self._consumer.list_topics(self._topic, timeout=timeout)
        except KafkaException:
            # The library keeps trying to connect and reports why it cannot.
            return set()
        return {
            (name, index)
            for name, topic in metadata.topics.items()
            if topic.error is None and self._accepts(name)
            for index in topic.partitions
        }


def _remaining(deadline: float | None) -> float:
    if deadline is None:
        return METADATA_TIMEOUT
    return max(0.1, min(METADATA_TIMEOUT, deadline - time.monotonic()))


def assign_one(consumer: Consumer, topic: str, partition: int, offset: int) -> None:
    from confluent_kafka import KafkaException, TopicPartition

    try:
        # Asking for the topic makes the library find its leaders now and not at its next refresh.
        consumer.list_topics(topic, timeout=METADATA_TIMEOUT)
    except KafkaException:
        # The library keeps trying to connect and reports why it cannot.
        pass
    consumer.assign([TopicPartition(topic, partition, offset)])


def java_pattern(text: str) -> Callable[[str], bool]:
    """A Java regular expression as a predicate; the two languages agree on what people write for topic names."""
    import re

    try:
        pattern = re.compile(text)
    except re.error as error:
        raise CliError(f"'{text}' is not a regular expression: {error}") from None
    return lambda name: pattern.fullmatch(name) is not None
