"""The roles of a node in the quorum, and which may follow which.

    Unattached   no leader for too long -> Prospective; alone -> Candidate; hears of one -> Follower
    Prospective  could win -> Candidate; could not -> Prospective, or back to the Follower it was; voted -> Unattached
    Candidate    won -> Leader; lost or no answer -> Prospective
    Leader       lost the majority, removed, stops -> Resigned
    Follower     leader silent or gone -> Prospective; another leader -> Follower
    Resigned     some time later -> Unattached, in the next epoch
    Observer     added to the voters -> Follower or Unattached

Beside these, a later epoch makes any role Unattached or Follower (of whoever leads it), and a node that is no voter
any more an Observer. Epochs never go back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from moldau.quorum.candidate import Candidate
from moldau.quorum.follower import Follower
from moldau.quorum.leader import Leader
from moldau.quorum.observer import Observer
from moldau.quorum.prospective import Prospective
from moldau.quorum.resigned import Resigned
from moldau.quorum.unattached import Unattached

Role: TypeAlias = Unattached | Prospective | Candidate | Leader | Follower | Resigned | Observer

_BY_A_LATER_EPOCH: Final = frozenset({Unattached, Follower, Observer})

NEXT_ROLES: Final[Mapping[type, frozenset[type]]] = {
    Unattached: _BY_A_LATER_EPOCH | {Prospective, Candidate},
    Prospective: _BY_A_LATER_EPOCH | {Prospective, Candidate},
    Candidate: _BY_A_LATER_EPOCH | {Prospective, Leader},
    Leader: _BY_A_LATER_EPOCH | {Resigned},
    Follower: _BY_A_LATER_EPOCH | {Prospective},
    Resigned: _BY_A_LATER_EPOCH,
    Observer: _BY_A_LATER_EPOCH,
}
