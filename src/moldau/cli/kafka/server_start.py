"""`kafka-server-start`: start a node from a properties file, with the flags of Kafka's script.

It reads the script's own flags (`-daemon`, `-name`, `-loggc`); everything after them is `moldau start`'s business.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

USAGE = """\
Start a node.

Usage: kafka-server-start [-daemon] server.properties [--override name=value]...

  -daemon    Run in the background; output goes to kafkaServer.out in $LOG_DIR (default: ./logs).
"""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    daemon = False
    while arguments and arguments[0] in ("-daemon", "-name", "-loggc"):
        flag = arguments.pop(0)
        daemon = daemon or flag == "-daemon"
        if flag == "-name" and arguments:
            arguments.pop(0)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, end="", file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 1
    if arguments[0] == "--version":
        from moldau.cli.kafka._options import version_text

        print(version_text())
        return 0
    if daemon and not _go_to_background():
        return 0
    from moldau.cli.start import start

    return start(arguments)


def _go_to_background() -> bool:
    """Split off a process without a terminal; True in that process, False in the one the user is waiting for."""
    directory = os.environ.get("LOG_DIR", "logs")
    try:
        os.makedirs(directory, exist_ok=True)
        output = os.open(os.path.join(directory, "kafkaServer.out"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        print(f"Cannot write to {directory}: {error.strerror}", file=sys.stderr)
        raise SystemExit(1) from None
    if os.fork():
        return False
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, output), (2, output)):
        os.dup2(source, target)
    return True


if __name__ == "__main__":
    raise SystemExit(main())
