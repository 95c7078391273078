"""Facts about the machine and the versions a record needs to be read later, and bringing the machine to a known state.

Nothing that names the machine, its user or its directories belongs in a record.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import confluent_kafka
from codegen import kafka_jars

from benchmarks.brokers import moldau_build

PROCESSES_BYTES = 200 << 20
HUGE_PAGE_BYTES = 2 << 20


def facts() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gb": round(_memory_bytes("MemTotal") / (1 << 30), 1),
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
        "java": _java_version(),
    }


def versions() -> dict[str, str]:
    return {
        "moldau": metadata.version("moldau"),
        "build": moldau_build(),
        "kafka": kafka_jars.KAFKA_VERSION,
        "confluent-kafka": str(confluent_kafka.version()),
        "librdkafka": str(confluent_kafka.libversion()[0]),
    }


def commit(repository: Path) -> tuple[str, bool]:
    """The short commit of the checkout, and whether the package differs from it."""
    git = ["git", "-C", str(repository)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    changed = subprocess.run([*git, "status", "--porcelain", "--", "src"], capture_output=True, text=True, check=False)
    return head.stdout.strip() or "unknown", bool(changed.stdout.strip())


class Reservoir:
    """Memory that is touched before a row and freed at its start, so that no row pays for the first use of a page.

    Where a hypervisor takes free memory back (within seconds, with free page reporting), the next use of a page costs
    ten times what writing to it does: as much as the rest of a broker's work, and by chance. The kernel hands out the
    pages freed last first, so what is released here is what the row gets.
    """

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None

    def fill(self, payload_bytes: int) -> None:
        """Touch what a row needs that moves this much, beside what its processes allocate."""
        self.release()
        wanted = min(payload_bytes + PROCESSES_BYTES, _memory_bytes("MemAvailable") // 4)
        size = max(1, wanted // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory.madvise(mmap.MADV_HUGEPAGE)
        ctypes.memset((ctypes.c_char * size).from_buffer(self._memory), 1, size)

    def release(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None


def _memory_bytes(field: str) -> int:
    match = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    return int(match.group(1)) * 1024 if match else 0


def _processor() -> str:
    match = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="ascii"), re.MULTILINE)
    return match.group(1) if match else platform.machine()


def _java_version() -> str:
    try:
        done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "none"
    match = re.search(r'version "([^"]+)"', done.stderr)
    return match.group(1) if match else "unknown"
