"""PLAIN (RFC 4616): the name and the password as they are. Only as private as the connection under it."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from moldau.security.refusal import LoginRefused
from moldau.security.scram import Conversation


class PlainServer:
    """One login, seen from the server: one message, one empty answer."""

    __slots__ = ("_passwords", "user")

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.user: str | None = None
        """Who it is; None until that is proved."""

    def answer(self, token: bytes) -> bytes:
        if self.user is not None:
            raise LoginRefused("a message after the end of the conversation")
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise LoginRefused("a PLAIN message that is not text") from None
        if len(parts) != 3:
            raise LoginRefused("a PLAIN message that is none")
        acting, name, password = parts
        if not name or not password:
            raise LoginRefused("no user name or no password")
        known = self._passwords.get(name)
        # Digests of one length: the time this takes tells nothing, not even whether there is such a user.
        equal = hmac.compare_digest(_digest(password), _digest("" if known is None else known))
        if known is None or not equal:
            raise LoginRefused("an unknown user or a wrong password")
        if acting and acting != name:
            raise LoginRefused("a client that wants to act in another one's name")
        self.user = name
        return b""


def plain_client(username: str, password: str) -> Conversation:
    yield f"\0{username}\0{password}".encode()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
