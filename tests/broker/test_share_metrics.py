"""What the metrics page says of share groups."""

from __future__ import annotations

from broker_node import SimulatedNode
from share_client import ShareMember, prepare_group, produce

from moldau.node.share_metrics import collect_share


def test_share_groups_are_on_the_metrics_page(node: SimulatedNode) -> None:
    topic_id = node.create_topic("t")
    prepare_group(node, topic_id)
    member = ShareMember(node, "a", topic_id)
    member.fetch(0)
    produce(node, "t", *([b"x"] * 10))
    assert member.take() == [(0, 9, 1)]
    member.acknowledge({0: [(0, 5, [1]), (6, 7, [3])]})
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for metric in collect_share(node.broker.share_fetch)
        for sample in metric.samples
    }
    assert samples["moldau_share_sessions",] == 1
    assert samples["moldau_share_acknowledged_records_total", "accept"] == 6
    assert samples["moldau_share_acknowledged_records_total", "reject"] == 2
    assert samples["moldau_share_in_flight_records", "0", "group", "t"] == 2
    node.clock.advance(30_000)
    timeouts = [
        sample.value
        for metric in collect_share(node.broker.share_fetch)
        for sample in metric.samples
        if sample.name == "moldau_share_lock_timeouts_total"
    ]
    assert timeouts == [2]
