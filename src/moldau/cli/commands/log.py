"""`moldau log`: look into log files and check them, without a broker."""

from __future__ import annotations

import os

import click

from moldau.cli.commands._shared import output_option
from moldau.cli.errors import CliError
from moldau.cli.output import Column, bytes_text, show_json, show_rows

DECODERS = {
    "offsets": "offsets-decoder",
    "transactions": "transaction-log-decoder",
    "share-state": "share-group-state-decoder",
    "metadata": "cluster-metadata-decoder",
}
DECODER_BY_TOPIC = {
    "__consumer_offsets": "offsets",
    "__transaction_state": "transactions",
    "__share_group_state": "share-state",
    "__cluster_metadata": "metadata",
}
COLUMNS = (
    Column("name", "LOG", style="bold"),
    Column("segments", "SEGMENTS", number=True),
    Column("batches", "BATCHES", number=True),
    Column("records", "RECORDS", number=True),
    Column("offsets", "OFFSETS"),
    Column("sizeText", "SIZE", number=True),
    Column("state", "STATE"),
)


@click.group()
def log() -> None:
    """Look into log files and check them, without a broker."""


@log.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("-r", "--records", is_flag=True, help="Show records with keys and values, not only batches.")
@click.option("--decode", type=click.Choice(list(DECODERS)), help="Read records as those of an internal topic.")
def dump(files: tuple[str, ...], records: bool, decode: str | None) -> int:
    """Print segments, indexes and snapshots. A directory stands for its segments.

    Records of internal topics and of the metadata log are decoded by themselves.
    """
    from moldau.cli.kafka.dump_log import main

    for path in files:
        chosen = decode or _decoder_for(path)
        flags = [f"--{DECODERS[chosen]}"] if chosen and (records or decode) else []
        if records and not flags:
            flags = ["--print-data-log"]
        code = main(["--files", ",".join(_expand(path)), *flags])
        if code:
            return code
    return 0


def _expand(path: str) -> list[str]:
    if not os.path.isdir(path):
        return [path]
    names = sorted(name for name in os.listdir(path) if name.endswith((".log", ".checkpoint")))
    if not names:
        raise CliError(f"There are no segments in {path}")
    return [os.path.join(path, name) for name in names]


def _decoder_for(path: str) -> str | None:
    directory = os.path.abspath(path if os.path.isdir(path) else os.path.dirname(path))
    if os.path.basename(path) == "bootstrap.checkpoint":
        return "metadata"
    return DECODER_BY_TOPIC.get(os.path.basename(directory).rpartition("-")[0])


@log.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--shallow", is_flag=True, help="Check batches but do not open them.")
@output_option
def verify(paths: tuple[str, ...], shallow: bool, output: str) -> int:
    """Check log directories, partition directories or segments; ends with 1 when something is wrong."""
    from moldau.cli.log_check import check_directory, check_file, partition_directories

    reports = []
    for path in paths:
        if os.path.isdir(path):
            reports += [check_directory(each, deep=not shallow) for each in partition_directories(path)]
        else:
            reports.append(check_file(path, deep=not shallow))
    rows = [
        {
            "name": os.path.basename(os.path.normpath(each.path)),
            "path": each.path,
            "segments": each.segments,
            "batches": each.batches,
            "records": each.records,
            "firstOffset": each.first_offset,
            "lastOffset": each.last_offset,
            "offsets": "-" if each.first_offset is None else f"{each.first_offset}..{each.last_offset}",
            "size": each.size,
            "sizeText": bytes_text(each.size),
            "tornBytes": each.torn_bytes,
            "problems": each.problems,
            "state": f"{len(each.problems)} problems" if each.problems else "torn tail" if each.torn_bytes else "ok",
        }
        for each in reports
    ]
    if output == "json":
        show_json(rows)
    else:
        show_rows(rows, COLUMNS, output, empty="There are no logs here.")
        for each in reports:
            for problem in each.problems:
                click.secho(f"{each.path}/{problem}", fg="red", err=True)
    return 1 if any(each.problems for each in reports) else 0
