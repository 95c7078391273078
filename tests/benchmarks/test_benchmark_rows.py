"""What the rows of the comparison rest on: places in a cluster, the moment of balance, bars as people read them."""

from __future__ import annotations

from pathlib import Path

from benchmarks.brokers import Cluster, MoldauBroker, Place
from benchmarks.row import A_SECOND, HALF_OF_KAFKAS, THREE_TIMES_KAFKAS, Bar
from benchmarks.rows import ROWS
from benchmarks.rows.groups import Balance

from benchmarks import lifecycle


def test_every_row_has_a_name_of_its_own_and_a_place_to_run() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    for row in ROWS:
        assert row.nodes in lifecycle.PROCESS, row.name
        assert row.metrics, row.name
        assert row.rounds_max >= 1


def test_bars_are_read_with_their_units() -> None:
    assert str(A_SECOND) == "≤ 1 s"
    assert str(THREE_TIMES_KAFKAS) == "≥ 3x"
    assert str(HALF_OF_KAFKAS) == "≤ 0.5x"
    assert str(Bar("ratio at most", 1 / 8)) == "≤ 1/8"


def test_the_nodes_of_a_cluster_know_each_other() -> None:
    places = Place.together(3)
    assert [place.node_id for place in places] == [1, 2, 3]
    assert len({place.voters for place in places}) == 1
    for place in places:
        assert f"{place.node_id}@127.0.0.1:{place.controller_port}" in place.voters
    ports = [port for place in places for port in (place.port, place.controller_port)]
    assert len(set(ports)) == 6


def test_three_nodes_keep_three_copies_and_one_keeps_one(tmp_path: Path) -> None:
    cluster = Cluster(MoldauBroker, tmp_path / "cluster")
    for node in cluster.nodes.values():
        properties = node.properties.read_text()
        assert "default.replication.factor=3\nmin.insync.replicas=2\n" in properties
        assert f"node.id={node.place.node_id}\n" in properties
    assert cluster.bootstrap.count(",") == 2
    alone = MoldauBroker(tmp_path / "alone").properties.read_text()
    assert "default.replication.factor=1\nmin.insync.replicas=1\n" in alone
    cluster.remove()
    assert not cluster.directory.exists()


def test_balance_is_when_everybody_has_the_same() -> None:
    balance = Balance(members=2, partitions=4)
    balance.note(0, 4)
    assert not balance.reached.is_set()
    balance.note(0, 2)
    balance.note(1, 2)
    assert balance.reached.is_set()
    first = balance.reached_at
    balance.note(1, 2)
    assert balance.reached_at == first, "nothing has changed since"
    balance.note(1, 0)
    assert not balance.reached.is_set(), "it did not last"
