"""One partition on this node: who leads it, what is committed, and who waits for what.

Decides when a record is committed (the high watermark) and who must be told. It never parses a record and never
writes a file itself; the bytes are the log's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from moldau.metadata.image import PartitionRegistration
from moldau.ports import Buffer
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.uuids import UNASSIGNED_DIRECTORY
from moldau.replication.leader_state import Duties, LeaderState

if TYPE_CHECKING:
    from moldau.log.partition_log import AppendInfo, PartitionLog
    from moldau.log.producer_state import VerificationGuard

NO_LEADER: Final = -1
# As many new bytes as nobody asks for: whoever waits must look again, whatever there is to see.
LOOK_AGAIN: Final = 1 << 62


class DataWaiter(Protocol):
    """A fetch that waits for more bytes. `noticed` returns True when it needs no more news."""

    def noticed(self, new_bytes: int) -> bool: ...


class Partition:
    """The replica of one partition that this node holds."""

    __slots__ = (
        "_commit_waiters",
        "_data_waiters",
        "_duties",
        "_follower_waiters",
        "_log",
        "_open_log",
        "bytes_in",
        "bytes_out",
        "directories",
        "index",
        "is_follower_throttled",
        "is_leader_throttled",
        "is_new",
        "isr",
        "leader_epoch",
        "leader_id",
        "leading",
        "min_isr",
        "node_id",
        "offline",
        "partition_epoch",
        "records_in",
        "replicas",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        node_id: int,
        topic: str,
        topic_id: bytes,
        index: int,
        registration: PartitionRegistration,
        min_isr: int,
        open_log: Callable[[Partition], PartitionLog],
        *,
        is_new: bool = False,
        duties: Duties | None = None,
    ) -> None:
        """`is_new`: it was created just now, so that there cannot be a log of it anywhere yet. Without `duties` this
        node knows no other, and cannot lead more than one replica."""
        self.node_id = node_id
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.min_isr = min_isr
        self._open_log = open_log
        self._log: PartitionLog | None = None
        self._duties = duties
        self._data_waiters: list[DataWaiter] | None = None
        self._follower_waiters: list[DataWaiter] | None = None
        self._commit_waiters: list[tuple[int, Callable[[], None], Callable[[ErrorCode], None] | None]] | None = None
        self.is_new = is_new
        # Whether replicas that are not in sync are held back, where this one leads and where it follows.
        self.is_leader_throttled = False
        self.is_follower_throttled = False
        # The disk that has its log failed.
        self.offline = False
        self.records_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.directories: tuple[bytes, ...] = ()
        # What is known of the other replicas; None unless this one leads and there are others.
        self.leading: LeaderState | None = None
        self.update(registration)

    # ---- leadership

    def update(self, registration: PartitionRegistration) -> None:
        """Take over what the controller decided about this partition."""
        led = self.is_leader
        self.replicas = registration.replicas
        self.isr = registration.isr
        self.leader_id = registration.leader
        self.directories = registration.directories
        self.partition_epoch = registration.partition_epoch
        # An epoch that this replica knew of before it might lead in it begins for it now.
        new_epoch = registration.leader_epoch != self.leader_epoch or (not led and self.is_leader)
        self.leader_epoch = registration.leader_epoch
        self._follow_leadership(new_epoch=new_epoch)
        if new_epoch and self._log is not None:
            self._begin_epoch(self._log)
        if self.leading is not None and self._log is not None:
            self._advance(self._log, 0)
        if led and new_epoch:
            self._epoch_ended()

    def knows(self, registration: PartitionRegistration) -> bool:
        """Whether the controller has decided nothing new about this partition."""
        return (
            registration.partition_epoch == self.partition_epoch
            and registration.leader_epoch == self.leader_epoch
            and registration.directories == self.directories
        )

    def _follow_leadership(self, *, new_epoch: bool) -> None:
        if self.leader_id != self.node_id or self._duties is None or len(self.replicas) < 2:
            self.leading = None
        elif self.leading is None or new_epoch:
            self.leading = LeaderState(self, self._duties)
            if self._log is not None:
                self.leading.start_offset = self._log.log_end_offset
        else:
            self.leading.replicas_changed()

    def _epoch_ended(self) -> None:
        """Whoever waits must look again; what a former leader has not committed it never will."""
        if self.leader_id != self.node_id:
            self.fail_commits(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.tell_data(LOOK_AGAIN)
        self._tell_followers(LOOK_AGAIN)

    def _begin_epoch(self, log: PartitionLog) -> None:
        if self.leader_id == self.node_id:
            log.begin_leader_epoch(self.leader_epoch)
            if log.needs_sync_to_commit and log.recovery_point < log.log_end_offset:
                # What it copied may not be on the disk yet, and nobody may write for a long time.
                log.flush(self._synced)

    @property
    def directory(self) -> bytes:
        """The id of the log directory in which the controller believes this replica to be."""
        for replica, directory in zip(self.replicas, self.directories, strict=False):
            if replica == self.node_id:
                return directory
        return UNASSIGNED_DIRECTORY

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.node_id

    def require_leader(self, asked_epoch: int = -1) -> None:
        """Refuse a client that talks to the wrong replica or knows another leadership than this one."""
        self.require_replica(asked_epoch)
        if self.leader_id != self.node_id:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def require_replica(self, asked_epoch: int = -1) -> None:
        """Refuse a client that knows another leadership than this replica does, be it the leader or not."""
        if self.offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        if asked_epoch >= 0 and asked_epoch != self.leader_epoch:
            if asked_epoch < self.leader_epoch:
                raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def set_min_isr(self, min_isr: int) -> None:
        """The topic's setting changed: with a lower one, what waits may be committed."""
        self.min_isr = min_isr
        if self.leading is not None and self._log is not None:
            self._advance(self._log, 0)

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether as many replicas are in sync as `min.insync.replicas` asks for, or all, if there are fewer."""
        return len(self.isr) >= min(self.min_isr, len(self.replicas))

    @property
    def lags_behind_epoch(self) -> bool:
        """Whether a new leader does not know yet how much its predecessors had committed: maybe more than it says."""
        leading, log = self.leading, self._log
        return leading is not None and log is not None and log.high_watermark < leading.start_offset

    # ---- the log, opened at first use so that a node with many partitions starts at once

    @property
    def log(self) -> PartitionLog:
        log = self._log
        if log is None:
            log = self._open_log(self)
            self._begin_epoch(log)
            if self.isr == (self.node_id,) and self.leading is None:
                log.high_watermark = log.log_end_offset
            self._log = log
            if self.leading is not None:
                self.leading.start_offset = log.log_end_offset
                self._advance(log, 0)
        return log

    @property
    def opened(self) -> bool:
        return self._log is not None

    def replace_log(self, log: PartitionLog | None) -> None:
        """The log moved to another directory (or is gone): use that one from now on."""
        self._log = log
        self.offline = False

    def go_offline(self) -> None:
        """The disk failed: whoever waits for it is told, and nobody is served until the next start."""
        self._log = None
        self.offline = True
        self.fail_commits(ErrorCode.KAFKA_STORAGE_ERROR)
        self.tell_data(LOOK_AGAIN)
        self._tell_followers(LOOK_AGAIN)

    def fail_commits(self, code: ErrorCode) -> None:
        """Nothing more will be committed here: tell those who wait for it."""
        waiters, self._commit_waiters = self._commit_waiters, None
        for _, _, failed in waiters or ():
            if failed is not None:
                failed(code)

    def _not_leading(self) -> ApiError:
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR if self.offline else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # ---- producing

    def append(
        self, records: memoryview, required_acks: int, guard: VerificationGuard | None = None, *, own: bool = False
    ) -> AppendInfo:
        """Append a client's batch as the leader; raises ApiError with what the client must be told.

        `guard` proves that the coordinator knows of the transaction that the batch begins here. What this broker has
        made of its `own` need not be looked through.
        """
        if self.leader_id != self.node_id:
            raise self._not_leading()
        if required_acks == -1 and len(self.isr) < self.min_isr and not self.has_enough_in_sync:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
        log = self._log
        if log is None:
            log = self.log
        info = log.append_as_leader(records, self.leader_epoch, guard=guard, own=own)
        size = len(records)
        self.bytes_in += size
        self.records_in += info.records
        if log.needs_sync_to_commit:
            log.flush(self._synced)
        else:
            self._advance(log, size)
        return info

    def append_own(
        self, batch: Buffer, *, guard: VerificationGuard | None = None, transaction_version: int = 0
    ) -> AppendInfo:
        """Append what this broker wrote itself (a coordinator's records, a transaction marker)."""
        if self.leader_id != self.node_id:
            raise self._not_leading()
        log = self.log
        info = log.append_own(batch, self.leader_epoch, guard=guard, transaction_version=transaction_version)
        if log.needs_sync_to_commit:
            log.flush(self._synced)
        else:
            self._advance(log, len(batch))
        return info

    def _synced(self, error: OSError | None) -> None:
        log = self._log
        if error is None and log is not None:
            self._advance(log, log.recovery_point - log.high_watermark)

    def _advance(self, log: PartitionLog, new_bytes: int) -> None:
        """Commit what every in-sync replica has, and tell those who wait."""
        committed = log.recovery_point if log.needs_sync_to_commit else log.log_end_offset
        if self.leading is not None:
            if self._follower_waiters is not None and new_bytes > 0:
                self._tell_followers(new_bytes)
            committed = self.leading.committed(committed)
            new_bytes = self.leading.bytes_committed(new_bytes, log, committed)
        elif len(self.isr) > 1 or self.leader_id != self.node_id:
            # A sync that a leader began may end after its leadership has.
            return
        if committed <= log.high_watermark:
            return
        log.high_watermark = committed
        if self.leading is not None and self._follower_waiters is not None and self.leading.tells_watermarks:
            self._tell_followers(LOOK_AGAIN)
        if self._commit_waiters is not None:
            self._tell_committed(committed)
        if self._data_waiters is not None:
            self.tell_data(new_bytes)

    def _tell_committed(self, committed: int) -> None:
        waiters, self._commit_waiters = self._commit_waiters, None
        assert waiters is not None
        left = [waiter for waiter in waiters if waiter[0] > committed]
        if left:
            self._commit_waiters = left
        for offset, call, _ in waiters:
            if offset <= committed:
                call()

    def is_committed(self, offset: int) -> bool:
        """Whether the high watermark has reached `offset`."""
        log = self._log
        return log is not None and log.high_watermark >= offset

    @property
    def syncs_to_commit(self) -> bool:
        """Whether what was appended is not written until it is synced. Of an offline log nothing is."""
        log = self._log
        return log is None or log.needs_sync_to_commit

    def when_committed(
        self, offset: int, call: Callable[[], None], failed: Callable[[ErrorCode], None] | None = None
    ) -> None:
        """Call once the high watermark reaches `offset` (which it has not yet); `failed` if it never will."""
        if self.offline:
            if failed is not None:
                failed(ErrorCode.KAFKA_STORAGE_ERROR)
            return
        if self._commit_waiters is None:
            self._commit_waiters = []
        self._commit_waiters.append((offset, call, failed))

    # ---- replicating

    def follower_fetched(self, replica: int, offset: int, log_start: int, broker_epoch: int) -> None:
        """One of the other replicas asked this one, its leader, for what comes after `offset`."""
        leading, log = self.leading, self._log
        if leading is None or log is None or replica not in leading.followers:
            return
        before = log.high_watermark
        leading.fetched(replica, offset, log_start, broker_epoch, log)
        if offset > before:
            self._advance(log, 0)

    def delete_before(self, offset: int) -> None:
        """Delete what is before `offset` here, and let the other replicas know at once."""
        self.log.delete_records(offset)
        self._tell_followers(LOOK_AGAIN)

    @property
    def lowest_log_start(self) -> int:
        """Where the log begins on the replica that keeps the most."""
        own = self.log.log_start_offset
        return own if self.leading is None else self.leading.lowest_log_start(own)

    def append_replicated(self, records: Buffer, high_watermark: int, log_start: int) -> int:
        """Append what the leader sent, and follow it in what is committed and what is gone; gives the bytes added."""
        log = self.log
        added = 0
        if len(records):
            before = log.log_end_offset
            if log.append_as_follower(records, self.leader_epoch) is not None and log.log_end_offset > before:
                added = len(records)
                self.bytes_in += added
        committed = min(high_watermark, log.log_end_offset)
        if committed > log.high_watermark:
            log.high_watermark = committed
            if self._data_waiters is not None:
                # Consumers that read from this replica; how many bytes are new to them is not known.
                self.tell_data(max(added, 1))
        if log_start > log.log_start_offset:
            log.delete_records(min(log_start, log.high_watermark))
        return added

    # ---- waiting for data

    def wait_for_data(self, waiter: DataWaiter, *, follower: bool = False) -> None:
        """Followers wait for what is appended, all others for what is committed."""
        if follower:
            if self._follower_waiters is None:
                self._follower_waiters = []
            self._follower_waiters.append(waiter)
            return
        if self._data_waiters is None:
            self._data_waiters = []
        self._data_waiters.append(waiter)

    def forget_waiter(self, waiter: DataWaiter) -> None:
        waiters = self._data_waiters
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                self._data_waiters = None
        waiters = self._follower_waiters
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                self._follower_waiters = None

    def tell_data(self, new_bytes: int) -> None:
        """More can be read than before (or the reader must look again): let those who wait know."""
        waiters, self._data_waiters = self._data_waiters, None
        if not waiters:
            return
        left = [waiter for waiter in waiters if not waiter.noticed(new_bytes)]
        if left:
            self._data_waiters = left + (self._data_waiters or [])

    def _tell_followers(self, new_bytes: int) -> None:
        waiters, self._follower_waiters = self._follower_waiters, None
        if not waiters:
            return
        left = [waiter for waiter in waiters if not waiter.noticed(new_bytes)]
        if left:
            self._follower_waiters = left + (self._follower_waiters or [])
