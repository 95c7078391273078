"""A quorum whose voters change while it is at work (KIP-853), by an operator who does not wait for calm.

Decides nothing about what is right: the rules of the quorum and of its log hold whoever the voters are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.ports import Unreachable
from moldau.protocol.errors import ErrorCode, error_code
from moldau.protocol.generated.wire.add_raft_voter_request import AddRaftVoterRequest, Listener
from moldau.protocol.generated.wire.remove_raft_voter_request import RemoveRaftVoterRequest
from moldau.protocol.uuids import ZERO_UUID
from moldau.quorum.meta_properties import new_uuid, read_meta_properties
from moldau.quorum.voters import Voter, VoterEndpoint, own_kraft_versions
from moldau.testing.simulation.client import Client, Script
from moldau.testing.simulation.node import CLUSTER_ID, CONTROLLER_PORT, DATA

if TYPE_CHECKING:
    from moldau.testing.simulation.node import SimulatedNode
    from moldau.testing.simulation.world import Simulation

LISTENER = "CONTROLLER"
CHANGE_MS = 1000
# With fewer, one node that is down holds up all the others.
VOTERS_MIN = 3


def initial_voter(node: SimulatedNode) -> Voter:
    endpoint = VoterEndpoint(LISTENER, node.host, CONTROLLER_PORT)
    return Voter(node.id, new_uuid(node.random), (endpoint,), own_kraft_versions())


class VoterOperator(Client):
    def __init__(self, world: Simulation, name: str, voters: int) -> None:
        super().__init__(world, name)
        # As far as the operator was told.
        self._voters = set(range(1, voters + 1))

    def run(self) -> Script:
        while not self.world.ending:
            yield from self.sleep(100 + int(self.random.random() * 400))
            others = sorted(self.world.nodes.keys() - self._voters)
            if others and (len(self._voters) <= VOTERS_MIN or self.random.random() < 0.5):
                yield from self._add(self.random.choice(others))
            elif len(self._voters) > VOTERS_MIN:
                yield from self._remove(self.random.choice(sorted(self._voters)))

    def _add(self, node_id: int) -> Script:
        listener = Listener(LISTENER, self.world.nodes[node_id].host, CONTROLLER_PORT)
        request = AddRaftVoterRequest(CLUSTER_ID, CHANGE_MS, node_id, self._directory(node_id), [listener])
        code = yield from self._ask(request)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER):
            self._voters.add(node_id)
            self.world.tell(f"n{node_id} is a voter")

    def _remove(self, node_id: int) -> Script:
        request = RemoveRaftVoterRequest(CLUSTER_ID, node_id, self._directory(node_id))
        code = yield from self._ask(request)
        if code in (ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND):
            self._voters.discard(node_id)
            self.world.tell(f"n{node_id} is no voter any more")

    def _ask(self, request: AddRaftVoterRequest | RemoveRaftVoterRequest) -> Script:
        answer = yield from self.ask(self.any_broker(), request, 0, timeout_ms=2 * CHANGE_MS)
        return None if isinstance(answer, Unreachable) else error_code(answer.error_code)

    def _directory(self, node_id: int) -> bytes:
        node = self.world.nodes[node_id]
        node.disk.observed = True
        properties = read_meta_properties(node.disk, DATA)
        node.disk.observed = False
        assert properties is not None
        return properties.directory_id or ZERO_UUID
