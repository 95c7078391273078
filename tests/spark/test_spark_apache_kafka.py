"""The same reading and writing against Apache Kafka: exactly once must not depend on whose broker it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.client import transactions
from moldau.client.cluster import Cluster
from moldau.client.errors import FencedError, MoldauError
from moldau.spark import exactly_once as once
from moldau.spark.brokers import client_settings
from tests.clients.java_tools import JavaTools
from tests.interop.apache_kafka import ApacheKafka, free_ports, shared_properties
from tests.spark.hand_driven import Query

pytestmark = pytest.mark.java


class SecuredKafka:
    """A broker of Apache's with an open listener and one that wants a password."""

    def __init__(self, home: Path) -> None:
        properties = shared_properties([home / "data"])
        (port,) = free_ports(1)
        self.secured = f"127.0.0.1:{port}"
        properties["listeners"] += f",SASL_PLAINTEXT://{self.secured}"
        protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
        properties["listener.security.protocol.map"] = protocols
        properties["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
        listener = "listener.name.sasl_plaintext"
        login = "org.apache.kafka.common.security"
        properties[f"{listener}.plain.sasl.jaas.config"] = (
            f'{login}.plain.PlainLoginModule required user_alice="secret";'
        )
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            properties[f"{listener}.{mechanism}.sasl.jaas.config"] = f"{login}.scram.ScramLoginModule required;"
        self.broker = ApacheKafka(properties, home)


@pytest.fixture(scope="module")
def kafka(java_tools: JavaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    started = SecuredKafka(tmp_path_factory.mktemp("kafka"))
    users = [f"SCRAM-SHA-{size}=[name=alice,password=secret]" for size in (256, 512)]
    options = [part for user in users for part in ("--add-scram", user)]
    started.broker.format(java_tools, "MkU3OEVBNTcwNTJENDM2Qg", "--standalone", *options)
    with started.broker:
        yield started


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_passwords_are_taken_and_wrong_ones_explained(kafka: SecuredKafka, mechanism: str) -> None:
    def topics(password: str) -> object:
        jaas = f'some.LoginModule required username="alice" password="{password}";'
        settings = client_settings(
            {
                "bootstrap.servers": kafka.secured,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": jaas,
            }
        )
        cluster = Cluster(settings)
        try:
            return cluster.all_topics()
        finally:
            cluster.close()

    assert isinstance(topics("secret"), dict)
    with pytest.raises(MoldauError, match=r"kafka\.sasl\.jaas\.config"):
        topics("wrong")


def test_batches_count_once_on_apache_kafka(kafka: SecuredKafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.broker.bootstrap_servers})
    admin.create_topics([NewTopic("target", 3, 1)])["target"].result(60)
    query = Query(kafka.broker.bootstrap_servers, "target")
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
