"""`kafka-metadata-quorum`: describe the controllers' quorum, add and remove its voters."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.cli import properties
from moldau.cli.errors import CliError
from moldau.cli.kafka._options import run
from moldau.cli.kafka._subcommands import add_bootstrap, new_parser, open_admin, parse

if TYPE_CHECKING:
    from moldau.client.admin import Admin
    from moldau.client.admin.cluster import QuorumDescription, QuorumReplica
    from moldau.client.admin.membership import VoterAddress

TITLES = ("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status")
UNKNOWN = -1


def main(argv: Sequence[str] | None = None) -> int:
    return run(lambda: execute(argv))


def execute(argv: Sequence[str] | None) -> int:
    arguments = parse(_parser(), argv)
    if arguments.command == "describe":
        _check_describe(arguments)
    if arguments.command == "add-controller" and arguments.command_config is None:
        raise CliError(
            "You must supply the configuration file of the controller you are adding when using add-controller."
        )
    with open_admin(arguments, arguments.command_config, "metadata-quorum-tool") as admin:
        if arguments.command == "describe":
            if arguments.status:
                _status(admin)
            else:
                _replication(admin, human=arguments.human_readable)
        elif arguments.command == "add-controller":
            _add(admin, arguments.command_config, dry_run=arguments.dry_run)
        else:
            _remove(admin, arguments)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("kafka-metadata-quorum", "Describe and change the quorum of controllers.")
    add_bootstrap(parser)
    parser.add_argument("--command-config", metavar="FILE", help="client settings; for add-controller the controller's")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    describe = commands.add_parser("describe", help="describe the quorum")
    describe.add_argument("--status", action="store_true", help="a summary")
    describe.add_argument("--replication", action="store_true", help="how far each replica is")
    describe.add_argument("--human-readable", action="store_true", help="times as how long ago")
    add = commands.add_parser("add-controller", help="add the controller of the configuration file as a voter")
    add.add_argument("--dry-run", action="store_true", help="say what would be done")
    remove = commands.add_parser("remove-controller", help="remove a voter")
    remove.add_argument("--controller-id", "-i", type=int, required=True, metavar="ID", help="its node id")
    remove.add_argument("--controller-directory-id", "-d", required=True, metavar="ID", help="its directory id")
    remove.add_argument("--dry-run", action="store_true", help="say what would be done")
    return parser


def _check_describe(arguments: argparse.Namespace) -> None:
    if arguments.status and arguments.replication:
        raise CliError("Only one of --status or --replication should be specified with describe sub-command")
    if not arguments.status and not arguments.replication:
        raise CliError("One of --status or --replication must be specified with describe sub-command")
    if arguments.status and arguments.human_readable:
        raise CliError("The option --human-readable is only supported along with --replication")


# ---- describe


def _leader(found: QuorumDescription) -> QuorumReplica:
    for voter in found.voters:
        if voter.node_id == found.leader_id:
            return voter
    raise CliError(f"The leader {found.leader_id} is not among the voters it tells")


def _status(admin: Admin) -> None:
    from moldau.client.admin.cluster import describe_cluster, describe_quorum

    cluster_id = describe_cluster(admin).cluster_id
    found = describe_quorum(admin)
    leader = _leader(found)
    slowest = min(found.voters, key=lambda voter: voter.log_end_offset)
    lag_ms = UNKNOWN
    if slowest is leader or slowest.log_end_offset == leader.log_end_offset:
        lag_ms = 0
    elif leader.last_caught_up_ms != UNKNOWN and slowest.last_caught_up_ms != UNKNOWN:
        lag_ms = leader.last_caught_up_ms - slowest.last_caught_up_ms
    facts = {
        "ClusterId:": cluster_id,
        "LeaderId:": found.leader_id,
        "LeaderEpoch:": found.leader_epoch,
        "HighWatermark:": found.high_watermark,
        "MaxFollowerLag:": leader.log_end_offset - slowest.log_end_offset,
        "MaxFollowerLagTimeMs:": lag_ms,
        "CurrentVoters:": _nodes(found, found.voters),
        "CurrentObservers:": _nodes(found, found.observers),
    }
    for name, value in facts.items():
        print(f"{name:<23} {value}")


def _nodes(found: QuorumDescription, replicas: Sequence[QuorumReplica]) -> str:
    from moldau.protocol.uuids import ZERO_UUID, uuid_to_string

    texts = []
    for each in replicas:
        directory = "null" if each.directory_id == ZERO_UUID else f'"{uuid_to_string(each.directory_id)}"'
        endpoints = ", ".join(f'"{address}"' for address in found.addresses.get(each.node_id, ()))
        text = f'{{"id": {each.node_id}, "directoryId": {directory}'
        texts.append(f'{text}, "endpoints": [{endpoints}]}}' if endpoints else text + "}")
    return f"[{', '.join(texts)}]"


def _replication(admin: Admin, *, human: bool) -> None:
    from moldau.client.admin.cluster import describe_quorum
    from moldau.protocol.uuids import uuid_to_string

    found = describe_quorum(admin)
    leader = _leader(found)
    followers = [voter for voter in found.voters if voter is not leader]
    rows = [TITLES]
    for status, replicas in (("Leader", [leader]), ("Follower", followers), ("Observer", found.observers)):
        rows += [
            (
                str(each.node_id),
                uuid_to_string(each.directory_id),
                str(each.log_end_offset),
                str(leader.log_end_offset - each.log_end_offset),
                _time(each.last_fetch_ms, human=human),
                _time(each.last_caught_up_ms, human=human),
                status,
            )
            for each in replicas
        ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(TITLES))]
    for row in rows:
        print("\t".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) + "\t")


def _time(timestamp_ms: int, *, human: bool) -> str:
    if timestamp_ms == UNKNOWN or not human:
        return str(timestamp_ms)
    return f"{max(0, int(time.time() * 1000) - timestamp_ms)} ms ago"


# ---- voters


def _add(admin: Admin, path: str, *, dry_run: bool) -> None:
    from moldau.client.admin.cluster import describe_cluster
    from moldau.client.admin.membership import add_voter
    from moldau.protocol.uuids import uuid_to_string

    values = properties.load(path)
    node_id = _controller_id(values)
    directory = _directory_id(_metadata_directory(values))
    addresses = _addresses(values)
    if not dry_run:
        add_voter(admin, describe_cluster(admin).cluster_id, node_id, directory, addresses)
    print(
        f"{'DRY RUN of adding' if dry_run else 'Added'} controller {node_id} with directory id "
        f"{uuid_to_string(directory)} and endpoints: {', '.join(map(str, addresses))}"
    )


def _controller_id(values: dict[str, str]) -> int:
    text = values.get("node.id")
    if text is None:
        raise CliError("node.id not found in configuration file. Is this a valid controller configuration file?")
    if not text.isdigit():
        raise CliError("node.id was negative in configuration file. Is this a valid controller configuration file?")
    if "controller" not in values.get("process.roles", ""):
        raise CliError(
            "process.roles did not contain 'controller' in configuration file. Is this a valid controller "
            "configuration file?"
        )
    return int(text)


def _metadata_directory(values: dict[str, str]) -> str:
    found = values.get("metadata.log.dir") or values.get("log.dirs", "").split(",")[0].strip()
    if not found:
        raise CliError(
            "Neither metadata.log.dir nor log.dirs were found. Is this a valid controller configuration file?"
        )
    return found


def _directory_id(directory: str) -> bytes:
    from moldau.protocol.uuids import uuid_from_string

    try:
        values = properties.load(f"{directory}/meta.properties")
    except CliError:
        raise CliError(f"Unable to read meta.properties from {directory}") from None
    if "directory.id" not in values:
        raise CliError(f"No directory id found in {directory}")
    return uuid_from_string(values["directory.id"])


def _addresses(values: dict[str, str]) -> list[VoterAddress]:
    from moldau.client.admin.membership import VoterAddress

    known = {}
    for key in ("listeners", "advertised.listeners"):
        for listener in filter(None, values.get(key, "").split(",")):
            name, _, address = listener.strip().partition("://")
            host, _, port = address.rpartition(":")
            known[name.upper()] = VoterAddress(name.upper(), host.strip("[]") or "localhost", int(port))
    if "controller.listener.names" not in values:
        raise CliError("controller.listener.names was not found. Is this a valid controller configuration file?")
    found = []
    for name in values["controller.listener.names"].split(","):
        if name.strip().upper() not in known:
            raise CliError(f"Cannot find information about controller listener name: {name.strip()}")
        found.append(known[name.strip().upper()])
    return found


def _remove(admin: Admin, arguments: argparse.Namespace) -> None:
    from moldau.client.admin.cluster import describe_cluster
    from moldau.client.admin.membership import remove_voter
    from moldau.protocol.uuids import uuid_from_string, uuid_to_string

    if arguments.controller_id < 0:
        raise CliError("Invalid negative --controller-id: " + str(arguments.controller_id))
    try:
        directory = uuid_from_string(arguments.controller_directory_id)
    except ValueError:
        raise CliError(f"Failed to parse --controller-directory-id: {arguments.controller_directory_id}") from None
    if not arguments.dry_run:
        remove_voter(admin, describe_cluster(admin).cluster_id, arguments.controller_id, directory)
    print(
        f"{'DRY RUN of removing ' if arguments.dry_run else 'Removed '} KRaft controller {arguments.controller_id} "
        f"with directory id {uuid_to_string(directory)}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
