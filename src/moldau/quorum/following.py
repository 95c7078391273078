"""Following the log of a leader: fetch, append, sync, fetch again; truncate where the logs part; fetch a snapshot when
the leader's log no longer reaches back far enough.

A fetch tells the leader that everything before its offset is here for good, so it must never leave before that is
durable, whoever leads by then. There is one request under way at a time, and only its answer is heeded.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from moldau.log.errors import LogDirFailure
from moldau.ports import Address, Unreachable
from moldau.protocol.errors import ApiError, ErrorCode, error_code
from moldau.quorum import messages
from moldau.quorum.deadline import Deadline
from moldau.quorum.follower import Follower
from moldau.quorum.observer import Observer
from moldau.quorum.settings import FETCH_MAX_WAIT_MS
from moldau.quorum.snapshot_download import SnapshotDownload
from moldau.quorum.snapshots import CorruptSnapshot, SnapshotId

if TYPE_CHECKING:
    from moldau.quorum.quorum import Quorum

log = logging.getLogger("moldau.quorum")

LANE = "fetch"
RETRY_MS_MAX = 250
_FROM_THE_LEADER = (ErrorCode.NONE, ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE)


class Following:
    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._again = Deadline(quorum.clock, self._fetch)
        # Grows with every request: an answer to an older one is of no use.
        self._request = 0
        self._download: SnapshotDownload | None = None
        self._failures = 0
        # Whom to ask next for the leader.
        self._next_to_ask = 0
        self._leader_is_silent = False
        self._complained_of = ErrorCode.NONE

    # ---- roles

    def role_changed(self) -> None:
        self._request += 1
        self._again.clear()
        self._failures = 0
        self._leader_is_silent = False
        self._drop_download()
        if isinstance(self._quorum.role, Follower | Observer):
            self._fetch()

    def stop(self) -> None:
        self._request += 1
        self._again.clear()
        self._drop_download()

    def _drop_download(self) -> None:
        if self._download is not None:
            self._download.drop()
            self._download = None

    def look_elsewhere(self) -> None:
        """The leader is no longer the right one to ask."""
        self._leader_is_silent = True
        self._retry()

    # ---- asking

    def _retry(self) -> None:
        self._request += 1
        self._failures += 1
        base = max(1, self._quorum.settings.retry_backoff_ms)
        self._again.set(min(base << min(self._failures - 1, 5), RETRY_MS_MAX))

    def _target(self) -> Address | None:
        """The leader; an observer that has none, or does not reach it, asks the voters in turn."""
        role = self._quorum.role
        if isinstance(role, Follower):
            return role.leader_address
        if not isinstance(role, Observer):
            return None
        if role.leader_address is not None and not self._leader_is_silent:
            return role.leader_address
        known = self._known_addresses()
        if not known:
            return role.leader_address
        self._next_to_ask += 1
        return known[self._next_to_ask % len(known)]

    def _known_addresses(self) -> list[Address]:
        quorum = self._quorum
        voters = [v.address(quorum.peers.listener) for v in quorum.voters.values() if v.id != quorum.own.id]
        addresses = [*(each for each in voters if each is not None), *quorum.peers.bootstrap]
        own = quorum.own.address(quorum.peers.listener)
        return [each for each in dict.fromkeys(addresses) if each != own]

    def _fetch(self) -> None:
        quorum = self._quorum
        if quorum.closed:
            return
        if quorum.peers.can_vote and quorum.log.durable_offset < quorum.log.end_offset:
            # Perhaps it was appended under another leader, or before a restart: it counts only once it is durable.
            self._request += 1
            request = self._request
            quorum.log.sync(lambda: self._fetch() if self._request == request else None)
            return
        to = self._target()
        if to is None:
            self._retry()
            return
        self._request += 1
        if self._download is not None:
            self._send_snapshot_request(to, self._download, self._request)
        else:
            self._send_fetch(to, self._request)

    def _send_fetch(self, to: Address, number: int) -> None:
        quorum = self._quorum
        settings = quorum.settings
        request = messages.fetch_request(
            quorum.peers.cluster_id,
            quorum.own_key,
            quorum.epoch,
            quorum.log.last_epoch,
            quorum.log.end_offset,
            quorum.high_watermark,
            max_bytes=settings.fetch_max_bytes,
            max_wait_ms=FETCH_MAX_WAIT_MS,
        )
        quorum.peers.network.send(
            to,
            request,
            messages.FETCH_VERSION,
            lambda answer: self._fetched(number, answer),
            timeout_ms=FETCH_MAX_WAIT_MS + settings.request_timeout_ms,
            lane=LANE,
        )

    def _send_snapshot_request(self, to: Address, download: SnapshotDownload, number: int) -> None:
        quorum = self._quorum
        request = messages.snapshot_request(
            quorum.peers.cluster_id,
            quorum.own_key,
            quorum.epoch,
            download.snapshot_id,
            download.position,
            quorum.settings.fetch_snapshot_max_bytes,
        )
        quorum.peers.network.send(
            to,
            request,
            messages.FETCH_SNAPSHOT_VERSION,
            lambda answer: self._snapshot_part(number, answer),
            timeout_ms=quorum.settings.request_timeout_ms,
            lane=LANE,
        )

    # ---- answers

    def _fetched(self, number: int, answer: Any) -> None:
        if number != self._request or self._quorum.closed:
            return
        if isinstance(answer, Unreachable):
            self._unreachable(answer)
            return
        partition = None
        if not answer.error_code and len(answer.responses) == 1 and len(answer.responses[0].partitions) == 1:
            partition = answer.responses[0].partitions[0]
        if partition is None:
            self._complain(error_code(answer.error_code))
            self._leader_is_silent = True
            self._retry()
            return
        if not self._is_answer_of_leader(messages.hint_of_fetch(answer, partition), number):
            return
        try:
            self._take(partition, number)
        except LogDirFailure:
            # Reported already: the node stops. What could not be written is not asked for again.
            return

    def _complain(self, code: ErrorCode) -> None:
        """Once for each reason: it is asked again and again, and somebody may have to do something about it."""
        if code is not self._complained_of:
            self._complained_of = code
            log.error("the quorum refuses to be followed: %s", code.name)

    def _is_answer_of_leader(self, hint: messages.LeaderHint, number: int) -> bool:
        """Whether the answer is to be used. Otherwise the next request is on its way, or waits a moment."""
        quorum = self._quorum
        quorum.elections.heed(hint)
        if number != self._request:
            return False
        if hint.error in _FROM_THE_LEADER and hint.epoch == quorum.epoch:
            self._failures = 0
            self._leader_is_silent = False
            quorum.elections.leader_answered()
            return True
        role = quorum.role
        if isinstance(role, Follower) and hint.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            # It resigned: its epoch has no leader any more.
            quorum.elections.leader_is_gone()
        if isinstance(role, Observer):
            asked_leader = role.leader_address is not None and not self._leader_is_silent
            points_to_leader = role.leader_address is not None and hint.leader_id == role.election.leader_id
            # Whoever was asked says that the leader we know still leads: try it again.
            self._leader_is_silent = asked_leader or not points_to_leader
        self._retry()
        return False

    def _unreachable(self, why: Unreachable) -> None:
        log.debug("node %d cannot reach whom it follows: %s", self._quorum.own.id, why.reason)
        self._leader_is_silent = True
        # The first failure is the connection that broke. The second one says whether anybody is there at all.
        if why.nobody_listens:
            self._quorum.elections.leader_is_gone()
        if self._failures == 0:
            self._failures = 1
            self._request += 1
            self._again.set(0)
        else:
            self._retry()

    def _take(self, partition: Any, number: int) -> None:
        quorum = self._quorum
        diverging, snapshot_id = partition.diverging_epoch, partition.snapshot_id
        if diverging.epoch >= 0:
            self._truncate(diverging.epoch, diverging.end_offset)
        elif snapshot_id.epoch >= 0 and snapshot_id.end_offset >= 0:
            self._begin_download(SnapshotId(snapshot_id.end_offset, snapshot_id.epoch))
        else:
            epoch = quorum.epoch
            if partition.records:
                try:
                    quorum.append_replicated(memoryview(partition.records), epoch)
                except ApiError as error:
                    log.error("the leader's records do not go on where the log ends: %s", error.message)
            if partition.high_watermark >= 0:
                quorum.commit(min(partition.high_watermark, quorum.log.end_offset))
        if number == self._request:
            self._fetch()

    def _truncate(self, epoch: int, end_offset: int) -> None:
        quorum = self._quorum
        own_epoch, own_end = quorum.log.end_offset_of_epoch(epoch)
        offset = min(own_end, end_offset) if own_epoch == epoch else own_end
        if offset < quorum.high_watermark:
            log.critical(
                "the leader of epoch %d asks to give up committed metadata (from %d on, committed up to %d); refused",
                quorum.epoch,
                offset,
                quorum.high_watermark,
            )
            self._retry()
            return
        quorum.truncate(offset)

    # ---- snapshots

    def _begin_download(self, snapshot_id: SnapshotId) -> None:
        log.info("node %d fetches the metadata snapshot of offset %d", self._quorum.own.id, snapshot_id.offset)
        self._drop_download()
        self._download = SnapshotDownload(self._quorum.disk, self._quorum.log.directory, snapshot_id)

    def _snapshot_part(self, number: int, answer: Any) -> None:
        if number != self._request or self._quorum.closed:
            return
        if isinstance(answer, Unreachable):
            self._unreachable(answer)
            return
        partition = None
        if not answer.error_code:
            partition = messages.single_partition(answer.topics, "name", "index")
        if partition is None:
            log.error("the quorum refused to give a snapshot: %s", error_code(answer.error_code).name)
            self._drop_download()
            self._retry()
            return
        hint = messages.hint_of_fetch(answer, partition)
        if not self._is_answer_of_leader(hint, number):
            return
        download = self._download
        assert download is not None, "a part of a snapshot was asked for"
        if hint.error is not ErrorCode.NONE or not download.take(partition):
            # The leader has a newer one by now: its log says which.
            self._drop_download()
        elif download.is_complete:
            self._finish(download)
        if number == self._request:
            self._fetch()

    def _finish(self, download: SnapshotDownload) -> None:
        quorum = self._quorum
        self._download = None
        try:
            download.finish()
            snapshot = quorum.log.install_snapshot(download.snapshot_id)
        except CorruptSnapshot as error:
            log.error("the leader's snapshot is damaged: %s", error)
            download.discard()
            return
        quorum.load_snapshot(download.snapshot_id, snapshot)
