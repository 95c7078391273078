"""JAAS texts, the names in certificates, and what the settings of a listener offer."""

from __future__ import annotations

import pytest

from moldau.config.node_config import NodeConfig
from moldau.config.one_node import defaults_for_one_node
from moldau.config.types import ConfigError
from moldau.security.distinguished_names import distinguished_name, principal_mapper
from moldau.security.jaas import JaasError, parse_modules, parse_sections
from moldau.security.offers import Secrets, offered_mechanisms, own_login
from moldau.security.refusal import LoginRefused

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECRETS = Secrets(b"s", lambda: "nonce")


def test_a_module_with_its_users() -> None:
    text = rf"""{PLAIN_MODULE} required username="admin" password="a;b}}=\"c\\" user_admin="x" user_alice=plain;"""
    (module,) = parse_modules(text)
    assert module.options["password"] == 'a;b}="c\\'
    assert module.users == {"admin": "x", "alice": "plain"}
    assert module.is_for("PLAIN")
    assert not module.is_for("SCRAM-SHA-256")


def test_a_password_that_is_a_mark() -> None:
    (module,) = parse_modules(f'{PLAIN_MODULE} required user_a=";" user_b="=" user_c="}}";')
    assert module.users == {"a": ";", "b": "=", "c": "}"}


def test_a_file_with_sections() -> None:
    sections = parse_sections(
        f"""
        // who may come in
        KafkaServer {{
            {PLAIN_MODULE} required
              user_alice="secret"; /* and
              more */ org.apache.kafka.common.security.scram.ScramLoginModule required username="n" password="p";
        }};
        secure.KafkaServer {{ {PLAIN_MODULE} required user_bob="b"; }};
        """
    )
    assert [len(modules) for modules in sections.values()] == [2, 1]
    assert sections["secure.KafkaServer"][0].users == {"bob": "b"}
    assert sections["KafkaServer"][1].is_for("SCRAM-SHA-512")


@pytest.mark.parametrize(
    "text",
    [
        "",
        PLAIN_MODULE,
        f"{PLAIN_MODULE} hunter2;",
        f"{PLAIN_MODULE} required",
        f'{PLAIN_MODULE} required user_a="hunter2"',
        f'{PLAIN_MODULE} required user_a "hunter2";',
        f"{PLAIN_MODULE} required user_a=;",
        f'{PLAIN_MODULE} required user_a="hunter2;',
    ],
)
def test_a_text_that_is_none_and_its_secrets_stay_secret(text: str) -> None:
    with pytest.raises(JaasError) as failure:
        parse_modules(text)
    assert "hunter2" not in str(failure.value)


# ---- certificates


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        (((("commonName", "alice"),),), "CN=alice"),
        (
            ((("countryName", "DE"),), (("organizationName", "Example, Inc."),), (("commonName", "alice"),)),
            r"CN=alice,O=Example\, Inc.,C=DE",
        ),
        (((("commonName", " #a+b\\c "),),), r"CN=\ #a\+b\\c\ "),
        (((("commonName", "#a"),),), r"CN=\#a"),
        (((("commonName", "a"), ("userId", "7")),), "CN=a+UID=7"),
        (((("emailAddress", "a@b"),),), "1.2.840.113549.1.9.1=#1603614062"),
        (((("commonName", "a"),), (("givenName", "Ann"),)), "2.5.4.42=#0c03416e6e,CN=a"),
        (((("commonName", '#a"<>;\\c'),),), r"CN=\#a\"\<\>\;\\c"),
        ((), ""),
    ],
)
def test_names_as_kafka_writes_them(subject: tuple[tuple[tuple[str, str], ...], ...], name: str) -> None:
    assert distinguished_name(subject) == name


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ("DEFAULT", "CN=Alice,OU=Sales,O=Example"),
        ("", "CN=Alice,OU=Sales,O=Example"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/", "Alice@Sales"),
        ("RULE:^CN=(.*?),.*$/$1/L", "alice"),
        ("RULE:^CN=(.*?),.*$/$1/U , DEFAULT", "ALICE"),
        ("RULE:^UID=(.*)$/$1/,RULE:^CN=(?<who>.*?),.*$/$1/L,DEFAULT", "alice"),
        ("RULE:^UID=(.*)$/$1/,DEFAULT", "CN=Alice,OU=Sales,O=Example"),
    ],
)
def test_rules_for_names(rules: str, user: str) -> None:
    assert principal_mapper(rules)("CN=Alice,OU=Sales,O=Example") == user


def test_a_name_no_rule_is_about() -> None:
    with pytest.raises(LoginRefused):
        principal_mapper("RULE:^UID=(.*)$/$1/")("CN=alice")


@pytest.mark.parametrize(
    "rules", ["default", "RULE:^CN=(.*/$1/", "RULE:^CN=.*$/$1/", "RULE:^CN=(.*)$", "DEFAULT;DEFAULT"]
)
def test_rules_that_are_none(rules: str) -> None:
    with pytest.raises(ValueError, match=r"rule|pattern"):
        principal_mapper(rules)


# ---- what a listener offers


def config(**settings: str) -> NodeConfig:
    texts = {name.replace("_", "."): text for name, text in settings.items()}
    return NodeConfig.load(
        {
            **defaults_for_one_node(),
            "listeners": "SECURE://localhost:9092,CONTROLLER://localhost:9093",
            "listener.security.protocol.map": "SECURE:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "SECURE",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            **texts,
        }
    )


def offers(node: NodeConfig, sections: dict[str, list[object]] | None = None) -> list[str]:
    return list(offered_mechanisms(node, "SECURE", sections or {}, lambda number, user: None, SECRETS))  # type: ignore[arg-type]


def test_users_of_a_listener_come_before_those_of_the_node() -> None:
    node = config(
        sasl_jaas_config=f'{PLAIN_MODULE} required user_alice="x";',
        listener_name_secure_plain_sasl_jaas_config=f'{PLAIN_MODULE} required user_bob="y";',
    )
    login = offered_mechanisms(node, "SECURE", {}, lambda number, user: None, SECRETS)["PLAIN"].begin()
    with pytest.raises(LoginRefused):
        login.answer(b"\0alice\0x")
    login.answer(b"\0bob\0y")
    assert login.user == "bob"


def test_users_in_a_file() -> None:
    sections = parse_sections(f'KafkaServer {{ {PLAIN_MODULE} required user_alice="x"; }};')
    assert offers(config(), sections) == ["PLAIN"]  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="user_<name>"):
        offers(config())


def test_a_listener_has_mechanisms_of_its_own() -> None:
    node = config(
        listener_name_secure_sasl_enabled_mechanisms="SCRAM-SHA-512,PLAIN", sasl_jaas_config="x required user_a=b;"
    )
    with pytest.raises(ConfigError, match="nobody can log in"):
        offers(node)
    node = config(
        listener_name_secure_sasl_enabled_mechanisms="SCRAM-SHA-512,SCRAM-SHA-256",
        sasl_mechanism_inter_broker_protocol="SCRAM-SHA-256",
    )
    assert offers(node) == ["SCRAM-SHA-512", "SCRAM-SHA-256"]


def test_a_mechanism_there_is_not() -> None:
    node = config(sasl_enabled_mechanisms="GSSAPI", sasl_mechanism_inter_broker_protocol="GSSAPI")
    with pytest.raises(ConfigError, match="only PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"):
        offers(node)


def test_how_a_node_logs_in_itself() -> None:
    node = config(listener_name_secure_plain_sasl_jaas_config=f'{PLAIN_MODULE} required username="n" password="p";')
    login = own_login(node, "SECURE", "sasl.mechanism.inter.broker.protocol", {}, lambda: "nonce")
    assert login is not None
    assert next(login()) == b"\0n\0p"
    assert own_login(config(), "SECURE", "sasl.mechanism.inter.broker.protocol", {}, lambda: "nonce") is None
