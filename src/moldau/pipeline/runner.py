"""One run of a program, from its first message to its exit code.

It puts the room together: Spark, the program, the supervisor, the metrics page, signals. A first signal lets
micro-batches end; a second one ends at once. What is shown on the terminal is the caller's business, who gets the board
to look at.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any

from moldau.client.errors import MoldauError
from moldau.pipeline.errors import PipelineError
from moldau.pipeline.failures import explain
from moldau.pipeline.progress import Board
from moldau.pipeline.spark_session import DEFAULT_MASTER, SparkSettings, check_installed, hiding_modules, start_spark
from moldau.pipeline.supervision import STOP_SECONDS_MAX, RestartPolicy, Supervisor

# Where programs that name no brokers themselves find them: our commands, and `moldau.streams.Streams`.
BOOTSTRAP_VARIABLE = "MOLDAU_BOOTSTRAP"
BOOTSTRAP_SETTING = "spark.moldau.bootstrap.servers"
EXIT_FAILED = 1
PROGRAMS = (".py", ".sql")


@dataclass(slots=True, frozen=True)
class RunSettings:
    """What to run and how. `checkpoints` is a directory or a URL that every worker reaches."""

    program: Path
    # Options of format("moldau") with which the brokers are reached.
    options: Mapping[str, str]
    name: str
    checkpoints: str
    master: str = DEFAULT_MASTER
    conf: Mapping[str, str] = field(default_factory=dict)
    once: bool = False
    policy: RestartPolicy = field(default_factory=RestartPolicy)
    stop_seconds: float = STOP_SECONDS_MAX
    # Host and port of the metrics page.
    metrics: tuple[str, int] | None = None
    arguments: tuple[str, ...] = ()
    log_file: Path | None = None

    @property
    def own_checkpoints(self) -> str:
        """Where this run's queries keep theirs."""
        return f"{self.checkpoints.rstrip('/')}/{self.name}"

    @property
    def local_checkpoints(self) -> Path | None:
        """The same as a directory of this machine, if it is one."""
        scheme, found, path = self.own_checkpoints.partition("://")
        if not found:
            return Path(self.own_checkpoints).absolute()
        return Path(path) if scheme == "file" else None


class StopRequested(BaseException):
    """A signal came while there was nothing to finish."""


class Run:
    """One run. `say` gets sentences for people, which belong on standard error.

    It starts a Spark of its own, and stops it, unless it is given a session.
    """

    def __init__(self, settings: RunSettings, say: Callable[[str], None], spark: Any = None) -> None:
        self.settings = settings
        self._spark = spark
        self.board = Board()
        self._say = say
        self._supervisor = Supervisor(self.board, settings.policy, say, grace=settings.stop_seconds)
        # Whether the main thread is where an exception does no harm: before the program, or in its own code.
        self._interruptible = True
        self._signals = 0

    def execute(self, show: Callable[[Board, threading.Event], None]) -> int:
        """Run the program to its end, with `show` on a thread of its own; the exit code."""
        check_installed()
        runnable = self._read()
        directory = Path(tempfile.mkdtemp(prefix="moldau-run-"))
        failed = False
        try:
            with self._signals_handled(), self._checkpoints_locked():
                failed = not self._execute(runnable, directory, show)
        except StopRequested:
            pass
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return EXIT_FAILED if failed or self._supervisor.failures else 0

    def _read(self) -> Callable[[Any], None]:
        """The program, read and checked: a function that runs it on a session."""
        settings = self.settings
        suffix = settings.program.suffix.lower()
        if suffix not in PROGRAMS:
            raise PipelineError(f"{settings.program} is neither a Python nor an SQL program (.py, .sql)")
        if suffix == ".py":
            from moldau.pipeline.programs import ProgramInputs, read_program, run_program

            program = read_program(settings.program)
            arguments = list(settings.arguments)
            return lambda spark: run_program(program, ProgramInputs(spark, settings.name, settings.options, arguments))
        from moldau.pipeline.sql_program import SqlProgram, read_sql_program

        statements = read_sql_program(settings.program)
        return lambda spark: SqlProgram(
            spark, settings.program, settings.options, settings.name, lambda frame: frame.show(truncate=False)
        ).run(statements)

    def _execute(
        self, program: Callable[[Any], None], directory: Path, show: Callable[[Board, threading.Event], None]
    ) -> bool:
        """Whether the program itself went well; the queries' failures are the supervisor's."""
        spark = self._spark or self._start_spark(directory)
        # PySpark has put a handler of its own in the place of ours, which would take the session away from the queries.
        self._handle_signals()
        from moldau.pipeline.writers import BoardListener, Placement, supervised_writers

        spark.conf.set(BOOTSTRAP_SETTING, self.settings.options["kafka.bootstrap.servers"])
        placement = Placement(self.settings.name, self._checkpoint_url(), once=self.settings.once)
        with contextlib.ExitStack() as stack:
            if self._spark is None:
                stack.callback(_stop_spark, spark)
            if self.settings.metrics is not None:
                stack.callback(self._serve_metrics(*self.settings.metrics))
            listener = BoardListener(self.board)
            spark.streams.addListener(listener)
            stack.callback(spark.streams.removeListener, listener)
            stack.enter_context(supervised_writers(self._supervisor, placement))
            over = threading.Event()
            view = threading.Thread(target=show, args=(self.board, over), name="moldau-view", daemon=True)
            self._supervisor.start()
            view.start()
            try:
                return self._run_program(program, spark)
            finally:
                self._interruptible = False
                self._supervisor.program_is_done()
                self._supervisor.wait()
                over.set()
                view.join()

    def _start_spark(self, directory: Path) -> Any:
        settings = self.settings
        spark_settings = SparkSettings(
            name=settings.name,
            directory=directory,
            log_path=settings.log_file or _log_file(settings),
            master=settings.master,
            conf=settings.conf,
            checkpoints_are_local=settings.local_checkpoints is not None,
            program_directory=settings.program.resolve().parent,
        )
        os.environ[BOOTSTRAP_VARIABLE] = settings.options["kafka.bootstrap.servers"]
        hiding = hiding_modules(settings.program.resolve().parent)
        if hiding:
            self._say(
                f"{', '.join(hiding)} would hide modules of Python's own, so Spark's workers do not look for modules "
                "in the program's directory. Rename what is in the way if they have to"
            )
        self._look_for_brokers()
        self._say(f"Starting Spark on {settings.master}, log in {spark_settings.log_path}")
        spark = start_spark(spark_settings)
        if not spark_settings.is_local and self.settings.local_checkpoints is not None:
            self._say(
                f"Checkpoints are in {self.settings.own_checkpoints}: every worker must see that directory. "
                "If they do not, set --checkpoints to a URL that all can reach"
            )
        return spark

    def _look_for_brokers(self) -> None:
        """Spark takes long to say that nobody answers. It is no reason to end: brokers may be starting, too."""
        from moldau.pipeline.brokers import topic_names

        try:
            topic_names(self.settings.options)
        except PipelineError as error:
            self._say(f"{error.message}. Going on, since one may come")

    def _run_program(self, program: Callable[[Any], None], spark: Any) -> bool:
        try:
            program(spark)
        except StopRequested:
            return True
        except SystemExit as ending:
            return not ending.code
        except PipelineError as error:
            self._supervisor.ask_to_stop()
            self._say(f"Error: {error.message}")
            if error.hint:
                self._say(error.hint)
            return False
        except Exception as error:
            self._supervisor.ask_to_stop()
            self._say(_program_error(error, self.settings.program))
            return False
        if not self._supervisor.queries() and not self._supervisor.is_stopping:
            self._say(f"{self.settings.program} has started no query; nothing is left to do")
        return True

    def _serve_metrics(self, host: str, port: int) -> Callable[[], None]:
        from moldau.pipeline.metrics import serve_metrics

        used, stop = serve_metrics(self.board, host, port)
        self._say(f"Metrics at http://{host}:{used}/metrics")
        return stop

    # ---- checkpoints

    def _checkpoint_url(self) -> str:
        local = self.settings.local_checkpoints
        return self.settings.own_checkpoints if local is None else str(local)

    @contextlib.contextmanager
    def _checkpoints_locked(self) -> Iterator[None]:
        """Two runs on the same checkpoints would take turns at destroying each other's: the second is refused."""
        directory = self.settings.local_checkpoints
        if directory is None:
            yield
            return
        try:
            directory.mkdir(parents=True, exist_ok=True)
            file: IO[str] = open(directory / "run.lock", "w")  # noqa: SIM115 - open for as long as the lock is held
        except OSError as error:
            raise PipelineError(f"Cannot keep checkpoints in {directory}: {error.strerror}") from None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise PipelineError(
                    f"Another run uses the checkpoints in {directory}",
                    hint="Stop it first, or give this one another --name or --checkpoints.",
                ) from None
            yield

    # ---- signals

    @contextlib.contextmanager
    def _signals_handled(self) -> Iterator[None]:
        before = self._handle_signals()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle_signals(self) -> dict[int, Any]:
        """From now on signals are ours; who had them before. Python lets only the main thread ask for them."""
        if threading.current_thread() is not threading.main_thread():
            return {}
        return {each: signal.signal(each, self._on_signal) for each in (signal.SIGINT, signal.SIGTERM)}

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._signals += 1
        self._supervisor.ask_to_stop()
        if self._signals > 1:
            # The JVM notices that we are gone and ends too. Nothing is lost: the micro-batch is done again.
            os._exit(128 + number)
        if self._interruptible and not self._supervisor.is_waited_for:
            raise StopRequested


def _log_file(settings: RunSettings) -> Path:
    """Beside the checkpoints, where a second run appends to it, or in the temporary directory."""
    local = settings.local_checkpoints
    return (local if local is not None else Path(tempfile.gettempdir()) / f"moldau-{settings.name}") / "spark.log"


def _stop_spark(spark: Any) -> None:
    with contextlib.suppress(Exception):  # the session may have been stopped by the program, or have died
        spark.stop()


def _program_error(error: Exception, program: Path) -> str:
    """An exception of the program: where in its own text, and in Spark's case without Spark's insides."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if Path(each.filename) == program]
    where = f"{program}, line {frames[-1].lineno}" if frames else str(program)
    if isinstance(error, MoldauError):
        return f"Error: {where}: {error}"
    if type(error).__module__.startswith(("pyspark.", "py4j.")):
        return f"Error: {where}: {explain(error).message}"
    lines = traceback.format_exception(error)
    own = next((index for index, line in enumerate(lines) if str(program) in line), 1)
    return "".join([lines[0], *lines[own:], f"Error: {where}: {type(error).__name__}: {error}"])
