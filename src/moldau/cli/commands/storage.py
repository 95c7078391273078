"""`moldau storage`: formatting log directories, over the same functions as `kafka-storage`."""

from __future__ import annotations

import click


@click.group()
def storage() -> None:
    """Format log directories and look at them."""


@storage.command("format", context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def format_(arguments: tuple[str, ...]) -> int:
    """Format a node's log directories, with kafka-storage's flags."""
    from moldau.cli.kafka.storage import main

    return main(["format", *arguments])


@storage.command()
@click.option("-c", "--config", "config_file", required=True, metavar="FILE", help="The node's properties file.")
def info(config_file: str) -> int:
    """Show what the log directories belong to, and what is wrong with them."""
    from moldau.cli.kafka.storage import load_config, log_directories, show_info

    return show_info(log_directories(load_config(config_file)))


@storage.command("random-uuid")
def random_uuid() -> None:
    """Print a new cluster id."""
    from moldau.cli.kafka import storage as kafka_storage

    print(kafka_storage.random_uuid())
