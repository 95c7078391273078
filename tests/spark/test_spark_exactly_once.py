"""A micro-batch counts once: tasks that fail, drivers killed at every point, zombies, transactions that time out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client import transactions
from moldau.client.errors import FencedError, MoldauError
from moldau.client.offsets import READ_UNCOMMITTED
from moldau.spark import exactly_once as once
from moldau.spark.exactly_once import Decision, TaskWork, decode_decision, encode_decision
from moldau.spark.task_writing import TaskWriter
from moldau.testing import Cluster
from tests.spark.hand_driven import ROWS, TASKS, Query
from tests.spark.world import read_values, rows, write_settings


@pytest.fixture
def query(moldau_cluster: Cluster, new_topic: Callable[..., str]) -> Query:
    return Query(moldau_cluster.bootstrap_servers, new_topic(3))


def test_batches_count_once_also_when_they_are_run_again(query: Query) -> None:
    for batch in (0, 1, 1, 2):
        query.run(batch)
    query.expect(3)


def test_a_driver_killed_before_it_decided(query: Query) -> None:
    query.run(0)
    query.tasks(1)
    query.expect(1)
    assert len(read_values(query.client, query.topic, 3, READ_UNCOMMITTED)) == 2 * TASKS * ROWS
    query.run(1)
    query.expect(2)


@pytest.mark.parametrize("committed", [0, 1, 2])
def test_a_driver_killed_after_it_decided(query: Query, committed: int) -> None:
    plan, decision = query.tasks(0)
    query.decide_only(plan, decision)
    for work in decision.work[:committed]:
        assert transactions.end(query.cluster, query.transaction(work), commit=True)
    query.run(0)
    query.run(1)
    query.expect(2)


def test_a_task_that_is_tried_again(query: Query) -> None:
    plan = once.plan(query.settings)
    query.task(plan, 0, 0)
    work = [query.task(plan, 0, task)[0] for task in (0, 1)]
    once.commit(query.settings, plan.driver, Decision(0, query.name, tuple(work)))  # type: ignore[arg-type]
    query.expect(1)


def test_a_commit_may_be_repeated(query: Query) -> None:
    plan, decision = query.tasks(0)
    once.commit(query.settings, plan.driver, decision)
    once.commit(query.settings, plan.driver, decision)
    query.run(1)
    query.expect(2)


def test_a_zombie_can_neither_decide_nor_write(query: Query) -> None:
    zombie, decision = query.tasks(0)
    successor = once.plan(query.settings)
    with pytest.raises(FencedError, match="taken over"):
        once.commit(query.settings, zombie.driver, decision)
    with pytest.raises(FencedError, match="stop this one"):
        query.task(zombie, 0, 0)
    work = [query.task(successor, 0, task)[0] for task in range(TASKS)]
    once.commit(query.settings, successor.driver, Decision(0, query.name, tuple(work)))  # type: ignore[arg-type]
    query.expect(1)


def test_a_zombies_task_that_looked_before_its_driver_was_replaced_cannot_take_the_id(query: Query) -> None:
    query.run(0)
    name = query.settings.task_id(0)
    seen = transactions.look_up(query.cluster, name)
    assert seen is not None
    query.tasks(1)
    with pytest.raises(FencedError):
        transactions.begin(query.cluster, name, 60_000, expected=seen[0])
    query.run(1)
    query.expect(2)


def lose_second_task(query: Query) -> None:
    """Batch 0 is decided; its first transaction is committed, its second one ended before it could be."""
    plan, decision = query.tasks(0)
    query.decide_only(plan, decision)
    assert transactions.end(query.cluster, query.transaction(decision.work[0]), commit=True)
    transactions.begin(query.cluster, query.settings.task_id(1), 60_000)


def test_transactions_lost_after_the_decision_are_written_again_alone(query: Query) -> None:
    lose_second_task(query)
    query.run(0)
    query.run(1)
    query.expect(2)


def test_rows_that_differ_from_what_was_committed_are_not_mixed_with_it(query: Query) -> None:
    lose_second_task(query)
    plan = once.plan(query.settings)
    assert plan.lost == {1}
    writer = TaskWriter(write_settings(query.client, query.topic), 0)
    with pytest.raises(MoldauError, match="cannot be completed exactly once"):
        writer.write_exactly_once(rows(["else"], ["else"]), query.settings, plan, query.name, 0)


def test_checkpoints_that_do_not_fit_the_history(query: Query, moldau_cluster: Cluster) -> None:
    with pytest.raises(MoldauError, match="holds no record of its earlier commits"):
        query.run(3)
    for batch in range(3):
        query.run(batch)
    with pytest.raises(MoldauError, match="the checkpoint was put back"):
        query.run(1)
    other = Query(moldau_cluster.bootstrap_servers, query.topic, "another")
    with pytest.raises(MoldauError, match="belongs to another query"):
        other.run(3)
    query.expect(3)


def test_a_new_checkpoint_begins_anew(query: Query, moldau_cluster: Cluster) -> None:
    query.run(0)
    again = Query(moldau_cluster.bootstrap_servers, query.topic, "another")
    again.run(0)
    assert len(read_values(query.client, query.topic, 3)) == 2 * TASKS * ROWS


numbers = st.builds(
    TaskWork,
    st.integers(0, 5000),
    st.integers(0, 1 << 62),
    st.integers(0, 32767),
    st.integers(0, 1 << 40),
    st.integers(0, (1 << 64) - 1),
)


@given(st.lists(numbers, max_size=200))
def test_a_decision_of_any_size_reads_back(work: list[TaskWork]) -> None:
    decision = Decision(41, "q", tuple(work))
    texts = encode_decision(decision)
    assert all(len(text) <= 4096 for text in texts)
    found = {index: (42, text) for index, text in enumerate(texts)}
    assert decode_decision({**found, len(texts): (17, "of an earlier, larger batch")}) == decision


def test_a_foreign_record_is_not_taken_for_a_decision() -> None:
    with pytest.raises(MoldauError, match="transactionalId of its own"):
        decode_decision({0: (5, "somebody's note")})
    assert decode_decision({}) is None
