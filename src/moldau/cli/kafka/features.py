"""`kafka-features`: describe, upgrade, downgrade and disable the features of a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.cli.errors import CliError
from moldau.cli.kafka._options import run
from moldau.cli.kafka._subcommands import add_bootstrap, new_parser, open_admin, parse

if TYPE_CHECKING:
    from moldau.client.admin import Admin

METADATA_VERSION = "metadata.version"
LOOKUPS = ("version-mapping", "feature-dependencies")


def main(argv: Sequence[str] | None = None) -> int:
    return run(lambda: execute(argv))


def execute(argv: Sequence[str] | None) -> int:
    arguments = parse(_parser(), argv)
    if arguments.command in LOOKUPS:
        from moldau.cli.kafka.storage import show_feature_dependencies, show_version_mapping

        if arguments.command == "version-mapping":
            show_version_mapping(arguments.release_version)
        else:
            show_feature_dependencies(arguments.feature)
        return 0
    levels = {} if arguments.command == "describe" else _wanted(arguments)
    with open_admin(arguments, arguments.command_config, "features-tool") as admin:
        if arguments.command == "describe":
            _describe(admin, arguments.node_id)
            return 0
        return _update(admin, arguments, levels)


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("kafka-features", "Describe and change the features of a cluster.")
    add_bootstrap(parser)
    parser.add_argument("--command-config", metavar="FILE", help="client settings as a properties file")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    describe = commands.add_parser("describe", help="show what is supported and finalised")
    describe.add_argument("--node-id", type=int, metavar="ID", help="as this node tells it")
    for name, text in (("upgrade", "raise features"), ("downgrade", "lower features")):
        change = commands.add_parser(name, help=text)
        change.add_argument("--release-version", metavar="RELEASE", help="the levels of this release")
        change.add_argument("--metadata", metavar="RELEASE", help="metadata.version alone (deprecated)")
        change.add_argument("--feature", action="append", metavar="FEATURE=LEVEL", help="one feature's level")
        change.add_argument("--dry-run", action="store_true", help="only check")
        if name == "downgrade":
            change.add_argument("--unsafe", action="store_true", help="even if metadata is lost by it")
    disable = commands.add_parser("disable", help="lower features to zero")
    disable.add_argument("--feature", action="append", metavar="FEATURE", help="a feature to disable")
    disable.add_argument("--unsafe", action="store_true", help="even if metadata is lost by it")
    disable.add_argument("--dry-run", action="store_true", help="only check")
    mapping = commands.add_parser("version-mapping", help="show the feature levels of a release")
    mapping.add_argument("--release-version", metavar="RELEASE", help="the release (default: the latest)")
    dependencies = commands.add_parser("feature-dependencies", help="show what a feature level depends on")
    dependencies.add_argument("--feature", action="append", required=True, metavar="FEATURE=LEVEL")
    return parser


def _describe(admin: Admin, node_id: int | None) -> None:
    from moldau.client.admin.cluster import describe_features

    found = describe_features(admin, node_id)
    for each in found.features:
        print(
            f"Feature: {each.name:<40}  SupportedMinVersion: {_level(each.name, each.supported_min):<15}  "
            f"SupportedMaxVersion: {_level(each.name, each.supported_max):<15}  "
            f"FinalizedVersionLevel: {_level(each.name, each.finalized):<15}  "
            f"Epoch: {found.epoch if found.epoch >= 0 else '-'}"
        )


def _level(feature: str, level: int) -> str:
    from moldau.metadata.features import FeatureError, release_of

    if feature != METADATA_VERSION:
        return str(level)
    try:
        return release_of(level).name
    except FeatureError:
        return f"UNKNOWN [{level}]"


def _wanted(arguments: argparse.Namespace) -> dict[str, int]:
    """The levels that were asked for."""
    features: list[str] = arguments.feature or []
    if arguments.command == "disable":
        levels = dict.fromkeys(features, 0)
        if len(levels) < len(features):
            raise CliError(f"Feature {features[-1]} was specified more than once.")
    else:
        if arguments.release_version and (arguments.metadata or features):
            raise CliError("Can not specify `release-version` with other feature flags.")
        if arguments.release_version:
            levels = _levels_of(arguments.release_version, upgrade=arguments.command == "upgrade")
        else:
            levels = {}
            if arguments.metadata:
                print(" `metadata` flag is deprecated and may be removed in a future release.")
                levels[METADATA_VERSION] = _levels_of(arguments.metadata, upgrade=True)[METADATA_VERSION]
            for text in features:
                name, level = _name_and_level(text)
                if name in levels:
                    raise CliError(f"Feature {name} was specified more than once.")
                levels[name] = level
    if not levels:
        raise CliError(f"You must specify at least one feature to {arguments.command}")
    return levels


def _levels_of(release: str, *, upgrade: bool) -> dict[str, int]:
    from moldau.metadata.features import FEATURES, RELEASES, FeatureError, release_from_string

    try:
        found = release_from_string(release, unstable=False)
    except FeatureError:
        names = ", ".join(each.name for each in RELEASES if each.stable)
        raise CliError(f"Unknown metadata.version {release}. Supported metadata.version are {names}") from None
    levels = {METADATA_VERSION: found.level}
    for feature in FEATURES.values():
        level = feature.default_level(found.level)
        # Nobody upgrades a feature to nothing.
        if level > 0 or not upgrade:
            levels[feature.name] = level
    return levels


def _name_and_level(text: str) -> tuple[str, int]:
    name, equals, level = text.partition("=")
    if not equals:
        raise CliError(f"Can't parse feature=level string {text}: equals sign not found.")
    try:
        return name.strip(), int(level)
    except ValueError:
        raise CliError(
            f"Can't parse feature=level string {text}: unable to parse {level.strip()} as a short."
        ) from None


def _update(admin: Admin, arguments: argparse.Namespace, levels: dict[str, int]) -> int:
    from moldau.client.admin.membership import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE, update_features

    command: str = arguments.command
    kind = UPGRADE
    if command != "upgrade":
        kind = UNSAFE_DOWNGRADE if arguments.unsafe else SAFE_DOWNGRADE
    told = update_features(admin, levels, kind, validate_only=arguments.dry_run)
    failures = [error for error in told.values() if error is not None]
    for name, error in sorted(told.items()):
        to = "" if command == "disable" else f" to {levels[name]}"
        if error is not None:
            print(f"{'Can not' if arguments.dry_run else 'Could not'} {command} {name}{to}. {error.message}")
        else:
            print(f"{name} {'can be' if arguments.dry_run else 'was'} {command}d{to}.")
    if failures:
        raise CliError(f"{len(failures)} out of {len(levels)} operation(s) failed.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
