"""Changing who votes (KIP-853): adding, removing and updating voters, and raising kraft.version from 0 to 1.

The leader makes one change at a time and begins none before the one before it, and a record of its own epoch, are
committed: two majorities in a row then always share a voter. A change counts as soon as it is in the log. Voters keep
their own entry up to date, and a controller may add itself when it is told to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from moldau.metadata.features import KRAFT_VERSION, VersionRange
from moldau.ports import Address, Pending, Timer, Unreachable
from moldau.protocol.errors import ErrorCode, error_code
from moldau.protocol.uuids import ZERO_UUID
from moldau.quorum.deadline import Deadline
from moldau.quorum.follower import Follower
from moldau.quorum.leader import UNKNOWN, Leader
from moldau.quorum.observer import Observer
from moldau.quorum.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet, is_voter

if TYPE_CHECKING:
    from moldau.protocol.generated.wire.add_raft_voter_request import AddRaftVoterRequest
    from moldau.protocol.generated.wire.add_raft_voter_response import AddRaftVoterResponse
    from moldau.protocol.generated.wire.remove_raft_voter_request import RemoveRaftVoterRequest
    from moldau.protocol.generated.wire.remove_raft_voter_response import RemoveRaftVoterResponse
    from moldau.protocol.generated.wire.update_raft_voter_request import UpdateRaftVoterRequest
    from moldau.protocol.generated.wire.update_raft_voter_response import UpdateRaftVoterResponse
    from moldau.quorum.quorum import Quorum

log = logging.getLogger("moldau.quorum")

# A replica that has fetched within this time, and has once had the whole log, may be added.
RECENT_FETCH_MS = 3_600_000
API_VERSIONS_VERSION = 4
ADD_VERSION = 1
REMOVE_VERSION = 0
UPDATE_VERSION = 0


class Refused(Exception):
    """Why a change is not made."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class _Change:
    """The change under way; `offset` is where it stands in the log, once it does."""

    __slots__ = ("answer", "done", "offset", "timer")

    def __init__(self, answer: Callable[[ErrorCode, str | None], None], timer: Timer) -> None:
        self.answer = answer
        self.timer = timer
        self.offset: int | None = None
        self.done = False


class VoterChanges:
    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._change: _Change | None = None
        # What the voters of a static quorum have told of themselves, by id: needed to make it a dynamic one.
        self._told: dict[int, Voter] = {}
        self._update = Deadline(quorum.clock, self._keep_own_entry)
        self._updating = False

    # ---- roles

    def role_changed(self) -> None:
        role = self._quorum.role
        if self._change is not None:
            self._end(self._change, ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
        self._update.clear()
        self._updating = False
        if isinstance(role, Leader):
            self._told = {}
        elif isinstance(role, Follower | Observer) and self._quorum.peers.can_vote:
            self._update.set(self._period_ms())

    def stop(self) -> None:
        self._update.clear()
        if self._change is not None:
            self._end(self._change, ErrorCode.NOT_LEADER_OR_FOLLOWER, None)

    def _period_ms(self) -> int:
        return max(1, self._quorum.settings.fetch_timeout_ms // 4)

    # ---- what the leader checks before any change

    def _check(self, cluster_id: str | None, what: str) -> Leader:
        quorum = self._quorum
        if not quorum.elections.is_own_cluster(cluster_id):
            raise Refused(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f'The given id "{cluster_id}" doesn\'t match the cluster id "{quorum.peers.cluster_id}"',
            )
        role = quorum.role
        if not isinstance(role, Leader):
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
        self._check_idle(role)
        if quorum.kraft_version < 1:
            raise Refused(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Cluster doesn't support {what} voter because the {KRAFT_VERSION} feature is {quorum.kraft_version}",
            )
        self._check_committed(role)
        return role

    def _check_idle(self, role: Leader) -> None:
        if self._change is not None:
            raise Refused(
                ErrorCode.REQUEST_TIMED_OUT,
                "Request timed out waiting for leader to handle previous voter change request",
            )
        if role.high_watermark == UNKNOWN:
            raise Refused(
                ErrorCode.REQUEST_TIMED_OUT,
                "Request timed out waiting for leader to establish HWM and fence previous voter changes",
            )

    def _check_committed(self, role: Leader) -> None:
        offset = self._quorum.history.last_offset
        if offset >= role.high_watermark:
            raise Refused(
                ErrorCode.REQUEST_TIMED_OUT,
                f"Request timed out waiting for voters to commit the latest voter change at {offset} with HWM "
                f"{role.high_watermark}",
            )

    # ---- adding

    def add(self, request: AddRaftVoterRequest, version: int) -> AddRaftVoterResponse | Pending[AddRaftVoterResponse]:
        from moldau.protocol.generated.wire.add_raft_voter_response import AddRaftVoterResponse

        promise: Pending[AddRaftVoterResponse] = Pending()

        def answer(code: ErrorCode, message: str | None) -> None:
            promise.resolve(AddRaftVoterResponse(error_code=code, error_message=message))

        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        endpoints = tuple(VoterEndpoint(e.name, e.host, e.port) for e in request.listeners)
        try:
            self._check(request.cluster_id, "adding")
            address = self._check_new(key, endpoints)
        except Refused as refused:
            answer(refused.code, refused.message)
            return promise
        change = self._begin(answer)

        def versions_known(response: Any) -> None:
            if not change.done:
                self._add(change, key, endpoints, response, wait=version < 1 or request.ack_when_committed)

        from moldau.protocol.generated.wire.api_versions_request import ApiVersionsRequest

        self._quorum.peers.network.send(
            address,
            ApiVersionsRequest(client_software_name="moldau", client_software_version="1"),
            API_VERSIONS_VERSION,
            versions_known,
            timeout_ms=self._quorum.settings.request_timeout_ms,
        )
        return promise

    def _check_new(self, key: ReplicaKey, endpoints: tuple[VoterEndpoint, ...]) -> Address:
        quorum = self._quorum
        if key.id < 0 or key.directory_id == ZERO_UUID:
            raise Refused(ErrorCode.INVALID_REQUEST, "Add voter request didn't include a valid voter")
        listener = quorum.peers.listener
        for endpoint in endpoints:
            if endpoint.name == listener:
                break
        else:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"Add voter request didn't include the endpoint for the default listener {listener}",
            )
        if key.id in quorum.voters:
            raise Refused(
                ErrorCode.DUPLICATE_VOTER,
                f"The voter id for {key} is already part of the set of voters {_names(quorum.voters)}.",
            )
        return Address(endpoint.host, endpoint.port)

    def _begin(self, answer: Callable[[ErrorCode, str | None], None]) -> _Change:
        timeout_ms = self._quorum.settings.request_timeout_ms
        timer = self._quorum.clock.call_later(
            timeout_ms, lambda: self._end(change, ErrorCode.REQUEST_TIMED_OUT, "The voter change was not committed yet")
        )
        change = self._change = _Change(answer, timer)
        return change

    def _end(self, change: _Change, code: ErrorCode, message: str | None) -> None:
        if change.done:
            return
        change.done = True
        change.timer.cancel()
        if self._change is change:
            self._change = None
        change.answer(code, message)

    def _add(
        self, change: _Change, key: ReplicaKey, endpoints: tuple[VoterEndpoint, ...], response: Any, *, wait: bool
    ) -> None:
        quorum = self._quorum
        role = quorum.role
        assert isinstance(role, Leader), "a change ends with the leader's epoch"
        if isinstance(response, Unreachable) or response.error_code:
            self._end(
                change,
                ErrorCode.REQUEST_TIMED_OUT,
                f"Aborted add voter operation: {key} could not be asked: {response}",
            )
            return
        levels = next(
            (
                VersionRange(f.min_version, f.max_version)
                for f in response.supported_features
                if f.name == KRAFT_VERSION
            ),
            VersionRange(0, 0),
        )
        if quorum.kraft_version not in levels:
            self._end(
                change,
                ErrorCode.INVALID_REQUEST,
                f"Aborted add voter operation for {key} since the {KRAFT_VERSION} range (min: {levels.min}, max: "
                f"{levels.max}) doesn't support the finalized version {quorum.kraft_version}",
            )
            return
        progress = role.progress_of(key)
        recent = quorum.clock.now_ms() - progress.last_fetch_ms < RECENT_FETCH_MS
        if progress.last_caught_up_ms < 0 or not recent:
            self._end(
                change,
                ErrorCode.REQUEST_TIMED_OUT,
                f"Aborted add voter operation for {key} since it is lagging behind",
            )
            return
        log.info("voter %s is added to the metadata quorum", key)
        voters = {**quorum.voters, key.id: Voter(key.id, key.directory_id, endpoints, levels)}
        self._append(change, voters, wait=wait)

    def _append(self, change: _Change, voters: VoterSet, *, wait: bool) -> None:
        change.offset = self._quorum.next_offset
        self._quorum.append_control(self._quorum.voter_records(voters))
        if not wait:
            self._end(change, ErrorCode.NONE, None)

    # ---- removing

    def remove(
        self, request: RemoveRaftVoterRequest, version: int
    ) -> RemoveRaftVoterResponse | Pending[RemoveRaftVoterResponse]:
        from moldau.protocol.generated.wire.remove_raft_voter_response import RemoveRaftVoterResponse

        promise: Pending[RemoveRaftVoterResponse] = Pending()

        def answer(code: ErrorCode, message: str | None) -> None:
            promise.resolve(RemoveRaftVoterResponse(error_code=code, error_message=message))

        quorum = self._quorum
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        try:
            self._check(request.cluster_id, "removing")
            if key.id < 0 or key.directory_id == ZERO_UUID:
                raise Refused(ErrorCode.INVALID_REQUEST, "Remove voter request didn't include a valid voter")
            voter = quorum.voters.get(key.id)
            if voter is None or voter.key != key or len(quorum.voters) == 1:
                raise Refused(
                    ErrorCode.VOTER_NOT_FOUND,
                    f"Cannot remove voter {key} from the set of voters {_names(quorum.voters)}",
                )
        except Refused as refused:
            answer(refused.code, refused.message)
            return promise
        log.info("voter %s is removed from the metadata quorum", key)
        change = self._begin(answer)
        self._append(change, {i: v for i, v in quorum.voters.items() if i != key.id}, wait=True)
        return promise

    def committed(self) -> None:
        """More became committed: perhaps the change that somebody waits for."""
        quorum = self._quorum
        change = self._change
        if change is not None and change.offset is not None and change.offset < quorum.high_watermark:
            self._end(change, ErrorCode.NONE, None)
        role = quorum.role
        removed = isinstance(role, Leader) and not is_voter(role.voters, role.own)
        if removed and quorum.history.last_offset < quorum.high_watermark:
            log.info("node %d is no voter any more and stops leading", quorum.own.id)
            quorum.resign()

    # ---- updating

    def update(self, request: UpdateRaftVoterRequest, version: int) -> UpdateRaftVoterResponse:
        try:
            self._update_voter(request)
        except Refused as refused:
            return self._update_response(refused.code)
        return self._update_response(ErrorCode.NONE)

    def _update_response(self, code: ErrorCode) -> UpdateRaftVoterResponse:
        from moldau.protocol.generated.wire.update_raft_voter_response import CurrentLeader, UpdateRaftVoterResponse

        hint = self._quorum.elections.hint(code)
        leader = CurrentLeader(leader_id=hint.leader_id, leader_epoch=hint.epoch)
        if hint.address is not None:
            leader.host, leader.port = hint.address
        return UpdateRaftVoterResponse(error_code=code, current_leader=leader)

    def _update_voter(self, request: UpdateRaftVoterRequest) -> None:
        quorum = self._quorum
        if not quorum.elections.is_own_cluster(request.cluster_id):
            raise Refused(ErrorCode.INCONSISTENT_CLUSTER_ID, "")
        error = quorum.serving.refuse_leader_request(request.current_leader_epoch)
        if error is not None:
            raise Refused(error, "")
        role = quorum.role
        assert isinstance(role, Leader), "only a leader gets here"
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        endpoints = tuple(VoterEndpoint(e.name, e.host, e.port) for e in request.listeners)
        feature = request.kraft_version_feature
        levels = VersionRange(feature.min_supported_version, feature.max_supported_version)
        if (
            key.id < 0
            or key.directory_id == ZERO_UUID
            or all(endpoint.name != quorum.peers.listener for endpoint in endpoints)
            or not 0 <= levels.min <= levels.max
            or quorum.kraft_version not in levels
        ):
            raise Refused(ErrorCode.INVALID_REQUEST, "")
        if not is_voter(quorum.voters, key):
            raise Refused(ErrorCode.VOTER_NOT_FOUND, "")
        voter = Voter(key.id, key.directory_id, endpoints, levels)
        if quorum.kraft_version < 1:
            self._told[voter.id] = voter
            return
        self._check_idle(role)
        self._check_committed(role)
        if quorum.voters[key.id] != voter:
            quorum.append_control(quorum.voter_records({**quorum.voters, voter.id: voter}))

    def _keep_own_entry(self) -> None:
        """What the log says of this voter may be outdated: tell the leader, or ask it to be added."""
        quorum = self._quorum
        self._update.set(self._period_ms())
        leader = quorum.leader_address
        if leader is None or self._updating:
            return
        request: Any
        if quorum.is_voter:
            if quorum.kraft_version >= 1 and quorum.voters.get(quorum.own.id) in (None, quorum.own):
                return
            request, version = self._update_request(), UPDATE_VERSION
        elif quorum.settings.auto_join and quorum.kraft_version >= 1:
            request, version = self._join_request()
        else:
            return
        self._updating = True
        role = quorum.role

        def answered(response: Any) -> None:
            if quorum.role is not role:
                return
            self._updating = False
            told = not isinstance(response, Unreachable) and not response.error_code
            if told and quorum.kraft_version < 1:
                # The leader keeps it in memory for as long as it leads: once is enough.
                self._update.clear()
            elif not told and not isinstance(response, Unreachable):
                log.debug("the leader did not change this voter: %s", error_code(response.error_code).name)

        quorum.peers.network.send(
            leader, request, version, answered, timeout_ms=2 * quorum.settings.request_timeout_ms, lane="voter"
        )

    def _update_request(self) -> UpdateRaftVoterRequest:
        from moldau.protocol.generated.wire.update_raft_voter_request import (
            KRaftVersionFeature,
            Listener,
            UpdateRaftVoterRequest,
        )

        quorum, own = self._quorum, self._quorum.own
        return UpdateRaftVoterRequest(
            cluster_id=quorum.peers.cluster_id,
            current_leader_epoch=quorum.epoch,
            voter_id=own.id,
            voter_directory_id=own.directory_id,
            listeners=[Listener(e.name, e.host, e.port) for e in own.endpoints],
            kraft_version_feature=KRaftVersionFeature(own.kraft_versions.min, own.kraft_versions.max),
        )

    def _join_request(self) -> tuple[Any, int]:
        """A replica of this node with another directory id is one that lost its disk: it goes first."""
        from moldau.protocol.generated.wire.add_raft_voter_request import AddRaftVoterRequest, Listener
        from moldau.protocol.generated.wire.remove_raft_voter_request import RemoveRaftVoterRequest

        quorum, own = self._quorum, self._quorum.own
        lost = quorum.voters.get(own.id)
        if lost is not None:
            request = RemoveRaftVoterRequest(
                cluster_id=quorum.peers.cluster_id, voter_id=lost.id, voter_directory_id=lost.directory_id
            )
            return request, REMOVE_VERSION
        joining = AddRaftVoterRequest(
            cluster_id=quorum.peers.cluster_id,
            timeout_ms=quorum.settings.request_timeout_ms,
            voter_id=own.id,
            voter_directory_id=own.directory_id,
            listeners=[Listener(e.name, e.host, e.port) for e in own.endpoints],
            ack_when_committed=False,
        )
        return joining, ADD_VERSION

    # ---- from static to dynamic voters

    def why_not_dynamic(self) -> str | None:
        """What stands against kraft.version 1: the log must know every voter's directory and addresses."""
        quorum = self._quorum
        role = quorum.role
        if not isinstance(role, Leader):
            return "This node does not lead the metadata quorum."
        if quorum.kraft_version >= 1:
            return None
        try:
            self._check_idle(role)
        except Refused as refused:
            return refused.message
        known = self._known()
        missing = sorted(quorum.voters.keys() - known.keys())
        if missing:
            return f"The directory ids of the voters {missing} are not known yet."
        for voter_id in quorum.voters:
            if 1 not in known[voter_id].kraft_versions:
                return f"Voter {voter_id} does not support version 1 of {KRAFT_VERSION}."
        return None

    def _known(self) -> dict[int, Voter]:
        return {**self._told, self._quorum.own.id: self._quorum.own}

    def upgrade(self) -> str | None:
        """Raise kraft.version to 1: the voters of the configuration become those of the log. Or the reason why not."""
        quorum = self._quorum
        refused = self.why_not_dynamic()
        if refused is not None or quorum.kraft_version >= 1:
            return refused
        known = self._known()
        voters = {voter_id: known[voter_id] for voter_id in sorted(quorum.voters)}
        log.info("the metadata quorum becomes a dynamic one with the voters %s", _names(voters))
        quorum.append_control(quorum.voter_records(voters, kraft_version=1))
        return None


def _names(voters: VoterSet) -> str:
    return ", ".join(str(voter.key) for voter in voters.values())
