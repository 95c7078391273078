"""kcat, the command line client over librdkafka: found on the PATH, or taken out of its Debian package without root.

The package brings the program and librdkafka; the libraries below those (TLS, SASL, codecs) are part of any Debian.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.clients.sample import Sample

PACKAGES = ("kcat", "librdkafka1", "libyajl2")
# Lengths first, so that keys and values may hold any bytes; a length of -1 is a null.
RECORD_FORMAT = "%o %T %K %S\n%h\n%k%s\n"


@dataclass(frozen=True)
class Kcat:
    program: str
    libraries: str | None

    def run(self, *arguments: str, data: bytes = b"") -> bytes:
        environment = dict(os.environ)
        if self.libraries:
            environment["LD_LIBRARY_PATH"] = self.libraries
        done = subprocess.run(
            [self.program, *arguments], input=data, capture_output=True, timeout=40, check=False, env=environment
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout

    def produce(
        self,
        servers: str,
        topic: str,
        codec: str,
        records: Sequence[Sample],
        settings: Sequence[str] = (),
    ) -> None:
        """Keys and values must be text without '|' and ';'. Neighbours with the same headers share a run of kcat."""
        begin = 0
        while begin < len(records):
            headers = records[begin].headers
            end = begin
            while end < len(records) and records[end].headers == headers:
                end += 1
            arguments = ["-P", "-b", servers, "-t", topic, "-p", "0", "-z", codec, "-K", "|", "-D", ";", "-Z"]
            for name, value in headers:
                arguments += ["-H", f"{name}={(value or b'').decode()}"]
            for setting in settings:
                arguments += ["-X", setting]
            lines = [(each.key or b"") + b"|" + (each.value or b"") for each in records[begin:end]]
            self.run(*arguments, data=b";".join(lines))
            begin = end

    def consume(self, servers: str, topic: str, count: int, start: str = "beginning") -> list[Sample]:
        where = ["-b", servers, "-t", topic, "-p", "0", "-o", start, "-c", str(count), "-e", "-q"]
        output = self.run("-C", *where, "-X", "check.crcs=true", "-f", RECORD_FORMAT)
        return _parsed(output)


def _parsed(output: bytes) -> list[Sample]:
    found = []
    position = 0
    while position < len(output):
        head_end = output.index(b"\n", position)
        _, timestamp, key_length, value_length = map(int, output[position:head_end].split())
        headers_end = output.index(b"\n", head_end + 1)
        headers = tuple(
            (name.decode(), value)
            for name, _, value in (
                each.partition(b"=") for each in output[head_end + 1 : headers_end].split(b",") if each
            )
        )
        position = headers_end + 1
        key = None if key_length < 0 else output[position : position + key_length]
        position += max(key_length, 0)
        value = None if value_length < 0 else output[position : position + value_length]
        position += max(value_length, 0) + 1
        found.append(Sample(key, value, headers, timestamp))
    return found


@functools.cache
def find_kcat() -> Kcat | str:
    """kcat, or a sentence that says why there is none."""
    on_path = shutil.which("kcat")
    if on_path is not None:
        return Kcat(on_path, None)
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moldau" / "kcat"
    if not (base / "usr" / "bin" / "kcat").exists():
        failure = _unpack(base)
        if failure is not None:
            return failure
    libraries = ":".join(str(each) for each in (base / "usr" / "lib").glob("*-linux-gnu*"))
    found = Kcat(str(base / "usr" / "bin" / "kcat"), libraries)
    try:
        found.run("-V")
    except (AssertionError, OSError) as error:
        return f"kcat from Debian's package does not run here: {error}"
    return found


def _unpack(target: Path) -> str | None:
    """Download the packages and unpack them into the cache; why not, if it does not work."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return "kcat is not on the PATH, and this is not a Debian to fetch its package from"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="kcat-") as scratch:
        download = ["apt-get", "download", *PACKAGES]
        done = subprocess.run(download, cwd=scratch, capture_output=True, text=True, timeout=60, check=False)
        packages = list(Path(scratch).glob("*.deb"))
        if done.returncode != 0 or len(packages) != len(PACKAGES):
            reason = re.sub(r"\s+", " ", done.stderr)[:200]
            return f"kcat is not on the PATH, and its Debian package cannot be downloaded: {reason}"
        for package in packages:
            subprocess.run(["dpkg-deb", "-x", str(package), f"{scratch}/root"], check=True, timeout=60)
        try:
            Path(scratch, "root").rename(target)
        except OSError:
            if not target.is_dir():
                raise
    return None
