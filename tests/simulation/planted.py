"""Bugs planted on purpose: each breaks one promise of the cluster in a few lines, and the simulation must find it.

`python -m tests.simulation.planted --all` looks for every one of them in the seeds from 0 on; with names, for those. A
bug is a function that puts something wrong in the place of something right; `planted` takes it back afterwards.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from multiprocessing import get_context
from typing import Any

from moldau.broker.fetch import _Fetch
from moldau.broker.transaction_coordinator import TransactionCoordinator
from moldau.controller import alter_partition, brokers
from moldau.controller.controller import Controller
from moldau.controller.partition_change import PartitionChange
from moldau.coordinator.decision import Decision
from moldau.coordinator.group.offset_commits import OffsetCommits
from moldau.coordinator.runtime import CoordinatorRuntime
from moldau.coordinator.transaction import partitions as transaction_partitions
from moldau.log.compaction import LatestOffsets
from moldau.log.leader_epochs import LeaderEpochs
from moldau.log.partition_log import PartitionLog
from moldau.log.producer_state import ProducerState
from moldau.log.readable_log import ReadableLog
from moldau.ports import Pending
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.quorum import elections, quorum
from moldau.quorum.leader import Leader
from moldau.records.batch import BatchHeader
from moldau.replication.fetcher import _LeaderFetcher
from moldau.replication.leader_state import LeaderState
from moldau.replication.partition import Partition
from moldau.share.partition import SharePartition
from moldau.testing.simulation.runner import run_seed

SEEDS_MAX = 200

Put = Callable[[Any, str, Any], None]
Bug = Callable[[Put], None]
BUGS: dict[str, Bug] = {}


def bug(plant: Bug) -> Bug:
    BUGS[plant.__name__.replace("_", "-")] = plant
    return plant


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The code with one bug in it."""
    undo: list[tuple[Any, str, Any]] = []

    def put(where: Any, attribute: str, wrong: Any) -> None:
        undo.append((where, attribute, vars(where)[attribute]))
        setattr(where, attribute, wrong)

    BUGS[name](put)
    try:
        yield
    finally:
        for where, attribute, right in reversed(undo):
            setattr(where, attribute, right)


# ---- replication


def _ends(leading: LeaderState, replicas: Iterable[int]) -> Iterator[int]:
    """How far the other replicas among these have got, for all their leader knows."""
    return (leading.followers[each].end_offset for each in replicas if each in leading.followers)


@bug
def acknowledge_before_the_others_have_it(put: Put) -> None:
    put(Partition, "is_committed", lambda self, offset: True)


@bug
def commit_what_the_leader_alone_has(put: Put) -> None:
    put(LeaderState, "committed", lambda self, own: own)


@bug
def commit_what_one_follower_has(put: Put) -> None:
    put(LeaderState, "committed", lambda self, own: min(own, max(_ends(self, self._partition.isr), default=own)))


@bug
def commit_below_the_minimum_of_replicas(put: Put) -> None:
    """min.insync.replicas counts for nobody."""
    real = Partition.append

    def append(self: Partition, records: memoryview, acks: int, *args: Any, **kwargs: Any) -> Any:
        return real(self, records, 1, *args, **kwargs)

    put(Partition, "append", append)
    put(LeaderState, "committed", lambda self, own: min((own, *_ends(self, self._partition.isr))))


@bug
def do_not_count_whom_the_controller_may_have_let_in(put: Put) -> None:
    """A proposed in-sync set counts only once the image has it."""

    def committed(self: LeaderState, own: int) -> int:
        partition = self._partition
        if len(partition.isr) < min(partition.min_isr, len(partition.replicas)):
            return -1
        return min((own, *_ends(self, partition.isr)))

    put(LeaderState, "committed", committed)


@bug
def shrink_the_in_sync_set_without_asking(put: Put) -> None:
    def propose(self: LeaderState, isr: tuple[int, ...]) -> None:
        self._partition.isr = isr

    put(LeaderState, "_propose", propose)


@bug
def let_anybody_be_in_sync(put: Put) -> None:
    """A replica is let into the in-sync set before it has what is committed."""

    def consider(self: LeaderState, replica: int, log: Any) -> None:
        if self._duties.may_join(replica, self.followers[replica].broker_epoch):
            self._propose((*self._partition.isr, replica))

    put(LeaderState, "_consider", consider)


@bug
def do_not_look_for_divergence(put: Put) -> None:
    put(_Fetch, "_diverged", lambda self, read, log, asked: False)


@bug
def cut_too_little(put: Put) -> None:
    """A follower keeps one record more than its leader has."""
    real = _LeaderFetcher._cut

    def cut(self: _LeaderFetcher, partition: Partition, epoch: int, end_offset: int) -> None:
        real(self, partition, epoch, end_offset + 1)

    put(_LeaderFetcher, "_cut", cut)


@bug
def trust_the_followers_end(put: Put) -> None:
    """A follower calls everything committed that it has."""
    real = Partition.append_replicated

    def append_replicated(self: Partition, records: Any, high_watermark: int, log_start: int) -> int:
        return real(self, records, 1 << 62, log_start)

    put(Partition, "append_replicated", append_replicated)


@bug
def answer_waiting_producers_when_deposed(put: Put) -> None:
    def fail_commits(self: Partition, code: ErrorCode) -> None:
        waiters, self._commit_waiters = self._commit_waiters, None
        for _, call, _ in waiters or ():
            call()

    put(Partition, "fail_commits", fail_commits)


@bug
def read_what_is_not_committed(put: Put) -> None:
    real = _Fetch._read_one

    def read_one(self: _Fetch, read: Any, log: Any, asked: Any, limit: int, *, min_one: bool) -> bool:
        before, self.is_follower = self.is_follower, not self.committed_only
        try:
            return real(self, read, log, asked, limit, min_one=min_one)
        finally:
            self.is_follower = before

    put(_Fetch, "_read_one", read_one)


@bug
def serve_readers_of_other_epochs(put: Put) -> None:
    """Nobody looks at the leader epoch that a request is meant for."""

    def require_replica(self: Partition, asked_epoch: int = -1) -> None:
        if self.offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)

    put(Partition, "require_replica", require_replica)


@bug
def write_to_followers(put: Put) -> None:
    """A replica takes writes without being the leader."""
    real = Partition.append

    def append(self: Partition, *args: Any, **kwargs: Any) -> Any:
        leader, self.leader_id = self.leader_id, self.node_id
        try:
            return real(self, *args, **kwargs)
        finally:
            self.leader_id = leader

    put(Partition, "append", append)


# ---- logs and producers


@bug
def forget_epochs_on_disk(put: Put) -> None:
    """Where leader epochs begin is only known until the next start."""
    put(LeaderEpochs, "write", lambda self, sync=True: None)


@bug
def keep_epochs_of_what_was_cut(put: Put) -> None:
    put(LeaderEpochs, "truncate_from_end", lambda self, end_offset: None)


@bug
def do_not_check_sequences(put: Put) -> None:
    put(ProducerState, "check_data", lambda self, *args, **kwargs: None)


@bug
def forget_producers_on_followers(put: Put) -> None:
    """Who takes over knows nothing of the producers' sequence numbers."""
    put(ProducerState, "replay", lambda self, header, batch: None)


@bug
def do_not_check_sums_after_a_crash(put: Put) -> None:
    put(BatchHeader, "checksum_matches", lambda self, buf: True)


@bug
def read_open_transactions(put: Put) -> None:
    put(PartitionLog, "last_stable_offset", property(lambda self: self.high_watermark))


@bug
def forget_aborted_transactions(put: Put) -> None:
    put(ReadableLog, "collect_aborted", lambda self, start, end: [])


# ---- compaction


@bug
def compact_the_latest_values_away(put: Put) -> None:
    latest = LatestOffsets.offset_of
    put(LatestOffsets, "offset_of", lambda self, key: latest(self, key) + 1)


# ---- the quorum


@bug
def do_not_write_votes_down(put: Put) -> None:
    put(quorum.Quorum, "_persist", lambda self, election: None)


@bug
def do_not_sync_votes(put: Put) -> None:
    real = quorum.write_election_state

    class Unsynced:
        def __init__(self, disk: Any) -> None:
            self._disk = disk

        def write_atomically(self, path: str, data: bytes) -> None:
            self._disk.write_atomically(path, data, sync=False)

    put(quorum, "write_election_state", lambda disk, *args: real(Unsynced(disk), *args))


@bug
def vote_for_whoever_asks(put: Put) -> None:
    from moldau.quorum import unattached

    put(unattached, "may_vote_for", lambda election, candidate, *, log_is_current: True)
    put(unattached.Unattached, "grants", lambda self, candidate, *, log_is_current, pre_vote: True)


@bug
def vote_for_shorter_logs(put: Put) -> None:
    real = elections.Elections.vote

    def vote(self: elections.Elections, request: Any, version: int) -> Any:
        asked = request.topics[0].partitions[0]
        log = self._quorum.log
        asked.last_offset = max(asked.last_offset, log.end_offset)
        asked.last_offset_epoch = max(asked.last_offset_epoch, log.last_epoch)
        return real(self, request, version)

    put(elections.Elections, "vote", vote)


@bug
def commit_metadata_without_a_majority(put: Put) -> None:
    def commit(self: Leader) -> bool:
        ends = sorted((progress.end_offset for progress in self._voters.values()), reverse=True)
        if not ends or ends[0] <= self.high_watermark:
            return False
        self.high_watermark = ends[0]
        return True

    put(Leader, "_commit", commit)


# ---- the controller


@bug
def elect_whoever_is_alive(put: Put) -> None:
    put(PartitionChange, "_may_lead", lambda self, replica: self._is_live(replica))


@bug
def trust_brokers_that_crashed(put: Put) -> None:
    """Who comes back without having shut down may still lead."""
    put(brokers, "_previous_incarnation_ends", lambda s, existing, previous: [])


@bug
def take_in_sync_sets_of_deposed_leaders(put: Put) -> None:
    real = alter_partition._reason_against

    def reason_against(*args: Any) -> ErrorCode:
        code = real(*args)
        return ErrorCode.NONE if code is ErrorCode.FENCED_LEADER_EPOCH else code

    put(alter_partition, "_reason_against", reason_against)


@bug
def answer_before_metadata_is_committed(put: Put) -> None:
    put(Controller, "_when_committed", lambda self, handler, request, response: Pending.of(response))


# ---- coordinators


@bug
def acknowledge_offsets_before_they_are_committed(put: Put) -> None:
    def when_committed(self: Any, host: Any, response: Any, done: Any, **_: Any) -> Any:
        if done is not None:
            done(None)
        return response

    put(CoordinatorRuntime, "_when_committed", when_committed)


@bug
def acknowledge_offsets_without_writing_them(put: Put) -> None:
    """Offsets are kept in memory only, where the next coordinator does not find them."""
    real = OffsetCommits.commit

    def commit(self: OffsetCommits, who: Any, offsets: Any, response: Any, retention_ms: int = -1) -> Any:
        decision = real(self, who, offsets, response, retention_ms)
        for key, value in decision.records:
            self._shard.replay(1 << 40, None, key, value)
        return Decision(response, [])

    put(OffsetCommits, "commit", commit)


@bug
def forget_offsets_when_taking_over(put: Put) -> None:
    real = CoordinatorRuntime._replayed

    def replayed(self: Any, host: Any, error: BaseException | None) -> None:
        if hasattr(host.shard, "offsets"):
            host.shard.offsets._by_group.clear()
        real(self, host, error)

    put(CoordinatorRuntime, "_replayed", replayed)


@bug
def lose_markers(put: Put) -> None:
    """One of a transaction's partitions never hears of its end."""
    real = TransactionCoordinator.write_marker

    def write_marker(self: TransactionCoordinator, place: tuple[str, int], marker: Any) -> Any:
        return ErrorCode.NONE if place[1] == 1 else real(self, place, marker)

    put(TransactionCoordinator, "write_marker", write_marker)


@bug
def write_markers_the_other_way_round(put: Put) -> None:
    """One partition of a transaction is told the opposite of its end."""
    real = TransactionCoordinator.write_marker

    def write_marker(self: TransactionCoordinator, place: tuple[str, int], marker: Any) -> Any:
        if place[1] == 1:
            marker = self._markers.marker(
                marker.producer_id,
                marker.epoch,
                marker.coordinator_epoch,
                committed=not marker.committed,
                transaction_version=marker.transaction_version,
            )
        return real(self, place, marker)

    put(TransactionCoordinator, "write_marker", write_marker)


@bug
def take_writes_of_zombies(put: Put) -> None:
    """A producer that was fenced may go on in its transaction."""
    real = transaction_partitions._check

    def check(current: Any, producer: Any) -> Any:
        return real(current, producer if current is None else producer._replace(epoch=current.epoch))

    put(transaction_partitions, "_check", check)
    put(ProducerState, "_check_epoch", lambda self, entry, epoch: None)


# ---- share groups


@bug
def accept_shares_without_storing_them(put: Put) -> None:
    """What a share group is done with is known to the leader of the partition only."""
    put(SharePartition, "write", lambda self, batches: Pending.of(None))


# ---- looking for them


_MISFIT = re.compile(r"\b(AttributeError|TypeError|NameError)\b")


def find(name: str, seeds: int = SEEDS_MAX, first: int = 0) -> tuple[int, str] | None:
    """The first seed that finds a bug, and what it found."""
    with planted(name):
        for seed in range(first, first + seeds):
            outcome = run_seed(seed)
            if outcome.failure is not None:
                # A bug that no longer fits the code proves nothing.
                assert not _MISFIT.search(outcome.failure), outcome.failure
                return seed, outcome.failure.splitlines()[0]
    return None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Look for planted bugs by simulation.")
    parser.add_argument("names", nargs="*", help="which bugs; see --list")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args(arguments)
    if asked.list:
        print("\n".join(BUGS))
        return 0
    names = list(BUGS) if asked.all else asked.names
    missed = 0
    with ProcessPoolExecutor(asked.processes, mp_context=get_context("fork")) as pool:
        for name, (found, seconds) in zip(names, pool.map(_timed, names, repeat(asked.seeds)), strict=True):
            missed += found is None
            told = "NOT FOUND" if found is None else f"seed {found[0]:>3}: {found[1]}"
            print(f"{name:55} {seconds:6.1f} s  {told}", flush=True)
    return 1 if missed else 0


def _timed(name: str, seeds: int) -> tuple[tuple[int, str] | None, float]:
    begin = time.perf_counter()
    return find(name, seeds), time.perf_counter() - begin


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
