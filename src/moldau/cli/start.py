"""`moldau start`: reads its few arguments and hands over to the node.

This module is on the way of every start, which is measured: it imports nothing but the node.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

USAGE = """\
Usage: moldau start [SERVER.PROPERTIES] [--nodes N] [--override NAME=VALUE]... [--welcome] [--port-file FILE]

Starts a node. Without a properties file it is a broker and a controller in one process, on localhost:9092. Directories
are formatted on the first start. NAME is any of Kafka's broker settings; --override may be repeated.
--nodes starts so many, each in a process of its own: a cluster on this machine, with three copies of everything. Their
ports follow those of the first, their data is in one directory, and a node that ends is started again.
--welcome says what to try next; --port-file names a file that receives the client port once the node is ready.

  moldau start
  moldau start --nodes 3
  moldau start server.properties --override log.dirs=/data/moldau
"""
NODES_MAX = 100
EXIT_USAGE = 2


def start(arguments: Sequence[str]) -> int:
    """Run a node until it ends; the exit code."""
    path: str | None = None
    overrides: dict[str, str] = {}
    welcome = False
    port_file: str | None = None
    nodes = 1
    supervised = False
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument in ("-h", "--help"):
            print(USAGE, end="")
            return 0
        if argument == "--override" or argument.startswith("--override="):
            pair = argument.partition("=")[2] if "=" in argument else (rest.pop(0) if rest else "")
            name, equals, value = pair.partition("=")
            if not equals or not name:
                return _usage_error(f"--override takes NAME=VALUE, not '{pair}'")
            overrides[name] = value
        elif argument == "--welcome":
            welcome = True
        elif argument == "--nodes" or argument.startswith("--nodes="):
            number = argument.partition("=")[2] if "=" in argument else (rest.pop(0) if rest else "")
            if not number.isdigit() or not 1 <= int(number) <= NODES_MAX:
                return _usage_error(f"--nodes takes a number from 1 to {NODES_MAX}, not '{number}'")
            nodes = int(number)
        elif argument == "--supervised":
            supervised = True
        elif argument == "--port-file" and rest:
            port_file = rest.pop(0)
        elif argument.startswith("-"):
            return _usage_error(f"'{argument}' is not an option of moldau start")
        elif path is not None:
            return _usage_error(f"one properties file is enough: '{argument}' is a second one")
        else:
            path = argument
    from moldau.node.main import run, run_several

    if nodes > 1:
        if port_file is not None:
            return _usage_error("--port-file is for a single node")
        return run_several(nodes, path, overrides, welcome=welcome)
    return run(path, overrides, welcome=welcome, port_file=port_file, supervised=supervised)


def _usage_error(message: str) -> int:
    print(message, file=sys.stderr)
    print("Run 'moldau start --help' for the options.", file=sys.stderr)
    return EXIT_USAGE
