"""The client of an administrator: a cluster by its brokers, or by the controllers of its quorum.

It decides how the nodes are learned in either case. Which requests go to which of them is the cluster's business.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from moldau.client.cluster import Cluster, Deadline
from moldau.client.settings import client_settings
from moldau.ports import Address
from moldau.protocol.api import ApiKey

_CONTROLLER_ENDPOINTS = 2


class Admin(Cluster):
    """A cluster, as seen by an administrator.

    `patient` ones wait for a broker to come up, as Kafka's tools do, and say so; the others do not wait. With
    `controllers` the bootstrap addresses are those of the controller quorum.
    """

    def __init__(
        self,
        bootstrap: str,
        properties: Mapping[str, str] | None = None,
        *,
        client_id: str = "moldau-admin",
        patient: bool = False,
        controllers: bool = False,
    ) -> None:
        settings = client_settings({**(properties or {}), "bootstrap.servers": bootstrap}, client_id=client_id)
        super().__init__(settings, patient=patient, warn=lambda text: sys.stderr.write(f"{text}\n"))
        self.controllers = controllers

    def refresh(self, deadline: Deadline | None = None) -> None:
        """Learn the brokers (or controllers) of the cluster and which of them takes the controller's requests."""
        if not self.controllers and self.any_connection(deadline).supports(ApiKey.METADATA):
            super().refresh(deadline)
            return
        from moldau.protocol.generated.wire.describe_cluster_request import DescribeClusterRequest

        answer = self.ask(DescribeClusterRequest(endpoint_type=_CONTROLLER_ENDPOINTS), deadline=deadline)
        self.nodes = {each.broker_id: Address(each.host, each.port) for each in answer.brokers}
        self.controller_id = answer.controller_id
