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
from dataclasses import dataclass
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
# Programs that come on top: Connect with its file connectors, Streams and the applications Kafka tests it with.
PROGRAM_ARTIFACTS = (
    "connect-runtime",
    "connect-file",
    "connect-json",
    "kafka-clients",
    "kafka-clients:test",
    "kafka-streams",
    "kafka-streams:test",
    "kafka-tools",
)
# Kafka's poms leave the logging back end to the distribution; without one every tool prints a warning.
LOGGING = (("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),)

FETCH_TIMEOUT_SECONDS = 900


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "moldau" / f"kafka-{KAFKA_VERSION}" / "libs"


@dataclass(frozen=True)
class JarSet:
    """Artifacts of Kafka's, each with its classifier behind a colon if it has one, and where they are kept."""

    directory: Path
    artifacts: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        return _has_all(self.directory, self.artifacts)

    @property
    def can_be_had(self) -> bool:
        """Whether the jars are there already or could be fetched, with a Java runtime to use them."""
        return shutil.which("java") is not None and (self.is_complete or shutil.which("mvn") is not None)

    @property
    def classpath(self) -> str:
        return f"{self.fetch()}{os.sep}*"

    def fetch(self) -> Path:
        """The directory that holds the jars, after fetching them if this is the first time.

        Safe to call from several processes: each fetches into a directory of its own and the first rename wins.
        """
        target = self.directory
        if self.is_complete:
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetching-") as scratch:
            project = Path(scratch)
            (project / "pom.xml").write_text(_pom(self.artifacts), encoding="utf-8")
            libs = project / "libs"
            command = ["mvn", "--batch-mode", "--quiet", "--file", str(project / "pom.xml")]
            command += ["dependency:copy-dependencies", f"-DoutputDirectory={libs}", "-DincludeScope=runtime"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_SECONDS, check=False)
            if done.returncode != 0 or not _has_all(libs, self.artifacts):
                raise RuntimeError(f"Maven could not fetch Apache Kafka {KAFKA_VERSION}:\n{done.stdout}{done.stderr}")
            self._publish(libs)
        return target

    def _publish(self, libs: Path) -> None:
        if self.directory.exists() and not self.is_complete:
            shutil.rmtree(self.directory)
        try:
            libs.rename(self.directory)
        except OSError:
            if not self.is_complete:
                raise


def brokers() -> JarSet:
    """Everything a Kafka broker, tool or client needs."""
    return JarSet(cache_directory(), ARTIFACTS)


def programs() -> JarSet:
    """Connect, Streams, and what Kafka tests them with."""
    return JarSet(cache_directory().parent / "programs", PROGRAM_ARTIFACTS)


def can_fetch() -> bool:
    return brokers().can_be_had


def fetch_jars() -> Path:
    return brokers().fetch()


def classpath() -> str:
    """A class path for `java -cp` with everything a Kafka broker, tool or client needs."""
    return brokers().classpath


def _has_all(directory: Path, artifacts: tuple[str, ...]) -> bool:
    for artifact in artifacts:
        name, _, classifier = artifact.partition(":")
        suffix = f"-{classifier}" if classifier else ""
        if not (directory / f"{name}-{KAFKA_VERSION}{suffix}.jar").is_file():
            return False
    return True


def _pom(artifacts: tuple[str, ...]) -> str:
    wanted = [("org.apache.kafka", artifact, KAFKA_VERSION) for artifact in artifacts]
    dependencies = "".join(_dependency(*each) for each in [*wanted, *LOGGING])
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>moldau</groupId><artifactId>kafka-jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def _dependency(group: str, artifact: str, version: str) -> str:
    name, _, classifier = artifact.partition(":")
    classified = f"<classifier>{classifier}</classifier>" if classifier else ""
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"{classified}</dependency>"
    )
