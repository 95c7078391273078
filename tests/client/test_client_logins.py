"""The client against a real listener with TLS and SASL: all it does, it does for somebody who proved who it is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.cli.kafka import topics as kafka_topics
from moldau.client import transactions
from moldau.client.admin import Admin
from moldau.client.admin.quotas import alter_scram, describe_scram
from moldau.client.admin.topics import create_topic, describe_topics, list_topics
from moldau.client.errors import MoldauError, Unreachable
from moldau.client.group_offsets import commit_group_offsets, group_offsets
from moldau.client.offsets import EARLIEST, list_offsets
from moldau.testing import Cluster
from tests.security.certificates import Authority, parts_of

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates")

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Guarded:
    """A node that lets in only those who show a certificate and log in."""

    def __init__(self, cluster: Cluster, authority: Authority, certificate: Path) -> None:
        self.bootstrap = cluster.bootstrap_servers
        self.trust = {"security.protocol": "SASL_SSL", "ssl.truststore.certificates": authority.certificate.read_text()}
        key, chain = parts_of(certificate)
        self.texts = {**self.trust, "ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain}
        self.files = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.certificate),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificate),
        }

    def admin(self, mechanism: str, user: str, password: str | None = None, *, texts: bool = False) -> Admin:
        login = {
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'm required username="{user}" password="{password or user}-secret";',
        }
        return Admin(self.bootstrap, {**(self.texts if texts else self.files), **login})


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("certificates")
    authority = Authority(directory)
    config = {
        "listeners": "SECURE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "SECURE:SASL_SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SECURE",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": (
            f'{MODULE} username="admin" password="admin-secret" user_admin="admin-secret" user_alice="alice-secret";'
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("/CN=localhost")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.secure.ssl.client.auth": "required",
    }
    with Cluster(config) as cluster:
        node = Guarded(cluster, authority, authority.issue("/CN=client"))
        with node.admin("PLAIN", "admin") as admin:
            create_topic(admin, "t", partitions=1, replication_factor=1)
            alter_scram(admin, "sam", {"SCRAM-SHA-256": (4096, "sam-secret")}, [])
            alter_scram(admin, "sue,=x", {"SCRAM-SHA-512": (4096, "sue,=x-secret")}, [])
        yield node


@pytest.mark.parametrize("texts", [False, True])
@pytest.mark.parametrize(
    ("mechanism", "user"), [("PLAIN", "alice"), ("SCRAM-SHA-256", "sam"), ("SCRAM-SHA-512", "sue,=x")]
)
def test_who_has_logged_in_is_served(guarded: Guarded, mechanism: str, user: str, texts: bool) -> None:
    with guarded.admin(mechanism, user, texts=texts) as admin:
        assert [each.name for each in list_topics(admin) if not each.internal] == ["t"]
        assert len(describe_topics(admin, ["t"])[0].partitions) == 1
        assert list_offsets(admin, {("t", 0): EARLIEST}) == {("t", 0): 0}
        commit_group_offsets(admin, f"of-{user}", {("t", 0): 0}, "note")
        assert group_offsets(admin, f"of-{user}", [("t", 0)]) == {("t", 0): (0, "note")}
        open_one = transactions.begin(admin, f"by-{user}", 10_000)
        transactions.add_partitions(admin, open_one, [("t", 0)])
        assert transactions.end(admin, open_one, commit=False)
        later, state = transactions.look_up(admin, open_one.transactional_id) or (None, None)
        assert later is not None
        assert later.producer_id == open_one.producer_id
        assert state in ("PrepareAbort", "CompleteAbort")


@pytest.mark.parametrize(
    ("mechanism", "user"), [("PLAIN", "alice"), ("PLAIN", "nobody"), ("SCRAM-SHA-256", "sam"), ("SCRAM-SHA-512", "sam")]
)
def test_a_wrong_password_ends_it_with_the_users_name(guarded: Guarded, mechanism: str, user: str) -> None:
    with (
        guarded.admin(mechanism, user, "wrong") as admin,
        pytest.raises(MoldauError, match=rf"refused the credentials of '{user}'.*Check sasl\.jaas\.config"),
    ):
        list_topics(admin)


def test_who_shows_no_certificate_or_trusts_nobody_is_told_about_tls(guarded: Guarded) -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "alice-secret"}
    with (
        Admin(guarded.bootstrap, {"security.protocol": "SASL_SSL", **login}) as admin,
        pytest.raises(MoldauError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        list_topics(admin)
    with Admin(guarded.bootstrap, {**guarded.trust, **login}) as admin, pytest.raises(MoldauError):
        list_topics(admin)


def test_who_does_not_use_tls_is_told_to_look_at_the_protocol(guarded: Guarded) -> None:
    with Admin(guarded.bootstrap) as admin, pytest.raises(Unreachable, match=r"security\.protocol"):
        list_topics(admin)


def test_credentials_can_be_seen_but_not_read(guarded: Guarded) -> None:
    with guarded.admin("PLAIN", "admin") as admin:
        described = describe_scram(admin, ["sam"])
    assert "sam-secret" not in repr(described)
    assert "SCRAM-SHA-256" in repr(described)


def test_a_command_takes_its_login_from_a_file(
    guarded: Guarded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "client.properties"
    login = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": 'm required username="sam" password="sam-secret";'}
    path.write_text("".join(f"{name}={value}\n" for name, value in {**guarded.files, **login}.items()))
    arguments = ["--bootstrap-server", guarded.bootstrap, "--command-config", str(path)]
    assert kafka_topics.main([*arguments, "--list", "--exclude-internal"]) == 0
    assert capsys.readouterr().out == "t\n"
