"""One Spark for a run: which settings it gets from us, where its log goes, which interpreter its workers run.

It decides defaults only: whatever is given as a Spark setting wins. Spark's chatter goes to a file; what people print
in their own program, and what Spark's console sink prints, stays on the terminal.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import sys
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from moldau.pipeline.errors import PipelineError
from moldau.pipeline.failures import explain
from moldau.spark.state_store import PROVIDER, ROCKSDB

DEFAULT_MASTER = "local[*]"
_CHECKPOINT_WRITER = "spark.sql.streaming.checkpointFileManagerClass"
# Where it is in newer versions of Spark, and where it was.
_CHECKPOINT_PACKAGES = (
    "org.apache.spark.sql.execution.streaming.checkpointing",
    "org.apache.spark.sql.execution.streaming",
)
_LOG_SETTING = "spark.driver.extraJavaOptions"

# What Spark's script stumbles over when there was no Java for it to start with.
_SCRIPTS_OWN_ERROR = "bad array subscript"
_LINES_SAID = 3

_LOG4J = """\
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.append = true
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
"""


@dataclass(slots=True, frozen=True)
class SparkSettings:
    """What a session is made with. `directory` is for Spark's own files and may go when it has ended."""

    name: str
    directory: Path
    log_path: Path
    master: str = DEFAULT_MASTER
    conf: Mapping[str, str] = field(default_factory=dict)
    log_level: str = "warn"
    checkpoints_are_local: bool = True
    # Where the program's own modules are, for its functions that run on workers.
    program_directory: Path | None = None

    @property
    def is_local(self) -> bool:
        return re.match(r"local(\[|-cluster|$)", self.master) is not None


def check_installed() -> None:
    """Fail in one line when the extra or Java is missing."""
    if any(find_spec(each) is None for each in ("pyspark", "pyarrow", "numba")):
        raise PipelineError(
            "This needs Spark, which is not installed", hint="pip install 'moldau[spark]' (in a clone: make setup)"
        )
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise PipelineError(
            "Spark needs Java 17 or newer, and there is no 'java' here", hint="Install a JRE, or set JAVA_HOME."
        )


def session_conf(settings: SparkSettings) -> dict[str, str]:
    """The session's settings: ours, and over them the given ones."""
    ours = {
        "spark.master": settings.master,
        "spark.app.name": settings.name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        # The way between Spark and Python: pieces that fit into caches, and no TCP on one machine.
        "spark.sql.execution.arrow.maxBytesPerBatch": "1m",
        "spark.python.unix.domain.socket.enabled": "true",
        PROVIDER: ROCKSDB,
        # Also a query that has nothing to do says how far behind it is.
        "spark.sql.streaming.noDataProgressEventInterval": "2000",
        "spark.sql.warehouse.dir": str(settings.directory / "warehouse"),
    }
    if settings.is_local:
        # Spark's 200 partitions are 200 state stores and 200 tasks a micro-batch: far too many for one machine.
        ours["spark.sql.shuffle.partitions"] = str(max(2, os.cpu_count() or 2))
        ours["spark.driver.host"] = ours["spark.driver.bindAddress"] = "127.0.0.1"
    conf = {**ours, **settings.conf}
    log4j = f"-Dlog4j2.configurationFile=file:{settings.directory / 'log4j2.properties'}"
    conf[_LOG_SETTING] = f"{conf.get(_LOG_SETTING, '')} {log4j}".strip()
    return conf


def start_spark(settings: SparkSettings) -> Any:
    """Start Spark and return its session; `SparkSession.builder.getOrCreate()` finds the same one."""
    check_installed()
    settings.directory.mkdir(parents=True, exist_ok=True)
    settings.log_path.parent.mkdir(parents=True, exist_ok=True)
    log4j = _LOG4J.format(level=settings.log_level, path=settings.log_path)
    (settings.directory / "log4j2.properties").write_text(log4j)
    _prepare_environment(settings)
    # PySpark logs every error it raises as JSON, and warns of libraries newer than itself; neither helps anybody here.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in session_conf(settings).items():
        builder = builder.config(name, value)
    from moldau.spark.source import register

    log_begins = settings.log_path.stat().st_size if settings.log_path.exists() else 0
    try:
        with _errors_of_children_to(settings.log_path):
            session = builder.getOrCreate()
        # Spark would find the format by itself, but asks a Python process for it, which may come too late on a busy
        # machine; and it does not ask twice.
        register(session)
        if settings.is_local and settings.checkpoints_are_local:
            _write_checkpoints_quickly(session, settings)
        if not settings.is_local:
            _send_modules(session, settings)
        return session
    except PySparkRuntimeError as error:
        raise _not_started(error, settings.log_path, log_begins) from None
    except Exception as error:
        raise PipelineError(
            f"Spark did not start on {settings.master}: {explain(error).message}",
            hint=f"Its log is {settings.log_path}.",
        ) from None


def _write_checkpoints_quickly(session: Any, settings: SparkSettings) -> None:
    """Spare every micro-batch some 50 milliseconds.

    Of the two ways Spark has to write the files of a checkpoint, its first choice starts a program (`readlink`) again
    and again for each file unless Hadoop's native library is installed. The second one is as safe on a disk of this
    machine: a file is written beside its place, and renamed.
    """
    if _CHECKPOINT_WRITER in settings.conf:
        return
    for package in _CHECKPOINT_PACKAGES:
        name = f"{package}.FileSystemBasedCheckpointFileManager"
        with contextlib.suppress(Exception):  # not this version's
            session.sparkContext._jvm.java.lang.Class.forName(name)
            session.conf.set(_CHECKPOINT_WRITER, name)
            return


def _not_started(error: Exception, log: Path, begins: int) -> PipelineError:
    """Spark's Java process is gone before it could say anything to us; what it has said is in the log from there on."""
    lines = log.read_bytes()[begins:].decode(errors="replace").splitlines()
    said = [line.strip() for line in lines if line.strip() and _SCRIPTS_OWN_ERROR not in line][:_LINES_SAID]
    return PipelineError(
        f"Spark did not start: {' '.join(said) or error}",
        hint="Spark needs Java 17 or newer: see what 'java -version' and JAVA_HOME say.",
    )


def _prepare_environment(settings: SparkSettings) -> None:
    """Workers run this interpreter, or they would miss our packages. On other machines it may be somewhere else."""
    if settings.is_local or "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if settings.program_directory is not None and not hiding_modules(settings.program_directory):
        found = os.environ.get("PYTHONPATH")
        own = str(settings.program_directory)
        os.environ["PYTHONPATH"] = f"{own}{os.pathsep}{found}" if found else own


def _send_modules(session: Any, settings: SparkSettings) -> None:
    """Give the modules beside a program to a cluster's workers, who see neither its directory nor our environment."""
    directory = settings.program_directory
    if directory is None or hiding_modules(directory):
        return
    packages = [each.parent for each in directory.glob("*/__init__.py")]
    modules = [*directory.glob("*.py"), *(each for package in packages for each in package.rglob("*.py"))]
    archive = settings.directory / "modules.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for each in modules:
            file.write(each, each.relative_to(directory))
    session.sparkContext.addPyFile(str(archive))


def hiding_modules(directory: Path) -> list[str]:
    """Files of a directory that would be found in place of modules of Python's own if it were searched first."""
    return sorted(each.name for each in directory.glob("*.py") if each.stem in sys.stdlib_module_names)


@contextlib.contextmanager
def _errors_of_children_to(path: Path) -> Iterator[None]:
    """Processes started inside inherit a standard error that goes to a file; ours is as before afterwards."""
    sys.stderr.flush()
    kept = os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(file, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)
