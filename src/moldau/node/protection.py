"""What protects a listener, and what this node needs to get in at others: the results of `node_security.py`.

Only facts, and nothing of security is loaded for them: a node without any starts without any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import ssl

    from moldau.node.gate import Entrance
    from moldau.security.scram import Conversation


class ListenerSecurity(NamedTuple):
    """What stands between a connection and the broker; nothing, unless told."""

    entrance: Entrance | None = None
    """Clients must log in with SASL."""
    tls: ssl.SSLContext | None = None
    user_of_certificate: Callable[[str], str] | None = None
    """Name in a client's certificate -> user; None where clients are known by other means."""


OPEN: Final = ListenerSecurity()


class PeerSecurity(NamedTuple):
    """How this node gets in at others."""

    tls: ssl.SSLContext | None = None
    mechanism: str | None = None
    """None: nobody asks who this node is."""
    login: Callable[[], Conversation] | None = None
    """None though there is a mechanism: the node was not told with what name and password."""


UNPROTECTED: Final = PeerSecurity()
