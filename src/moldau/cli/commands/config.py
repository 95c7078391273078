"""`moldau config`: settings of topics, brokers, groups and client metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.commands._shared import (
    Target,
    cluster_options,
    no_such_topic,
    output_option,
    parse_settings,
    suggestion,
)
from moldau.cli.errors import CliError
from moldau.cli.output import Column, show_rows

if TYPE_CHECKING:
    from moldau.client.admin import Admin
    from moldau.client.admin.configs import ConfigEntry, ResourceType

KINDS = ("topic", "broker", "group", "client-metrics")
DEFAULT_BROKER = "default"
COLUMNS = (
    Column("name", "SETTING", style="bold"),
    Column("value", "VALUE"),
    Column("source", "FROM"),
)

kind_argument = click.argument("kind", type=click.Choice(KINDS))
name_argument = click.argument("name")


@click.group(epilog="A broker is named by its id, or 'default' for what holds for all brokers.")
def config() -> None:
    """Show and change settings of topics, brokers, groups and client metrics."""


@config.command("list")
@click.argument("kind", type=click.Choice(KINDS), required=False)
@output_option
@cluster_options
def list_(kind: str | None, output: str, target: Target) -> None:
    """List everything that has settings of its own."""
    rows: list[dict[str, Any]] = []
    with target.admin() as admin:
        for each in [kind] if kind else KINDS:
            for name in _names(admin, each):
                rows += [
                    {"kind": each, "resource": name or DEFAULT_BROKER, "name": entry.name, "value": _value(entry)}
                    for entry in _entries(admin, each, name)
                    if _is_own(each, name, entry)
                ]
    columns = (Column("kind", "KIND"), Column("resource", "NAME", style="bold"), *COLUMNS[:2])
    show_rows(rows, columns, output, empty="Nothing has settings of its own.")


@config.command()
@kind_argument
@name_argument
@click.argument("settings", metavar="[SETTING]...", nargs=-1)
@click.option("-a", "--all", "everything", is_flag=True, help="Also settings that have their defaults.")
@click.option("-d", "--docs", is_flag=True, help="Also type and documentation.")
@output_option
@cluster_options
def describe(
    kind: str, name: str, settings: tuple[str, ...], everything: bool, docs: bool, output: str, target: Target
) -> None:
    """Show the settings of one topic, broker, group or client-metrics subscription."""
    with target.admin() as admin:
        resource = _resource_name(kind, name)
        _check_exists(admin, kind, resource)
        entries = _entries(admin, kind, resource, docs=docs)
    unknown = [each for each in settings if each not in {entry.name for entry in entries}]
    if unknown:
        known = [entry.name for entry in entries]
        raise CliError(
            f"There is no setting '{unknown[0]}' for a {kind}",
            hint=suggestion(unknown[0], known, f"moldau config describe {kind} {name} --all"),
        )
    rows = [
        {
            "name": entry.name,
            "value": _value(entry),
            "source": entry.source.name.lower().replace("_", " ").removesuffix(" config"),
            "type": entry.type_name,
            "readOnly": entry.read_only,
            "sensitive": entry.sensitive,
            "documentation": entry.documentation,
        }
        for entry in sorted(entries, key=lambda each: each.name)
        if (entry.name in settings if settings else everything or not entry.is_default)
    ]
    columns = (*COLUMNS, Column("type", "TYPE"), Column("documentation", "MEANING")) if docs else COLUMNS
    show_rows(rows, columns, output, empty="All settings have their defaults; --all shows them.")


@config.command("set")
@kind_argument
@name_argument
@click.argument("settings", metavar="NAME=VALUE...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Only check whether it could be changed.")
@cluster_options
def set_(kind: str, name: str, settings: tuple[str, ...], dry_run: bool, target: Target) -> None:
    """Change settings."""
    _alter(target, kind, name, parse_settings(settings), (), dry_run=dry_run)
    print(f"{'Could set' if dry_run else 'Set'} {', '.join(settings)} for {kind} {name}.")


@config.command()
@kind_argument
@name_argument
@click.argument("settings", metavar="NAME...", nargs=-1, required=True)
@cluster_options
def unset(kind: str, name: str, settings: tuple[str, ...], target: Target) -> None:
    """Return settings to their defaults."""
    _alter(target, kind, name, {}, settings, dry_run=False)
    print(f"Unset {', '.join(settings)} for {kind} {name}.")


def _alter(
    target: Target, kind: str, name: str, set_to: dict[str, str], delete: Sequence[str], *, dry_run: bool
) -> None:
    from moldau.client.admin.configs import alter_configs
    from moldau.protocol.errors import ApiError, ErrorCode

    resource = _resource_name(kind, name)
    with target.admin() as admin:
        try:
            alter_configs(admin, _type(kind), resource, set_to=set_to, delete=delete, validate_only=dry_run)
        except ApiError as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and kind == "topic":
                raise no_such_topic(admin, name) from None
            if error.code == ErrorCode.INVALID_CONFIG:
                raise CliError(
                    error.message, hint=_nearest_setting(admin, kind, resource, [*set_to, *delete])
                ) from None
            raise


def _nearest_setting(admin: Admin, kind: str, resource: str, wanted: Sequence[str]) -> str | None:
    known = [entry.name for entry in _entries(admin, kind, resource)]
    unknown = [name for name in wanted if name not in known]
    return suggestion(unknown[0], known, f"moldau config describe {kind} NAME --all") if unknown and known else None


def _type(kind: str) -> ResourceType:
    from moldau.client.admin.configs import ResourceType

    return ResourceType[kind.upper().replace("-", "_")]


def _resource_name(kind: str, name: str) -> str:
    if kind != "broker":
        return name
    if name == DEFAULT_BROKER:
        return ""
    if not name.isdigit():
        raise CliError(f"'{name}' is not a broker id", hint=f"A broker is named by a number, or '{DEFAULT_BROKER}'.")
    return name


def _entries(admin: Admin, kind: str, name: str, *, docs: bool = False) -> list[ConfigEntry]:
    from moldau.client.admin.configs import describe_configs

    return describe_configs(admin, _type(kind), [name], documentation=docs).get(name, [])


def _is_own(kind: str, name: str, entry: ConfigEntry) -> bool:
    """Whether the entry was set for this very resource."""
    from moldau.client.admin.configs import Source

    if kind == "broker":
        return entry.source == (Source.DYNAMIC_BROKER_CONFIG if name else Source.DYNAMIC_DEFAULT_BROKER_CONFIG)
    return entry.source.name.startswith(f"DYNAMIC_{kind.upper().replace('-', '_')}")


def _value(entry: ConfigEntry) -> str | None:
    return "(hidden)" if entry.sensitive else entry.value


def _names(admin: Admin, kind: str) -> list[str]:
    from moldau.client.admin.configs import list_config_resources
    from moldau.client.admin.topics import list_topics

    if kind == "topic":
        return [topic.name for topic in list_topics(admin)]
    if kind == "broker":
        admin.refresh()
        return ["", *(str(node) for node in sorted(admin.nodes))]
    return list_config_resources(admin, _type(kind))


def _check_exists(admin: Admin, kind: str, resource: str) -> None:
    if kind == "topic" and resource not in _names(admin, kind):
        raise no_such_topic(admin, resource)
