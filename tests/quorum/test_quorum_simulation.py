"""Whole quorums under seeded chaos, with the rules of Raft checked after every event; and proof that they can fail."""

from __future__ import annotations

import os

import pytest
from raft_chaos import Chaos
from raft_world import RaftWorld

from moldau.quorum.follower import Follower
from moldau.quorum.leader import Leader
from moldau.quorum.metadata_log import MetadataLog
from moldau.quorum.quorum import Quorum
from moldau.quorum.unattached import Unattached
from moldau.quorum.voters import ReplicaKey

SEEDS = int(os.environ.get("MOLDAU_QUORUM_SEEDS", "200"))
PER_TEST = 20


@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_seeds(first: int) -> None:
    for seed in range(first, min(first + PER_TEST, SEEDS)):
        chaos = Chaos(seed)
        try:
            chaos.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}\n{chaos.world.describe()}") from error


@pytest.mark.parametrize("seed", [3, 17, 41])
def test_a_seed_always_tells_the_same_story(seed: int) -> None:
    first, second = Chaos(seed).run(), Chaos(seed).run()
    assert first.story == second.story
    assert first.trace() == second.trace()


def finds(first: int, last: int) -> bool:
    for seed in range(first, last):
        try:
            Chaos(seed).run()
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize("bug", ["forgets its vote", "votes for any log", "counts before the sync", "never truncates"])
def test_planted_bugs_are_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without these the number of seeds would say nothing."""
    if bug == "forgets its vote":
        monkeypatch.setattr(Quorum, "_persist", lambda self, election: None)
    elif bug == "votes for any log":
        monkeypatch.setattr(
            Unattached, "grants", lambda self, candidate, *, log_is_current, pre_vote: self.election.voted_id < 0
        )
    elif bug == "counts before the sync":
        monkeypatch.setattr(MetadataLog, "durable_offset", property(lambda self: self.end_offset))
    else:
        monkeypatch.setattr(MetadataLog, "truncate", lambda self, offset: None)
    assert finds(0, 150)


# ---- single stories


def test_a_killed_leader_is_replaced_at_once() -> None:
    world = RaftWorld(5, voters=3, observers=1).start()
    leader = world.elect()
    world.run(1000)
    world.append(leader)
    world.run_until(world.is_settled)
    leader.crash(None)
    took = world.run_until(lambda: world.leader not in (None, leader))
    assert took < 300, "a process that died is noticed by its broken connection, not by a timeout"
    world.run_until(lambda: all(node.quorum.epoch == 2 for node in world.alive), 500)


def test_a_leader_whose_machine_is_gone_is_replaced_after_the_fetch_timeout() -> None:
    world = RaftWorld(5, voters=3).start()
    leader = world.elect()
    world.run(3000)
    for other in world.nodes.values():
        world.network.cut(leader.address, other.address)
        world.network.cut(other.address, leader.address)
    took = world.run_until(lambda: world.leader not in (None, leader))
    assert 1000 < took < 5000
    # Cut off from the majority, it notices by itself that it does not lead any more.
    world.run_until(lambda: not leader.quorum.is_leader, 3000)
    world.network.heal()
    world.run_until(world.is_settled, 5000)


def test_who_was_cut_off_comes_back_without_an_election() -> None:
    """What pre-votes are for: a healthy leader is not disturbed by a voter that has heard nothing for long."""
    world = RaftWorld(2, voters=3).start()
    leader = world.elect()
    world.run_until(world.is_settled)
    away = next(node for node in world.nodes.values() if node is not leader)
    for other in world.nodes.values():
        world.network.cut(away.address, other.address)
        world.network.cut(other.address, away.address)
    world.run(20_000)
    world.network.heal()
    world.run_until(lambda: isinstance(away.quorum.role, Follower), 5000)
    world.run(5000)
    assert world.leader is leader
    assert away.quorum.epoch == leader.quorum.epoch == 1


def test_no_majority_no_leader() -> None:
    world = RaftWorld(3, voters=5).start()
    leader = world.elect()
    world.run_until(world.is_settled)
    for node in [leader, *(n for n in world.nodes.values() if n is not leader)][:3]:
        node.crash(None)
    world.run(30_000)
    assert world.leader is None
    assert max(node.quorum.epoch for node in world.alive) == 1
    next(node for node in world.nodes.values() if not node.alive).start()
    world.elect()


def test_what_one_leader_did_not_commit_gives_way() -> None:
    world = RaftWorld(4, voters=3).start()
    leader = world.elect()
    world.run_until(world.is_settled)
    for other in world.nodes.values():
        world.network.cut(leader.address, other.address)
        world.network.cut(other.address, leader.address)
    world.append(leader, 3)
    lost_end = leader.quorum.next_offset
    world.run_until(lambda: world.leader not in (None, leader))
    new = world.leader
    assert new is not None
    world.append(new)
    world.run(100)
    world.network.heal()
    world.run_until(world.is_settled, 10_000)
    assert leader.quorum.next_offset < lost_end + 2
    assert leader.topics == new.topics == ["t3"]
    assert world.acknowledged == ["t3"]


@pytest.mark.parametrize("observer", [False, True])
def test_who_is_too_far_behind_gets_a_snapshot(observer: bool) -> None:
    world = RaftWorld(6, voters=3, observers=1).start()
    leader = world.elect()
    world.run_until(world.is_settled)
    away = world.nodes[4] if observer else next(n for n in world.nodes.values() if n is not leader)
    away.crash(None)
    for _ in range(4):
        world.append(leader, 50)
        world.run(200)
        for node in world.alive:
            assert node.emitter.emit()
    assert leader.quorum.log.start_offset > 100
    away.start()
    world.run_until(world.is_settled)
    assert away.quorum.log.start_offset > 0
    assert away.topics == leader.topics
    assert len(away.topics) == 200
    away.crash(None)
    away.start()
    world.run_until(world.is_settled)
    assert away.topics == leader.topics


def test_all_killed_at_once() -> None:
    world = RaftWorld(7, voters=3, observers=2).start()
    leader = world.elect()
    world.append(leader, 5)
    world.run_until(world.is_settled)
    for node in world.nodes.values():
        node.crash(world.random)
    for node in world.nodes.values():
        node.start()
    world.elect(5000)
    world.run_until(world.is_settled)
    assert set(world.acknowledged) == {f"t{i}" for i in range(5)}
    assert world.nodes[5].topics == [f"t{i}" for i in range(5)]


def test_a_leader_that_stops_hands_over() -> None:
    world = RaftWorld(8, voters=3).start()
    leader = world.elect()
    world.run_until(world.is_settled)
    leader.quorum.resign()
    took = world.run_until(lambda: world.leader not in (None, leader))
    assert took < 100


def test_a_static_quorum() -> None:
    world = RaftWorld(9, voters=3, observers=1, dynamic=False).start()
    leader = world.elect()
    world.append(leader)
    world.run_until(world.is_settled)
    assert leader.quorum.kraft_version == 0
    assert {p.key for p in leader.quorum.role.voter_progress()} >= {  # type: ignore[union-attr]
        ReplicaKey(node.id, node.directory_id) for node in world.nodes.values() if node.id < 4 and node is not leader
    }
    role = leader.quorum.role
    assert isinstance(role, Leader)
    assert [p.key.id for p in role.observer_progress(world.clock.now_ms())] == [4]
