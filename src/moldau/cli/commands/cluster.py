"""`moldau cluster`: brokers, features, log directories and the quorum; health and moves are in files of their own."""

from __future__ import annotations

import click

from moldau.cli.commands._cluster_moves import drain, rebalance
from moldau.cli.commands._cluster_status import status
from moldau.cli.commands._cluster_verify import verify
from moldau.cli.commands._shared import Target, cluster_options, output_option
from moldau.cli.output import Column, bytes_text, show_facts, show_json, show_rows, time_text


@click.group()
def cluster() -> None:
    """Look at the cluster and move things in it: health, brokers, quorum, disks, rebalancing, draining."""


for each in (status, rebalance, drain, verify):
    cluster.add_command(each)


@cluster.command()
@output_option
@cluster_options
def info(output: str, target: Target) -> None:
    """Show the cluster's id and its brokers."""
    from moldau.client.admin.cluster import describe_cluster
    from moldau.client.admin.topics import list_topics

    with target.admin() as admin:
        found = describe_cluster(admin, fenced=True)
        topics = [topic for topic in list_topics(admin) if not topic.internal]
    brokers = [
        {
            "id": each.node_id,
            "host": each.host,
            "port": each.port,
            "rack": each.rack,
            "state": "fenced" if each.fenced else "up",
        }
        for each in found.brokers
    ]
    facts = {
        "clusterId": found.cluster_id,
        "controller": found.controller_id,
        "topics": len(topics),
        "partitions": sum(topic.partitions for topic in topics),
    }
    if output == "json":
        show_json({**facts, "brokers": brokers})
        return
    if output == "table":
        titles = {"Cluster": "clusterId", "Controller": "controller", "Topics": "topics", "Partitions": "partitions"}
        show_facts({title: facts[name] for title, name in titles.items()}, output)
        print()
    columns = (
        Column("id", "BROKER", number=True, style="bold"),
        Column("host", "HOST"),
        Column("port", "PORT", number=True),
        Column("rack", "RACK"),
        Column("state", "STATE"),
    )
    show_rows(brokers, columns, output)


@cluster.command()
@output_option
@cluster_options
def features(output: str, target: Target) -> None:
    """Show the features the cluster supports and the levels it runs at."""
    from moldau.client.admin.cluster import describe_features

    with target.admin() as admin:
        found = describe_features(admin)
    rows = [
        {
            "name": each.name,
            "finalized": each.finalized,
            "supported": f"{each.supported_min}-{each.supported_max}",
            "epoch": found.epoch,
        }
        for each in found.features
    ]
    columns = (
        Column("name", "FEATURE", style="bold"),
        Column("finalized", "LEVEL", number=True),
        Column("supported", "SUPPORTED"),
    )
    show_rows(rows, columns, output)


@cluster.command("log-dirs")
@click.option("--broker", type=int, multiple=True, help="Only this broker. Repeatable.")
@output_option
@cluster_options
def log_dirs(broker: tuple[int, ...], output: str, target: Target) -> None:
    """Show how full the brokers' log directories are."""
    from moldau.client.admin.cluster import describe_cluster, describe_log_dirs

    with target.admin() as admin:
        wanted = broker or tuple(each.node_id for each in describe_cluster(admin).brokers)
        described = describe_log_dirs(admin, wanted)
    rows = []
    for node, dirs in described.items():
        for each in dirs:
            size = sum(replica.size for replica in each.replicas)
            rows.append(
                {
                    "broker": node,
                    "path": each.path,
                    "state": "ok" if each.error is None else each.error.code.name.lower(),
                    "replicas": len(each.replicas),
                    "size": size,
                    "usable": each.usable_bytes,
                    "total": each.total_bytes,
                    "sizeText": bytes_text(size),
                    "usableText": bytes_text(each.usable_bytes),
                }
            )
    columns = (
        Column("broker", "BROKER", number=True, style="bold"),
        Column("path", "DIRECTORY"),
        Column("state", "STATE"),
        Column("replicas", "REPLICAS", number=True),
        Column("sizeText", "SIZE", number=True),
        Column("usableText", "FREE", number=True),
    )
    show_rows(rows, columns, output)


@cluster.command()
@output_option
@cluster_options
def quorum(output: str, target: Target) -> None:
    """Show the controllers' quorum and how far each replica of the metadata log is."""
    from moldau.client.admin.cluster import describe_quorum
    from moldau.protocol.uuids import uuid_to_string

    with target.admin() as admin:
        found = describe_quorum(admin)
    end = max((each.log_end_offset for each in found.voters), default=0)
    rows = [
        {
            "id": each.node_id,
            "role": "leader" if each.node_id == found.leader_id else role,
            "logEndOffset": each.log_end_offset,
            "lag": max(0, end - each.log_end_offset),
            "lastCaughtUp": each.last_caught_up_ms,
            "lastCaughtUpText": time_text(each.last_caught_up_ms),
            "directoryId": uuid_to_string(each.directory_id),
        }
        for role, replicas in (("follower", found.voters), ("observer", found.observers))
        for each in replicas
    ]
    facts = {"leader": found.leader_id, "epoch": found.leader_epoch, "highWatermark": found.high_watermark}
    if output == "json":
        show_json({**facts, "replicas": rows})
        return
    if output == "table":
        show_facts({"Leader": found.leader_id, "Epoch": found.leader_epoch, "Committed": found.high_watermark}, output)
        print()
    columns = (
        Column("id", "NODE", number=True, style="bold"),
        Column("role", "ROLE"),
        Column("logEndOffset", "LOG END", number=True),
        Column("lag", "LAG", number=True),
        Column("lastCaughtUpText", "CAUGHT UP"),
    )
    show_rows(rows, columns, output)
