"""`moldau sql`: one SELECT over topics, once or for as long as they grow."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import click

from moldau.cli.commands._shared import Target, cluster_options, parse_settings
from moldau.cli.commands.run import moldau_options
from moldau.cli.errors import EXIT_INTERRUPTED, CliError
from moldau.cli.output import Column, show_rows

TABLE_ROWS_MAX = 1000
WAIT_SECONDS = 0.2


@click.command()
@click.argument("query", metavar="QUERY")
@click.option("-F", "--follow", is_flag=True, help="Go on as records arrive, until Ctrl-C.")
@click.option("--from-beginning", is_flag=True, help="With --follow: begin with the oldest records, not with new ones.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["string", "json", "avro", "protobuf", "raw"]),
    default="string",
    show_default=True,
    help="What values are: text; JSON, Avro or Protobuf, whose fields are then value.field; or bytes as they are.",
)
@click.option(
    "--with",
    "values",
    multiple=True,
    metavar="NAME=VALUE",
    help="More about values, as in SQL programs: schema=FILE, message=NAME, registry=URL, subject=NAME. Repeatable.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="How to print; json is a line for each row.",
)
@click.option("--read-committed", is_flag=True, help="Leave out records of aborted and open transactions.")
@click.option("--master", default="local[*]", show_default=True, help="Where Spark runs.")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A Spark setting. Repeatable.")
@cluster_options
def sql(
    query: str,
    follow: bool,
    from_beginning: bool,
    form: str,
    values: tuple[str, ...],
    output: str,
    read_committed: bool,
    master: str,
    conf: tuple[str, ...],
    target: Target,
) -> int:
    """Run Spark SQL over topics.

    Topics are tables by their names (in `backquotes` if there are dots or dashes in them) with the columns key,
    value, partition, offset, timestamp and headers.

    \b
      moldau sql 'SELECT key, count(*) FROM orders GROUP BY key'
      moldau sql --format json 'SELECT value.user, value.page FROM `web.clicks` LIMIT 10'
      moldau sql --follow "SELECT value FROM logs WHERE value LIKE '%ERROR%'"
    """
    from moldau.pipeline.errors import PipelineError
    from moldau.pipeline.spark_session import check_installed

    try:
        # First of all: everything else of the room needs what it looks for.
        check_installed()
    except PipelineError as error:
        raise CliError(error.message, error.hint) from None
    from moldau.pipeline.brokers import topic_names
    from moldau.pipeline.spark_session import SparkSettings, start_spark
    from moldau.pipeline.sql_query import QuerySettings

    options = moldau_options(target)
    if read_committed:
        options["kafka.isolation.level"] = "read_committed"
    directory = Path(tempfile.mkdtemp(prefix="moldau-sql-"))
    try:
        # Before Spark, which takes seconds: is there anybody to ask?
        topic_names(options)
        session = SparkSettings("moldau sql", directory, directory / "spark.log", master, parse_settings(conf))
        _end_at_ctrl_c(directory)
        with _waiting_for("Spark"):
            spark = start_spark(session)
        # PySpark has a handler of its own, which waits for a busy Spark.
        _end_at_ctrl_c(directory)
        try:
            settings = QuerySettings(options, form, follow, from_beginning, parse_settings(values))
            return _follow(spark, query, settings, output) if follow else _once(spark, query, settings, output)
        finally:
            spark.stop()
    except PipelineError as error:
        raise CliError(error.message, error.hint) from None
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _end_at_ctrl_c(directory: Path) -> None:
    """A question has nothing to finish. Spark's process ends by itself when ours is gone."""

    def end(*_: object) -> None:
        print(file=sys.stderr)
        shutil.rmtree(directory, ignore_errors=True)
        os._exit(EXIT_INTERRUPTED)

    signal.signal(signal.SIGINT, end)


@contextlib.contextmanager
def _waiting_for(what: str) -> Iterator[None]:
    """Say what takes so long while it does, to people only."""
    if not sys.stderr.isatty():
        yield
        return
    sys.stderr.write(f"Starting {what} ...")
    sys.stderr.flush()
    try:
        yield
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _once(spark: Any, query: str, settings: Any, output: str) -> int:
    from pyspark.errors import PySparkException

    from moldau.pipeline.failures import explain
    from moldau.pipeline.sql_query import plan_query

    frame = plan_query(spark, query, settings)
    try:
        if output != "table":
            _print_rows(frame.columns, frame.toLocalIterator(prefetchPartitions=True), output, header=True)
            return 0
        rows = frame.limit(TABLE_ROWS_MAX + 1).collect()
    except PySparkException as error:
        raise CliError(explain(error).message) from None
    _print_rows(frame.columns, rows[:TABLE_ROWS_MAX], output, header=True)
    if len(rows) > TABLE_ROWS_MAX:
        print(f"The first {TABLE_ROWS_MAX} rows. -o json or csv prints all; LIMIT fewer.", file=sys.stderr)
    return 0


def _follow(spark: Any, query: str, settings: Any, output: str) -> int:
    from moldau.pipeline.failures import explain
    from moldau.pipeline.sql_query import follow, plan_query

    frame = plan_query(spark, query, settings)
    columns = frame.columns
    first = [True]

    def show(rows: list[Any]) -> None:
        _print_rows(columns, rows, output, header=output == "table" or first[0])
        first[0] = False

    stopped = threading.Event()
    before = {each: signal.signal(each, lambda *_: stopped.set()) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        running = follow(frame, show)
        while not stopped.wait(WAIT_SECONDS):
            if not running.isActive:
                raise CliError(explain(running.exception() or "the query ended by itself").message)
        running.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0


def _print_rows(columns: Sequence[str], rows: Iterable[Any], output: str, *, header: bool) -> None:
    if output == "json":
        for row in rows:
            record = {name: jsonable(value) for name, value in zip(columns, row, strict=True)}
            print(json.dumps(record, ensure_ascii=False))
    elif output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        if header:
            writer.writerow(columns)
        writer.writerows([_cell(value) for value in row] for row in rows)
    else:
        titles = [Column(str(index), name) for index, name in enumerate(columns)]
        show_rows([{str(index): _cell(value) for index, value in enumerate(row)} for row in rows], titles, "table")
    sys.stdout.flush()


def jsonable(value: Any) -> Any:
    """A value of Spark's as one that JSON knows."""
    if hasattr(value, "asDict"):
        return {name: jsonable(each) for name, each in value.asDict().items()}
    if isinstance(value, dict):
        return {str(jsonable(name)): jsonable(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(each) for each in value]
    if isinstance(value, (bytes, bytearray)):
        return f"0x{value.hex().upper()}"
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def _cell(value: Any) -> str:
    """A value in a table or in CSV: structures as JSON, nothing for null."""
    plain = jsonable(value)
    if plain is None:
        return ""
    if isinstance(plain, (dict, list)):
        return json.dumps(plain, ensure_ascii=False)
    return str(plain).lower() if isinstance(plain, bool) else str(plain)
