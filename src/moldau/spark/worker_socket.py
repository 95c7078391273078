"""Spares a task the 40 milliseconds it waits for nothing between Spark's virtual machine and its Python worker.

Spark sends a task in two pieces over a loopback connection: the function, then its input. Its end of the connection
holds the second piece back until the first one is acknowledged (Nagle), and ours delays the acknowledgement, because it
has nothing to say yet. Acknowledging at once when the function has arrived ends the wait. Nothing is changed but when
bytes are sent; where the connection is no TCP connection, or the system has no such switch, nothing is done.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

_OPEN_FILES = Path("/proc/self/fd")
_QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)

# Descriptors and not sockets: to own one would keep a connection open that others have closed.
_workers_own: list[int] = []
_found_by_process = 0


def acknowledge_now() -> None:
    """Called where Spark unpickles what it sent, and again before a task reads its input."""
    global _found_by_process
    if _QUICK_ACK is None:
        return
    if _found_by_process != os.getpid():
        # Before the first connection of our own: whatever is connected now is connected to Spark.
        _found_by_process = os.getpid()
        _workers_own[:] = [each for each in _open_descriptors() if _switch(each, socket.TCP_NODELAY)]
    for each in _workers_own:
        _switch(each, _QUICK_ACK)


def _open_descriptors() -> list[int]:
    try:
        return [int(each.name) for each in _OPEN_FILES.iterdir()]
    except OSError:
        return []


def _switch(descriptor: int, option: int) -> bool:
    """Set an option of a TCP connection; False when the descriptor is none, or not any more."""
    try:
        connection = socket.socket(fileno=descriptor)
    except OSError:
        return False  # a file, a pipe, or closed
    try:
        connection.getpeername()
        connection.setsockopt(socket.IPPROTO_TCP, option, 1)
    except OSError:
        return False  # it listens, or is of another kind
    finally:
        connection.detach()
    return True
