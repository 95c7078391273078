"""Random lives of a query: drivers die anywhere, zombies come back, transactions time out, nodes are killed."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from moldau.client import transactions
from moldau.client.errors import FencedError
from moldau.spark import exactly_once as once
from moldau.spark.exactly_once import Decision, Plan
from moldau.testing import Cluster
from tests.spark.hand_driven import TASKS, Query

STEPS = 25


class Life:
    """A query and the drivers it has had; only some of its batches get to their end at the first attempt."""

    def __init__(self, query: Query, chance: random.Random) -> None:
        self.query = query
        self.chance = chance
        self.batch = 0
        self.begun = False
        self.zombies: list[tuple[Plan, Decision]] = []

    def step(self) -> None:
        action = self.chance.choice([self.live, self.live, self.die, self.haunt, self.lose, self.repeat])
        action()

    def live(self) -> None:
        self.query.run(self.batch)
        self.batch += 1
        self.begun = False

    def repeat(self) -> None:
        """The driver died between the commit and Spark's note of it, so the next batch was never begun."""
        if self.batch and not self.begun:
            self.query.run(self.batch - 1)

    def die(self) -> None:
        """Somewhere between planning and the last commit; it may come back as a zombie."""
        self.begun = True
        plan = once.plan(self.query.settings)
        done = [self.query.task(plan, self.batch, task) for task in range(self.chance.randint(0, TASKS))]
        if len(done) < TASKS or any(counted_before for _, counted_before in done):
            return
        decision = Decision(self.batch, self.query.name, tuple(work for work, _ in done if work is not None))
        if self.chance.random() < 0.5:
            self.zombies.append((plan, decision))
            return
        self.query.decide_only(plan, decision)
        for work in decision.work[: self.chance.randint(0, TASKS)]:
            transactions.end(self.query.cluster, self.query.transaction(work), commit=True)

    def haunt(self) -> None:
        """A driver that was given up wakes, after another one has come."""
        if self.zombies:
            plan, decision = self.zombies.pop()
            once.plan(self.query.settings)
            with pytest.raises(FencedError):
                once.commit(self.query.settings, plan.driver, decision)
            with pytest.raises(FencedError):
                self.query.task(plan, decision.batch, self.chance.randrange(TASKS))

    def lose(self) -> None:
        """A batch was decided, and some of its transactions ended by themselves before they were committed."""
        plan = once.plan(self.query.settings)
        if plan.lost or (plan.last is not None and plan.last.batch >= self.batch):
            return
        self.begun = True
        done = [self.query.task(plan, self.batch, task)[0] for task in range(TASKS)]
        decision = Decision(self.batch, self.query.name, tuple(work for work in done if work is not None))
        self.query.decide_only(plan, decision)
        for work in decision.work:
            if self.chance.random() < 0.5:
                transactions.end(self.query.cluster, self.query.transaction(work), commit=True)
            else:
                transactions.begin(self.query.cluster, self.query.settings.task_id(work.task), 60_000)


@pytest.mark.parametrize("seed", range(6))
def test_every_batch_counts_once(moldau_cluster: Cluster, new_topic: Callable[..., str], seed: int) -> None:
    query = Query(moldau_cluster.bootstrap_servers, new_topic(3))
    life = Life(query, random.Random(seed))
    for _ in range(STEPS):
        life.step()
    life.live()
    query.expect(life.batch)


def test_every_batch_counts_once_while_the_node_is_killed() -> None:
    chance = random.Random(7)
    with Cluster(in_process=False) as cluster:
        cluster.create_topic("t", 3)
        query = Query(cluster.bootstrap_servers, "t")
        life = Life(query, chance)
        for step in range(12):
            if step % 4 == 3:
                cluster.kill()
                cluster.start()
            life.step()
        life.live()
        query.expect(life.batch)
