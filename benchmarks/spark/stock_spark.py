"""Spark 4.0.0 with its own Kafka connector, in an environment of its own below the user's cache.

The connector's jars must be of Spark's own version, and 4.0.0 is the one whose complete set is published. Nothing of it
is ever installed beside Moldau.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from codegen import kafka_jars

SPARK_VERSION = "4.0.0"
SCALA_VERSION = "2.13"
CONNECTOR = f"spark-sql-kafka-0-10_{SCALA_VERSION}"
FETCH_TIMEOUT_SECONDS = 900

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>none</groupId><artifactId>none</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.spark</groupId><artifactId>{CONNECTOR}</artifactId><version>{SPARK_VERSION}</version>
      <exclusions>
        <exclusion><groupId>org.apache.hadoop</groupId><artifactId>*</artifactId></exclusion>
        <exclusion><groupId>org.scala-lang</groupId><artifactId>*</artifactId></exclusion>
        <exclusion><groupId>org.slf4j</groupId><artifactId>*</artifactId></exclusion>
      </exclusions>
    </dependency>
  </dependencies>
</project>
"""


def home() -> Path:
    return kafka_jars.cache_directory().parents[1] / f"spark-{SPARK_VERSION}"


def python() -> Path:
    return home() / "venv" / "bin" / "python"


def jars() -> list[str]:
    return sorted(str(jar) for jar in (home() / "jars").glob("*.jar"))


def is_there() -> bool:
    return python().is_file() and any(CONNECTOR in jar for jar in jars())


def fetch() -> None:
    """Install it, if this is the first time: half a gigabyte."""
    if is_there():
        return
    home().mkdir(parents=True, exist_ok=True)
    uv = str(Path(sys.executable).parent / "uv")
    _run([uv, "venv", "-q", "--clear", "--python", sys.executable, str(home() / "venv")])
    _run([uv, "pip", "install", "-q", "--python", str(python()), f"pyspark=={SPARK_VERSION}"])
    with tempfile.TemporaryDirectory(dir=home()) as scratch:
        pom, libs = Path(scratch) / "pom.xml", Path(scratch) / "jars"
        pom.write_text(_POM, encoding="utf-8")
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={libs}", "-DincludeScope=runtime"]
        _run(["mvn", "--batch-mode", "--quiet", "--file", str(pom), *goal])
        shutil.rmtree(home() / "jars", ignore_errors=True)
        libs.rename(home() / "jars")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
