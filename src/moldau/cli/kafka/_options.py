"""Option parsing with the rules of Kafka's tools: what is an option, what is its value, what is an error.

The rules are those people's scripts rely on: `--name value`, `--name=value`, `-name value`, options repeated, a value
that may itself begin with a dash (`--time -1`), options in any order. Unambiguous prefixes are accepted too. It is a
parser of its own because argparse refuses values that look like options, and costs more than the rest of a command.
It only parses: it never touches the network and knows nothing about any one command.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from moldau.cli.errors import CliError

KAFKA_VERSION = "4.3.1"
MAX_HELP_WIDTH = 110
OPTION_COLUMN = 36


class OptionError(CliError):
    """The command line itself is wrong; `program` lets the message say where the help is."""

    def __init__(self, message: str, program: str) -> None:
        super().__init__(message, hint=f"Run '{program} --help' for the options.")


class HelpShown(Exception):
    """`--help` or `--version` has been answered; there is nothing left to run."""


def integer(text: str) -> int:
    return int(text, 10)


@dataclass(slots=True)
class OptionSpec:
    """One option: its name, whether it takes a value, and how that value is read."""

    name: str
    help: str
    metavar: str | None = None
    convert: Callable[[str], Any] = str
    default: Any = None
    value_optional: bool = False
    separator: str | None = None

    @property
    def takes_value(self) -> bool:
        return self.metavar is not None


@dataclass(slots=True)
class Options:
    """What was given: each option with its values, and the order in which options came."""

    program: str
    specs: dict[str, OptionSpec]
    given: list[tuple[str, Any]] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)

    def has(self, name: str) -> bool:
        assert name in self.specs, f"{name} is not an option of {self.program}"
        return any(given == name for given, _ in self.given)

    def values(self, name: str) -> list[Any]:
        assert name in self.specs, f"{name} is not an option of {self.program}"
        return [value for given, value in self.given if given == name and value is not None]

    def value(self, name: str) -> Any:
        """The one value of the option, its default when it was not given."""
        values = self.values(name)
        if len(values) > 1:
            raise self.error(f"Found multiple arguments for option {name}, but you asked for only one")
        return values[0] if values else self.specs[name].default

    def text(self, name: str) -> str:
        value = self.value(name)
        assert value is not None, f"{name} has neither a value nor a default"
        return str(value)

    def error(self, message: str) -> OptionError:
        return OptionError(message, self.program)

    def require(self, *names: str) -> None:
        for name in names:
            if not self.has(name):
                raise self.error(f'Missing required argument "[{name}]"')

    def forbid(self, used: str, *others: str) -> None:
        """`used` may not be combined with any of `others`."""
        if self.has(used):
            for other in others:
                if self.has(other):
                    raise self.error(f'Option "[{used}]" can\'t be used with option "[{other}]"')


class OptionParser:
    """The options of one command."""

    def __init__(self, program: str, summary: str) -> None:
        self.program = program
        self.summary = summary
        self.specs: dict[str, OptionSpec] = {}
        self.flag("help", "Show this help.")
        self.flag("version", "Show the version.")

    def flag(self, name: str, help: str) -> None:  # noqa: A002
        self.specs[name] = OptionSpec(name, help)

    def value(
        self,
        name: str,
        metavar: str,
        help: str,  # noqa: A002
        *,
        convert: Callable[[str], Any] = str,
        default: Any = None,
        optional: bool = False,
        separator: str | None = None,
    ) -> None:
        self.specs[name] = OptionSpec(name, help, metavar, convert, default, optional, separator)

    def connection(self, *, client: str = "admin") -> None:
        """The two options every command that talks to a cluster has."""
        self.value("bootstrap-server", "HOST:PORT,…", "Required. One or more brokers to reach the cluster through.")
        self.value("command-config", "FILE", f"Properties file with further settings of the {client} client.")

    def parse(self, argv: Sequence[str] | None = None) -> Options:
        """Read the arguments. Shows help or version by itself and raises HelpShown then."""
        arguments = list(sys.argv[1:] if argv is None else argv)
        options = Options(self.program, self.specs)
        index = 0
        while index < len(arguments):
            argument = arguments[index]
            index += 1
            if argument == "--":
                options.rest.extend(arguments[index:])
                break
            if not _looks_like_option(argument):
                options.rest.append(argument)
                continue
            name, has_value, text = argument.lstrip("-").partition("=")
            spec = self._find(name)
            if not spec.takes_value:
                options.given.append((spec.name, None))
                continue
            if not has_value:
                if index < len(arguments) and not (spec.value_optional and _looks_like_option(arguments[index])):
                    text = arguments[index]
                    index += 1
                elif spec.value_optional:
                    options.given.append((spec.name, None))
                    continue
                else:
                    raise OptionError(f"Option {spec.name} requires an argument", self.program)
            self._add(options, spec, text)
        self._answer_help(options)
        return options

    def _find(self, name: str) -> OptionSpec:
        spec = self.specs.get(name)
        if spec is not None:
            return spec
        matching = [known for known in self.specs if name and known.startswith(name)]
        if len(matching) == 1:
            return self.specs[matching[0]]
        if matching:
            raise OptionError(f"{name} could mean any of: {', '.join(sorted(matching))}", self.program)
        raise OptionError(f"{name} is not a recognized option", self.program)

    def _add(self, options: Options, spec: OptionSpec, text: str) -> None:
        for part in text.split(spec.separator) if spec.separator else [text]:
            try:
                options.given.append((spec.name, spec.convert(part)))
            except ValueError:
                raise OptionError(f"Cannot parse argument '{part}' of option {spec.name}", self.program) from None

    def _answer_help(self, options: Options) -> None:
        if options.has("help"):
            print(self.format_help())
            raise HelpShown
        if options.has("version"):
            print(version_text())
            raise HelpShown

    def format_help(self) -> str:
        width = min(MAX_HELP_WIDTH, shutil.get_terminal_size().columns)
        lines = [self.summary, "", f"Usage: {self.program} [options]", "", "Options:"]
        for spec in sorted(self.specs.values(), key=lambda each: each.name):
            left = f"  --{spec.name}"
            if spec.metavar:
                left += f" [{spec.metavar}]" if spec.value_optional else f" {spec.metavar}"
            text = spec.help if spec.default in (None, "") else f"{spec.help} (default: {spec.default})"
            wrapped = textwrap.wrap(text, max(30, width - OPTION_COLUMN)) or [""]
            if len(left) >= OPTION_COLUMN:
                lines.append(left)
                left = ""
            lines.append(f"{left:<{OPTION_COLUMN}}{wrapped[0]}")
            lines.extend(" " * OPTION_COLUMN + line for line in wrapped[1:])
        return "\n".join(lines)


def version_text() -> str:
    """The Kafka release the command acts as, and our own."""
    from moldau import __version__

    return f"{KAFKA_VERSION} (Moldau {__version__})"


def _looks_like_option(argument: str) -> bool:
    return argument.startswith("-") and len(argument) > 1


def parse_key_values(pairs: Sequence[str]) -> dict[str, str]:
    """`key=value` arguments; a missing value is the empty string, as in Kafka's tools."""
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}


def run(body: Callable[[], int], prefix: str = "") -> int:
    """Run a Kafka command's body with the house's way of failing."""
    from moldau.cli.errors import guarded

    def guarded_body() -> int:
        try:
            return body()
        except HelpShown:
            return 0

    return guarded(guarded_body, prefix)
