"""Plans for draining and rebalancing: whatever the cluster looks like, nothing is lost and nothing doubles up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli.placement_plans import Broker, Partition, PlanError, drain_plan, loads, rebalance_plan


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[Partition, list[int]], list[Broker]]:
    racks = draw(st.integers(0, 3))
    brokers = [
        Broker(i + 1, f"r{draw(st.integers(1, racks))}" if racks else None) for i in range(draw(st.integers(2, 6)))
    ]
    factor = draw(st.integers(1, len(brokers)))
    used = draw(st.integers(factor, len(brokers)))  # some brokers are new and empty
    assignment = {
        ("t", i): draw(st.permutations([broker.id for broker in brokers[:used]]))[:factor]
        for i in range(draw(st.integers(1, 30)))
    }
    return assignment, brokers


def racks_of(replicas: list[int], brokers: list[Broker]) -> int:
    return len({broker.rack for broker in brokers if broker.id in replicas})


@given(clusters())
def test_a_rebalance_evens_out_and_keeps_racks(cluster: tuple[dict[Partition, list[int]], list[Broker]]) -> None:
    assignment, brokers = cluster
    plan = rebalance_plan(assignment, brokers)
    after = {**assignment, **plan}
    assert all(len(set(after[p])) == len(after[p]) == len(assignment[p]) for p in assignment)
    assert all(racks_of(after[p], brokers) >= racks_of(assignment[p], brokers) for p in assignment)
    spread = [load.replicas for load in loads(after, [broker.id for broker in brokers]).values()]
    if all(broker.rack is None for broker in brokers):
        assert max(spread) - min(spread) <= 1
    assert rebalance_plan(after, brokers) == {}


@given(clusters(), st.data())
def test_a_drain_empties_the_broker_and_moves_nothing_else(
    cluster: tuple[dict[Partition, list[int]], list[Broker]], data: st.DataObject
) -> None:
    assignment, brokers = cluster
    drained = data.draw(st.sampled_from([broker.id for broker in brokers]))
    factor = len(next(iter(assignment.values())))
    if factor == len(brokers) and any(drained in replicas for replicas in assignment.values()):
        with pytest.raises(PlanError, match="replicas"):
            drain_plan(assignment, brokers, [drained])
        return
    plan = drain_plan(assignment, brokers, [drained])
    assert plan.keys() == {p for p, replicas in assignment.items() if drained in replicas}
    for partition, replicas in plan.items():
        assert drained not in replicas
        assert len(set(replicas)) == factor
        assert len(set(replicas) - set(assignment[partition])) == 1


def test_new_brokers_get_their_share() -> None:
    assignment = {("t", i): [1 + i % 3, 1 + (i + 1) % 3, 1 + (i + 2) % 3] for i in range(10)}
    after = {**assignment, **rebalance_plan(assignment, [Broker(i) for i in range(1, 6)])}
    found = loads(after, range(1, 6))
    assert {each.replicas for each in found.values()} == {6}
    assert {each.leaders for each in found.values()} == {2}


def test_a_drained_replica_goes_to_a_rack_of_its_own() -> None:
    brokers = [Broker(1, "a"), Broker(2, "b"), Broker(3, "a"), Broker(4, "b")]
    assert drain_plan({("t", 0): [1, 2]}, brokers, [2]) == {("t", 0): [1, 4]}
