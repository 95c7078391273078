"""Child processes and what the kernel knows about them: CPU time, resident memory, what else the machine was doing.

Everything a benchmark starts goes through `spawn`, so nothing outlives it, not even when the benchmark is killed.
This file never interprets a figure; it only reads it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

Stream = int | IO[bytes] | None

PR_SET_PDEATHSIG = 1
CPUCLOCK_SCHED = 2  # the kernel's exact run time of all threads, alive or gone, in nanoseconds

_libc = ctypes.CDLL(None, use_errno=True)
_niceness = 0


def spawn(
    command: Sequence[str],
    *,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.DEVNULL,
    stderr: Stream = None,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process in a group of its own (Ctrl-C reaches only the benchmark) that dies with the benchmark."""
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        env=None if environment is None else {**os.environ, **environment},
        start_new_session=True,
        preexec_fn=_prepare_child,
    )


def stop(process: subprocess.Popen[bytes], *, timeout_seconds: float = 120.0) -> int:
    """Ask a process to end, then make it; its exit status."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


def set_niceness(niceness: int) -> None:
    """Run everything spawned from now on at this niceness, brokers and clients alike."""
    global _niceness
    _niceness = niceness


def _prepare_child() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if _niceness:
        os.setpriority(os.PRIO_PROCESS, 0, _niceness)
        # Where the kernel groups processes by session, niceness counts within the group only; the group has its own.
        autogroup = Path("/proc/self/autogroup")
        if autogroup.exists():
            autogroup.write_text(str(_niceness), encoding="ascii")


def cpu_seconds(pid: int) -> float:
    """CPU time, user and system, of a process and its living descendants.

    The process CPU clock is the same account as utime + stime in /proc/<pid>/stat without their 10 ms grain, which
    would be a tenth of what a row costs an efficient broker.
    """
    return sum(_cpu_clock(each) for each in process_tree(pid))


def _cpu_clock(pid: int) -> float:
    try:
        return time.clock_gettime(((~pid) << 3) | CPUCLOCK_SCHED)
    except OSError:
        return 0.0  # ended meanwhile


def resident_bytes(pid: int) -> int:
    """Resident memory (VmRSS) of a process and its living descendants."""
    return sum(_resident(each) for each in process_tree(pid))


def _resident(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def process_tree(pid: int) -> list[int]:
    tree = [pid]
    for each in tree:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                tree.extend(int(child) for child in children.read_text(encoding="ascii").split())
            except OSError:
                continue
    return tree


def machine_busy_seconds() -> float:
    """CPU time of everything on the machine, including what a hypervisor took away."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = _cpu_line()
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _cpu_line() -> list[int]:
    with open("/proc/stat", encoding="ascii") as stat:
        return [int(field) for field in stat.readline().split()[1:9]]


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
