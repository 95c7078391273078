"""`kafka-configs`: describe and alter the settings of topics, brokers, users, clients, ips, groups and client metrics.

This file decides which entity is meant and what may be combined; `_config_actions` talks to the cluster.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from moldau.cli import properties
from moldau.cli.errors import CliError
from moldau.cli.kafka._options import OptionParser, Options, run

TOPICS, CLIENTS, USERS, BROKERS, LOGGERS = "topics", "clients", "users", "brokers", "broker-loggers"
IPS, CLIENT_METRICS, GROUPS = "ips", "client-metrics", "groups"
ENTITY_TYPES = (TOPICS, CLIENTS, USERS, BROKERS, IPS, CLIENT_METRICS, GROUPS, LOGGERS)
WITH_DEFAULTS = (USERS, CLIENTS, BROKERS, IPS)

NAME_FLAGS = {
    "topic": TOPICS,
    "client": CLIENTS,
    "user": USERS,
    "broker": BROKERS,
    "broker-logger": LOGGERS,
    "ip": IPS,
    "client-metrics": CLIENT_METRICS,
    "group": GROUPS,
}
DEFAULT_FLAGS = {"client-defaults": CLIENTS, "user-defaults": USERS, "broker-defaults": BROKERS, "ip-defaults": IPS}
DEFAULT_NAME = ""

# A comma or an equals sign counts only outside square brackets.
_OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"
_KEY = re.compile(r"[$a-zA-Z0-9._-]*")


@dataclass(slots=True)
class Entities:
    """What is described or altered: types, and as many names as were given ("" is the default entity)."""

    types: list[str]
    names: list[str]


def main(argv: Sequence[str] | None = None) -> int:
    return run(lambda: execute(argv))


def execute(argv: Sequence[str] | None) -> int:
    options = _parser().parse(argv)
    entities = find_entities(options)
    check(options, entities)
    from moldau.cli.kafka import _config_actions as actions
    from moldau.cli.kafka._common import open_admin

    controllers = options.value("bootstrap-controller")
    with open_admin(options, "kafka-configs", controllers=controllers) as admin:
        if options.has("alter"):
            actions.alter(admin, entities, configs_to_add(options), configs_to_delete(options))
        else:
            actions.describe(admin, entities, everything=options.has("all"))
    return 0


def _parser() -> OptionParser:
    parser = OptionParser(
        "kafka-configs",
        "Describe or alter the settings of topics, brokers, users, clients, ips, groups and client metrics.",
    )
    parser.connection()
    parser.value("bootstrap-controller", "HOST:PORT,…", "Controllers to reach the cluster through, instead of brokers.")
    parser.flag("describe", "Show settings.")
    parser.flag("alter", "Change settings.")
    parser.flag("all", "Show all settings with --describe, also those nobody has changed.")
    parser.value("entity-type", "TYPE", f"One of {', '.join(ENTITY_TYPES)}; users and clients may go together.")
    parser.value("entity-name", "NAME", "Which entity of the type.")
    parser.flag("entity-default", "The default of users, clients, brokers or ips, instead of one entity.")
    parser.value("add-config", "K1=V1,K2=[V2,V3]", "Settings to set; brackets hold together a value with commas.")
    parser.value("add-config-file", "FILE", "Settings to set, from a properties file.")
    parser.value("delete-config", "K1,K2", "Settings to remove.", separator=",")
    parser.flag("force", "Accepted for compatibility; nothing is asked anyway.")
    for flag, kind in NAME_FLAGS.items():
        parser.value(flag, "NAME", f"Short for --entity-type {kind} --entity-name NAME.")
    for flag, kind in DEFAULT_FLAGS.items():
        parser.flag(flag, f"Short for --entity-type {kind} --entity-default.")
    return parser


def find_entities(options: Options) -> Entities:
    flags = [flag for flag in NAME_FLAGS if options.has(flag)]
    defaults = [flag for flag in DEFAULT_FLAGS if options.has(flag)]
    types = [*options.values("entity-type"), *(NAME_FLAGS[flag] for flag in flags)]
    types += [DEFAULT_FLAGS[flag] for flag in defaults]
    names = [value or DEFAULT_NAME for name, value in options.given if name in ("entity-name", "entity-default")]
    names += [options.text(flag) for flag in flags] + [DEFAULT_NAME for _ in defaults]
    if (options.has("entity-name") or options.has("entity-type") or options.has("entity-default")) and (
        flags or defaults
    ):
        raise CliError("--entity-{type,name,default} should not be used in conjunction with specific entity flags")
    return Entities(types, names)


def check(options: Options, entities: Entities) -> None:
    """Which options and entities go together, as in Kafka's tool."""
    if options.has("alter") == options.has("describe"):
        raise options.error("Command must include exactly one action: --describe, --alter")
    options.forbid("describe", "add-config", "delete-config")
    types = entities.types
    duplicates = sorted({each for each in types if types.count(each) > 1})
    if duplicates:
        raise CliError(f"Duplicate entity type(s) specified: {','.join(duplicates)}")
    for each in types:
        if each not in ENTITY_TYPES:
            raise CliError(
                f"Invalid entity type {each}, the entity type must be one of {', '.join(ENTITY_TYPES)} with a "
                "--bootstrap-server or --bootstrap-controller argument"
            )
    if not types:
        raise CliError("At least one entity type must be specified")
    if len(types) > 1 and set(types) != {USERS, CLIENTS}:
        raise CliError(f"Only '{USERS}' and '{CLIENTS}' entity types may be specified together")
    if len(entities.names) > len(types):
        raise CliError("More entity names specified than entity types")
    if not options.has("bootstrap-server") and not options.has("bootstrap-controller"):
        raise CliError("Either --bootstrap-server or --bootstrap-controller must be specified.")
    if options.has("bootstrap-server") and options.has("bootstrap-controller"):
        raise CliError("Only one of --bootstrap-server or --bootstrap-controller can be specified")
    _check_names(entities)
    if options.has("describe"):
        _check_describe(entities)
    else:
        _check_alter(options, entities)


def _check_names(entities: Entities) -> None:
    for kind, name in zip(entities.types, entities.names, strict=False):
        if name and kind in (BROKERS, LOGGERS) and not re.fullmatch(r"-?\d+", name):
            raise CliError(f"The entity name for {kind} must be a valid integer broker id, but it is: {name}")
        if name and kind == IPS and not _resolves(name):
            raise CliError(f"The entity name for {kind} must be a valid IP or resolvable host, but it is: {name}")


def _resolves(host: str) -> bool:
    import socket

    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True


def _check_describe(entities: Entities) -> None:
    listed = ",".join(entities.types)
    if DEFAULT_NAME in entities.names and not set(entities.types) & set(WITH_DEFAULTS):
        raise CliError(f"--entity-default must not be specified with --describe of {listed}")
    if LOGGERS in entities.types and not any(entities.names):
        raise CliError(f"An entity name must be specified with --describe of {listed}")


def _check_alter(options: Options, entities: Entities) -> None:
    if set(entities.types) & set(WITH_DEFAULTS):
        if not entities.names:
            raise CliError(
                "An entity-name or default entity must be specified with --alter of users, clients, brokers or ips"
            )
    elif not any(entities.names):
        raise CliError(f"An entity name must be specified with --alter of {','.join(entities.types)}")
    given = [name for name in ("add-config", "add-config-file", "delete-config") if options.has(name)]
    if not given:
        raise CliError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )
    if options.has("add-config") and options.has("add-config-file"):
        raise CliError("Only one of --add-config or --add-config-file must be specified")
    if len(entities.types) != len(entities.names):
        raise CliError("An entity name must be specified for every entity type")


def configs_to_add(options: Options) -> dict[str, str]:
    if options.has("add-config-file"):
        configs = properties.load(options.text("add-config-file"))
    elif options.has("add-config"):
        configs = parse_configs(options.text("add-config"))
    else:
        configs = {}
    for key in configs:
        if not _KEY.fullmatch(key):
            raise CliError(f"Invalid character found for config key: {key}")
    return configs


def parse_configs(text: str) -> dict[str, str]:
    """`a=1,b=[x,y],c=` as a mapping; brackets only group and are not part of the value."""
    configs = {}
    for pair in re.split("," + _OUTSIDE_BRACKETS, text):
        parts = re.split(r"\s*=\s*" + _OUTSIDE_BRACKETS, pair)
        if len(parts) != 2:
            raise CliError(
                'Invalid entity config: all configs to be added must be in the format "key=val" or  '
                '"key=[val1,val2]" to group values which contain commas.'
            )
        configs[parts[0].strip()] = re.sub(r"[\[\]]", "", parts[1]).strip()
    return configs


def configs_to_delete(options: Options) -> list[str]:
    return [name.strip() for name in options.values("delete-config")]


if __name__ == "__main__":
    raise SystemExit(main())
