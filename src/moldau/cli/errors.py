"""How a command fails: one exception with a sentence for the user, an optional hint and an exit code.

Every command ends through `report`, so that nobody ever sees a traceback for something that is not our bug.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from moldau.client.errors import MoldauError, Unreachable
from moldau.protocol.errors import ApiError

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


NOBODY_HINT = "Is one running there? Start one with 'moldau start', or name another with --bootstrap-server."
SECURITY_HINT = "If its listener uses TLS or SASL, say so with security.protocol in --command-config."


class CliError(MoldauError):
    """Something of the command line itself that the user can act on."""

    def __init__(self, message: str, hint: str | None = None, exit_code: int = EXIT_FAILURE) -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code


def hint_for(error: MoldauError) -> str | None:
    """What to do about an error, in terms of what is typed here."""
    if isinstance(error, Unreachable):
        return SECURITY_HINT if error.answered else NOBODY_HINT
    return error.hint


def report(error: MoldauError, prefix: str = "") -> int:
    """Print the error and its hint on stderr; the exit code to end with."""
    print(f"{prefix}{error.message}", file=sys.stderr)
    hint = hint_for(error)
    if hint:
        print(hint, file=sys.stderr)
    return error.exit_code if isinstance(error, CliError) else EXIT_FAILURE


def guarded(run: Callable[[], int], prefix: str = "") -> int:
    """Run a command; turn every expected way of failing into a message and an exit code."""
    try:
        code = run()
        sys.stdout.flush()
        return code
    except MoldauError as error:
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
