"""The tree of people's commands, each loaded when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import click

from moldau import __version__
from moldau.cli.errors import EXIT_INTERRUPTED, EXIT_USAGE, guarded

# Command -> where it lives, and the line `moldau --help` shows for it without loading it.
COMMANDS = {
    "start": ("moldau.cli.commands.start:start", "Start a node."),
    "topic": ("moldau.cli.commands.topic:topic", "Create, list, describe, alter and delete topics."),
    "produce": ("moldau.cli.commands.produce:produce", "Send records to a topic."),
    "consume": ("moldau.cli.commands.consume:consume", "Read records from a topic."),
    "run": ("moldau.cli.commands.run:run", "Run a streaming program, in Python or SQL, on Spark."),
    "sql": ("moldau.cli.commands.sql:sql", "Query topics with SQL, once or as they grow."),
    "group": ("moldau.cli.commands.group:group", "List, describe, reset and delete groups; watch their lag."),
    "txn": ("moldau.cli.commands.txn:txn", "List, describe and abort transactions."),
    "config": ("moldau.cli.commands.config:config", "Show and change settings of topics, brokers and groups."),
    "cluster": (
        "moldau.cli.commands.cluster:cluster",
        "Look at the cluster (health, brokers, quorum, disks), rebalance it, drain brokers.",
    ),
    "log": ("moldau.cli.commands.log:log", "Look into log files and check them, without a broker."),
    "storage": ("moldau.cli.commands.storage:storage", "Format log directories and look at them."),
    "simulate": ("moldau.cli.commands.simulate:simulate", "Check whole simulated clusters under faults, by seed."),
    "completion": ("moldau.cli.commands.completion:completion", "Print the completion script for a shell."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"There is no command '{args[0]}'.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", "-V", message="moldau %(version)s")
def cli() -> None:
    """Event streaming that speaks Kafka's protocol.

    All commands that talk to a cluster work with any Kafka. They reach it at localhost:9092, or where
    --bootstrap-server or the variable MOLDAU_BOOTSTRAP says.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command; its exit code."""

    def body() -> int:
        try:
            result = cli.main(list(arguments), prog_name="moldau", standalone_mode=False)
        except click.ClickException as error:
            error.show()
            return EXIT_USAGE
        except click.exceptions.Exit as ending:
            return ending.exit_code
        except click.Abort:
            return EXIT_INTERRUPTED
        except SystemExit as ending:
            # click ends the process by itself after it has answered a shell's question for completions.
            return ending.code if isinstance(ending.code, int) else 0
        return result if isinstance(result, int) else 0

    return guarded(body, prefix="Error: ")
