"""Apache Kafka's published jars, fetched once with Maven into the user's cache.

The generator reads the message specifications inside them, the tests check bytes against Kafka's own Java classes, and
the benchmarks start a real broker from them. This file decides which release and which artifacts that is; it never
changes a jar, and nothing in the installed package depends on it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

KAFKA_VERSION = "4.3.1"

# kafka_2.13 brings the broker with all it needs; the others are named because tools and tests use them directly.
ARTIFACTS = (
    "kafka_2.13",
    "kafka-clients",
    "kafka-group-coordinator",
    "kafka-metadata",
    "kafka-raft",
    "kafka-server",
    "kafka-server-common",
    "kafka-share-coordinator",
    "kafka-storage",
    "kafka-tools",
    "kafka-transaction-coordinator",
)
# Kafka's poms leave the logging back end to the distribution; without one every tool prints a warning.
LOGGING = (("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),)

FETCH_TIMEOUT_SECONDS = 900


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "moldau" / f"kafka-{KAFKA_VERSION}" / "libs"


def can_fetch() -> bool:
    """Whether the jars are there already or could be fetched, with a Java runtime to use them."""
    return shutil.which("java") is not None and (is_complete(cache_directory()) or shutil.which("mvn") is not None)


def is_complete(directory: Path) -> bool:
    return all((directory / f"{artifact}-{KAFKA_VERSION}.jar").is_file() for artifact in ARTIFACTS)


def fetch_jars() -> Path:
    """The directory that holds the jars, after fetching them if this is the first time.

    Safe to call from several processes: each fetches into a directory of its own and the first rename wins.
    """
    target = cache_directory()
    if is_complete(target):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetching-") as scratch:
        project = Path(scratch)
        (project / "pom.xml").write_text(_pom(), encoding="utf-8")
        libs = project / "libs"
        command = ["mvn", "--batch-mode", "--quiet", "--file", str(project / "pom.xml"), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={libs}", "-DincludeScope=runtime"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_SECONDS, check=False)
        if done.returncode != 0 or not is_complete(libs):
            raise RuntimeError(f"Maven could not fetch Apache Kafka {KAFKA_VERSION}:\n{done.stdout}{done.stderr}")
        _publish(libs, target)
    return target


def classpath() -> str:
    """A class path for `java -cp` with everything a Kafka broker, tool or client needs."""
    return f"{fetch_jars()}{os.sep}*"


def _publish(libs: Path, target: Path) -> None:
    if target.exists() and not is_complete(target):
        shutil.rmtree(target)
    try:
        libs.rename(target)
    except OSError:
        if not is_complete(target):
            raise


def _pom() -> str:
    wanted = [("org.apache.kafka", artifact, KAFKA_VERSION) for artifact in ARTIFACTS]
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in [*wanted, *LOGGING]
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>moldau</groupId><artifactId>kafka-jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
