"""`moldau txn`: list, describe and abort transactions."""

from __future__ import annotations

import time
from typing import Any

import click

from moldau.cli.commands._shared import Target, cluster_options, output_option
from moldau.cli.errors import CliError
from moldau.cli.output import Column, show_facts, show_json, show_rows

LIST_COLUMNS = (
    Column("transactionalId", "TRANSACTIONAL ID", style="bold"),
    Column("state", "STATE"),
    Column("producerId", "PRODUCER", number=True),
    Column("coordinator", "COORDINATOR", number=True),
)


@click.group()
def txn() -> None:
    """List, describe and abort transactions."""


@txn.command("list")
@click.option("-s", "--state", "states", multiple=True, metavar="STATE", help="Only in this state. Repeatable.")
@click.option("-p", "--pattern", metavar="REGEX", help="Only ids that match as a whole.")
@click.option("-l", "--longer-than", type=click.FloatRange(min=0), metavar="SECONDS", help="Only open for longer.")
@output_option
@cluster_options
def list_(states: tuple[str, ...], pattern: str | None, longer_than: float | None, output: str, target: Target) -> None:
    """List transactional ids and the state of their transactions."""
    from moldau.client.admin.transactions import list_transactions

    duration = None if longer_than is None else int(longer_than * 1000)
    with target.admin() as admin:
        found = list_transactions(admin, states=states, pattern=pattern, duration_ms=duration)
    rows = [
        {
            "transactionalId": each.transactional_id,
            "state": each.state,
            "producerId": each.producer_id,
            "coordinator": each.coordinator,
        }
        for each in sorted(found, key=lambda each: each.transactional_id)
    ]
    show_rows(rows, LIST_COLUMNS, output, empty="No transactional ids.")


@txn.command()
@click.argument("transactional_id")
@output_option
@cluster_options
def describe(transactional_id: str, output: str, target: Target) -> None:
    """Show one transactional id: its producer, and its transaction with the partitions it has written to."""
    from moldau.client.admin.transactions import describe_transaction
    from moldau.protocol.errors import ApiError, ErrorCode

    with target.admin() as admin:
        try:
            found = describe_transaction(admin, transactional_id)
        except ApiError as error:
            if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise _no_such_id(transactional_id) from None
            raise
    open_for = None if found.started_ms is None or found.state != "Ongoing" else time.time() * 1000 - found.started_ms
    facts: dict[str, Any] = {
        "transactionalId": found.transactional_id,
        "state": found.state,
        "producerId": found.producer_id,
        "producerEpoch": found.producer_epoch,
        "coordinator": found.coordinator,
        "timeoutMs": found.timeout_ms,
        "openForMs": None if open_for is None else int(open_for),
        "partitions": [f"{topic}-{index}" for topic, index in found.partitions],
    }
    if output == "json":
        show_json(facts)
    else:
        show_facts({**facts, "partitions": ", ".join(facts["partitions"])}, output)


@txn.command()
@click.argument("transactional_id")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@cluster_options
def abort(transactional_id: str, yes: bool, target: Target) -> None:
    """Abort the open transaction of an id and fence its producer, which cannot write any more."""
    from moldau.client.admin.transactions import describe_transaction, fence_producer
    from moldau.protocol.errors import ApiError, ErrorCode

    with target.admin() as admin:
        try:
            found = describe_transaction(admin, transactional_id)
        except ApiError as error:
            if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise _no_such_id(transactional_id) from None
            raise
        if not yes:
            situation = (
                f"{transactional_id} is in state {found.state}, with {len(found.partitions)} partitions written to."
            )
            click.confirm(f"{situation} Fence its producer and abort?", abort=True)
        fence_producer(admin, transactional_id)
    print(
        f"{transactional_id}: {'aborted' if found.state == 'Ongoing' else 'nothing was open'}; its producer is fenced."
    )


def _no_such_id(transactional_id: str) -> CliError:
    return CliError(
        f"There is no transactional id '{transactional_id}'",
        hint="List them with 'moldau txn list'. Ids that are not used for long are forgotten.",
    )
