"""The floor: the least a program can do with produced bytes, to say how far from it a broker is.

One process receives from a socket, computes the CRC-32C and writes to a file in the page cache, in pieces as large as a
client's batches; nothing is parsed, answered or kept. Another sends. Only the first one's CPU time counts.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from crc32c import crc32c

from benchmarks import process

PIECE_BYTES = 1_000_000  # librdkafka's default batch.size
SENT_BYTES = 1 << 20


def floor_ns_per_byte(file: Path, payload_bytes: int) -> float:
    """Measure the floor once for about `payload_bytes`, writing to `file` (removed afterwards)."""
    receiver = process.spawn([sys.executable, "-m", "benchmarks.floor", "receive", str(file)], stdout=subprocess.PIPE)
    assert receiver.stdout is not None
    sender = None
    try:
        port = receiver.stdout.readline().decode().strip()
        sender = process.spawn([sys.executable, "-m", "benchmarks.floor", "send", port, str(payload_bytes)])
        result = json.loads(receiver.stdout.readline())
        return float(result["cpu_ns"]) / float(result["bytes"])
    finally:
        for each in (receiver, sender):
            if each is not None:
                process.stop(each)
        receiver.stdout.close()
        file.unlink(missing_ok=True)


def receive(file: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    connection, _ = listener.accept()
    output = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    piece = memoryview(bytearray(PIECE_BYTES))
    pid, total = os.getpid(), 0
    began = process.cpu_seconds(pid)
    while filled := _fill(connection, piece):
        crc32c(piece[:filled])
        os.write(output, piece[:filled])
        total += filled
    spent = process.cpu_seconds(pid) - began
    print(json.dumps({"cpu_ns": spent * 1e9, "bytes": total}), flush=True)


def _fill(connection: socket.socket, piece: memoryview) -> int:
    filled = 0
    while filled < len(piece):
        received = connection.recv_into(piece[filled:])
        if not received:
            break
        filled += received
    return filled


def send(port: str, payload_bytes: str) -> None:
    chunk, left = bytes(SENT_BYTES), int(payload_bytes)
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        while left > 0:
            connection.sendall(chunk[:left])
            left -= len(chunk)


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(sys.argv[2])
    else:
        send(sys.argv[2], sys.argv[3])
