"""`moldau run`: a streaming program, in Python or SQL, on Spark."""

from __future__ import annotations

import click

from moldau.cli.commands._shared import Target, cluster_options, parse_settings
from moldau.cli.errors import CliError

DEFAULT_CHECKPOINTS = "./checkpoints"
DEFAULT_METRICS_HOST = "localhost"


@click.command()
@click.argument("program", metavar="PROGRAM", type=click.Path(dir_okay=False))
@click.argument("arguments", metavar="[-- ARGUMENT]...", nargs=-1)
@click.option("--master", default="local[*]", show_default=True, help="Where Spark runs: local[N], spark://…, k8s://…")
@click.option(
    "--checkpoints",
    metavar="DIR",
    default=DEFAULT_CHECKPOINTS,
    show_default=True,
    help="Where queries keep how far they are, in a directory for each --name; a path, or a URL all workers reach.",
)
@click.option("--name", help="What the run is called.  [default: the program's name]")
@click.option("--once", is_flag=True, help="Read what is there, then end.")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A Spark setting. Repeatable.")
@click.option(
    "--max-restarts",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="How often a query that fails again and again without progress is started anew.",
)
@click.option(
    "--stop-timeout",
    type=click.FloatRange(0),
    default=60,
    show_default=True,
    help="Seconds that a stop waits for micro-batches to end.",
)
@click.option("--metrics-port", metavar="[HOST:]PORT", help="Serve metrics for Prometheus here; 0 takes a free port.")
@click.option("--log-file", type=click.Path(dir_okay=False), help="Spark's log.  [default: with the checkpoints]")
@click.option(
    "--interval", type=click.FloatRange(0.1), default=5, show_default=True, help="Seconds between lines of progress."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="table: drawn in place on a terminal, else lines; json: a line for each query and interval.",
)
@cluster_options
def run(
    program: str,
    arguments: tuple[str, ...],
    master: str,
    checkpoints: str,
    name: str | None,
    once: bool,
    conf: tuple[str, ...],
    max_restarts: int,
    stop_timeout: float,
    metrics_port: str | None,
    log_file: str | None,
    interval: float,
    output: str,
    target: Target,
) -> int:
    """Run a streaming program on Spark.

    PROGRAM is a Python file with a function pipeline(streams) or pipeline(spark), a Python script that takes its
    session from SparkSession.builder.getOrCreate(), or an SQL file with CREATE STREAM and INSERT INTO TOPIC. Queries
    that fail are started again; Ctrl-C stops them between micro-batches, and the next run goes on from there.
    """
    from pathlib import Path

    from moldau.cli.commands._run_view import RunView
    from moldau.pipeline.errors import PipelineError
    from moldau.pipeline.runner import Run, RunSettings
    from moldau.pipeline.supervision import RestartPolicy

    view = RunView(output, interval)
    try:
        settings = RunSettings(
            program=Path(program),
            options=moldau_options(target),
            name=name or Path(program).stem,
            checkpoints=checkpoints,
            master=master,
            conf=parse_settings(conf),
            once=once,
            policy=RestartPolicy(most_attempts=max_restarts),
            stop_seconds=stop_timeout,
            metrics=_metrics_place(metrics_port),
            arguments=arguments,
            log_file=None if log_file is None else Path(log_file),
        )
        return Run(settings, view.say).execute(view.show)
    except PipelineError as error:
        raise CliError(error.message, error.hint) from None


def moldau_options(target: Target) -> dict[str, str]:
    """A cluster, and how to reach it, as options of format("moldau")."""
    settings = {f"kafka.{name}": value for name, value in target.settings.items()}
    return {**settings, "kafka.bootstrap.servers": target.bootstrap}


def _metrics_place(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise click.UsageError(f"--metrics-port takes PORT or HOST:PORT, not '{text}'.")
    return host or DEFAULT_METRICS_HOST, int(port)
