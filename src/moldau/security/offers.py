"""Which SASL mechanisms a listener offers, and to whom: made from its settings.

Decides whether the settings make sense together, before anybody connects: a mechanism that there is not, or PLAIN
without users, is an error at the start and not at the first login.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from moldau.config.node_config import NodeConfig
from moldau.config.types import ConfigError
from moldau.security.exchange import OfferedMechanism, ServerSide
from moldau.security.jaas import JaasError, LoginModule, parse_modules
from moldau.security.mechanisms import MECHANISMS, PLAIN, SCRAM_MECHANISMS, ScramMechanism
from moldau.security.plain import PlainServer, plain_client
from moldau.security.scram import Conversation, ScramServer, scram_client
from moldau.security.scram_keys import Credential

_JAAS: Final = "sasl.jaas.config"
_SERVER_SECTION: Final = "KafkaServer"

Sections = Mapping[str, list[LoginModule]]
"""The sections of a JAAS file, if the node was given one."""
CredentialOf = Callable[[int, str], Credential | None]
"""(number of the SCRAM mechanism, user) -> what is kept of the password."""


class Secrets(NamedTuple):
    """Randomness for logins."""

    own: bytes
    """The node's, for as long as it lives; see ScramServer."""
    nonce: Callable[[], str]


def offered_mechanisms(
    config: NodeConfig, listener: str, sections: Sections, credential_of: CredentialOf, secrets: Secrets
) -> dict[str, OfferedMechanism]:
    """Name -> mechanism, in the order of `sasl.enabled.mechanisms`; ConfigError if one cannot be offered."""
    offered = {}
    for name in config.for_listener(listener).words("sasl.enabled.mechanisms"):
        settings = config.for_listener(listener, name)
        if name == PLAIN:
            begin = _plain(config, listener, sections)
        elif name in SCRAM_MECHANISMS:
            begin = _scram(SCRAM_MECHANISMS[name], credential_of, secrets)
        else:
            reason = f"listener {listener}: there is no {name} here, only {', '.join(MECHANISMS)}"
            raise ConfigError("sasl.enabled.mechanisms", name, reason)
        offered[name] = OfferedMechanism(begin, max(settings.integer("connections.max.reauth.ms"), 0))
    if not offered:
        reason = f"listener {listener} asks for SASL and offers no mechanism"
        raise ConfigError("sasl.enabled.mechanisms", "", reason)
    return offered


def _plain(config: NodeConfig, listener: str, sections: Sections) -> Callable[[], ServerSide]:
    module = _login_module(config, listener, PLAIN, sections)
    users = {} if module is None else module.users
    if not users:
        name = f"listener.name.{listener.lower()}.plain.{_JAAS}"
        raise ConfigError.saying(
            name,
            f"Listener {listener} offers PLAIN and nobody can log in: set {name} to a PlainLoginModule with an option "
            'user_<name>="<password>" for each user',
        )
    return lambda: PlainServer(users)


def _scram(mechanism: ScramMechanism, credential_of: CredentialOf, secrets: Secrets) -> Callable[[], ServerSide]:
    def begin() -> ServerSide:
        return ScramServer(
            mechanism,
            lambda user: credential_of(mechanism.number, user),
            nonce=secrets.nonce(),
            secret=secrets.own,
        )

    return begin


def own_login(
    config: NodeConfig, listener: str, setting: str, sections: Sections, nonce: Callable[[], str]
) -> Callable[[], Conversation] | None:
    """How this node logs in at that listener of others, with the mechanism that the setting names; None without a
    name and password for it."""
    mechanism = config.text(setting)
    if mechanism not in MECHANISMS:
        reason = f"nodes cannot log in with {mechanism} here, only with {', '.join(MECHANISMS)}"
        raise ConfigError(setting, mechanism, reason)
    module = _login_module(config, listener, mechanism, sections)
    if module is None or "username" not in module.options or "password" not in module.options:
        return None
    username, password = module.options["username"], module.options["password"]
    if mechanism == PLAIN:
        return lambda: plain_client(username, password)
    return lambda: scram_client(SCRAM_MECHANISMS[mechanism], username, password, nonce())


def _login_module(config: NodeConfig, listener: str, mechanism: str, sections: Sections) -> LoginModule | None:
    """From the listener's own settings, or else from the file."""
    text = config.for_listener(listener, mechanism).optional_text(_JAAS)
    if text is not None:
        name = f"listener.name.{listener.lower()}.{mechanism.lower()}.{_JAAS}"
        try:
            modules = parse_modules(text)
        except JaasError as error:
            raise ConfigError.saying(name, f"{_JAAS} of listener {listener} cannot be read: {error}") from None
    else:
        section = f"{listener.lower()}.{_SERVER_SECTION}"
        modules = sections.get(section) or sections.get(_SERVER_SECTION) or []
    return next((module for module in modules if module.is_for(mechanism)), None)
