"""Listeners with TLS in a real node, and real clients: certificates, users made of them, and passwords inside."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from moldau.config.types import ConfigError
from moldau.protocol.frames import decode_response, encode_request
from moldau.protocol.generated.wire.api_versions_request import ApiVersionsRequest
from moldau.testing import Cluster
from tests.security.certificates import Authority, parts_of
from tests.security.wire_client import complaints, eventually, node_log

SECONDS = 30
ALICE = "/O=Example, Inc./OU=Sales/CN=alice"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server_pem(authority: Authority) -> Path:
    return authority.issue("/CN=node")


@pytest.fixture(scope="module")
def alice(authority: Authority) -> Path:
    return authority.issue(ALICE)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Authority(tmp_path_factory.mktemp("strangers")).issue("/CN=alice")


def tls_config(authority: Authority, server_pem: Path, protocol: str, **more: str) -> dict[str, str]:
    return {
        "listeners": "SECURE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": f"SECURE:{protocol},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SECURE",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server_pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        **{name.replace("_", "."): text for name, text in more.items()},
    }


@pytest.fixture(scope="module")
def node(authority: Authority, server_pem: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Certificates are asked for, and whoever shows a good one is somebody."""
    config = tls_config(
        authority,
        server_pem,
        "SSL",
        ssl_client_auth="requested",
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users=r"User:CN=alice,OU=Sales,O=Example\, Inc.",
    )
    with Cluster(config, in_process=False) as cluster:
        yield cluster
        assert complaints(cluster) == []


def client_settings(cluster: Cluster, authority: Authority, identity: Path | None = None) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.certificate),
        "log_level": 0,
    }
    if identity is not None:
        settings.update({"ssl.certificate.location": str(identity), "ssl.key.location": str(identity)})
    return settings


def create_topic(settings: dict[str, Any], name: str) -> None:
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(name, 1)])[name].result(SECONDS)


def test_a_certificate_is_a_user(node: Cluster, authority: Authority, alice: Path) -> None:
    settings = client_settings(node, authority, alice)
    create_topic(settings, "of-alice")
    failures: list[Any] = []
    producer = Producer(settings)
    payload = bytes(range(256)) * 2000
    for _ in range(20):
        producer.produce("of-alice", payload, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(SECONDS) == 0
    assert failures == [None] * 20


def test_records_come_back_as_they_went(node: Cluster, authority: Authority, alice: Path) -> None:
    from confluent_kafka import Consumer, TopicPartition

    settings = client_settings(node, authority, alice)
    create_topic(settings, "large")
    producer = Producer({**settings, "message.max.bytes": 2_000_000})
    values = [bytes([number]) * 900_000 for number in range(8)]
    for value in values:
        producer.produce("large", value)
    assert producer.flush(SECONDS) == 0
    consumer = Consumer({**settings, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("large", 0, 0)])
    try:
        seen: list[bytes | None] = []
        deadline = time.monotonic() + SECONDS
        while len(seen) < len(values):
            assert time.monotonic() < deadline
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                seen.append(message.value())
        assert seen == values
    finally:
        consumer.close()


def test_without_a_certificate_nobody_in_particular(node: Cluster, authority: Authority) -> None:
    admin = AdminClient(client_settings(node, authority))
    assert admin.list_topics(timeout=SECONDS).topics == {}
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        admin.create_topics([NewTopic("of-nobody", 1)])["of-nobody"].result(SECONDS)


def test_a_certificate_of_another_authority(node: Cluster, authority: Authority, stranger: Path) -> None:
    with pytest.raises(KafkaException):
        AdminClient(client_settings(node, authority, stranger)).list_topics(timeout=1)


def test_a_client_that_does_not_trust_the_node(node: Cluster, stranger: Path) -> None:
    settings = {"bootstrap.servers": node.bootstrap_servers, "security.protocol": "SSL", "log_level": 0}
    with pytest.raises(KafkaException):
        AdminClient({**settings, "ssl.ca.location": str(stranger)}).list_topics(timeout=1)


def test_aiokafka_and_kafka_python(node: Cluster, authority: Authority, alice: Path) -> None:
    import asyncio

    from aiokafka import AIOKafkaProducer
    from kafka import KafkaProducer

    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.load_cert_chain(alice)
    create_topic(client_settings(node, authority, alice), "py")

    async def produce() -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=node.bootstrap_servers, security_protocol="SSL", ssl_context=context
        )
        await producer.start()
        try:
            return int((await producer.send_and_wait("py", b"x")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(asyncio.wait_for(produce(), SECONDS)) == 0
    producer = KafkaProducer(bootstrap_servers=node.bootstrap_servers, security_protocol="SSL", ssl_context=context)
    try:
        assert producer.send("py", b"x").get(timeout=SECONDS).offset == 1
    finally:
        producer.close()


# ---- strangers


def raw(cluster: Cluster) -> socket.socket:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=SECONDS)


def test_plaintext_on_a_tls_port(node: Cluster) -> None:
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    time.sleep(1.1)  # the log takes one complaint a second
    with raw(node) as connection:
        connection.sendall(encode_request(18, 4, 1, "tests", request))
        while data := connection.recv(4096):
            assert data[0] == 21, "an alert of TLS at most"
    eventually(lambda: "closing the connection from 127.0.0.1: TLS" in node_log(node), "the reason is in the log")


def test_strangers_who_say_nothing_keep_nobody_waiting(node: Cluster, authority: Authority, alice: Path) -> None:
    silent = [raw(node) for _ in range(200)]
    try:
        AdminClient(client_settings(node, authority, alice)).list_topics(timeout=SECONDS)
    finally:
        for connection in silent:
            connection.close()


def test_connections_that_break_in_the_midst_of_a_handshake(node: Cluster, authority: Authority, alice: Path) -> None:
    for size in (0, 1, 5, 100):
        with raw(node) as connection:
            connection.sendall((b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600))[:size])
    AdminClient(client_settings(node, authority, alice)).list_topics(timeout=SECONDS)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_versions_are_refused(node: Cluster, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with raw(node) as connection, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(connection, server_hostname="localhost")


# ---- other settings


def first_answer(cluster: Cluster, context: ssl.SSLContext) -> int:
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    with raw(cluster) as connection, context.wrap_socket(connection, server_hostname="127.0.0.1") as secured:
        secured.sendall(encode_request(18, 4, 1, "tests", request))
        size = int.from_bytes(_exactly(secured, 4), "big")
        _, answer = decode_response(18, 4, _exactly(secured, size))
        return len(answer.api_keys)


def _exactly(connection: ssl.SSLSocket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionResetError
        data += piece
    return data


def test_certificates_in_the_settings_themselves(authority: Authority, server_pem: Path, alice: Path) -> None:
    key, chain = parts_of(server_pem)
    config = tls_config(authority, server_pem, "SSL", ssl_client_auth="required")
    config.update({"ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain})
    config["ssl.truststore.certificates"] = authority.certificate.read_text()
    del config["ssl.keystore.location"], config["ssl.truststore.location"]
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    with Cluster(config) as cluster:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            first_answer(cluster, trusting)
        trusting.load_cert_chain(alice)
        assert first_answer(cluster, trusting) > 30


def test_a_key_with_a_password(authority: Authority, tmp_path: Path) -> None:
    pem = authority.issue("/CN=locked", password="open sesame")
    config = tls_config(authority, pem, "SSL", ssl_key_password="open sesame")
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    with Cluster(config) as cluster:
        assert first_answer(cluster, trusting) > 30
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location .* cannot be used"):
        Cluster({**config, "ssl.key.password": "guess"}).start()


def test_sasl_over_tls(authority: Authority, server_pem: Path) -> None:
    config = tls_config(
        authority,
        server_pem,
        "SASL_SSL",
        sasl_enabled_mechanisms="PLAIN",
        sasl_mechanism_inter_broker_protocol="PLAIN",
        ssl_client_auth="required",  # of the listeners without SASL only, as in Kafka
        sasl_jaas_config=f'{MODULE} user_alice="secret";',
    )
    with Cluster(config) as cluster:
        settings = client_settings(cluster, authority)
        login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
        admin = AdminClient({**settings, **login, "sasl.password": "secret"})
        assert admin.list_topics(timeout=SECONDS).brokers.keys() == {1}
        with pytest.raises(KafkaException):
            AdminClient({**settings, **login, "sasl.password": "guess"}).list_topics(timeout=1)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"ssl.keystore.location": ""}, "cannot be used"),
        ({"ssl.keystore.type": "JKS"}, "openssl pkcs12"),
        ({"ssl.truststore.type": "PKCS12", "ssl.client.auth": "required"}, "ssl.truststore.type=PEM"),
        ({"ssl.keystore.password": "x"}, r"ssl\.key\.password"),
        ({"ssl.enabled.protocols": "SSLv3"}, "TLSv1.2"),
        ({"ssl.cipher.suites": "TLS_RSA_WITH_NONSENSE"}, "OpenSSL knows none"),
        ({"ssl.principal.mapping.rules": "RULE:x", "ssl.client.auth": "required"}, "no rule"),
    ],
)
def test_settings_that_cannot_be(
    authority: Authority, server_pem: Path, changes: dict[str, str], complaint: str
) -> None:
    cluster = Cluster({**tls_config(authority, server_pem, "SSL"), **changes})
    try:
        with pytest.raises(ConfigError, match=complaint):
            cluster.start()
    finally:
        cluster.close()


def test_ciphers_by_the_names_java_has_for_them(authority: Authority, server_pem: Path) -> None:
    config = tls_config(
        authority,
        server_pem,
        "SSL",
        ssl_enabled_protocols="TLSv1.2",
        ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    )
    context = ssl.create_default_context(cafile=str(authority.certificate))
    with Cluster(config) as cluster:
        with raw(cluster) as connection, context.wrap_socket(connection, server_hostname="127.0.0.1") as secured:
            assert secured.version() == "TLSv1.2"
            cipher = secured.cipher()
            assert cipher is not None
            assert cipher[0] in ("ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305")
        threads = [threading.Thread(target=first_answer, args=(cluster, context)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)


def test_a_certificate_is_renewed_without_a_restart(authority: Authority, server_pem: Path) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    context = ssl.create_default_context(cafile=str(authority.certificate))

    def shown(cluster: Cluster) -> str:
        with raw(cluster) as connection, context.wrap_socket(connection, server_hostname="127.0.0.1") as secured:
            certificate: Any = secured.getpeercert()
            return str(certificate["subject"][-1][0][1])

    config = tls_config(authority, server_pem, "SSL")
    config["listener.name.secure.ssl.keystore.location"] = config.pop("ssl.keystore.location")
    with Cluster(config) as cluster:
        admin = AdminClient(client_settings(cluster, authority))
        assert shown(cluster) == "node"

        def change(path: str) -> None:
            entry = ConfigEntry(
                "listener.name.secure.ssl.keystore.location", path, incremental_operation=AlterConfigOpType.SET
            )
            resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
            admin.incremental_alter_configs([resource])[resource].result(SECONDS)

        change(str(authority.issue("/CN=renewed")))
        eventually(lambda: shown(cluster) == "renewed", "the new certificate is shown")
        change("/nowhere.pem")
        assert shown(cluster) == "renewed"
        assert admin.list_topics(timeout=SECONDS).brokers.keys() == {1}
