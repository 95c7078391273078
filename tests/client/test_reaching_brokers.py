"""Reaching brokers: versions, security, and peers that are down, old or no brokers at all."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from moldau.cli.errors import hint_for
from moldau.client.admin import Admin
from moldau.client.admin.topics import list_topics
from moldau.client.errors import MoldauError, Unreachable, Unsupported
from moldau.client.settings import Address, client_settings, parse_jaas, parse_servers
from moldau.protocol.api import ApiKey
from tests.client.peer import Peer, plain_server, scram_server

PLAIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": 'x.PlainLoginModule required username="alice" password="a=\\"b,c";',
}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


# Addresses and settings


def test_addresses() -> None:
    assert parse_servers("a:1, b , [::1]:2,PLAINTEXT://c:3") == (
        Address("a", 1),
        Address("b", 9092),
        Address("::1", 2),
        Address("c", 3),
    )
    assert str(Address("::1", 2)) == "[::1]:2"
    for wrong in ("a:b", "a:99999", "http//x:1:2", ","):
        with pytest.raises(MoldauError):
            parse_servers(wrong)


def test_jaas_lines() -> None:
    assert parse_jaas('m required username="a" password="p;w\\"x";') == ("a", 'p;w"x')
    assert parse_jaas("m required username='a b' password=plain;") == ("a b", "plain")
    with pytest.raises(MoldauError, match="does not end with a semicolon"):
        parse_jaas('m required username="a" password="secret"')
    with pytest.raises(MoldauError, match="must name username and password"):
        parse_jaas("m required;")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS is not one of"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism=GSSAPI is not supported"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "SASL needs credentials"),
        ({"ssl.truststore.location": "x.jks"}, "ssl.truststore.type=JKS is not supported"),
        ({"request.timeout.ms": "soon"}, "request.timeout.ms=soon is not a number"),
        ({"retry.backoff.ms": "-1"}, "must not be negative"),
    ],
)
def test_settings_that_cannot_be_honoured_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(MoldauError, match=message):
        client_settings({"bootstrap.servers": "a:1", **settings})


# Versions


def test_an_old_broker_is_asked_in_its_own_versions() -> None:
    with Peer(api_versions=0, metadata_versions=(0, 4)) as peer, Admin(peer.address) as admin:
        assert list_topics(admin) == []
    versions = [version for key, version in peer.seen if key == ApiKey.API_VERSIONS]
    assert versions == [4, 0]
    assert (ApiKey.METADATA, 4) in peer.seen


def test_a_broker_without_a_common_version_is_named() -> None:
    with Peer(metadata_versions=(98, 99)) as peer, Admin(peer.address) as admin, pytest.raises(Unsupported) as refused:
        list_topics(admin)
    assert refused.value.message == f"The broker at {peer.address} does not support Metadata"


# Peers that are not there, or no brokers


def test_nobody_there_says_what_to_do() -> None:
    port = free_port()
    with Admin(f"localhost:{port}") as admin, pytest.raises(Unreachable) as refused:
        list_topics(admin)
    assert f"localhost:{port}: connection refused" in refused.value.message
    assert not refused.value.answered
    assert "moldau start" in (hint_for(refused.value) or "")


def test_the_next_address_is_tried() -> None:
    with Peer() as peer, Admin(f"localhost:{free_port()},{peer.address}") as admin:
        assert list_topics(admin) == []


def test_a_patient_client_waits_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    limits = {"default.api.timeout.ms": "300"}
    with Admin(f"localhost:{free_port()}", limits, patient=True) as admin, pytest.raises(Unreachable):
        list_topics(admin)
    assert "Cannot reach a broker yet" in capsys.readouterr().err


def test_an_http_server_is_recognised_as_no_kafka() -> None:
    answer = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    with Peer(answer_with=answer) as peer, Admin(peer.address) as admin, pytest.raises(Unreachable) as refused:
        list_topics(admin)
    assert "does not answer in Kafka's protocol" in refused.value.message


def test_a_connection_that_keeps_breaking_ends_with_a_hint_about_security() -> None:
    with Peer(answer_with=b"") as peer, Admin(peer.address) as admin, pytest.raises(MoldauError) as refused:
        list_topics(admin)
    assert "closed the connection" in refused.value.message
    assert "security.protocol" in (refused.value.hint or "")


# SASL


def test_plain_credentials() -> None:
    server = {"mechanisms": ("PLAIN",), "authenticate": lambda: plain_server("alice", 'a="b,c')}
    with Peer(**server) as peer, Admin(peer.address, PLAIN) as admin:  # type: ignore[arg-type]
        assert list_topics(admin) == []
    wrong = {**PLAIN, "sasl.jaas.config": 'm required username="alice" password="other";'}
    with (
        Peer(**server) as peer,  # type: ignore[arg-type]
        Admin(peer.address, wrong) as admin,
        pytest.raises(MoldauError, match=r"the credentials of 'alice': wrong credentials\. Check sasl\.jaas\.config"),
    ):
        list_topics(admin)


@pytest.mark.parametrize(("mechanism", "algorithm"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
def test_scram_credentials(mechanism: str, algorithm: str) -> None:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "a,b=c",
        "sasl.password": "secret",
    }
    with (
        Peer(mechanisms=(mechanism,), authenticate=lambda: scram_server(algorithm, "secret")) as peer,
        Admin(peer.address, settings) as admin,
    ):
        assert list_topics(admin) == []


def test_a_scram_server_that_does_not_know_the_password_is_refused() -> None:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": "secret",
    }
    with (
        Peer(
            mechanisms=("SCRAM-SHA-256",), authenticate=lambda: scram_server("sha256", "secret", knows_password=False)
        ) as peer,
        Admin(peer.address, settings) as admin,
        pytest.raises(MoldauError, match="the server does not know the password"),
    ):
        list_topics(admin)


def test_an_unknown_mechanism_lists_the_known_ones() -> None:
    with (
        Peer(mechanisms=("OTHER",)) as peer,
        Admin(peer.address, PLAIN) as admin,
        pytest.raises(MoldauError) as refused,
    ):
        list_topics(admin)
    assert refused.value.hint == "It offers: OTHER."


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    request = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    request += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    request += ["-keyout", f"{path}.key", "-out", str(path)]
    subprocess.run(request, check=True, capture_output=True)
    return path


def test_tls(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, f"{certificate}.key")
    trusting = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
    }
    inline = {"security.protocol": "SSL", "ssl.truststore.certificates": certificate.read_text()}
    with Peer(tls=context) as peer:
        for settings in (trusting, inline):
            with Admin(peer.address, settings) as admin:
                assert list_topics(admin) == []
        with (
            Admin(peer.address, {"security.protocol": "SSL"}) as admin,
            pytest.raises(MoldauError, match="CERTIFICATE_VERIFY_FAILED"),
        ):
            list_topics(admin)
