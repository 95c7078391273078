"""What the broker keys of TLS, SASL, OAuth and delegation tokens mean.

Data only; loaded by `docs` when somebody asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SECURITY: Final[Mapping[str, str]] = {
    "connections.max.reauth.ms": (
        "How long a SASL login lasts before the client must log in again on the same connection; 0 is for ever."
    ),
    "sasl.server.max.receive.size": "Largest SASL message accepted before login.",
    "security.providers": "Java security providers to load.",
    "principal.builder.class": "The class that turns a login into a principal in Kafka.",
    "ssl.client.auth": "Whether clients must show a certificate (required), may (requested), or are not asked (none).",
    "ssl.principal.mapping.rules": "Rules that shorten a certificate's distinguished name to the name of a principal.",
    "ssl.allow.dn.changes": (
        "Whether a certificate that replaces another at run time may have a different distinguished name."
    ),
    "ssl.allow.san.changes": (
        "Whether a certificate that replaces another at run time may lack some of its alternative names."
    ),
    "ssl.protocol": "The TLS version connections are made for.",
    "ssl.provider": "The Java security provider for TLS.",
    "ssl.enabled.protocols": "The TLS versions that are accepted.",
    "ssl.keystore.type": "Format of the key store: PEM, PKCS12 or JKS.",
    "ssl.keystore.location": "File with this node's key and certificate.",
    "ssl.keystore.password": "Password of that file.",
    "ssl.key.password": "Password of the private key.",
    "ssl.keystore.key": "This node's private key itself, in PEM, in place of a file.",
    "ssl.keystore.certificate.chain": (
        "This node's certificate and those that vouch for it, in PEM, in place of a file."
    ),
    "ssl.truststore.type": "Format of the trust store: PEM, PKCS12 or JKS.",
    "ssl.truststore.location": "File with the certificates this node trusts.",
    "ssl.truststore.password": "Password of that file.",
    "ssl.truststore.certificates": "The certificates this node trusts, in PEM, in place of a file.",
    "ssl.keymanager.algorithm": "The Java key manager's algorithm.",
    "ssl.trustmanager.algorithm": "The Java trust manager's algorithm.",
    "ssl.endpoint.identification.algorithm": (
        "How a node checks that a certificate belongs to the host it connected to; empty does not check."
    ),
    "ssl.secure.random.implementation": "The Java random number generator for TLS.",
    "ssl.cipher.suites": "The cipher suites that are accepted; empty is the library's choice.",
    "ssl.engine.factory.class": "The class that makes TLS engines in Kafka.",
    "sasl.mechanism.inter.broker.protocol": "SASL mechanism with which brokers log in to one another.",
    "sasl.enabled.mechanisms": "SASL mechanisms clients may log in with.",
    "sasl.server.callback.handler.class": "The class that checks logins in Kafka.",
    "sasl.kerberos.principal.to.local.rules": "Rules that shorten a Kerberos principal to the name of a principal.",
    "sasl.jaas.config": (
        "Credentials and users of a login mechanism, in the JAAS format, usually with a listener and mechanism prefix."
    ),
    "sasl.client.callback.handler.class": "The class that supplies a client's credentials in Kafka.",
    "sasl.login.class": "The class that performs logins in Kafka.",
    "sasl.login.callback.handler.class": "The class that supplies a login's credentials in Kafka.",
    "sasl.kerberos.service.name": "The Kerberos name brokers run under.",
    "sasl.kerberos.kinit.cmd": "Path of the kinit command.",
    "sasl.kerberos.ticket.renew.window.factor": "Share of a ticket's life after which it is renewed.",
    "sasl.kerberos.ticket.renew.jitter": "How much that moment varies at random.",
    "sasl.kerberos.min.time.before.relogin": "Shortest time between two Kerberos logins.",
    "sasl.login.refresh.window.factor": "Share of a token's life after which a new one is fetched.",
    "sasl.login.refresh.window.jitter": "How much that moment varies at random.",
    "sasl.login.refresh.min.period.seconds": "Shortest time before a token is refreshed.",
    "sasl.login.refresh.buffer.seconds": "How long before its end a token is refreshed at the latest.",
    "sasl.login.connect.timeout.ms": "How long a connection to the token provider may take to open.",
    "sasl.login.read.timeout.ms": "How long the token provider may take to answer.",
    "sasl.login.retry.backoff.max.ms": "Longest wait between two tries to reach the token provider.",
    "sasl.login.retry.backoff.ms": "First wait between two tries to reach the token provider.",
    "sasl.oauthbearer.jwt.retriever.class": "The class that fetches tokens in Kafka.",
    "sasl.oauthbearer.jwt.validator.class": "The class that checks tokens in Kafka.",
    "sasl.oauthbearer.scope": "The scope asked for when this node fetches a token.",
    "sasl.oauthbearer.client.credentials.client.id": "The client id with which this node fetches a token.",
    "sasl.oauthbearer.client.credentials.client.secret": "The secret with which this node fetches a token.",
    "sasl.oauthbearer.assertion.algorithm": "Algorithm that signs the assertion with which this node fetches a token.",
    "sasl.oauthbearer.assertion.claim.aud": "The audience named in that assertion.",
    "sasl.oauthbearer.assertion.claim.exp.seconds": "How many seconds that assertion is valid.",
    "sasl.oauthbearer.assertion.claim.iss": "The issuer named in that assertion.",
    "sasl.oauthbearer.assertion.claim.jti.include": "Whether that assertion has an identifier of its own.",
    "sasl.oauthbearer.assertion.claim.nbf.seconds": "How many seconds before now that assertion becomes valid.",
    "sasl.oauthbearer.assertion.claim.sub": "The subject named in that assertion.",
    "sasl.oauthbearer.assertion.file": "File with a ready-made assertion.",
    "sasl.oauthbearer.assertion.private.key.file": "File with the key that signs the assertion.",
    "sasl.oauthbearer.assertion.private.key.passphrase": "Password of that key.",
    "sasl.oauthbearer.assertion.template.file": "File with headers and claims the assertion starts from.",
    "sasl.oauthbearer.scope.claim.name": "The claim of a token that holds its scope.",
    "sasl.oauthbearer.sub.claim.name": "The claim of a token that holds who it is for.",
    "sasl.oauthbearer.token.endpoint.url": "Where this node fetches tokens.",
    "sasl.oauthbearer.jwks.endpoint.url": "Where the token provider's public keys are, as a URL or a file.",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "How often those keys are fetched again.",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "First wait between two tries to fetch those keys.",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "Longest wait between two tries to fetch those keys.",
    "sasl.oauthbearer.clock.skew.seconds": "How far the token provider's clock may differ from this node's.",
    "sasl.oauthbearer.expected.audience": "Audiences of which a token must name one.",
    "sasl.oauthbearer.expected.issuer": "The issuer a token must come from.",
    "delegation.token.secret.key": (
        "The secret delegation tokens are signed with, the same on every node; without it there are none."
    ),
    "delegation.token.max.lifetime.ms": "How long a delegation token can be kept alive by renewing it.",
    "delegation.token.expiry.time.ms": "How long a delegation token lasts before it must be renewed.",
    "delegation.token.expiry.check.interval.ms": "How often expired delegation tokens are removed.",
}
