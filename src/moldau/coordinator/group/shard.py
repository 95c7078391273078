"""One shard of the group coordinator: the groups and offsets behind one partition of the offsets topic.

Holds the state and hands each record to the part that understands it. What happens to groups is decided by those
parts, one per kind of event.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from moldau.config.node_config import NodeConfig
from moldau.coordinator.decision import Transaction
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.classic.groups import ClassicGroups
from moldau.coordinator.group.classic.records import GROUP_METADATA
from moldau.coordinator.group.consumer.groups import ConsumerGroups
from moldau.coordinator.group.expiry import OffsetExpiry
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.offset_commits import OffsetCommits
from moldau.coordinator.group.offset_fetches import OffsetFetches
from moldau.coordinator.group.offset_records import LEGACY_OFFSET_COMMIT, OFFSET_COMMIT
from moldau.coordinator.group.offset_store import OffsetStore
from moldau.coordinator.group.overview import GroupOverview
from moldau.coordinator.group.share.groups import ShareGroups
from moldau.coordinator.group.streams import RECORD_TYPES as STREAMS_RECORDS
from moldau.metadata.image import EMPTY_IMAGE
from moldau.ports import Clock
from moldau.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from moldau.coordinator.group.streams.groups import StreamsGroups
    from moldau.coordinator.runtime import ShardHost
    from moldau.metadata.delta import ImageDelta
    from moldau.metadata.image import ClusterImage

log = logging.getLogger("moldau.coordinator")

Replay = Callable[[int, "Transaction | None", bytes, "bytes | None"], None]


class GroupShard:
    def __init__(self, host: ShardHost[Any], clock: Clock, config: Callable[[], NodeConfig], random: Random) -> None:
        self.host = host
        self.clock = clock
        self.config = config
        self.random = random
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.commits = OffsetCommits(self)
        self.fetches = OffsetFetches(self)
        self.expiry = OffsetExpiry(self)
        self.overview = GroupOverview(self)
        self.image: ClusterImage = EMPTY_IMAGE
        self.classic = ClassicGroups(self)
        self.consumer = ConsumerGroups(self)
        self.share = ShareGroups(self)
        self._streams: StreamsGroups | None = None
        self._replays: Mapping[int, Replay] = {
            LEGACY_OFFSET_COMMIT: self._replay_offset,
            OFFSET_COMMIT: self._replay_offset,
            GROUP_METADATA: self.classic.replay,
            **dict.fromkeys(self.consumer.replays.types, self.consumer.replays.replay),
            **dict.fromkeys(self.share.replays.types, self.share.replays.replay),
            **dict.fromkeys(STREAMS_RECORDS, self._replay_streams),
        }

    @property
    def streams(self) -> StreamsGroups:
        """Loaded with the first streams group: few clusters have any."""
        streams = self._streams
        if streams is None:
            from moldau.coordinator.group.streams.groups import StreamsGroups

            streams = self._streams = StreamsGroups(self)
        return streams

    @property
    def streams_rebalances(self) -> int:
        return 0 if self._streams is None else self._streams.rebalances

    def group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def count_by_state(self) -> Counter[tuple[str, str]]:
        """How many groups of each (type, state) there are."""
        return Counter((group.type.value, group.state_name) for group in self.groups.values())

    def committed(self, group: Group, member_id: str) -> None:
        """A member has committed offsets, which some kinds of group take for a sign of life."""
        if isinstance(group, ClassicGroup):
            self.classic.committed(group, member_id)

    # ---- the runtime's calls

    def replay(self, offset: int, transaction: Transaction | None, key: bytes, value: bytes | None) -> None:
        take_over = self._replays.get(int.from_bytes(key[:2], "big"))
        if take_over is None:
            log.warning("a record of an unknown type at offset %d is left out", offset)
            return
        take_over(offset, transaction, key, value)

    def _replay_offset(self, offset: int, transaction: Transaction | None, key: bytes, value: bytes | None) -> None:
        group_id = self.offsets.replay(offset, transaction, key, value)
        if value is not None and group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(group_id, self.clock.now_ms())

    def _replay_streams(self, offset: int, transaction: Transaction | None, key: bytes, value: bytes | None) -> None:
        self.streams.replays.replay(offset, transaction, key, value)

    def end_transaction(self, transaction: Transaction, committed: bool) -> None:
        self.offsets.end_transaction(transaction.producer_id, committed)

    def loaded(self, image: ClusterImage) -> None:
        self.image = image
        self.classic.loaded()
        self.consumer.loaded()
        self.share.loaded()
        if self._streams is not None:
            self._streams.loaded()
        self.expiry.start()

    def unloaded(self) -> None:
        for group in self.groups.values():
            group.unloaded()

    def image_published(self, delta: ImageDelta, image: ClusterImage) -> None:
        self.image = image
        self.consumer.image_published(delta, image)
        self.share.image_published(delta, image)
        if self._streams is not None:
            self._streams.image_published(delta, image)
        if delta.deleted_topics:
            deleted = list(delta.deleted_topics.values())
            self.host.perform(lambda: self.expiry.topics_deleted(deleted))
