"""The `moldau` command. `start` is dispatched before anything else is imported, because start-up time is promised."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["start"]:
        from moldau.cli.start import start

        return start(arguments[1:])
    from moldau.cli.app import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
