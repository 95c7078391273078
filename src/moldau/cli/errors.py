"""How a command fails: one exception with a sentence for the user, an optional hint and an exit code.

Every command ends through `report`, so that nobody ever sees a traceback for something that is not our bug.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from moldau.protocol.errors import ApiError

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class CliError(Exception):
    """Something the user can act on: what went wrong and, if we know it, what to do about it."""

    def __init__(self, message: str, hint: str | None = None, exit_code: int = EXIT_FAILURE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code


class ConnectionFailed(CliError):
    """No broker of the bootstrap list could be talked to."""


class Unsupported(CliError):
    """The cluster does not offer the API, or not in a version we speak."""


def report(error: CliError, prefix: str = "") -> int:
    """Print the error and its hint on stderr; the exit code to end with."""
    print(f"{prefix}{error.message}", file=sys.stderr)
    if error.hint:
        print(error.hint, file=sys.stderr)
    return error.exit_code


def guarded(run: Callable[[], int], prefix: str = "") -> int:
    """Run a command; turn every expected way of failing into a message and an exit code."""
    try:
        code = run()
        sys.stdout.flush()
        return code
    except CliError as error:
        sys.stdout.flush()
        return report(error, prefix)
    except ApiError as error:
        sys.stdout.flush()
        return report(CliError(error.message), prefix)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`… | head`): end quietly, and keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE
