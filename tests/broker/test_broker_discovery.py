from __future__ import annotations

from broker_node import SimulatedNode

from moldau.protocol.generated.wire.api_versions_request import ApiVersionsRequest
from moldau.protocol.generated.wire.metadata_request import MetadataRequest


def test_first(node: SimulatedNode) -> None:
    answer = node.client.send(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    print(answer)
    node.create_topic("t", 3)
    print(node.client.send(MetadataRequest(topics=None), 12))
