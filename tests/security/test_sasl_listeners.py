"""Listeners with SASL in a real node, and real clients: who gets in, who does not, and as whom."""

from __future__ import annotations

import asyncio
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.api_versions_request import ApiVersionsRequest
from moldau.protocol.generated.wire.describe_delegation_token_request import DescribeDelegationTokenRequest
from moldau.protocol.generated.wire.metadata_request import MetadataRequest
from moldau.protocol.generated.wire.sasl_authenticate_request import SaslAuthenticateRequest
from moldau.protocol.generated.wire.sasl_handshake_request import SaslHandshakeRequest
from moldau.security.mechanisms import SCRAM_MECHANISMS
from moldau.security.refusal import LoginRefused
from moldau.security.scram import scram_client
from moldau.testing import Cluster
from tests.security.wire_client import Disconnected, WireClient, complaints, eventually, node_log, resident_bytes

SECONDS = 30
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
MAX_TOKEN_FRAME = 524_288
VERSIONS = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
HANDSHAKE = SaslHandshakeRequest(mechanism="PLAIN")
ALICE = SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret")

CONFIG = {
    "listeners": "SECURE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": "SECURE:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "SECURE",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.secure.plain.sasl.jaas.config": (
        f'{MODULE} username="admin" password="admin-secret" user_admin="admin-secret" user_alice="alice-secret";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with Cluster(CONFIG, in_process=False) as cluster:
        admin = AdminClient(settings(cluster, "PLAIN", "admin"))
        admin.create_topics([NewTopic("shared", 1), NewTopic("secret", 1)])["shared"].result(SECONDS)
        for number, name in ((ScramMechanism.SCRAM_SHA_256, "sam"), (ScramMechanism.SCRAM_SHA_512, "sue")):
            change = UserScramCredentialUpsertion(name, ScramCredentialInfo(number, 4096), f"{name}-secret".encode())
            admin.alter_user_scram_credentials([change])[name].result(SECONDS)
        rules = [
            AclBinding(kind, name, pattern, "User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW)
            for kind, name, pattern in (
                (ResourceType.TOPIC, "shared", ResourcePatternType.LITERAL),
                (ResourceType.GROUP, "*", ResourcePatternType.LITERAL),
            )
        ]
        for future in admin.create_acls(rules).values():
            future.result(SECONDS)
        yield cluster
        assert complaints(cluster) == []


def settings(cluster: Cluster, mechanism: str, user: str, password: str | None = None) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password or f"{user}-secret",
        "log_level": 0,
    }


USERS = [("PLAIN", "alice"), ("SCRAM-SHA-256", "sam"), ("SCRAM-SHA-512", "sue")]


@pytest.mark.parametrize(("mechanism", "user"), USERS)
def test_librdkafka(node: Cluster, mechanism: str, user: str) -> None:
    own = settings(node, mechanism, user)
    failures: list[Any] = []
    producer = Producer(own)
    producer.produce("shared", user.encode(), on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(SECONDS) == 0
    assert failures == [None]
    consumer = Consumer({**own, "group.id": f"group-{user}", "auto.offset.reset": "earliest"})
    consumer.subscribe(["shared"])
    try:
        seen: set[bytes | None] = set()
        deadline = time.monotonic() + SECONDS
        while user.encode() not in seen:
            assert time.monotonic() < deadline
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                seen.add(message.value())
    finally:
        consumer.close()


@pytest.mark.parametrize(("mechanism", "user"), USERS)
def test_the_user_reaches_the_authorizer(node: Cluster, mechanism: str, user: str) -> None:
    refused: list[Any] = []
    producer = Producer(settings(node, mechanism, user))
    producer.produce("secret", b"x", on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(SECONDS) == 0
    assert refused[0].name() == "TOPIC_AUTHORIZATION_FAILED"


@pytest.mark.parametrize(("mechanism", "user"), USERS)
def test_aiokafka(node: Cluster, mechanism: str, user: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def produce() -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=node.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=f"{user}-secret",
        )
        await producer.start()
        try:
            sent = await producer.send_and_wait("shared", b"aiokafka")
            return int(sent.offset)
        finally:
            await producer.stop()

    assert asyncio.run(asyncio.wait_for(produce(), SECONDS)) >= 0


@pytest.mark.parametrize(("mechanism", "user"), USERS)
def test_kafka_python(node: Cluster, mechanism: str, user: str) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=node.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username=user,
        sasl_plain_password=f"{user}-secret",
    )
    try:
        assert producer.send("shared", b"kafka-python").get(timeout=SECONDS).offset >= 0
    finally:
        producer.close()


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [
        ("PLAIN", "alice", "guess"),
        ("PLAIN", "sam", "sam-secret"),
        ("SCRAM-SHA-256", "sam", "guess"),
        ("SCRAM-SHA-256", "sue", "sue-secret"),
        ("SCRAM-SHA-512", "nobody", "guess"),
    ],
)
def test_whoever_cannot_prove_it_stays_outside(node: Cluster, mechanism: str, user: str, password: str) -> None:
    errors: list[Any] = []
    admin = AdminClient({**settings(node, mechanism, user, password), "error_cb": errors.append})
    deadline = time.monotonic() + SECONDS
    while "_AUTHENTICATION" not in {error.name() for error in errors}:
        assert time.monotonic() < deadline
        admin.poll(0.05)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=0.1)


def test_a_new_password_counts_from_the_next_login_on(node: Cluster) -> None:
    admin = AdminClient(settings(node, "PLAIN", "admin"))

    def change(password: str) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        request = UserScramCredentialUpsertion("kim", info, password.encode())
        admin.alter_user_scram_credentials([request])["kim"].result(SECONDS)

    change("first")
    with WireClient(node.bootstrap_servers) as old:
        log_in_with_scram(old, "kim", "first")
        change("second")
        assert old.ask(MetadataRequest(topics=None), 12).topics[0].name == "shared"
    with WireClient(node.bootstrap_servers) as client, pytest.raises(LoginRefused):
        log_in_with_scram(client, "kim", "first")
    with WireClient(node.bootstrap_servers) as client:
        log_in_with_scram(client, "kim", "second")


def log_in_with_scram(client: WireClient, user: str, password: str) -> None:
    mechanism = SCRAM_MECHANISMS["SCRAM-SHA-256"]
    assert client.ask(SaslHandshakeRequest(mechanism=mechanism.name), 1).error_code == 0
    conversation = scram_client(mechanism, user, password, "nonce")
    token = next(conversation)
    with suppress(StopIteration):
        while True:
            answer = client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
            if answer.error_code:
                raise LoginRefused(answer.error_message)
            token = conversation.send(answer.auth_bytes)


# ---- by hand


def logged_in(node: Cluster) -> WireClient:
    client = WireClient(node.bootstrap_servers)
    assert client.ask(VERSIONS, 4).error_code == 0
    assert client.ask(HANDSHAKE, 1).error_code == 0
    answer = client.ask(ALICE, 2)
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    return client


def test_a_login_by_hand(node: Cluster) -> None:
    with logged_in(node) as client:
        assert {topic.name for topic in client.ask(MetadataRequest(topics=None), 12).topics} == {"shared"}
        # Whoever is in stays who they are: without connections.max.reauth.ms nobody logs in twice.
        assert client.ask(HANDSHAKE, 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.ask(ALICE, 2).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.ask(DescribeDelegationTokenRequest(), 3).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert client.ask(MetadataRequest(topics=None), 12).topics[0].name == "shared"


def test_all_of_a_login_at_once(node: Cluster) -> None:
    metadata = MetadataRequest(topics=None)
    with WireClient(node.bootstrap_servers) as client:
        asked = [(VERSIONS, 4), (HANDSHAKE, 1), (ALICE, 2), (metadata, 12)]
        client.send(b"".join(client.encode(request, version) for request, version in asked))
        answers = [client.answer_to(request, version) for request, version in asked]
        assert [each.error_code for each in answers[:3]] == [0, 0, 0]
        assert {topic.name for topic in answers[3].topics} == {"shared"}


def test_the_oldest_way_to_log_in(node: Cluster) -> None:
    with WireClient(node.bootstrap_servers) as client:
        assert client.ask(HANDSHAKE, 0).error_code == 0
        client.send_frame(b"\0alice\0alice-secret")
        assert client.receive_frame() == b""
        assert client.ask(VERSIONS, 4).error_code == 0
        assert {topic.name for topic in client.ask(MetadataRequest(topics=None), 12).topics} == {"shared"}


def test_a_short_token_is_a_token(node: Cluster) -> None:
    with WireClient(node.bootstrap_servers) as client:
        client.ask(HANDSHAKE, 0)
        client.send_frame(b"\0a\0b")
        assert client.is_closed_by_node()


@pytest.mark.parametrize("shaken", [False, True])
def test_nothing_is_served_before_a_login(node: Cluster, shaken: bool) -> None:
    with WireClient(node.bootstrap_servers) as client:
        if shaken:
            client.ask(HANDSHAKE, 1)
        client.send(client.encode(MetadataRequest(topics=None), 12))
        assert client.is_closed_by_node()


def test_a_request_behind_a_failed_login_is_not_served(node: Cluster) -> None:
    wrong = SaslAuthenticateRequest(auth_bytes=b"\0alice\0guess")
    with WireClient(node.bootstrap_servers) as client:
        asked = [(HANDSHAKE, 1), (wrong, 2), (ALICE, 2), (MetadataRequest(topics=None), 12)]
        began = time.monotonic()
        client.send(b"".join(client.encode(request, version) for request, version in asked))
        assert client.answer_to(HANDSHAKE, 1).error_code == 0
        answer = client.answer_to(wrong, 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Authentication failed: Invalid username or password"
        assert time.monotonic() - began >= 0.09, "guessing takes its time (connection.failed.authentication.delay.ms)"
        with pytest.raises(Disconnected):
            client.receive_frame()


def test_a_mechanism_that_is_not_offered(node: Cluster) -> None:
    with WireClient(node.bootstrap_servers) as client:
        answer = client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        with pytest.raises(Disconnected):
            client.receive_frame()


def test_versions_before_and_in_the_midst_of_a_login(node: Cluster) -> None:
    with WireClient(node.bootstrap_servers) as client:
        client.ask(VERSIONS, 4)
        client.ask(HANDSHAKE, 1)
        assert client.ask(VERSIONS, 0).error_code == ErrorCode.ILLEGAL_SASL_STATE
        with pytest.raises(Disconnected):
            client.receive_frame()
    with WireClient(node.bootstrap_servers) as client:
        client.ask(VERSIONS, 4)
        client.send(client.encode(VERSIONS, 4))
        assert client.is_closed_by_node()


@pytest.mark.parametrize("size", [-1, 0, 7, MAX_TOKEN_FRAME + 1, 2**31 - 1])
@pytest.mark.parametrize("shaken", [None, 0, 1])
def test_lengths_that_nobody_needs_to_log_in(node: Cluster, size: int, shaken: int | None) -> None:
    if (size, shaken) == (7, 0):
        pytest.skip("a bare token may be that short")
    before = resident_bytes(node.pid)
    with WireClient(node.bootstrap_servers) as client:
        if shaken is not None:
            client.ask(HANDSHAKE, shaken)
        client.send(struct.pack(">i", size) + bytes(64))
        assert client.is_closed_by_node()
    assert resident_bytes(node.pid) - before < 4 << 20


@pytest.mark.parametrize(
    "garbage", [b"\x00" * 64, b"\xff" * 64, b"\x60" + b"\x01" * 63, struct.pack(">hhih", 9999, 0, 1, -1)]
)
def test_garbage_instead_of_a_handshake(node: Cluster, garbage: bytes) -> None:
    with WireClient(node.bootstrap_servers) as client:
        client.send_frame(garbage)
        assert client.is_closed_by_node()


def test_a_large_request_is_welcome_after_the_login(node: Cluster) -> None:
    with logged_in(node) as client:
        topics = [f"no-such-topic-{number:05d}-{'x' * 200}" for number in range(4000)]
        request = MetadataRequest(topics=[_named(name) for name in topics], allow_auto_topic_creation=False)
        assert len(client.encode(request, 12)) > MAX_TOKEN_FRAME
        assert len(client.ask(request, 12).topics) == len(topics)


def _named(name: str) -> Any:
    from moldau.protocol.generated.wire.metadata_request import MetadataRequestTopic

    return MetadataRequestTopic(name=name)


def test_refusals_are_logged_without_secrets(node: Cluster) -> None:
    time.sleep(1.1)  # the log takes one complaint a second
    wrong = SaslAuthenticateRequest(auth_bytes=b"\0alice\0hunter2")
    with WireClient(node.bootstrap_servers) as client:
        client.ask(HANDSHAKE, 1)
        client.ask(wrong, 2)
    eventually(lambda: "refused a login from 127.0.0.1" in node_log(node), "the refusal is in the log")
    assert not any(secret in node_log(node) for secret in ("hunter2", "alice-secret", "admin-secret"))


# ---- our own commands


def moldau(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "moldau", *arguments, "-b", cluster.bootstrap_servers]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)


@pytest.mark.parametrize(("mechanism", "user"), USERS)
def test_our_own_commands(node: Cluster, tmp_path: Path, mechanism: str, user: str) -> None:
    module = MODULE if mechanism == "PLAIN" else "org.apache.kafka.common.security.scram.ScramLoginModule required"
    config = tmp_path / "client.properties"
    for password, works in ((f"{user}-secret", True), ("guess", False)):
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\n"
            f"sasl.mechanism={mechanism}\n"
            f'sasl.jaas.config={module} username="{user}" password="{password}";\n'
        )
        done = moldau(node, "topic", "list", "-o", "plain", "--command-config", str(config))
        assert (done.returncode == 0) == works
        assert "shared" in done.stdout if works else "Authentication failed" in done.stderr


# ---- logins that expire

SESSION_MS = 3_600_000


@pytest.fixture(scope="module")
def expiring() -> Iterator[Cluster]:
    with Cluster({**CONFIG, "listener.name.secure.plain.connections.max.reauth.ms": str(SESSION_MS)}) as cluster:
        yield cluster


@pytest.fixture
def minutes_pass(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Stops the clock of the gates and moves it on; the node of `expiring` is in this process."""
    began = time.monotonic()
    passed = 0.0

    def move_on(minutes: float) -> None:
        nonlocal passed
        passed += 60 * minutes

    monkeypatch.setattr("moldau.node.gate.monotonic", lambda: began + passed)
    return move_on


def log_in(client: WireClient, user: str = "alice") -> Any:
    assert client.ask(HANDSHAKE, 1).error_code == 0
    return client.ask(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}-secret".encode()), 2)


def test_a_connection_that_logs_in_again_goes_on(expiring: Cluster, minutes_pass: Callable[[float], None]) -> None:
    with WireClient(expiring.bootstrap_servers) as client:
        assert log_in(client).session_lifetime_ms == SESSION_MS
        for _ in range(3):
            minutes_pass(50)
            assert client.ask(MetadataRequest(topics=None), 12).controller_id == 1
            assert log_in(client).session_lifetime_ms == SESSION_MS
        # Twice within a second is too often: the broker itself answers, as to anybody who is in already.
        assert client.ask(HANDSHAKE, 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.ask(MetadataRequest(topics=None), 12).controller_id == 1


def test_a_connection_that_does_not_is_closed_when_it_is_used(
    expiring: Cluster, minutes_pass: Callable[[float], None]
) -> None:
    with WireClient(expiring.bootstrap_servers) as client:
        log_in(client)
        minutes_pass(59)
        assert client.ask(MetadataRequest(topics=None), 12).controller_id == 1
        minutes_pass(2)
        client.send(client.encode(MetadataRequest(topics=None), 12))
        assert client.is_closed_by_node()


def test_a_connection_stays_with_its_user(expiring: Cluster) -> None:
    with WireClient(expiring.bootstrap_servers) as client:
        log_in(client)
        answer = log_in(client, "admin")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        with pytest.raises(Disconnected):
            client.receive_frame()


def test_only_logging_in_is_served_while_logging_in_again(expiring: Cluster) -> None:
    with WireClient(expiring.bootstrap_servers) as client:
        log_in(client)
        client.ask(HANDSHAKE, 1)
        client.send(client.encode(MetadataRequest(topics=None), 12))
        assert client.is_closed_by_node()
