"""What a replica's session must look at: the partitions that have changed since the replica had, and knew, all of them.

A session is about every partition that one broker copies from another, maybe thousands, and often one of them gets
records. Looking at all with every fetch would make that one's records cost what the others do. So changes are noted
where they happen, and all partitions are looked at only now and then: for what nobody notes (how far a quiet partition
is committed, where its log begins) and to see that replicas which lack nothing are still there.
"""

from __future__ import annotations

from typing import Final

from moldau.broker.fetch_partition import FetchPartition
from moldau.replication.partition import LOOK_AGAIN, DataWaiter, Partition

LOOK_AT_ALL_MS: Final = 50
# So many changes without a single fetch: the replica is gone, or has another session by now.
UNHEARD_MAX: Final = 10_000


class SessionWatch:
    __slots__ = ("_looked_ms", "_unheard", "_watchers", "changed", "ended", "missed", "waiting")

    def __init__(self) -> None:
        # Whatever the replica may have to hear of, oldest first.
        self.changed: dict[FetchPartition, None] = {}
        # The fetch that is woken by a change; while there is none, changes are `missed` by the fetch under way.
        self.waiting: DataWaiter | None = None
        self.missed = False
        self._watchers: dict[FetchPartition, _Watcher] = {}
        self._looked_ms = -LOOK_AT_ALL_MS
        self._unheard = 0
        # The replica has begun another session: nothing need be said in this one.
        self.ended = False

    def to_look_at(
        self, partitions: dict[tuple[bytes, int], FetchPartition], now_ms: int, *, every: bool
    ) -> list[FetchPartition]:
        """The partitions that a fetch is about, as far as there may be something to say."""
        self.missed = False
        self._unheard = 0
        if every or now_ms - self._looked_ms >= LOOK_AT_ALL_MS:
            self._looked_ms = now_ms
            return list(partitions.values())
        return list(self.changed)

    def is_quiet(self, asked: FetchPartition, partition: Partition) -> None:
        """The replica has all of it: nothing need be said until it changes, or is committed by the other replicas."""
        self.keep_watch(asked, partition)
        if partition.log.high_watermark == partition.log.log_end_offset:
            self.changed.pop(asked, None)

    def served(self, asked: FetchPartition) -> None:
        """The replica gets records of it: others come first next time."""
        self.changed.pop(asked, None)
        self.changed[asked] = None

    def keep_watch(self, asked: FetchPartition, partition: Partition) -> None:
        """Note the changes of this partition from now on."""
        watcher = self._watchers.get(asked)
        if watcher is not None:
            if watcher.partition is partition:
                return
            watcher.partition.forget_waiter(watcher)
        if not self.ended:
            self._watchers[asked] = watcher = _Watcher(self, asked, partition)
            partition.wait_for_data(watcher, follower=True)

    def forget(self, asked: FetchPartition) -> None:
        """The session is no longer about this partition."""
        self.changed.pop(asked, None)
        watcher = self._watchers.pop(asked, None)
        if watcher is not None:
            watcher.partition.forget_waiter(watcher)

    def end(self) -> None:
        self.ended = True
        for asked in list(self._watchers):
            self.forget(asked)
        if self.waiting is not None:
            # It would keep its connection from being used for another request.
            self.waiting.noticed(LOOK_AGAIN)

    def noticed(self, asked: FetchPartition, new_bytes: int) -> bool:
        """A partition has changed. True when nobody is interested any more."""
        self.changed[asked] = None
        waiting = self.waiting
        if waiting is not None:
            waiting.noticed(new_bytes)
            return False
        self.missed = True
        self._unheard += 1
        if self._unheard <= UNHEARD_MAX:
            return False
        self._watchers.pop(asked, None)
        for other in list(self._watchers):
            self.forget(other)
        self._looked_ms = -LOOK_AT_ALL_MS
        return True


class _Watcher:
    """Waits on one partition for one session, for as long as that lives."""

    __slots__ = ("_asked", "_watch", "partition")

    def __init__(self, watch: SessionWatch, asked: FetchPartition, partition: Partition) -> None:
        self._watch = watch
        self._asked = asked
        self.partition = partition

    def noticed(self, new_bytes: int) -> bool:
        return self._watch.noticed(self._asked, new_bytes)
