"""Being fetched from: the leader's answers to the replicas of the log, voters and observers alike.

A fetch is both a question and an acknowledgement: what comes before its offset counts as held by that voter, but only
after the leader has seen that the two logs agree up to there. A fetch with nothing new to give waits, until there is
something to append, to commit, or nothing to lead any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.ports import Pending, Timer
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.fetch_request import FetchPartition, FetchRequest
from moldau.protocol.generated.wire.fetch_response import EpochEndOffset, FetchResponse, PartitionData
from moldau.protocol.generated.wire.fetch_response import SnapshotId as WireSnapshotId
from moldau.quorum import messages
from moldau.quorum.leader import UNKNOWN, Leader
from moldau.quorum.snapshots import BOOTSTRAP_SNAPSHOT_ID, SnapshotId
from moldau.quorum.voters import ReplicaKey

if TYPE_CHECKING:
    from moldau.protocol.generated.wire.fetch_snapshot_request import FetchSnapshotRequest
    from moldau.protocol.generated.wire.fetch_snapshot_response import FetchSnapshotResponse
    from moldau.quorum.quorum import Quorum


class _Waiting:
    __slots__ = ("answer", "asked", "max_bytes", "replica", "timer", "version")

    def __init__(self, asked: FetchPartition, replica: ReplicaKey, max_bytes: int, version: int) -> None:
        self.asked = asked
        self.replica = replica
        self.max_bytes = max_bytes
        self.version = version
        self.answer: Pending[FetchResponse] = Pending()
        self.timer: Timer | None = None


class Serving:
    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._waiting: list[_Waiting] = []

    def role_changed(self) -> None:
        """Who waits for another epoch's records must ask anew."""
        self._answer_all()

    def stop(self) -> None:
        self._answer_all()

    def wake(self) -> None:
        """The log or the high watermark grew: answer those who waited for that."""
        if not self._waiting:
            return
        end_offset, high_watermark = self._quorum.log.end_offset, self._high_watermark()
        waiting = self._waiting
        ready = [w for w in waiting if w.asked.fetch_offset < end_offset or w.asked.high_watermark < high_watermark]
        if ready:
            self._waiting = [w for w in waiting if w not in ready]
            for each in ready:
                self._finish(each)

    def _answer_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._finish(each)

    def _finish(self, waiting: _Waiting) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
        waiting.answer.resolve(self._answer(waiting.asked, waiting.replica, waiting.max_bytes, waiting.version))

    def _high_watermark(self) -> int:
        role = self._quorum.role
        return role.high_watermark if isinstance(role, Leader) else UNKNOWN

    # ---- records

    def fetch(self, request: FetchRequest, version: int) -> FetchResponse | Pending[FetchResponse]:
        elections = self._quorum.elections
        if not elections.is_own_cluster(request.cluster_id):
            return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        asked = messages.fetched_partition(request, version)
        if asked is None:
            return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        epoch, last_epoch = asked.current_leader_epoch, asked.last_fetched_epoch
        if request.max_wait_ms < 0 or asked.fetch_offset < 0 or not 0 <= last_epoch <= epoch:
            return messages.fetch_response(elections.hint(ErrorCode.INVALID_REQUEST), version, PartitionData())
        replica = ReplicaKey(messages.fetch_replica_id(request, version), asked.replica_directory_id)
        error = self.refuse_leader_request(epoch)
        if error is None and replica.id == self._quorum.own.id:
            error = ErrorCode.INVALID_REQUEST
        if error is not None:
            return messages.fetch_response(elections.hint(error), version, PartitionData(high_watermark=UNKNOWN))
        max_bytes = min(request.max_bytes, self._quorum.settings.fetch_max_bytes)
        waiting = _Waiting(asked, replica, max_bytes, version)
        if request.max_wait_ms > 0 and self._note(asked, replica) and self._has_nothing_new(asked):
            waiting.timer = self._quorum.clock.call_later(request.max_wait_ms, lambda: self._time_is_up(waiting))
            self._waiting.append(waiting)
            return waiting.answer
        return self._answer(asked, replica, max_bytes, version)

    def _time_is_up(self, waiting: _Waiting) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            self._finish(waiting)

    def refuse_leader_request(self, epoch: int) -> ErrorCode | None:
        """Why a request for the leader of that epoch is not for this node."""
        quorum = self._quorum
        if epoch < quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > quorum.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return None if quorum.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _has_nothing_new(self, asked: FetchPartition) -> bool:
        quorum = self._quorum
        return (
            quorum.is_leader
            and asked.fetch_offset >= quorum.log.end_offset
            and asked.high_watermark >= self._high_watermark()
        )

    def _note(self, asked: FetchPartition, replica: ReplicaKey) -> bool:
        """Take a fetch as the acknowledgement it is; whether the logs agree up to its offset."""
        quorum = self._quorum
        role = quorum.role
        if not isinstance(role, Leader) or self._disagreement(asked) is not None:
            return False
        if replica.id >= 0:
            quorum.elections.replica_was_heard(replica)
            now_ms = quorum.clock.now_ms()
            if role.fetched(replica, asked.fetch_offset, quorum.log.end_offset, now_ms):
                quorum.leader_committed()
        return True

    def _disagreement(self, asked: FetchPartition) -> EpochEndOffset | SnapshotId | None:
        """Where the replica's log parts from this one, or the snapshot it needs; None when it can go on."""
        log = self._quorum.log
        offset, epoch = asked.fetch_offset, asked.last_fetched_epoch
        latest, oldest = log.latest_snapshot_id, log.oldest_snapshot_id
        if latest != BOOTSTRAP_SNAPSHOT_ID and (offset == 0 or offset < log.start_offset):
            return latest
        if offset == 0 and log.start_offset == 0:
            return None
        if oldest is not None and oldest.offset == log.start_offset and oldest != BOOTSTRAP_SNAPSHOT_ID:
            at_snapshot = offset == oldest.offset and epoch != oldest.epoch
            if offset < oldest.offset or epoch < oldest.epoch or at_snapshot:
                return latest
        end_epoch, end_offset = log.end_offset_of_epoch(epoch)
        if end_epoch != epoch or end_offset < offset:
            return EpochEndOffset(end_epoch, end_offset)
        return None

    def _answer(self, asked: FetchPartition, replica: ReplicaKey, max_bytes: int, version: int) -> FetchResponse:
        quorum = self._quorum
        hint = quorum.elections.hint
        if not quorum.closed:
            error = self.refuse_leader_request(asked.current_leader_epoch)
        else:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if error is not None:
            return messages.fetch_response(hint(error), version, PartitionData(high_watermark=UNKNOWN))
        partition = PartitionData(log_start_offset=quorum.log.start_offset)
        disagreement = self._disagreement(asked)
        if isinstance(disagreement, EpochEndOffset):
            partition.diverging_epoch = disagreement
        elif disagreement is not None:
            partition.snapshot_id = WireSnapshotId(disagreement.offset, disagreement.epoch)
        else:
            self._note(asked, replica)
            partition.records = quorum.log.read(asked.fetch_offset, max_bytes)
        partition.high_watermark = self._high_watermark()
        return messages.fetch_response(hint(), version, partition)

    # ---- snapshots

    def fetch_snapshot(self, request: FetchSnapshotRequest, version: int) -> FetchSnapshotResponse:
        from moldau.protocol.generated.wire.fetch_snapshot_response import FetchSnapshotResponse, PartitionSnapshot
        from moldau.protocol.generated.wire.fetch_snapshot_response import SnapshotId as PartSnapshotId

        quorum = self._quorum
        hint = quorum.elections.hint
        if not quorum.elections.is_own_cluster(request.cluster_id):
            return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
        asked = messages.single_partition(request.topics, "name", "partition")
        if asked is None:
            response = messages.snapshot_response(
                hint(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), version, PartitionSnapshot()
            )
            response.topics[0].name = request.topics[0].name
            response.topics[0].partitions[0].index = request.topics[0].partitions[0].partition
            return response
        error = self.refuse_leader_request(asked.current_leader_epoch)
        snapshot_id = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        if error is None and (snapshot_id == BOOTSTRAP_SNAPSHOT_ID or not quorum.log.has_snapshot(snapshot_id)):
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        if error is not None:
            return messages.snapshot_response(hint(error), version, PartitionSnapshot())
        size = quorum.log.snapshot_size(snapshot_id)
        if not 0 <= asked.position < size:
            return messages.snapshot_response(hint(ErrorCode.POSITION_OUT_OF_RANGE), version, PartitionSnapshot())
        quorum.elections.replica_was_heard(ReplicaKey(request.replica_id, asked.replica_directory_id))
        length = max(1, min(request.max_bytes, quorum.settings.fetch_snapshot_max_bytes))
        part = PartitionSnapshot(
            snapshot_id=PartSnapshotId(snapshot_id.offset, snapshot_id.epoch),
            size=size,
            position=asked.position,
            unaligned_records=quorum.log.read_snapshot_part(snapshot_id, asked.position, length),
        )
        return messages.snapshot_response(hint(), version, part)
