"""Program files: what is in one, and how it is called.

A Python program is either a file with a function `pipeline`, whose parameters say by their names what it wants (see
`ProgramInputs`), or a script that gets its session with `SparkSession.builder.getOrCreate()`. Which of the two it is
is read from its text before anything is run. A script runs as `__main__`; a file with a `pipeline` does not, so that it
may have a `__main__` part of its own.
"""

from __future__ import annotations

import ast
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moldau.pipeline.errors import PipelineError

ENTRY = "pipeline"


@dataclass(slots=True)
class ProgramInputs:
    """What a `pipeline` function may ask for, by the name of its parameters.

    spark       the session
    streams     `moldau.streams.Streams` on it, connected to the brokers of this run
    bootstrap   the brokers, "host:port,..."
    options     the same with all client settings, as options of format("moldau"): {"kafka.bootstrap.servers": ...}
    arguments   what follows `--` on the command line
    """

    spark: Any
    run_name: str
    options: Mapping[str, str]
    arguments: list[str] = field(default_factory=list)

    def get(self, name: str) -> Any:
        if name == "streams":
            from moldau.streams import Streams

            settings = dict(self.options)
            servers = settings.pop("kafka.bootstrap.servers")
            return Streams(self.spark, bootstrap_servers=servers, options=settings, name=self.run_name)
        if name == "bootstrap":
            return self.options["kafka.bootstrap.servers"]
        return dict(self.options) if name == "options" else getattr(self, name)


INPUTS = ("spark", "streams", "bootstrap", "options", "arguments")


@dataclass(slots=True, frozen=True)
class Program:
    """A Python program, read and checked but not run."""

    path: Path
    code: types.CodeType
    has_entry: bool


def read_program(path: Path) -> Program:
    """Read a program; a PipelineError for one that is not Python."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PipelineError(f"Cannot read {path}: {error.strerror}") from None
    try:
        tree = ast.parse(text, filename=str(path))
    except SyntaxError as error:
        raise PipelineError(f"{path}, line {error.lineno}: {error.msg}") from None
    has_entry = any(isinstance(each, ast.FunctionDef) and each.name == ENTRY for each in tree.body)
    return Program(path, compile(tree, str(path), "exec"), has_entry)


def run_program(program: Program, inputs: ProgramInputs) -> None:
    """Run a program up to its end, which for a script that waits for its queries is theirs."""
    directory = str(program.path.resolve().parent)
    if directory not in sys.path:
        # At the end: a file that is called like a module of Python's own must not take its place.
        sys.path.append(directory)
    name = f"moldau_program_{program.path.stem}" if program.has_entry else "__main__"
    module = types.ModuleType(name)
    module.__file__ = str(program.path)
    # For good, not only while it runs: what the program defines is looked up by its module's name later on.
    sys.modules[name] = module
    sys.argv[:] = [str(program.path), *inputs.arguments]
    if program.has_entry:
        from pyspark import cloudpickle

        # Workers cannot import the program: its functions travel as they are.
        cloudpickle.register_pickle_by_value(module)
    exec(program.code, module.__dict__)  # noqa: S102 - running the program is what was asked for
    if program.has_entry:
        entry = getattr(module, ENTRY)
        entry(**arguments_for(entry, program.path, inputs))


def arguments_for(entry: Callable[..., Any], path: Path, inputs: ProgramInputs) -> dict[str, Any]:
    """What a `pipeline` function asks for by the names of its parameters."""
    wanted = {}
    for parameter in inspect.signature(entry).parameters.values():
        if parameter.name in INPUTS:
            wanted[parameter.name] = inputs.get(parameter.name)
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise PipelineError(
                f"{path}: {ENTRY}() asks for '{parameter.name}', which the runner does not have",
                hint=f"A parameter may be one of {', '.join(INPUTS)}, or have a default.",
            )
    return wanted
