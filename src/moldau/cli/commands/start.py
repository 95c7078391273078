"""`moldau start` as help and completion see it; the command itself is dispatched before click is loaded."""

from __future__ import annotations

import click


@click.command(context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def start(arguments: tuple[str, ...]) -> int:
    """Start a node."""
    from moldau.cli.start import start as run_start

    return run_start(arguments)
