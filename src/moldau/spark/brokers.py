"""How Spark's tasks reach brokers: settings from `kafka.*` options, and connections that outlive a task.

Connections live as long as the Python worker, so that the tasks of later micro-batches find them open; answers are
received into memory that is used again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from moldau.client import settings
from moldau.client.cluster import Cluster
from moldau.client.settings import ClientSettings
from moldau.spark.buffers import POOL


def client_settings(properties: Mapping[str, str]) -> ClientSettings:
    """Settings from properties such as `bootstrap.servers`: the options that begin with `kafka.`, without that."""
    return settings.client_settings(properties, client_id="moldau-spark", prefix="kafka.")


_shared: dict[ClientSettings, Cluster] = {}
_shared_by_process = 0


def shared_cluster(client: ClientSettings) -> Cluster:
    """The cluster of this process with these settings; a forked process begins with none of its parent's sockets."""
    global _shared_by_process
    if _shared_by_process != os.getpid():
        _shared.clear()
        _shared_by_process = os.getpid()
    cluster = _shared.get(client)
    if cluster is None:
        # Not zeroed memory: clearing megabytes that are overwritten at once is felt.
        cluster = _shared[client] = Cluster(client, allocate=POOL.take)
    return cluster
