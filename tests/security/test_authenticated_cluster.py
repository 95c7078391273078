"""Several nodes that must prove to each other who they are: passwords, logins that expire, certificates."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic

from moldau.testing import Cluster
from tests.security.certificates import Authority

SECONDS = 60
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
MAP = "listener.security.protocol.map"


def eventually(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def create_topic(admin: AdminClient, name: str, copies: int) -> None:
    admin.create_topics([NewTopic(name, 1, copies)])[name].result(SECONDS)


def send(settings: dict[str, Any], topic: str, count: int) -> list[Any]:
    """The errors of so many records; None for each that is on all copies that are in sync."""
    errors: list[Any] = []
    producer = Producer({**settings, "acks": "all", "delivery.timeout.ms": SECONDS * 1000})
    for number in range(count):
        producer.produce(topic, str(number), on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS) == 0
    return errors


def in_sync(admin: AdminClient, topic: str) -> int:
    return len(admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions[0].isrs)


@pytest.mark.slow
def test_nodes_with_passwords() -> None:
    """Controllers ask for PLAIN, brokers for SCRAM, whose credentials are in the cluster itself."""
    config = {
        MAP: "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.controller.plain.sasl.jaas.config": (
            f'{PLAIN} username="node" password="node-secret" user_node="node-secret";'
        ),
        "listener.name.plaintext.plain.sasl.jaas.config": f'{PLAIN} user_admin="admin-secret";',
        "listener.name.plaintext.scram-sha-256.sasl.jaas.config": f'{SCRAM} username="node" password="scram-secret";',
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:node;User:admin",
        "connections.max.reauth.ms": "4000",
    }
    with Cluster(config, nodes=3) as cluster:
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": "admin-secret",
            "log_level": 0,
        }
        admin = AdminClient(settings)
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion("node", credential, b"scram-secret")
        admin.alter_user_scram_credentials([change])["node"].result(SECONDS)
        create_topic(admin, "orders", 3)
        assert send(settings, "orders", 100) == [None] * 100
        eventually(lambda: in_sync(admin, "orders") == 3, "every copy is in sync")
        # Longer than a login holds: the nodes must have renewed theirs.
        time.sleep(5)
        assert send(settings, "orders", 100) == [None] * 100
        assert in_sync(admin, "orders") == 3
        victim = admin.list_topics("orders", timeout=SECONDS).topics["orders"].partitions[0].leader
        cluster.kill(victim)
        assert send(settings, "orders", 100) == [None] * 100
        cluster.start(victim)
        eventually(lambda: in_sync(admin, "orders") == 3, "the node comes back")
        logs = [(node.directory / "node.log").read_text() for node in cluster.nodes.values()]
        assert not any("-secret" in text for text in logs)


@pytest.mark.slow
def test_nodes_with_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    node = authority.issue("/CN=node")
    config = {
        MAP: "PLAINTEXT:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(node),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/,DEFAULT",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:node",
    }
    with Cluster(config, nodes=2) as cluster:
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.ca.location": str(authority.certificate),
            "ssl.certificate.location": str(node),
            "ssl.key.location": str(node),
            "log_level": 0,
        }
        admin = AdminClient(settings)
        create_topic(admin, "orders", 2)
        assert send(settings, "orders", 100) == [None] * 100
        eventually(lambda: in_sync(admin, "orders") == 2, "every copy is in sync")


def test_a_node_with_a_wrong_password_is_not_let_in() -> None:
    """The node that asks says why it cannot join; the one that is asked goes on."""
    jaas = "listener.name.controller.plain.sasl.jaas.config"
    users = 'user_node="right"'
    config = {
        MAP: "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        jaas: f'{PLAIN} username="node" password="right" {users};',
    }
    with Cluster(config, nodes=2) as cluster:
        stranger = cluster.nodes[2]
        stranger.stop()
        stranger.properties[jaas] = f'{PLAIN} username="node" password="wrong" {users};'
        stranger.launch()

        def says_why() -> bool:
            text = (stranger.directory / "node.log").read_text()
            return "does not let this node in: Authentication failed: Invalid username or password" in text

        eventually(says_why, "the node says why it cannot join")
        assert not stranger.is_ready
        assert cluster.nodes[1].is_running
        stranger.kill()
