"""A broker that is told to stop hands its partitions over, and says so to whoever still asks."""

from __future__ import annotations

import threading

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.testing import Cluster
from moldau.testing.asking import ask

LATEST = -1
QUESTION = ListOffsetsRequest(
    replica_id=-1,
    topics=[ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)])],
)


def answers_while_stopping(cluster: Cluster, node: int) -> list[int]:
    """What the node says about a partition it leads, from before it is told to stop until it is gone."""
    port = cluster.nodes[node].client_port
    said: list[int] = []
    stopping = threading.Thread(target=cluster.stop, args=(node,))
    stopping.start()
    try:
        while True:
            answer = ask("127.0.0.1", port, QUESTION, 7)
            said.append(answer.topics[0].partitions[0].error_code)
    except OSError:
        return said
    finally:
        stopping.join(60)


@pytest.mark.parametrize("hands_over", [True, False])
def test_clients_of_a_leaving_broker_hear_that_it_leads_no_more(hands_over: bool) -> None:
    with Cluster(nodes=2, config={"controlled.shutdown.enable": str(hands_over).lower()}) as cluster:
        cluster.create_topic("orders", partitions=1)
        leader = cluster.leader_of("orders", 0)
        said = answers_while_stopping(cluster, leader)
        assert (ErrorCode.NOT_LEADER_OR_FOLLOWER in said) is hands_over
        assert set(said) <= {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}
