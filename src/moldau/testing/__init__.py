"""A real Moldau inside your tests: `with Cluster() as cluster: ... cluster.bootstrap_servers`.

Public: users test their own programs with it. `moldau.testing.pytest_plugin` brings the same as pytest fixtures.
"""

from __future__ import annotations

from moldau.testing.cluster import Cluster

__all__ = ["Cluster"]
