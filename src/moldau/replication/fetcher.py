"""Following leaders: one conversation of fetches with each broker that leads partitions of which this node has a copy.

Decides what is asked for and when, and what an answer does to the logs: append, cut off what the leader does not
have, begin anew where its log begins. Copies are byte for byte. It never decides who leads or what is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from moldau.config.node_config import NodeConfig
from moldau.log.manager import LogManager
from moldau.log.pacing import Throttle
from moldau.log.partition_log import PartitionLog
from moldau.ports import Address, Clock, Network, Timer, Unreachable
from moldau.protocol.errors import ApiError, ErrorCode, error_code
from moldau.protocol.generated.wire import fetch_response
from moldau.protocol.generated.wire.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from moldau.protocol.generated.wire.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.replication.partition import Partition

log: Final = logging.getLogger("moldau.replication")

FETCH_VERSION: Final = 17
LIST_OFFSETS_VERSION: Final = 7
LATEST, EARLIEST = -1, -2
NO_SESSION: Final = 0
# After a failure, doubling up to replica.fetch.backoff.ms.
BACKOFF_MS_FIRST: Final = 5
OPEN_AT_ONCE: Final = 16
# The rate of a throttle may be raised meanwhile.
HELD_BACK_MS_MAX: Final = 1000
# On top of the time a leader may wait for data before its answer must be here.
ANSWER_MS_MAX: Final = 10_000

Key = tuple[bytes, int]


class _Followed:
    """One partition that is copied from a leader."""

    __slots__ = ("asked_epoch", "asked_offset", "backoff_ms", "delay", "partition", "resting")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        # What the request under way asks for.
        self.asked_offset = -1
        self.asked_epoch = -1
        self.backoff_ms = 0
        self.delay: Timer | None = None
        # Not fetched at the moment, after an error or while something else is asked about it.
        self.resting = False


class _Settings:
    """What the node's settings say about fetching: read once, and again when they change."""

    def __init__(self, config: NodeConfig) -> None:
        self.source = config
        self.max_bytes = config.integer("replica.fetch.max.bytes")
        self.max_wait_ms = config.integer("replica.fetch.wait.max.ms")
        self.min_bytes = config.integer("replica.fetch.min.bytes")
        self.answer_max_bytes = config.integer("replica.fetch.response.max.bytes")


class ReplicaFetchers:
    """Everything this node copies from others."""

    def __init__(
        self,
        node_id: int,
        logs: LogManager,
        clock: Clock,
        network: Network,
        config: Callable[[], NodeConfig],
        broker_epoch: Callable[[], int],
        address_of: Callable[[int], Address | None],
        throttle: Throttle,
    ) -> None:
        """`throttle` is the rate at which copies that are not in sync may grow, where their topics say so."""
        self.throttle = throttle
        self.node_id = node_id
        self.logs = logs
        self.clock = clock
        self.network = network
        self.config = config
        self.broker_epoch = broker_epoch
        self.address_of = address_of
        self.closed = False
        # Brokers that cannot be reached, and since when.
        self.lost_since: dict[int, int] = {}
        self._leaders: dict[int, _LeaderFetcher] = {}
        self._leader_of: dict[Key, int] = {}
        self._settings: _Settings | None = None

    def settings(self) -> _Settings:
        config = self.config()
        settings = self._settings
        if settings is None or settings.source is not config:
            settings = self._settings = _Settings(config)
        return settings

    def follow(self, partition: Partition) -> None:
        """Copy this partition from its leader, whoever that was before."""
        key = (partition.topic_id, partition.index)
        before = self._leader_of.get(key)
        if before is not None and before != partition.leader_id:
            self.unfollow(partition)
        self._leader_of[key] = partition.leader_id
        fetcher = self._leaders.get(partition.leader_id)
        if fetcher is None:
            fetcher = self._leaders[partition.leader_id] = _LeaderFetcher(self, partition.leader_id)
        fetcher.add(key, partition)

    def unfollow(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        leader = self._leader_of.pop(key, None)
        if leader is not None:
            fetcher = self._leaders[leader]
            fetcher.remove(key)
            if fetcher.is_idle:
                self.lost_since.pop(leader, None)

    def close(self) -> None:
        self.closed = True
        for fetcher in self._leaders.values():
            fetcher.close()


class _LeaderFetcher:
    """The conversation with one leader."""

    def __init__(self, home: ReplicaFetchers, leader_id: int) -> None:
        self._home = home
        self._leader_id = leader_id
        self._followed: dict[Key, _Followed] = {}
        # What the next request must mention, because the leader does not know it yet.
        self._news: dict[Key, None] = {}
        self._forgotten: set[Key] = set()
        # What is left out because it is throttled.
        self._held_back: set[Key] = set()
        self._session_id = NO_SESSION
        self._session_epoch = 0
        # Answers of an earlier conversation are not listened to.
        self._conversation = 0
        self._in_flight = False
        # Copies that must get to the disk, and how many are on their way; nothing is asked for until they are there.
        self._unsynced: list[PartitionLog] = []
        self._syncing = 0
        self._interrupt = False
        self._backoff_ms = 0
        self._timer: Timer | None = None

    # ---- what is followed

    @property
    def is_idle(self) -> bool:
        return not self._followed

    def add(self, key: Key, partition: Partition) -> None:
        found = self._followed.get(key)
        if found is not None and found.partition is partition and found.asked_epoch == partition.leader_epoch:
            return
        if found is not None and found.delay is not None:
            found.delay.cancel()
        self._followed[key] = _Followed(partition)
        self._held_back.discard(key)
        self._forgotten.discard(key)
        self._news[key] = None
        self._hurry()

    def remove(self, key: Key) -> None:
        found = self._followed.pop(key, None)
        if found is None:
            return
        if found.delay is not None:
            found.delay.cancel()
        self._held_back.discard(key)
        self._news.pop(key, None)
        self._forgotten.add(key)

    def close(self) -> None:
        self._conversation += 1
        if self._timer is not None:
            self._timer.cancel()
        for followed in self._followed.values():
            if followed.delay is not None:
                followed.delay.cancel()

    def _hurry(self) -> None:
        """Something new shall be asked for, and must not wait until the leader has answered the request under way."""
        self._interrupt = self._in_flight
        self._schedule(0)

    def _schedule(self, delay_ms: int) -> None:
        if self._timer is None and not self._home.closed:
            self._timer = self._home.clock.call_later(delay_ms, self._fetch)

    def _rest(self, key: Key, followed: _Followed) -> None:
        """Leave a partition out for a while."""
        most = max(self._home.config().integer("replica.fetch.backoff.ms"), 1)
        followed.backoff_ms = min(max(2 * followed.backoff_ms, BACKOFF_MS_FIRST), most)
        self._pause(key, followed)
        followed.delay = self._home.clock.call_later(followed.backoff_ms, lambda: self._resume(key, followed))

    def _pause(self, key: Key, followed: _Followed) -> None:
        followed.resting = True
        self._news.pop(key, None)
        self._forgotten.add(key)

    def _resume(self, key: Key, followed: _Followed) -> None:
        followed.delay = None
        if self._followed.get(key) is followed and not followed.partition.offline:
            followed.resting = False
            self._forgotten.discard(key)
            self._news[key] = None
            self._hurry()

    # ---- asking

    def _fetch(self) -> None:
        self._timer = None
        home = self._home
        if home.closed or self._syncing:
            return
        if self._in_flight:
            if not self._interrupt:
                return
            self._restart()
        self._interrupt = False
        for followed in self._followed.values():
            if not followed.resting:
                break
        else:
            self._restart()
            return
        address = home.address_of(self._leader_id)
        if address is None or home.broker_epoch() < 0:
            self._try_later()
            return
        if not self._open_some():
            self._schedule(0)
            return
        request = self._request()
        if request is None:
            return
        conversation = self._conversation
        self._in_flight = True
        home.network.send(
            address,
            request,
            FETCH_VERSION,
            lambda answer: self._answered(answer, conversation),
            timeout_ms=request.max_wait_ms + ANSWER_MS_MAX,
            # An abandoned request may still be waited on by the leader: the next one goes another way.
            lane=f"replica-{conversation % 2}",
        )

    def _open_some(self) -> bool:
        """Open the logs of new partitions, some at a time because others wait for this thread; whether all are."""
        left = OPEN_AT_ONCE
        for key in list(self._news):
            followed = self._followed[key]
            if followed.partition.opened or followed.resting:
                continue
            if left == 0:
                return False
            left -= 1
            try:
                _ = followed.partition.log
            except ApiError:
                self._pause(key, followed)  # its disk failed
        return True

    def _restart(self) -> None:
        self._conversation += 1
        self._in_flight = False
        self._session_epoch = 0
        self._forgotten.clear()

    def _try_later(self) -> None:
        most = max(self._home.config().integer("replica.fetch.backoff.ms"), 1)
        self._backoff_ms = min(max(2 * self._backoff_ms, BACKOFF_MS_FIRST), most)
        self._schedule(self._backoff_ms)

    def _request(self) -> FetchRequest | None:
        home = self._home
        settings = home.settings()
        full = self._session_epoch == 0
        topics: dict[bytes, list[FetchPartition]] = {}
        # Not a walk over everything that is followed: that may be thousands, and the news one.
        wanted = list(self._followed if full else self._news)
        for key in wanted:
            followed = self._followed[key]
            if followed.resting:
                continue
            asked = self._ask_for(key, followed, settings.max_bytes)
            if asked is not None:
                topics.setdefault(key[0], []).append(asked)
        self._news.clear()
        if full and not topics:
            return None
        gone: dict[bytes, list[int]] = {}
        if not full:
            for topic_id, index in self._forgotten:
                gone.setdefault(topic_id, []).append(index)
        self._forgotten.clear()
        max_wait_ms = settings.max_wait_ms
        if self._held_back:
            max_wait_ms = min(max_wait_ms, max(home.throttle.wait_ms(), 1))
        return FetchRequest(
            replica_state=ReplicaState(replica_id=home.node_id, replica_epoch=home.broker_epoch()),
            max_wait_ms=max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.answer_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=[FetchTopic(topic_id=topic_id, partitions=asked) for topic_id, asked in topics.items()],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=lost) for topic_id, lost in gone.items()
            ],
        )

    def _ask_for(self, key: Key, followed: _Followed, max_bytes: int) -> FetchPartition | None:
        partition = followed.partition
        try:
            copy = partition.log
        except ApiError:
            self._pause(key, followed)  # its disk failed
            return None
        followed.asked_offset = copy.log_end_offset
        followed.asked_epoch = partition.leader_epoch
        return FetchPartition(
            partition=partition.index,
            current_leader_epoch=partition.leader_epoch,
            fetch_offset=copy.log_end_offset,
            last_fetched_epoch=copy.epochs.latest,
            log_start_offset=copy.log_start_offset,
            partition_max_bytes=max_bytes,
        )

    # ---- answers

    def _answered(self, answer: Any, conversation: int) -> None:
        if conversation != self._conversation or self._home.closed:
            return
        self._in_flight = False
        if isinstance(answer, Unreachable):
            log.debug("nothing can be fetched from broker %d: %s", self._leader_id, answer.reason)
            self._home.lost_since.setdefault(self._leader_id, self._home.clock.monotonic_ms())
            self._restart()
            self._try_later()
            return
        assert isinstance(answer, fetch_response.FetchResponse)
        self._home.lost_since.pop(self._leader_id, None)
        if answer.error_code:
            log.debug("broker %d begins another conversation: %s", self._leader_id, error_code(answer.error_code).name)
            self._restart()
            self._session_id = NO_SESSION
            self._try_later()
            return
        self._backoff_ms = 0
        self._session_id = answer.session_id
        self._session_epoch = 0 if answer.session_id == NO_SESSION else self._next_epoch()
        for topic in answer.responses:
            for data in topic.partitions:
                self._take((topic.topic_id, data.partition_index), data)
        if self._timer is not None:
            self._timer.cancel()
        if self._unsynced:
            self._sync()
        else:
            self._fetch()

    def _sync(self) -> None:
        """Some topics want records on the disk before they count: the leader is told of them when they are there."""
        unsynced, self._unsynced = self._unsynced, []
        self._syncing = len(unsynced)
        for copy in unsynced:
            copy.flush(self._synced)

    def _synced(self, _: OSError | None) -> None:
        self._syncing -= 1
        if not self._syncing:
            self._fetch()

    def _next_epoch(self) -> int:
        return 1 if self._session_epoch >= 2**31 - 1 else self._session_epoch + 1

    def _take(self, key: Key, data: fetch_response.PartitionData) -> None:
        followed = self._followed.get(key)
        if followed is None or followed.resting:
            return
        partition = followed.partition
        if followed.asked_epoch != partition.leader_epoch or partition.leader_id != self._leader_id:
            self._news[key] = None
            return
        try:
            self._apply(key, followed, data)
        except ApiError as error:
            if partition.offline:
                self._pause(key, followed)
                return
            log.warning("%s-%d cannot follow broker %d: %s", partition.topic, partition.index, self._leader_id, error)
            self._rest(key, followed)
        except Exception:
            log.exception("%s-%d cannot follow broker %d", partition.topic, partition.index, self._leader_id)
            self._rest(key, followed)

    def _apply(self, key: Key, followed: _Followed, data: fetch_response.PartitionData) -> None:
        partition = followed.partition
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._pause(key, followed)
            _Realignment(
                self._home, self._leader_id, partition, lambda done: self._realigned(key, followed, done)
            ).begin()
            return
        if data.error_code:
            code = error_code(data.error_code)
            log.debug("%s-%d from broker %d: %s", partition.topic, partition.index, self._leader_id, code.name)
            self._rest(key, followed)
            return
        followed.backoff_ms = 0
        if partition.log.log_end_offset != followed.asked_offset:
            self._news[key] = None
            return
        if data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0:
            self._cut(partition, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            self._news[key] = None
            return
        start = partition.log.log_start_offset
        added = partition.append_replicated(data.records or b"", data.high_watermark, data.log_start_offset)
        if partition.log.log_end_offset != followed.asked_offset or partition.log.log_start_offset != start:
            self._news[key] = None
        if added and partition.log.needs_sync_to_commit:
            self._unsynced.append(partition.log)
        if added and partition.is_follower_throttled:
            self._home.throttle.spend(added)
            self._hold_back(key, followed)

    def _hold_back(self, key: Key, followed: _Followed) -> None:
        """Leave a throttled partition out until it may grow again; one that is in sync never is."""
        delay = self._home.throttle.wait_ms()
        partition = followed.partition
        if not delay or not partition.is_follower_throttled or partition.node_id in partition.isr:
            return
        self._pause(key, followed)
        self._held_back.add(key)
        delay = min(delay, HELD_BACK_MS_MAX)
        followed.delay = self._home.clock.call_later(delay, lambda: self._let_go(key, followed))

    def _let_go(self, key: Key, followed: _Followed) -> None:
        """A throttled partition goes on with the next request, which is not far: nobody is hurried for it."""
        followed.delay = None
        if self._followed.get(key) is not followed:
            return
        self._held_back.discard(key)
        followed.resting = False
        self._hold_back(key, followed)
        if not followed.resting:
            self._forgotten.discard(key)
            self._news[key] = None
            if not self._in_flight:
                self._schedule(0)

    def _cut(self, partition: Partition, epoch: int, end_offset: int) -> None:
        """Remove what the leader does not have: it parted from this log in `epoch`, which ends there for it."""
        copy = partition.log
        _, own_end = copy.end_offset_for_epoch(epoch)
        target = min(end_offset, copy.log_end_offset if own_end < 0 else own_end)
        target = max(target, 0)
        log.info(
            "%s-%d: the log is cut from %d to %d, where that of broker %d goes on differently",
            partition.topic,
            partition.index,
            copy.log_end_offset,
            target,
            self._leader_id,
        )
        self._home.logs.truncate(partition.topic, partition.index, target)

    def _realigned(self, key: Key, followed: _Followed, done: bool) -> None:
        if self._followed.get(key) is not followed:
            return
        if done:
            self._resume(key, followed)
        else:
            self._rest(key, followed)


class _Realignment:
    """A copy that ends outside of its leader's log: find out where that is, and begin again there."""

    __slots__ = ("_done", "_epoch", "_home", "_leader_id", "_partition")

    def __init__(
        self, home: ReplicaFetchers, leader_id: int, partition: Partition, done: Callable[[bool], None]
    ) -> None:
        self._home = home
        self._leader_id = leader_id
        self._partition = partition
        self._epoch = partition.leader_epoch
        self._done = done

    def begin(self) -> None:
        self._ask(EARLIEST, self._found_start)

    def _ask(self, which: int, found: Callable[[int], None]) -> None:
        partition = self._partition
        address = self._home.address_of(self._leader_id)
        if address is None:
            self._done(False)
            return
        asked = ListOffsetsPartition(partition_index=partition.index, current_leader_epoch=self._epoch, timestamp=which)
        request = ListOffsetsRequest(
            replica_id=self._home.node_id, topics=[ListOffsetsTopic(name=partition.topic, partitions=[asked])]
        )

        def answered(answer: Any) -> None:
            if self._home.closed:
                return
            if isinstance(answer, Unreachable) or partition.leader_epoch != self._epoch or partition.offline:
                self._done(False)
                return
            told = answer.topics[0].partitions[0]
            if told.error_code:
                self._done(False)
                return
            try:
                found(told.offset)
            except ApiError as error:
                log.warning("%s-%d cannot be realigned: %s", partition.topic, partition.index, error)
                self._done(False)

        self._home.network.send(
            address, request, LIST_OFFSETS_VERSION, answered, timeout_ms=ANSWER_MS_MAX, lane="replica-offsets"
        )

    def _found_start(self, start: int) -> None:
        partition = self._partition
        if start <= partition.log.log_end_offset:
            self._ask(LATEST, self._found_end)
            return
        log.info("%s-%d begins anew at %d, where its leader begins", partition.topic, partition.index, start)
        self._home.logs.truncate_fully(partition.topic, partition.index, start)
        self._done(True)

    def _found_end(self, end: int) -> None:
        partition = self._partition
        if end < partition.log.log_end_offset:
            log.warning("%s-%d is cut to %d, where its leader ends; it had more", partition.topic, partition.index, end)
            self._home.logs.truncate(partition.topic, partition.index, end)
        self._done(True)
