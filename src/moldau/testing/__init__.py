"""A real Moldau inside your tests: `with Cluster() as cluster: ... cluster.bootstrap_servers`.

`Cluster(nodes=3)` is a cluster of three processes that can be killed, frozen and cut off from each other.

Public: users test their own programs with it. `moldau.testing.pytest_plugin` brings the same as pytest fixtures.
"""

from __future__ import annotations

from moldau.testing.cluster import Cluster

__all__ = ["Cluster"]
