"""The same reading and writing against Apache Kafka: exactly once must not depend on whose broker it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.spark import exactly_once as once
from moldau.spark.client import transactions
from moldau.spark.errors import FencedError
from tests.clients.java_tools import JavaTools
from tests.interop.apache_kafka import ApacheKafka, shared_properties
from tests.spark.hand_driven import Query

pytestmark = pytest.mark.java


def test_batches_count_once_on_apache_kafka(java_tools: JavaTools, tmp_path: Path) -> None:
    kafka = ApacheKafka(shared_properties([tmp_path / "data"]), tmp_path)
    kafka.format(java_tools, "MkU3OEVBNTcwNTJENDM2Qg", "--standalone")
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_topics([NewTopic("target", 3, 1)])["target"].result(60)
        query = Query(kafka.bootstrap_servers, "target")
        for batch in (0, 1, 1):
            query.run(batch)
        query.expect(2)

        # A driver killed before it decided, one killed after it, with one of two transactions committed.
        query.tasks(2)
        plan, decision = query.tasks(2)
        query.expect(2)
        query.decide_only(plan, decision)
        assert transactions.end(query.cluster, query.transaction(decision.work[0]), commit=True)
        query.run(2)
        query.expect(3)

        # A zombie can neither decide nor write, nor take an id it looked up before.
        seen = transactions.look_up(query.cluster, query.settings.task_id(0))
        assert seen is not None
        zombie, decision = query.tasks(3)
        once.plan(query.settings)
        with pytest.raises(FencedError):
            once.commit(query.settings, zombie.driver, decision)
        with pytest.raises(FencedError):
            query.task(zombie, 3, 0)
        with pytest.raises(FencedError):
            transactions.begin(query.cluster, query.settings.task_id(0), 60_000, expected=seen[0])
        query.run(3)
        query.expect(4)

        # A transaction lost after the decision is written again, alone.
        plan, decision = query.tasks(4)
        query.decide_only(plan, decision)
        assert transactions.end(query.cluster, query.transaction(decision.work[0]), commit=True)
        transactions.begin(query.cluster, query.settings.task_id(1), 60_000)
        query.run(4)
        query.expect(5)
