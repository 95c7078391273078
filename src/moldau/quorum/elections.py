"""Elections: votes asked for and given, epochs that begin and end, and the timeouts behind them.

Decides when this node stands for election, whom it votes for, and when it stops leading because nobody follows. An
answer is only heeded while the role that asked for it lasts. It must never grant a vote that is not on disk yet.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from moldau.ports import Address, Unreachable
from moldau.protocol.errors import ErrorCode, error_code
from moldau.quorum import messages
from moldau.quorum.candidate import Candidate
from moldau.quorum.deadline import Deadline
from moldau.quorum.follower import Follower
from moldau.quorum.leader import Leader
from moldau.quorum.messages import LeaderHint
from moldau.quorum.observer import Observer
from moldau.quorum.prospective import Prospective
from moldau.quorum.resigned import Resigned
from moldau.quorum.state_file import NOBODY
from moldau.quorum.transitions import Role
from moldau.quorum.unattached import Unattached
from moldau.quorum.voters import ReplicaKey, Voter

if TYPE_CHECKING:
    from moldau.protocol.generated.wire.begin_quorum_epoch_request import BeginQuorumEpochRequest
    from moldau.protocol.generated.wire.begin_quorum_epoch_response import BeginQuorumEpochResponse
    from moldau.protocol.generated.wire.end_quorum_epoch_request import EndQuorumEpochRequest
    from moldau.protocol.generated.wire.end_quorum_epoch_response import EndQuorumEpochResponse
    from moldau.protocol.generated.wire.vote_request import VoteRequest
    from moldau.protocol.generated.wire.vote_response import VoteResponse
    from moldau.quorum.quorum import Quorum

log = logging.getLogger("moldau.quorum")

# The backoff after a lost election doubles from here on, up to the configured limit.
BACKOFF_BASE_MS = 50
# Between two voters that both lost their leader: who stands first usually wins without a contest.
TURN_MS = 40
JITTER_MS = 15


class Elections:
    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._deadline = Deadline(quorum.clock, self._time_is_up)
        self._again = Deadline(quorum.clock, self._send_again)
        self._check_quorum = Deadline(quorum.clock, self._majority_is_lost)
        self._attempt = 0
        # Voters whose answer to the role's request is still to come.
        self._asked: set[int] = set()
        # Set while a lost round is over and the next one waits.
        self._backing_off = False

    # ---- roles

    def role_changed(self) -> None:
        role = self._quorum.role
        settings = self._quorum.settings
        for deadline in (self._deadline, self._again, self._check_quorum):
            deadline.clear()
        self._backing_off = False
        self._asked = set()
        if isinstance(role, Unattached):
            self._deadline.set(self._turn_ms() if role.just_started else self._election_timeout_ms())
        elif isinstance(role, Prospective | Candidate):
            self._deadline.set(self._election_timeout_ms())
            self._ask_for_votes(role)
        elif isinstance(role, Leader):
            self._attempt = 0
            if role.needs_others:
                self._check_quorum.set(settings.check_quorum_timeout_ms)
                self._announce(role)
        elif isinstance(role, Follower):
            self._attempt = 0
            self._deadline.set(settings.fetch_timeout_ms)
        elif isinstance(role, Resigned):
            self._deadline.set(self._election_timeout_ms())
            self._announce_end(role)

    def stop(self) -> None:
        for deadline in (self._deadline, self._again, self._check_quorum):
            deadline.clear()

    def _election_timeout_ms(self) -> int:
        timeout = self._quorum.settings.election_timeout_ms
        return timeout + self._quorum.peers.random.randrange(max(1, timeout))

    def _turn_ms(self) -> int:
        """A short wait that differs from voter to voter and from epoch to epoch."""
        quorum = self._quorum
        others = sorted(voter_id for voter_id in quorum.voters if voter_id != quorum.role.election.leader_id)
        place = others.index(quorum.own.id) if quorum.own.id in others else len(others)
        turn = (place + quorum.epoch) % max(1, len(others))
        return turn * TURN_MS + quorum.peers.random.randrange(JITTER_MS)

    def _time_is_up(self) -> None:
        quorum = self._quorum
        role = quorum.role
        if isinstance(role, Unattached | Follower) or self._backing_off:
            self._become_prospective()
        elif isinstance(role, Prospective):
            if role.leader_address is not None:
                quorum.become_follower(role.epoch, role.election.leader_id, role.leader_address)
            else:
                self._become_prospective()
        elif isinstance(role, Candidate):
            self._back_off()
        elif isinstance(role, Resigned):
            # The epoch that this node led is over for it: it must not appear as its leader again.
            quorum.become_unattached(role.epoch + 1)

    def _become_prospective(self) -> None:
        quorum = self._quorum
        role = quorum.role
        assert quorum.is_voter, "only a voter stands for election"
        address = role.leader_address if isinstance(role, Follower) else None
        election = role.election if address is not None else role.election._replace(leader_id=NOBODY)
        prospective = Prospective(election, quorum.own.id, quorum.voters, address)
        quorum.become(prospective)
        if quorum.role is prospective and prospective.ballot.is_won:
            # It is the only voter left.
            quorum.become_candidate()

    def _back_off(self) -> None:
        """The round is lost: wait for a random time, so that others may win, then ask again."""
        limit = min(BACKOFF_BASE_MS << min(self._attempt, 10), max(1, self._quorum.settings.election_backoff_max_ms))
        self._again.clear()
        self._backing_off = True
        self._deadline.set(self._quorum.peers.random.randrange(limit) + 1)

    # ---- the leader as its followers see it

    def leader_answered(self) -> None:
        """A fetch was answered: the leader is there."""
        role = self._quorum.role
        if isinstance(role, Follower):
            role.has_fetched = True
            role.leader_is_gone = False
            self._deadline.set(self._quorum.settings.fetch_timeout_ms)

    def leader_is_gone(self) -> None:
        """Nobody listens where the leader did: do not wait for the fetch timeout. Should it be a mistake, the others
        still hear of their leader and refuse the pre-vote."""
        role = self._quorum.role
        if isinstance(role, Follower) and not role.leader_is_gone:
            role.leader_is_gone = True
            self._deadline.set(self._turn_ms())

    # ---- asking for votes

    def _ask_for_votes(self, role: Prospective | Candidate) -> None:
        for voter in self._quorum.voters.values():
            waits = voter.id in self._asked or role.ballot.has_answered(voter.id)
            if voter.id != self._quorum.own.id and not waits:
                self._ask(role, voter)
                if self._quorum.role is not role:
                    return

    def _ask(self, role: Prospective | Candidate, voter: Voter) -> None:
        quorum = self._quorum
        address = voter.address(quorum.peers.listener)
        if address is None:
            return
        self._asked.add(voter.id)
        request = messages.vote_request(
            quorum.peers.cluster_id,
            voter.key,
            quorum.own_key,
            role.epoch,
            quorum.log.last_epoch,
            quorum.log.end_offset,
            pre_vote=isinstance(role, Prospective),
        )
        quorum.peers.network.send(
            address,
            request,
            messages.VOTE_VERSION,
            lambda answer: self._voted(role, voter.id, answer),
            timeout_ms=quorum.settings.request_timeout_ms,
        )

    def _voted(self, role: Prospective | Candidate, voter_id: int, answer: Any) -> None:
        quorum = self._quorum
        if quorum.closed:
            return
        if quorum.role is role:
            self._asked.discard(voter_id)
        if isinstance(answer, Unreachable):
            if quorum.role is role and not self._backing_off and not self._again.is_set:
                self._again.set(self._retry_ms())
            return
        partition = messages.single_partition(answer.topics) if not answer.error_code else None
        if partition is None:
            self._refused("vote", voter_id, answer)
            return
        hint = messages.hint_of(answer, partition)
        if self.heed(hint) or quorum.role is not role or self._backing_off:
            return
        if hint.epoch == role.epoch and hint.error is ErrorCode.NONE:
            role.ballot.record(voter_id, granted=partition.vote_granted)
            self._count(role)

    def _count(self, role: Prospective | Candidate) -> None:
        if role.ballot.is_won:
            if isinstance(role, Candidate):
                self._quorum.become_leader()
            else:
                self._attempt += 1
                self._quorum.become_candidate(self._attempt)
        elif role.ballot.is_lost:
            if isinstance(role, Prospective) and role.leader_address is not None:
                # The others have a leader: it may be back.
                self._quorum.become_follower(role.epoch, role.election.leader_id, role.leader_address)
            else:
                self._back_off()

    def _retry_ms(self) -> int:
        return max(1, self._quorum.settings.retry_backoff_ms)

    def _send_again(self) -> None:
        role = self._quorum.role
        if isinstance(role, Prospective | Candidate):
            self._ask_for_votes(role)
        elif isinstance(role, Leader):
            self._announce(role)
        elif isinstance(role, Resigned):
            self._announce_end(role)

    def heed(self, hint: LeaderHint) -> bool:
        """What an answer says about epoch and leader; true when it changed this node's role."""
        quorum = self._quorum
        if hint.error is ErrorCode.INVALID_VOTER_KEY:
            log.warning("another replica than the voter that was meant has its address: %s", hint)
        return quorum.learn(hint.epoch, hint.leader_id, hint.address)

    def _refused(self, what: str, node_id: int, answer: Any) -> None:
        log.error("node %d refused a %s request: %s", node_id, what, error_code(answer.error_code).name)

    # ---- voting

    def vote(self, request: VoteRequest, version: int) -> VoteResponse:
        quorum = self._quorum
        refused = self._refuse_request(request, single=messages.single_partition(request.topics))
        if refused is not None:
            return _vote_error(refused)
        asked = request.topics[0].partitions[0]
        pre_vote = asked.pre_vote
        highest = asked.replica_epoch if pre_vote else asked.replica_epoch - 1
        if asked.last_offset < 0 or not 0 <= asked.last_offset_epoch <= highest:
            return messages.vote_response(self.hint(ErrorCode.INVALID_REQUEST), version, granted=False)
        error = self._refuse_voter_request(asked.replica_id, asked.replica_epoch)
        if error is not None:
            return messages.vote_response(self.hint(error), version, granted=False)
        if asked.replica_epoch > quorum.epoch:
            quorum.become_unattached(asked.replica_epoch)
        if not self._is_meant(request.voter_id, asked.voter_directory_id):
            return messages.vote_response(self.hint(ErrorCode.INVALID_VOTER_KEY), version, granted=False)
        candidate = ReplicaKey(asked.replica_id, asked.replica_directory_id)
        log_is_current = (asked.last_offset_epoch, asked.last_offset) >= (quorum.log.last_epoch, quorum.log.end_offset)
        granted = quorum.role.grants(candidate, log_is_current=log_is_current, pre_vote=pre_vote)
        if granted and not pre_vote and quorum.role.election.voted_id == NOBODY:
            quorum.become_voted(candidate)
        return messages.vote_response(self.hint(), version, granted=granted)

    def hint(self, error: ErrorCode = ErrorCode.NONE) -> LeaderHint:
        quorum = self._quorum
        return LeaderHint(error, quorum.leader_id, quorum.epoch, quorum.leader_address)

    def _refuse_request(self, request: Any, single: Any) -> ErrorCode | None:
        if not self.is_own_cluster(request.cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        return ErrorCode.INVALID_REQUEST if single is None else None

    def is_own_cluster(self, cluster_id: str | None) -> bool:
        return cluster_id is None or cluster_id == self._quorum.peers.cluster_id

    def _refuse_voter_request(self, node_id: int, epoch: int) -> ErrorCode | None:
        if epoch < self._quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.INVALID_REQUEST if node_id < 0 else None

    def _is_meant(self, voter_id: int, directory_id: bytes) -> bool:
        """Whether a request to a voter is for this replica, not for one that had its address before."""
        if voter_id == NOBODY:
            return True
        own = self._quorum.own_key
        return voter_id == own.id and directory_id in (bytes(16), own.directory_id)

    # ---- the beginning of an epoch

    def _announce(self, role: Leader) -> None:
        """Tell the voters who leads, again and again: one may have been away."""
        quorum = self._quorum
        for voter in role.voters.values():
            address = voter.address(quorum.peers.listener)
            if voter.id == quorum.own.id or address is None:
                continue
            request = messages.begin_epoch_request(
                quorum.peers.cluster_id, voter.key, quorum.own.id, role.epoch, quorum.own.endpoints
            )
            quorum.peers.network.send(
                address,
                request,
                messages.BEGIN_EPOCH_VERSION,
                self._announced,
                timeout_ms=quorum.settings.request_timeout_ms,
            )
        self._again.set(quorum.settings.begin_epoch_interval_ms)

    def _announced(self, answer: Any) -> None:
        if isinstance(answer, Unreachable) or self._quorum.closed:
            return
        partition = messages.single_partition(answer.topics) if not answer.error_code else None
        if partition is None:
            self._refused("begin of epoch", NOBODY, answer)
        else:
            self.heed(messages.hint_of(answer, partition))

    def begin_epoch(self, request: BeginQuorumEpochRequest, version: int) -> BeginQuorumEpochResponse:
        quorum = self._quorum
        refused = self._refuse_request(request, single=messages.single_partition(request.topics))
        if refused is not None:
            return _begin_error(refused)
        asked = request.topics[0].partitions[0]
        error = self._refuse_voter_request(asked.leader_id, asked.leader_epoch)
        if error is None:
            address = _address_in(request.leader_endpoints, quorum.peers.listener)
            quorum.learn(asked.leader_epoch, asked.leader_id, address)
            if not self._is_meant(request.voter_id, asked.voter_directory_id):
                error = ErrorCode.INVALID_VOTER_KEY
        return messages.begin_epoch_response(self.hint(error or ErrorCode.NONE), version)

    # ---- the majority

    def replica_was_heard(self, key: ReplicaKey) -> None:
        role = self._quorum.role
        if isinstance(role, Leader) and role.hears(key) and role.needs_others:
            self._check_quorum.set(self._quorum.settings.check_quorum_timeout_ms)

    def _majority_is_lost(self) -> None:
        role = self._quorum.role
        if isinstance(role, Leader) and role.needs_others:
            log.warning("node %d resigns from epoch %d: a majority stopped fetching", self._quorum.own.id, role.epoch)
            self._quorum.resign()

    def voters_changed(self, role: Leader) -> None:
        """A quorum of one has nothing to lose; with more voters they must be heard of."""
        if role.needs_others:
            if not self._check_quorum.is_set:
                self._check_quorum.set(self._quorum.settings.check_quorum_timeout_ms)
            self._announce(role)

    # ---- the end of an epoch

    def _announce_end(self, role: Resigned) -> None:
        quorum = self._quorum
        left = [voter for voter in quorum.voters.values() if voter.id not in {quorum.own.id, *role.acknowledged}]
        for voter in left:
            address = voter.address(quorum.peers.listener)
            if address is None:
                continue
            request = messages.end_epoch_request(
                quorum.peers.cluster_id, quorum.own.id, role.epoch, role.successors, quorum.own.endpoints
            )
            quorum.peers.network.send(
                address,
                request,
                messages.END_EPOCH_VERSION,
                partial(self._end_was_heard, role, voter.id),
                timeout_ms=quorum.settings.request_timeout_ms,
            )

    def _end_was_heard(self, role: Role, voter_id: int, answer: Any) -> None:
        quorum = self._quorum
        if quorum.closed:
            return
        if isinstance(answer, Unreachable):
            if quorum.role is role and not self._again.is_set:
                self._again.set(10 * self._retry_ms())
            return
        partition = messages.single_partition(answer.topics) if not answer.error_code else None
        if partition is None:
            self._refused("end of epoch", voter_id, answer)
            return
        if not self.heed(messages.hint_of(answer, partition)) and isinstance(role, Resigned):
            role.acknowledged.add(voter_id)

    def end_epoch(self, request: EndQuorumEpochRequest, version: int) -> EndQuorumEpochResponse:
        quorum = self._quorum
        refused = self._refuse_request(request, single=messages.single_partition(request.topics))
        if refused is not None:
            return _end_error(refused)
        asked = request.topics[0].partitions[0]
        error = self._refuse_voter_request(asked.leader_id, asked.leader_epoch)
        if error is None:
            address = _address_in(request.leader_endpoints, quorum.peers.listener)
            quorum.learn(asked.leader_epoch, asked.leader_id, address)
            role = quorum.role
            if isinstance(role, Follower) and role.election.leader_id == asked.leader_id:
                role.leader_is_gone = True
                self._deadline.set(self._succession_ms(messages.preferred_candidates(asked)))
            elif isinstance(role, Observer) and role.election.leader_id == asked.leader_id:
                quorum.following.look_elsewhere()
        return messages.end_epoch_response(self.hint(error or ErrorCode.NONE), version)

    def _succession_ms(self, preferred: list[ReplicaKey]) -> int:
        """The preferred successor stands at once; each other one waits twice as long as the one before it."""
        own = self._quorum.own_key
        limit = self._quorum.settings.election_backoff_max_ms
        wait_ms = 0
        for key in preferred:
            if key.id == own.id and key.directory_id in (bytes(16), own.directory_id):
                return min(limit, wait_ms)
            wait_ms = 2 * wait_ms or max(1, limit >> (len(preferred) - 1))
        return limit


def _address_in(endpoints: Any, listener: str) -> Address | None:
    for endpoint in endpoints:
        if endpoint.name == listener:
            return Address(endpoint.host, endpoint.port)
    return Address(endpoints[0].host, endpoints[0].port) if endpoints else None


def _vote_error(code: ErrorCode) -> VoteResponse:
    from moldau.protocol.generated.wire.vote_response import VoteResponse

    return VoteResponse(error_code=code)


def _begin_error(code: ErrorCode) -> BeginQuorumEpochResponse:
    from moldau.protocol.generated.wire.begin_quorum_epoch_response import BeginQuorumEpochResponse

    return BeginQuorumEpochResponse(error_code=code)


def _end_error(code: ErrorCode) -> EndQuorumEpochResponse:
    from moldau.protocol.generated.wire.end_quorum_epoch_response import EndQuorumEpochResponse

    return EndQuorumEpochResponse(error_code=code)
