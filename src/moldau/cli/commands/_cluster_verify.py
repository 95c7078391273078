"""`moldau cluster verify`: read every replica from its own broker and compare it with the leader's, byte for byte."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.commands._shared import Target, cluster_options, output_option
from moldau.cli.errors import CliError
from moldau.cli.output import Column, bytes_text, show_json, show_rows

if TYPE_CHECKING:
    from moldau.cli.replica_check import Verdict
    from moldau.client.admin import Admin

EXIT_DIFFERENT = 1


@click.command()
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@output_option
@cluster_options
def verify(topics: tuple[str, ...], output: str, target: Target) -> int:
    """Compare the replicas of TOPICS (of all) byte for byte; ends with 1 when they differ."""
    with target.admin() as admin:
        verdicts = check(admin, topics, progress=output == "table")
    rows = [_row(each) for each in verdicts]
    bad = [row for row in rows if row["state"] != "same"]
    if output == "json":
        show_json({"same": not bad, "partitions": rows})
    else:
        columns = (
            Column("partition", "PARTITION", style="bold"),
            Column("replicas", "REPLICAS"),
            Column("end", "COMPARED TO", number=True),
            Column("size", "SIZE", number=True),
            Column("state", "STATE"),
            Column("detail", "DETAIL"),
        )
        show_rows(rows if output == "plain" else bad, columns, output, empty="")
        if output == "table":
            total = bytes_text(sum(each.bytes for each in verdicts))
            print(f"{len(rows)} partitions ({total}) compared: {len(rows) - len(bad)} same, {len(bad)} not.")
    return EXIT_DIFFERENT if bad else 0


def check(admin: Admin, topics: tuple[str, ...], *, progress: bool = False) -> list[Verdict]:
    """Compare all replicas that can be reached."""
    from moldau.cli.replica_check import Difference, Verdict, compare_replicas
    from moldau.client.admin.cluster import describe_cluster
    from moldau.client.admin.configs import ResourceType, describe_configs
    from moldau.client.admin.topics import describe_topics, list_topics
    from moldau.client.offsets import EARLIEST, find_offsets
    from moldau.protocol.errors import ApiError

    names = [each.name for each in list_topics(admin)]
    for topic in topics:
        if topic not in names:
            raise CliError(f"There is no topic '{topic}'")
    wanted = list(topics) or names
    if not wanted:
        return []
    up = {each.node_id for each in describe_cluster(admin).brokers if not each.fenced}
    policies = describe_configs(admin, ResourceType.TOPIC, wanted, keys=["cleanup.policy"])
    found: list[Verdict] = []
    for topic_found in describe_topics(admin, wanted):
        compacted = any("compact" in (entry.value or "") for entry in policies.get(topic_found.name, ()))
        earliest = find_offsets(admin, {(topic_found.name, each.index): EARLIEST for each in topic_found.partitions})
        for each in topic_found.partitions:
            start = earliest[topic_found.name, each.index]
            if each.leader not in up or isinstance(start, ApiError):
                problem = Difference(each.leader, 0, "no leader to compare with")
                found.append(Verdict(topic_found.name, each.index, each.leader, differences=[problem]))
                continue
            followers = [broker for broker in each.replicas if broker in up and broker != each.leader]
            verdict = compare_replicas(
                admin, topic_found.name, each.index, each.leader, followers, start=start.offset, compacted=compacted
            )
            verdict.differences += [
                Difference(broker, 0, "its broker is not there") for broker in each.replicas if broker not in up
            ]
            found.append(verdict)
        if progress and sys.stderr.isatty():
            print(f"{topic_found.name}: {len(topic_found.partitions)} partitions", file=sys.stderr)
    return found


def _row(verdict: Verdict) -> dict[str, Any]:
    behind = {broker: lag for broker, lag in verdict.lag.items() if lag}
    details = [f"broker {each.broker} at {each.offset}: {each.what}" for each in verdict.differences]
    details += [f"broker {broker} is {lag} records behind" for broker, lag in behind.items()]
    return {
        "partition": f"{verdict.topic}-{verdict.partition}",
        "replicas": verdict.compared,
        "end": verdict.records_end,
        "bytes": verdict.bytes,
        "size": bytes_text(verdict.bytes),
        "state": "different" if verdict.differences else "behind" if behind else "same",
        "detail": "; ".join(details),
    }
