"""Kafka commands with subcommands: how they are parsed, and how they reach a cluster by its brokers or controllers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.cli import properties
from moldau.cli.kafka._options import HelpShown, version_text

if TYPE_CHECKING:
    from moldau.client.admin import Admin


def new_parser(program: str, summary: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(program, description=summary)
    parser.add_argument("--version", action="version", version=version_text())
    return parser


def add_bootstrap(parser: argparse.ArgumentParser, *, short: bool = False) -> None:
    """Either brokers or controllers, and one of them must be given."""
    group = parser.add_mutually_exclusive_group(required=True)
    servers, controllers = ["--bootstrap-server"], ["--bootstrap-controller"]
    if short:
        servers.append("-b")
        controllers.append("-C")
    group.add_argument(*servers, metavar="HOST:PORT,…", help="brokers to reach the cluster through")
    group.add_argument(*controllers, metavar="HOST:PORT,…", help="controllers to reach the cluster through")


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    try:
        return parser.parse_args(argv)
    except SystemExit as ending:
        if ending.code:
            # argparse has told what is wrong; Kafka's tools end with 1 then.
            raise SystemExit(1) from None
        raise HelpShown from None


def open_admin(arguments: argparse.Namespace, config: str | None, client_id: str) -> Admin:
    from moldau.client.admin import Admin

    settings = properties.load(config) if config else {}
    controllers = arguments.bootstrap_controller is not None
    servers = arguments.bootstrap_controller if controllers else arguments.bootstrap_server
    return Admin(servers, settings, client_id=client_id, patient=True, controllers=controllers)
