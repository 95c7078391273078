"""The benchmark's instruments, on real processes: CPU and memory of a child, clients, the floor, probing a broker."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from benchmarks.brokers import ask_api_versions
from benchmarks.client import ClientFailed, ClientProcess, Result, Task, Work
from benchmarks.floor import receiving_ns_per_byte, sending_ns_per_byte
from benchmarks.instant import instant_server
from benchmarks.machine import Reservoir, facts
from benchmarks.rows.transactions import commit_offsets

from benchmarks import process

BUSY = """
import time
end = time.process_time() + 0.15
while time.process_time() < end:
    pass
print("done", flush=True)
input()
"""


@pytest.fixture
def busy() -> subprocess.Popen[bytes]:
    child = process.spawn([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    yield child
    process.stop(child)
    child.stdin.close()
    child.stdout.close()


def test_cpu_time_is_what_proc_says_without_its_grain(busy: subprocess.Popen[bytes]) -> None:
    fields = Path(f"/proc/{busy.pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    assert process.cpu_seconds(busy.pid) == pytest.approx(ticks / os.sysconf("SC_CLK_TCK"), abs=0.03)


def test_memory_is_the_resident_set(busy: subprocess.Popen[bytes]) -> None:
    assert 2_000_000 < process.resident_bytes(busy.pid) < 100_000_000


def test_a_process_that_is_gone_has_nothing(busy: subprocess.Popen[bytes]) -> None:
    process.stop(busy)
    assert process.cpu_seconds(busy.pid) == 0.0
    assert process.resident_bytes(busy.pid) == 0


def test_descendants_count() -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
    parent = process.spawn([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdout.readline()
    assert len(process.process_tree(parent.pid)) == 2
    assert process.cpu_seconds(parent.pid) > 0.15
    parent.stdin.write(b"\n")
    parent.stdin.close()
    parent.wait(10)
    parent.stdout.close()


def test_what_is_spawned_dies_with_its_starter() -> None:
    code = (
        "import sys, os\nfrom benchmarks import process\n"
        "print(process.spawn([sys.executable, '-c', 'import time; time.sleep(60)']).pid, flush=True)\nos._exit(1)"
    )
    starter = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    orphan = Path(f"/proc/{int(starter.stdout)}/stat")
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if not orphan.exists() or orphan.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.01)
    pytest.fail("the child outlived the process that started it")


def connect_and_add(task: Task) -> Work:
    def work() -> Result:
        return {"sum": sum(task["numbers"])}

    return work


def connect_and_fail(task: Task) -> Work:
    raise SystemExit(3)


def test_a_client_works_in_a_process_of_its_own_when_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    client = ClientProcess(connect_and_add, {"numbers": [1, 2, 39]})
    try:
        client.wait_until_ready()
        client.go()
        assert client.result() == {"sum": 42}
    finally:
        client.stop()


def test_a_client_that_ends_early_is_a_failure_not_a_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    client = ClientProcess(connect_and_fail, {})
    with pytest.raises(ClientFailed):
        client.wait_until_ready()
    client.stop()


def test_the_floor_is_a_few_hundred_picoseconds_a_byte(tmp_path: Path) -> None:
    file = tmp_path / "floor"
    assert 0.05 < receiving_ns_per_byte(file, 20_000_000) < 50
    assert not file.exists()
    assert 0.05 < sending_ns_per_byte(file, 20_000_000) < 50
    assert not file.exists()


def test_a_client_commits_to_a_server_that_answers_at_once() -> None:
    with instant_server("orders") as address:
        client = ClientProcess(commit_offsets, {"bootstrap": address, "topic": "orders", "commits": 50})
        try:
            client.wait_until_ready()
            client.go()
            assert client.result()["seconds"] > 0
        finally:
            client.stop()


def answer_once(answer: bytes) -> int:
    """A port that answers one connection with these bytes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener, listener.accept()[0] as connection:
            connection.recv(1024)
            connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return int(listener.getsockname()[1])


def framed(correlation_id: int, error: int, apis: list[tuple[int, int, int]]) -> bytes:
    body = struct.pack(">ihi", correlation_id, error, len(apis)) + b"".join(struct.pack(">hhh", *api) for api in apis)
    return struct.pack(">i", len(body)) + body


def test_a_valid_answer_lists_the_apis() -> None:
    assert ask_api_versions(answer_once(framed(7, 0, [(0, 3, 13), (18, 0, 4)]))) == {0: (3, 13), 18: (0, 4)}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        framed(8, 0, [(18, 0, 4)]),
        framed(7, 35, []),
        framed(7, 0, [(18, 0, 4)])[:-3],
        struct.pack(">iihi", 10, 7, 0, 1000),
    ],
)
def test_anything_else_is_no_answer(answer: bytes) -> None:
    assert ask_api_versions(answer_once(answer), timeout_seconds=1.0) is None


def test_nobody_listening_is_no_answer() -> None:
    assert ask_api_versions(process.free_ports(1)[0]) is None


def test_the_reservoir_holds_memory_until_it_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.machine.PROCESSES_BYTES", 0)
    reservoir, before = Reservoir(), process.resident_bytes(os.getpid())
    reservoir.fill(64 << 20)
    assert process.resident_bytes(os.getpid()) > before + (60 << 20)
    reservoir.release()
    assert process.resident_bytes(os.getpid()) < before + (30 << 20)


def test_machine_facts_name_nothing() -> None:
    told = str(facts())
    assert socket.gethostname() not in told
    assert str(Path.home()) not in told
