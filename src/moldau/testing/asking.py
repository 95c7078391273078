"""One request to one node and its answer, for what a cluster under test is asked about itself.

No retries and no guessing which node to ask: whoever calls decides that. A node that cannot be asked is an OSError.
"""

from __future__ import annotations

import socket
from typing import Any

from moldau.protocol.frames import decode_response, encode_request
from moldau.protocol.wire import ProtocolError

ASK_SECONDS_MAX = 5.0


def ask(host: str, port: int, message: Any, api_version: int, *, seconds: float = ASK_SECONDS_MAX) -> Any:
    """The answer of the node that listens there."""
    with socket.create_connection((host, port), timeout=seconds) as connection:
        connection.sendall(encode_request(message.API_KEY, api_version, 1, "moldau-testing", message))
        size = int.from_bytes(_exactly(connection, 4), "big")
        try:
            _, answer = decode_response(message.API_KEY, api_version, _exactly(connection, size))
        except ProtocolError as error:
            raise OSError(f"the answer of {host}:{port} cannot be read: {error}") from error
        return answer


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionResetError("the node closed the connection")
        data += piece
    return bytes(data)
