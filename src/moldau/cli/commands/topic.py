"""`moldau topic`: create, list, describe, alter and delete topics."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.commands._shared import (
    Target,
    cluster_options,
    no_such_topic,
    output_option,
    parse_settings,
    topic_argument,
)
from moldau.cli.output import Column, bytes_text, show_facts, show_json, show_rows

if TYPE_CHECKING:
    from moldau.client.admin import Admin
    from moldau.client.admin.configs import ConfigEntry
    from moldau.client.admin.topics import TopicDescription

LIST_COLUMNS = (
    Column("name", "TOPIC", style="bold"),
    Column("partitions", "PARTITIONS", number=True),
    Column("replicationFactor", "REPLICAS", number=True),
    Column("internal", "INTERNAL"),
)
PARTITION_COLUMNS = (
    Column("partition", "PARTITION", number=True, style="bold"),
    Column("leader", "LEADER", number=True),
    Column("replicas", "REPLICAS"),
    Column("isr", "IN SYNC"),
    Column("earliest", "EARLIEST", number=True),
    Column("latest", "LATEST", number=True),
    Column("sizeText", "SIZE", number=True),
)


@click.group()
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


@topic.command()
@topic_argument(many=True)
@click.option("-p", "--partitions", type=click.IntRange(min=1), help="Partitions.  [default: the cluster's]")
@click.option("-r", "--replication-factor", type=click.IntRange(1, 32767), help="Replicas.  [default: the cluster's]")
@click.option("-c", "--config", "configs", multiple=True, metavar="NAME=VALUE", help="A setting. Repeatable.")
@click.option("--if-not-exists", is_flag=True, help="Succeed when the topic is there already.")
@click.option("--dry-run", is_flag=True, help="Only check whether it could be created.")
@cluster_options
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
    target: Target,
) -> None:
    """Create topics."""
    from moldau.client.admin.topics import create_topic
    from moldau.protocol.errors import ApiError, ErrorCode

    settings = parse_settings(configs)
    with target.admin() as admin:
        for name in names:
            try:
                made = create_topic(
                    admin,
                    name,
                    partitions=partitions,
                    replication_factor=replication_factor,
                    configs=settings,
                    validate_only=dry_run,
                )
            except ApiError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not if_not_exists:
                    raise
                print(f"Topic {name} exists already.")
            else:
                done = "Could create" if dry_run else "Created"
                print(f"{done} topic {name} with {_counts(made.partitions, made.replication_factor)}.")


def _counts(partitions: int, replicas: int) -> str:
    if partitions < 0 or replicas < 0:
        return "the cluster's defaults"
    return f"{partitions} partition{'s' * (partitions != 1)} and {replicas} replica{'s' * (replicas != 1)} each"


@topic.command("list")
@click.argument("pattern", required=False)
@click.option("-a", "--all", "everything", is_flag=True, help="Also internal topics.")
@output_option
@cluster_options
def list_(pattern: str | None, everything: bool, output: str, target: Target) -> None:
    """List topics, those that contain PATTERN if one is given."""
    from moldau.client.admin.topics import list_topics
    from moldau.protocol.uuids import uuid_to_string

    with target.admin() as admin:
        found = list_topics(admin)
    rows = [
        {
            "name": each.name,
            "partitions": each.partitions,
            "replicationFactor": each.replication_factor,
            "internal": each.internal,
            "id": uuid_to_string(each.topic_id),
        }
        for each in found
        if (everything or not each.internal) and (pattern is None or pattern in each.name)
    ]
    columns = LIST_COLUMNS if everything else LIST_COLUMNS[:-1]
    show_rows(rows, columns, output, empty="No topics. Create one with 'moldau topic create NAME'.")


@topic.command()
@topic_argument(many=True)
@output_option
@cluster_options
def describe(names: tuple[str, ...], output: str, target: Target) -> None:
    """Show topics with their settings, partitions, offsets and sizes."""
    from moldau.client.admin.configs import ResourceType, describe_configs
    from moldau.client.admin.topics import describe_topics
    from moldau.protocol.errors import ApiError, ErrorCode

    described = []
    with target.admin() as admin:
        for name in names:
            try:
                found = describe_topics(admin, [name])[0]
            except ApiError as error:
                if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise no_such_topic(admin, name) from None
                raise
            configs = describe_configs(admin, ResourceType.TOPIC, [name])[name]
            described.append(_description(admin, found, configs))
    if output == "json":
        show_json(described)
        return
    for number, each in enumerate(described):
        if number and output == "table":
            print()
        _show_description(each, output)


def _description(admin: Admin, found: TopicDescription, configs: list[ConfigEntry]) -> dict[str, Any]:
    from moldau.protocol.uuids import uuid_to_string

    offsets = _offsets(admin, found)
    sizes = _sizes(admin, found)
    return {
        "name": found.name,
        "id": uuid_to_string(found.topic_id),
        "internal": found.internal,
        "replicationFactor": max((len(each.replicas) for each in found.partitions), default=0),
        "configs": {entry.name: entry.value for entry in configs if not entry.is_default},
        "partitions": [
            {
                "partition": each.index,
                "leader": each.leader if each.leader >= 0 else None,
                "leaderEpoch": each.leader_epoch,
                "replicas": each.replicas,
                "isr": each.isr,
                "offline": each.offline,
                "earliest": offsets.get((each.index, "earliest")),
                "latest": offsets.get((each.index, "latest")),
                "size": sizes.get(each.index),
            }
            for each in found.partitions
        ],
    }


def _offsets(admin: Admin, found: TopicDescription) -> dict[tuple[int, str], int]:
    from moldau.client.offsets import EARLIEST, LATEST, find_offsets
    from moldau.protocol.errors import ApiError

    led = [(found.name, each.index) for each in found.partitions if each.leader >= 0]
    offsets = {}
    for word, when in (("earliest", EARLIEST), ("latest", LATEST)):
        for (_, index), at in find_offsets(admin, dict.fromkeys(led, when)).items() if led else ():
            if not isinstance(at, ApiError):
                offsets[index, word] = at.offset
    return offsets


def _sizes(admin: Admin, found: TopicDescription) -> dict[int, int]:
    """Bytes of each partition on its leader's disk."""
    from moldau.client.admin.cluster import describe_log_dirs
    from moldau.client.errors import MoldauError
    from moldau.protocol.errors import ApiError

    leaders = {each.index: each.leader for each in found.partitions if each.leader >= 0}
    try:
        dirs = describe_log_dirs(admin, sorted(set(leaders.values())))
    except (ApiError, MoldauError):
        # Sizes are an extra: a cluster that does not tell them still describes its topics.
        return {}
    return {
        replica.partition: replica.size
        for broker, described in dirs.items()
        for directory in described
        for replica in directory.replicas
        if replica.topic == found.name and leaders.get(replica.partition) == broker and not replica.is_future
    }


def _show_description(described: dict[str, Any], output: str) -> None:
    partitions = [
        {**each, "sizeText": None if each["size"] is None else bytes_text(each["size"])}
        for each in described["partitions"]
    ]
    if output == "table":
        sizes = [each["size"] for each in partitions if each["size"] is not None]
        counts = [each["latest"] - each["earliest"] for each in partitions if each["latest"] is not None]
        facts = {
            "Topic": described["name"],
            "Id": described["id"],
            "Partitions": len(partitions),
            "Replicas": described["replicationFactor"],
            "Offsets": sum(counts),
            "Size": bytes_text(sum(sizes)) if sizes else None,
            "Settings": "\n            ".join(f"{name}={value}" for name, value in described["configs"].items()),
        }
        show_facts(facts, output)
        print()
    show_rows(partitions, PARTITION_COLUMNS, output)


@topic.command()
@topic_argument()
@click.option("-p", "--partitions", type=click.IntRange(min=1), help="Grow to this many partitions.")
@click.option("-c", "--config", "configs", multiple=True, metavar="NAME=VALUE", help="Set a setting. Repeatable.")
@click.option("-u", "--unset", multiple=True, metavar="NAME", help="Return a setting to its default. Repeatable.")
@cluster_options
def alter(name: str, partitions: int | None, configs: tuple[str, ...], unset: tuple[str, ...], target: Target) -> None:
    """Add partitions to a topic or change its settings."""
    from moldau.client.admin.configs import ResourceType, alter_configs
    from moldau.client.admin.topics import create_partitions
    from moldau.protocol.errors import ApiError, ErrorCode

    settings = parse_settings(configs)
    if partitions is None and not settings and not unset:
        raise click.UsageError("Say what to change: --partitions, --config or --unset.")
    with target.admin() as admin:
        try:
            if settings or unset:
                alter_configs(admin, ResourceType.TOPIC, name, set_to=settings, delete=unset)
            if partitions is not None:
                for error in create_partitions(admin, {name: partitions}).values():
                    raise error
        except ApiError as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise no_such_topic(admin, name) from None
            raise
    print(f"Altered topic {name}.")


@topic.command()
@topic_argument(many=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--if-exists", is_flag=True, help="Succeed when a topic is not there.")
@cluster_options
def delete(names: tuple[str, ...], yes: bool, if_exists: bool, target: Target) -> None:
    """Delete topics and all their records."""
    from moldau.client.admin.topics import delete_topics
    from moldau.protocol.errors import ErrorCode

    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {', '.join(names)} with all records?", abort=True)
    with target.admin() as admin:
        failures = delete_topics(admin, names)
        for name, error in failures.items():
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                if if_exists:
                    continue
                raise no_such_topic(admin, name)
            raise error
    for name in names:
        if name not in failures:
            print(f"Deleted topic {name}.")
