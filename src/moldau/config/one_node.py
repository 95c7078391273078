"""What a node is given when it is started with no properties at all: one broker that is its own controller.

These are the settings for somebody's first five minutes, kept apart from the table so that nobody mistakes them for
Kafka's defaults. A node with a properties file gets none of them.
"""

from __future__ import annotations


def defaults_for_one_node(
    *, data_directory: str = "./data", host: str = "localhost", port: int = 9092, controller_port: int = 9093
) -> dict[str, str]:
    """The properties of a cluster of one, reachable from this machine only."""
    return {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"{host}:{controller_port}",
        "log.dirs": data_directory,
        "moldau.http.listener": f"{host}:9644",
        # One broker cannot hold three copies.
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # Nobody else is coming to the first rebalance.
        "group.initial.rebalance.delay.ms": "0",
    }
