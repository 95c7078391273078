"""What people's commands share: how to reach a cluster, how to print, and how to help with a misspelt topic."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from moldau.cli import properties
from moldau.cli.errors import CliError
from moldau.cli.output import FORMATS
from moldau.client.errors import MoldauError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from moldau.client.admin import Admin

BOOTSTRAP_VARIABLE = "MOLDAU_BOOTSTRAP"
DEFAULT_BOOTSTRAP = "localhost:9092"
COMPLETION_TIMEOUT_MS = "1000"

F = TypeVar("F", bound=Callable[..., Any])


class Target:
    """Where the cluster is and with which client settings to reach it."""

    def __init__(self, bootstrap: str, config_file: str | None, single: Sequence[str]) -> None:
        self.bootstrap = bootstrap
        self.settings = properties.load(config_file) if config_file else {}
        for pair in single:
            name, equals, value = pair.partition("=")
            if not equals:
                raise click.UsageError(f"--client-property takes NAME=VALUE, not '{pair}'.")
            self.settings[name] = value

    def admin(self) -> Admin:
        from moldau.client.admin import Admin

        return Admin(self.bootstrap, self.settings, client_id="moldau")


def cluster_options(command: F) -> F:
    """The options of every command that talks to a cluster; the command gets one `target`."""
    from functools import wraps

    @click.option(
        "-b",
        "--bootstrap-server",
        "bootstrap",
        metavar="HOST:PORT",
        default=lambda: os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP,
        help=f"A broker of the cluster, or several, separated by commas.  [default: ${BOOTSTRAP_VARIABLE} or "
        f"{DEFAULT_BOOTSTRAP}]",
    )
    @click.option("--command-config", metavar="FILE", help="Client settings (security, timeouts) as a properties file.")
    @click.option("--client-property", metavar="NAME=VALUE", multiple=True, help="One client setting. Repeatable.")
    @wraps(command)
    def with_target(
        *args: Any, bootstrap: str, command_config: str | None, client_property: tuple[str, ...], **kwargs: Any
    ) -> Any:
        return command(*args, target=Target(bootstrap, command_config, client_property), **kwargs)

    return with_target  # type: ignore[return-value]


def output_option(command: F) -> F:
    option = click.option(
        "-o", "--output", type=click.Choice(FORMATS), default="table", show_default=True, help="How to print."
    )
    return option(command)


def complete_topic(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of topics that begin with what was typed; nothing when the cluster does not answer at once."""
    from click.shell_completion import CompletionItem

    from moldau.client.admin import Admin
    from moldau.client.admin.topics import list_topics

    bootstrap = context.params.get("bootstrap") or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
    limits = {"default.api.timeout.ms": COMPLETION_TIMEOUT_MS, "request.timeout.ms": COMPLETION_TIMEOUT_MS}
    try:
        with Admin(bootstrap, limits) as admin:
            names = [topic.name for topic in list_topics(admin) if not topic.internal]
    except MoldauError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def topic_argument(*, many: bool = False) -> Callable[[F], F]:
    name = "names" if many else "name"
    return click.argument(name, metavar="TOPIC", nargs=-1 if many else 1, required=True, shell_complete=complete_topic)


def no_such_topic(admin: Admin, name: str) -> CliError:
    """The error for a topic that is not there, with the nearest names that are."""
    from moldau.client.admin.topics import list_topics

    names = [topic.name for topic in list_topics(admin)]
    return CliError(f"There is no topic '{name}'", hint=suggestion(name, names, "moldau topic list"))


def suggestion(wanted: str, known: Sequence[str], listing: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(wanted, known, n=3, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return f"'{listing}' shows what there is." if known else "There is nothing yet."


def parse_settings(pairs: Sequence[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"Settings are given as NAME=VALUE, not '{pair}'.")
        settings[name.strip()] = value.strip()
    return settings
