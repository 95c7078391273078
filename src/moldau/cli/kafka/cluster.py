"""`kafka-cluster`: the cluster's id, its endpoints, and unregistering a broker that will not come back."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.cli.errors import CliError
from moldau.cli.kafka._options import run
from moldau.cli.kafka._subcommands import add_bootstrap, new_parser, open_admin, parse

if TYPE_CHECKING:
    from moldau.client.admin import Admin


def main(argv: Sequence[str] | None = None) -> int:
    return run(lambda: execute(argv))


def execute(argv: Sequence[str] | None) -> int:
    arguments = parse(_parser(), argv)
    if arguments.command == "list-endpoints" and arguments.bootstrap_controller and arguments.include_fenced_brokers:
        raise CliError("The option --include-fenced-brokers is only supported with --bootstrap-server option")
    with open_admin(arguments, arguments.config, "cluster-tool") as admin:
        if arguments.command == "cluster-id":
            _cluster_id(admin)
        elif arguments.command == "unregister":
            _unregister(admin, arguments.id)
        else:
            _list_endpoints(admin, fenced=arguments.include_fenced_brokers)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("kafka-cluster", "Look at a cluster, and unregister brokers.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    cluster_id = commands.add_parser("cluster-id", help="show the cluster's id")
    unregister = commands.add_parser("unregister", help="forget a broker that will not come back")
    endpoints = commands.add_parser("list-endpoints", help="show where its nodes listen")
    for each in (cluster_id, unregister, endpoints):
        add_bootstrap(each, short=True)
        each.add_argument("--config", "-c", metavar="FILE", help="client settings as a properties file")
    unregister.add_argument("--id", "-i", type=int, required=True, metavar="ID", help="the broker's id")
    endpoints.add_argument("--include-fenced-brokers", action="store_true", help="also those that are fenced")
    return parser


def _cluster_id(admin: Admin) -> None:
    from moldau.client.admin.cluster import describe_cluster

    print(f"Cluster ID: {describe_cluster(admin).cluster_id}")


def _unregister(admin: Admin, broker_id: int) -> None:
    from moldau.client.admin.membership import unregister_broker
    from moldau.protocol.api import ApiKey

    if not admin.supports(ApiKey.UNREGISTER_BROKER):
        print("The target cluster does not support the broker unregistration API.")
        return
    unregister_broker(admin, broker_id)
    print(f"Broker {broker_id} is no longer registered.")


def _list_endpoints(admin: Admin, *, fenced: bool) -> None:
    from moldau.client.admin.cluster import describe_cluster, describe_controllers

    found = describe_controllers(admin) if admin.controllers else describe_cluster(admin, fenced=fenced)
    host = max((len(each.host) for each in found.brokers), default=100)
    rack = max((len(str(each.rack)) for each in found.brokers if each.rack is not None), default=10)
    if admin.controllers:
        rows = [("ID", "HOST", "PORT", "RACK", "ENDPOINT_TYPE")]
        rows += [
            (str(each.node_id), each.host, str(each.port), _rack(each.rack), "controller") for each in found.brokers
        ]
        for row in rows:
            print(f"{row[0]:<10} {row[1]:<{host}} {row[2]:<10} {row[3]:<{rack}} {row[4]:<15}")
        return
    print(f"{'ID':<10} {'HOST':<{host}} {'PORT':<10} {'RACK':<{rack}} {'STATE':<10} {'ENDPOINT_TYPE':<15}")
    for each in found.brokers:
        state = "fenced" if each.fenced else "unfenced"
        print(
            f"{each.node_id:<10} {each.host:<{host}} {each.port:<10} {_rack(each.rack):<{rack}} {state:<10} "
            f"{'broker':<15}"
        )


def _rack(rack: str | None) -> str:
    return "null" if rack is None else rack


if __name__ == "__main__":
    raise SystemExit(main())
