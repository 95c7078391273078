"""The floor: the least a program can do with a client's bytes, to say how far from it a broker is.

Produced bytes: one process receives from a socket, computes the CRC-32C and writes to a file in the page cache, in
pieces as large as a client's batches; nothing is parsed, answered or kept. Consumed bytes: one process maps pages of a
file and sends them, as much as a client fetches at a time. Another process is the client. Only the first one's CPU time
counts.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import subprocess
import sys
from pathlib import Path

from crc32c import crc32c

from benchmarks import process

PIECE_BYTES = 1_000_000  # librdkafka's default batch.size
SENT_BYTES = FETCHED_BYTES = 1 << 20  # librdkafka's default fetch.message.max.bytes
REQUEST = bytes(100)


def receiving_ns_per_byte(file: Path, payload_bytes: int) -> float:
    """The floor of producing, measured once for about `payload_bytes`, writing to `file` (removed afterwards)."""
    return _measured("receive", "send", file, payload_bytes)


def sending_ns_per_byte(file: Path, payload_bytes: int) -> float:
    """The floor of consuming, measured once for about `payload_bytes`, read from `file` (made and removed here)."""
    pieces = max(payload_bytes // FETCHED_BYTES, 1)
    with file.open("wb") as output:
        for _ in range(pieces):
            output.write(bytes(FETCHED_BYTES))
    return _measured("serve", "fetch", file, pieces * FETCHED_BYTES)


def _measured(work: str, client_work: str, file: Path, payload_bytes: int) -> float:
    worker = process.spawn([sys.executable, "-m", "benchmarks.floor", work, str(file)], stdout=subprocess.PIPE)
    assert worker.stdout is not None
    client = None
    try:
        port = worker.stdout.readline().decode().strip()
        client = process.spawn([sys.executable, "-m", "benchmarks.floor", client_work, port, str(payload_bytes)])
        result = json.loads(worker.stdout.readline())
        return float(result["cpu_ns"]) / float(result["bytes"])
    finally:
        for each in (worker, client):
            if each is not None:
                process.stop(each)
        worker.stdout.close()
        file.unlink(missing_ok=True)


# ---- produced bytes


def receive(file: str) -> None:
    connection = _accept()
    output = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    piece = memoryview(bytearray(PIECE_BYTES))
    pid, total = os.getpid(), 0
    began = process.cpu_seconds(pid)
    while filled := _fill(connection, piece):
        crc32c(piece[:filled])
        os.write(output, piece[:filled])
        total += filled
    _report(process.cpu_seconds(pid) - began, total)


def send(port: str, payload_bytes: str) -> None:
    chunk, left = bytes(SENT_BYTES), int(payload_bytes)
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        while left > 0:
            connection.sendall(chunk[:left])
            left -= len(chunk)


# ---- consumed bytes


def serve(file: str) -> None:
    connection = _accept()
    source, size = os.open(file, os.O_RDONLY), os.path.getsize(file)
    pid, position = os.getpid(), 0
    began = process.cpu_seconds(pid)
    while position < size and connection.recv(len(REQUEST)):
        with mmap.mmap(source, FETCHED_BYTES, mmap.MAP_SHARED, mmap.PROT_READ, offset=position) as pages:
            connection.sendall(pages)
        position += FETCHED_BYTES
    _report(process.cpu_seconds(pid) - began, position)


def fetch(port: str, payload_bytes: str) -> None:
    piece, left = memoryview(bytearray(FETCHED_BYTES)), int(payload_bytes)
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        while left > 0:
            connection.sendall(REQUEST)
            left -= _fill(connection, piece)


# ---- both


def _accept() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    return listener.accept()[0]


def _report(cpu_seconds: float, total: int) -> None:
    print(json.dumps({"cpu_ns": cpu_seconds * 1e9, "bytes": total}), flush=True)


def _fill(connection: socket.socket, piece: memoryview) -> int:
    filled = 0
    while filled < len(piece):
        received = connection.recv_into(piece[filled:])
        if not received:
            break
        filled += received
    return filled


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["receive", path]:
            receive(path)
        case ["send", to, count]:
            send(to, count)
        case ["serve", path]:
            serve(path)
        case ["fetch", to, count]:
            fetch(to, count)
        case other:
            sys.exit(f"no such work: {other}")
