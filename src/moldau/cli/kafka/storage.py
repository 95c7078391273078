"""`kafka-storage`: format log directories, look at them, and look up releases and features. Works without a node.

What formatting means is decided in `moldau.quorum.format`; this file reads flags and prints.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from random import SystemRandom
from typing import TYPE_CHECKING

from moldau.cli import properties
from moldau.cli.errors import CliError
from moldau.cli.kafka._options import HelpShown, run, version_text

if TYPE_CHECKING:
    from moldau.config.node_config import NodeConfig
    from moldau.quorum.voters import VoterSet

METADATA_VERSION = "metadata.version"


def main(argv: Sequence[str] | None = None) -> int:
    return run(lambda: execute(argv))


def execute(argv: Sequence[str] | None) -> int:
    arguments = _parse(argv)
    if arguments.command == "random-uuid":
        print(random_uuid())
    elif arguments.command == "version-mapping":
        show_version_mapping(arguments.release_version)
    elif arguments.command == "feature-dependencies":
        show_feature_dependencies(arguments.feature)
    else:
        config = load_config(arguments.config)
        if arguments.command == "info":
            return show_info(log_directories(config))
        _format(arguments, config)
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("kafka-storage", description="Format and inspect a node's log directories.")
    parser.add_argument("--version", action="version", version=version_text())
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    info = commands.add_parser("info", help="show what the log directories belong to")
    formatting = commands.add_parser("format", help="format the log directories")
    for each in (info, formatting):
        each.add_argument("--config", "-c", required=True, metavar="FILE", help="the node's properties file")
    add_format_flags(formatting)
    mapping = commands.add_parser("version-mapping", help="show the feature levels of a release")
    mapping.add_argument("--release-version", "-r", metavar="RELEASE", help="the release (default: the latest)")
    dependencies = commands.add_parser("feature-dependencies", help="show what a feature level depends on")
    dependencies.add_argument("--feature", "-f", action="append", required=True, metavar="FEATURE=LEVEL")
    commands.add_parser("random-uuid", help="print a new id for a cluster")
    try:
        return parser.parse_args(argv)
    except SystemExit as ending:
        if ending.code:
            # argparse has told what is wrong; Kafka's tool ends with 1 then.
            raise SystemExit(1) from None
        raise HelpShown from None


def add_format_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster-id", "-t", required=True, metavar="ID", help="the cluster's id")
    parser.add_argument(
        "--add-scram",
        "-S",
        action="append",
        default=[],
        metavar="CREDENTIAL",
        help="a user to begin with, like SCRAM-SHA-256=[name=alice,password=secret]",
    )
    parser.add_argument("--ignore-formatted", "-g", action="store_true", help="skip directories already formatted")
    parser.add_argument("--release-version", "-r", metavar="RELEASE", help="the release whose features to begin with")
    parser.add_argument(
        "--feature", "-f", action="append", default=[], metavar="FEATURE=LEVEL", help="one feature's level"
    )
    quorum = parser.add_mutually_exclusive_group()
    quorum.add_argument("--standalone", "-s", action="store_true", help="a dynamic quorum of this controller alone")
    quorum.add_argument("--no-initial-controllers", "-N", action="store_true", help="join a dynamic quorum later")
    quorum.add_argument(
        "--initial-controllers",
        "-I",
        metavar="CONTROLLERS",
        help="a dynamic quorum of these: id@host:port:directory-id, separated by commas",
    )


def random_uuid() -> str:
    from moldau.protocol.uuids import uuid_to_string
    from moldau.quorum.meta_properties import new_uuid

    return uuid_to_string(new_uuid(SystemRandom()))


def load_config(path: str) -> NodeConfig:
    from moldau.config.node_config import NodeConfig
    from moldau.config.types import ConfigError

    try:
        return NodeConfig.load(properties.load(path))
    except ConfigError as error:
        raise CliError(str(error)) from None


def log_directories(config: NodeConfig) -> list[str]:
    return sorted({*config.log_dirs, config.metadata_log_dir})


# Formatting


def _format(arguments: argparse.Namespace, config: NodeConfig) -> None:
    from moldau.node.disk import OsDisk
    from moldau.quorum.format import FormatError, FormatRequest, format_storage

    voters = _initial_voters(arguments, config)
    if not arguments.no_initial_controllers and config.is_controller and not config.quorum_voters and voters is None:
        raise CliError(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
            "--standalone, --initial-controllers, or --no-initial-controllers."
        )
    request = FormatRequest(
        node_id=config.node_id,
        cluster_id=arguments.cluster_id,
        directories=log_directories(config),
        metadata_directory=config.metadata_log_dir,
        release_version=arguments.release_version,
        features=dict(parse_feature(text) for text in arguments.feature),
        unstable_features=config.flag("unstable.feature.versions.enable"),
        ignore_formatted=arguments.ignore_formatted,
        dynamic=voters is not None or arguments.no_initial_controllers,
        initial_voters=voters,
        scram=arguments.add_scram,
    )
    disk = OsDisk(lambda finish: finish())
    try:
        result = format_storage(disk, request, now_ms=int(time.time() * 1000), random=SystemRandom())
    except FormatError as error:
        raise CliError(str(error)) from None
    except OSError as error:
        raise CliError(f"Cannot write to {error.filename}: {error.strerror}") from None
    finally:
        disk.close()
    if not result.formatted:
        print("All of the log directories are already formatted.")
        return
    levels = ", ".join(f"{name}={level}" for name, level in sorted(result.levels.items()))
    print(f"Bootstrap metadata: {levels}")
    for directory in result.formatted:
        print(f"Formatting {directory.kind} {directory.path} with metadata.version {result.release.name}.")


def _initial_voters(arguments: argparse.Namespace, config: NodeConfig) -> VoterSet | None:
    from moldau.quorum.voters import initial_controllers

    if not arguments.standalone and not arguments.initial_controllers:
        return None
    if config.quorum_voters:
        raise CliError(
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers or "
            "--standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify "
            "controller.quorum.bootstrap.servers instead."
        )
    listener_name = config.controller_listener_names[0] if config.controller_listener_names else ""
    text = arguments.initial_controllers
    if arguments.standalone:
        if not config.is_controller:
            raise CliError("You can only use --standalone on a controller.")
        listener = config.advertised_controller_listeners[0]
        text = f"{config.node_id}@{listener.host or 'localhost'}:{listener.port}:{random_uuid()}"
    try:
        return initial_controllers(text, listener_name)
    except ValueError as error:
        raise CliError(f"--initial-controllers: {error}") from None


def parse_feature(text: str) -> tuple[str, int]:
    name, equals, level = text.partition("=")
    if not equals:
        raise CliError(f"Can't parse feature=level string {text}: equals sign not found.")
    try:
        return name.strip(), int(level)
    except ValueError:
        raise CliError(f"Can't parse feature=level string {text}: unable to parse {level} as a short.") from None


# Looking


def show_info(directories: Sequence[str]) -> int:
    """Print what the directories belong to and what is wrong with them; 1 if anything is."""
    from moldau.config.properties import read_properties

    found: list[str] = []
    problems: list[str] = []
    first: dict[str, str] | None = None
    for directory in directories:
        if not os.path.isdir(directory):
            problems.append(f"{directory} {'is not a directory' if os.path.exists(directory) else 'does not exist'}")
            continue
        found.append(directory)
        path = os.path.join(directory, "meta.properties")
        if not os.path.exists(path):
            problems.append(f"{directory} is not formatted.")
            continue
        try:
            with open(path, "rb") as file:
                current = read_properties(file.read())
        except (OSError, ValueError) as error:
            problems.append(f"Error loading {path}: {error}")
            continue
        if first is None:
            first = current
        elif first.get("cluster.id") != current.get("cluster.id"):
            problems.append("Mismatched cluster IDs between storage directories.")
        elif first.get("node.id") != current.get("node.id"):
            problems.append("Mismatched node IDs between storage directories.")
    if first is not None and first.get("version") == "0":
        problems.append(
            "The kafka configuration file appears to be for a cluster in KRaft mode, but "
            "the directories are formatted for legacy mode."
        )
    _print_section("Found log directory:", "Found log directories:", found)
    if first is not None:
        settings = ", ".join(f"{name}={value}" for name, value in sorted(first.items()))
        print(f"Found metadata: {{{settings}}}\n")
    _print_section("Found problem:", "Found problems:", problems)
    return 1 if problems else 0


def _print_section(one: str, many: str, lines: Sequence[str]) -> None:
    if lines:
        print(one if len(lines) == 1 else many)
        for line in lines:
            print(f"  {line}")
        print()


# Releases and features


def show_version_mapping(text: str | None) -> None:
    from moldau.metadata.features import (
        FEATURES,
        LATEST_METADATA_VERSION,
        FeatureError,
        release_from_string,
        release_of,
    )

    try:
        release = release_of(LATEST_METADATA_VERSION) if text is None else release_from_string(text, unstable=True)
    except FeatureError as error:
        raise CliError(str(error)) from None
    print(f"{METADATA_VERSION}={release.level} ({text or release.name})")
    for feature in FEATURES.values():
        print(f"{feature.name}={feature.default_level(release.level)}")


def show_feature_dependencies(wanted: Sequence[str]) -> None:
    from moldau.metadata.features import FEATURES, FeatureError, release_of

    for text in wanted:
        parts = text.split("=")
        if len(parts) != 2:
            raise CliError(
                f"Invalid feature format: {text}. Expected format: 'feature=version' (e.g. 'group.version=1')"
            )
        name, number = parts
        try:
            level = int(number)
        except ValueError:
            raise CliError(f"Invalid version format: {number} for feature {name}") from None
        if name == METADATA_VERSION:
            try:
                print(f"{name}={level} ({release_of(level).name}) has no dependencies.")
            except FeatureError:
                raise CliError(f"Unknown metadata.version {level}") from None
            continue
        if name not in FEATURES:
            raise CliError(f"Unknown feature: {name}")
        try:
            dependencies = FEATURES[name].level(level).depends_on
        except FeatureError:
            raise CliError(f"Feature level {level} is not supported for feature {name}") from None
        if not dependencies:
            print(f"{name}={level} has no dependencies.")
            continue
        print(f"{name}={level} requires:")
        for other, needed in dependencies.items():
            release = f" ({release_of(needed).name})" if other == METADATA_VERSION else ""
            print(f"    {other}={needed}{release}")


if __name__ == "__main__":
    sys.exit(main())
