"""What a node's settings say about security, put together once at the start: its listeners, and its own logins.

Decides nothing by itself: a setting that cannot be honoured is a ConfigError before anybody is let in.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable
from typing import Final

from moldau.config.listeners import Listener
from moldau.config.node_config import NodeConfig
from moldau.config.types import ConfigError
from moldau.node import tls
from moldau.node.gate import Entrance
from moldau.node.protection import ListenerSecurity, PeerSecurity
from moldau.security.distinguished_names import principal_mapper
from moldau.security.jaas import JaasError, LoginModule, parse_sections
from moldau.security.offers import CredentialOf, Secrets, offered_mechanisms, own_login

_SECRET_BYTES: Final = 32
_JAAS_FILE: Final = re.compile(r"-Djava\.security\.auth\.login\.config=(\S+)")


class NodeSecurity:
    """The settings of one node, read for one listener after the other."""

    def __init__(self, config: NodeConfig, credential_of: CredentialOf) -> None:
        self._config = config
        self._credential_of = credential_of
        self._secrets = Secrets(secrets.token_bytes(_SECRET_BYTES), lambda: secrets.token_urlsafe(24))
        self._sections = _jaas_sections()

    def reread(self, config: NodeConfig) -> None:
        """Settings have changed; they hold for what is asked from here on."""
        self._config = config

    def of_listener(self, listener: Listener) -> ListenerSecurity:
        config = self._config
        settings = config.for_listener(listener.name)
        entrance = context = None
        user_of_certificate = None
        if listener.encrypted:
            client_auth = settings.text("ssl.client.auth")
            if listener.authenticated:
                # Whoever logs in needs no certificate, unless this very listener was told otherwise.
                client_auth = config.original(listener.config_prefix + "ssl.client.auth") or "none"
            elif client_auth != "none":
                user_of_certificate = _mapper(settings.text("ssl.principal.mapping.rules"))
            context = tls.server_context(settings, listener.name, client_auth)
        if listener.authenticated:
            entrance = Entrance(
                offered_mechanisms(config, listener.name, self._sections, self._credential_of, self._secrets),
                max_frame=settings.integer("sasl.server.max.receive.size"),
                refusal_delay_ms=config.integer("connection.failed.authentication.delay.ms"),
            )
        return ListenerSecurity(entrance, context, user_of_certificate)

    def towards_brokers(self) -> PeerSecurity:
        config = self._config
        setting = "sasl.mechanism.inter.broker.protocol"
        return self._towards(config.inter_broker_listener, config.inter_broker_protocol, setting)

    def towards_controllers(self) -> PeerSecurity:
        config = self._config
        name = config.controller_listener_names[0].upper()
        setting = "sasl.mechanism.controller.protocol"
        return self._towards(name, config.security_protocols.get(name, "PLAINTEXT"), setting)

    def _towards(self, listener: str, protocol: str, setting: str) -> PeerSecurity:
        there = Listener(listener, "", 0, protocol)
        context = tls.client_context(self._config.for_listener(listener), listener) if there.encrypted else None
        if not there.authenticated:
            return PeerSecurity(context)
        login = own_login(self._config, listener, setting, self._sections, self._secrets.nonce)
        return PeerSecurity(context, self._config.text(setting), login)


def _mapper(rules: str) -> Callable[[str], str]:
    try:
        return principal_mapper(rules)
    except ValueError as error:
        raise ConfigError("ssl.principal.mapping.rules", rules, str(error)) from None


def _jaas_sections() -> dict[str, list[LoginModule]]:
    """The JAAS file that Kafka's start scripts are given in KAFKA_OPTS."""
    match = _JAAS_FILE.search(os.environ.get("KAFKA_OPTS", ""))
    if match is None:
        return {}
    path = match[1].strip("\"'")
    try:
        with open(path, encoding="utf-8") as file:
            return parse_sections(file.read())
    except (OSError, UnicodeDecodeError, JaasError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError.saying("KAFKA_OPTS", f"The JAAS file {path} of KAFKA_OPTS cannot be used: {reason}") from None
