"""Operating a cluster of three nodes: `moldau cluster ...`, and Kafka's tools for moves, elections and the quorum."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer

from moldau.cli.kafka import (
    broker_api_versions,
    features,
    leader_election,
    metadata_quorum,
    reassign_partitions,
    replica_verification,
    topics,
)
from moldau.cli.kafka import (
    cluster as cluster_tool,
)
from moldau.cli.main import main as moldau_main
from moldau.testing import Cluster
from moldau.testing.nodes import free_ports
from tests.cli.conftest import Done

Call = Callable[..., Done]
PATIENCE_SECONDS = 90.0


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    cluster = Cluster(nodes=3)
    for node, port in zip(cluster.nodes.values(), free_ports(3), strict=True):
        node.properties["moldau.http.listener"] = f"127.0.0.1:{port}"
    with cluster:
        yield cluster


@pytest.fixture
def moldau(call: Call, three: Cluster) -> Call:
    """Run `moldau cluster ...` against the three."""

    def run(*argv: object) -> Done:
        return call(moldau_main, "cluster", *argv, "-b", three.bootstrap_servers)

    return run


@pytest.fixture
def tool(call: Call, three: Cluster) -> Call:
    def run(main: Any, *argv: object) -> Done:
        return call(main, "--bootstrap-server", three.bootstrap_servers, *argv)

    return run


def fill(cluster: Cluster, topic: str, count: int = 100) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 1})
    for number in range(count):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(30) == 0


def created(tool: Call, cluster: Cluster, topic: str, assignment: str) -> dict[int, list[int]]:
    """A topic whose replicas are where the test wants them."""
    assert tool(topics.main, "--create", "--topic", topic, "--replica-assignment", assignment).code == 0
    cluster.wait_until_in_sync(topic)
    return {i: [int(each) for each in one.split(":")] for i, one in enumerate(assignment.split(","))}


def replicas(tool: Call, topic: str) -> dict[int, list[int]]:
    done = tool(topics.main, "--describe", "--topic", topic)
    found = re.findall(r"Partition: (\d+)\s.*?Replicas: ([\d,]+)", done.out)
    return {int(index): [int(each) for each in text.split(",")] for index, text in found}


# ---- moldau cluster


def test_status_of_a_healthy_cluster(moldau: Call, tool: Call, three: Cluster) -> None:
    created(tool, three, "healthy", "1:2:3,2:3:1,3:1:2")
    eventually(lambda: moldau("status").code == 0)
    done = moldau("status", "-o", "json")
    found = json.loads(done.out)
    assert found["healthy"] is True
    assert found["partitions"] >= 3
    assert found["underReplicated"] == found["offline"] == found["belowMinIsr"] == 0
    assert [each["id"] for each in found["brokers"]] == [1, 2, 3]
    assert all(each["replicas"] == each["inSync"] >= 3 for each in found["brokers"])
    assert found["quorum"]["voters"] == [1, 2, 3]
    text = moldau("status").out
    assert "The cluster is healthy." in text
    assert "under-replicated" in text


def test_status_tells_of_a_dead_broker(moldau: Call, tool: Call, three: Cluster) -> None:
    created(tool, three, "hurt", "3:1:2")
    if three.active_controller() == 3:  # whose fail-over would be told by a controller that began with it
        three.restart(3)
        three.wait_until_in_sync("hurt")
        _elect(tool, "hurt")
    eventually(lambda: three.leader_of("hurt") == 3)
    three.kill(3)
    try:
        eventually(lambda: json.loads(moldau("status", "-o", "json").out)["atMinIsr"] >= 1)
        done = moldau("status", "-o", "json")
        found = json.loads(done.out)
        assert done.code == 1
        assert {"what": "under-replicated", "where": "hurt-0", "detail": "out of sync: [3]"} in found["problems"]
        assert any(each["what"] == "broker fenced" for each in found["problems"])
        assert found["lastFailover"]["count"] >= 1
        assert 0 <= found["lastFailover"]["seconds"] < 30
        assert "Fail-over" in moldau("status").out
        assert moldau("status", "--wait", "0.7").code == 1
    finally:
        three.restart(3)
    assert moldau("status", "--wait", "60").code == 0


def test_a_broker_that_does_not_exist_cannot_be_drained(moldau: Call) -> None:
    done = moldau("drain", 77)
    assert done.code != 0
    assert "There is no broker 77" in done.err


def test_drain_and_rebalance(moldau: Call, tool: Call, three: Cluster) -> None:
    created(tool, three, "moving", "1:2,2:1,1:2,2:1")
    fill(three, "moving")
    before = replicas(tool, "moving")
    shown = moldau("rebalance", "--topic", "moving")
    assert "Nothing was changed" in shown.out
    assert replicas(tool, "moving") == before
    done = moldau("rebalance", "--topic", "moving", "--execute", "--throttle", 50_000_000)
    assert done.code == 0, done.err
    assert "partitions moved" in done.err
    after = replicas(tool, "moving")
    counts = [sum(node in each for each in after.values()) for node in (1, 2, 3)]
    assert max(counts) - min(counts) <= 1
    assert json.loads(moldau("rebalance", "--topic", "moving", "-o", "json").out)["moves"] == []
    three.wait_until_in_sync("moving")
    assert moldau("verify", "moving").code == 0


def test_a_drained_broker_gets_nothing_new(call: Call) -> None:
    with Cluster(nodes=3) as cluster:
        servers = ("-b", cluster.bootstrap_servers)
        cluster.create_topic("pairs", 4, replication_factor=2)
        fill(cluster, "pairs")
        assert "Broker 3 holds nothing any more" in call(moldau_main, "cluster", "drain", 3, "--execute", *servers).out
        cluster.create_topic("later", 4, replication_factor=2)
        found = json.loads(call(moldau_main, "cluster", "status", "-o", "json", *servers).out)
        state = {each["id"]: (each["state"], each["replicas"]) for each in found["brokers"]}
        assert state == {1: ("up", 8), 2: ("up", 8), 3: ("cordoned", 0)}
        assert json.loads(call(moldau_main, "cluster", "rebalance", "-o", "json", *servers).out)["moves"] == []


def test_a_drain_that_cannot_be_done_says_why(moldau: Call, tool: Call, three: Cluster) -> None:
    created(tool, three, "everywhere", "1:2:3")
    done = moldau("drain", 2)
    assert done.code == 1
    assert "cannot be done" in done.err


def test_verify_finds_replicas_that_differ(moldau: Call, tool: Call, three: Cluster) -> None:
    created(tool, three, "checked", "1:2:3,2:3:1")
    fill(three, "checked", 500)
    three.wait_until_in_sync("checked")
    done = moldau("verify", "checked", "-o", "json")
    found = json.loads(done.out)
    assert done.code == 0, found
    assert [each["replicas"] for each in found["partitions"]] == [[1, 2, 3], [2, 3, 1]]
    assert sum(each["end"] for each in found["partitions"]) == 500
    passed = tool(replica_verification.main, "--topics-include", "checked", "--time", -2, "--once")
    assert passed.code == 0
    assert "max lag is 0 for partition checked-" in passed.out

    segment = next(three.nodes[3].directory.glob("data/checked-0/*.log"))
    three.stop(3)
    data = bytearray(segment.read_bytes())
    data[-1] ^= 0xFF
    segment.write_bytes(data)
    three.start(3)
    three.wait_until_in_sync("checked")
    done = moldau("verify", "checked", "-o", "json")
    assert done.code == 1
    [bad] = [each for each in json.loads(done.out)["partitions"] if each["state"] != "same"]
    assert bad["partition"] == "checked-0"
    assert "broker 3" in bad["detail"]


def test_metrics_of_the_cluster(tool: Call, three: Cluster) -> None:
    created(tool, three, "measured", "1:2:3,2:3:1")
    active = three.active_controller()
    page = _metrics(three, active)
    assert page["moldau_controller_active"] == 1
    assert page["moldau_quorum_leader"] == active
    assert len([name for name in page if name.startswith("moldau_quorum_lag{")]) == 2
    assert page['moldau_broker_replicas{broker="1"}'] == page['moldau_broker_in_sync_replicas{broker="1"}'] >= 2
    assert page["moldau_cluster_partitions_under_replicated"] == page["moldau_cluster_partitions_offline"] == 0
    first = _metrics(three, 1)
    assert first['moldau_in_sync_replicas{partition="0",topic="measured"}'] == 3
    assert first["moldau_partitions_under_min_isr"] == 0
    assert "moldau_failovers_total" in first


def _metrics(cluster: Cluster, node: int) -> dict[str, float]:
    with urlopen(f"http://{cluster.nodes[node].properties['moldau.http.listener']}/metrics", timeout=10) as page:
        lines = [line for line in page.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_quorum(moldau: Call, three: Cluster) -> None:
    found = json.loads(moldau("quorum", "-o", "json").out)
    assert found["leader"] == three.active_controller()
    assert sorted(each["id"] for each in found["replicas"] if each["role"] != "observer") == [1, 2, 3]


# ---- Kafka's tools


def test_reassign_partitions(tool: Call, three: Cluster, tmp_path: Path) -> None:
    created(tool, three, "assigned", "1:2,2:1")
    fill(three, "assigned")
    wanted = [{"topic": "assigned", "partition": i, "replicas": [3, 1], "log_dirs": ["any", "any"]} for i in (0, 1)]
    path = tmp_path / "moves.json"
    path.write_text(json.dumps({"version": 1, "partitions": wanted}))
    done = tool(reassign_partitions.main, "--execute", "--reassignment-json-file", path, "--throttle", 10_000_000)
    assert done.code == 0, done.out
    assert '{"version":1,"partitions":[{"topic":"assigned","partition":0,"replicas":[1,2]' in done.out
    assert "The inter-broker throttle limit was set to 10000000 B/s" in done.out
    assert "Successfully started partition reassignments for assigned-0,assigned-1" in done.out

    def verified() -> Done:
        return tool(reassign_partitions.main, "--verify", "--reassignment-json-file", path)

    eventually(lambda: verified().out.count("is completed.") == 2)
    assert "Clearing topic-level throttles on topic assigned" in verified().out
    assert replicas(tool, "assigned") == {0: [3, 1], 1: [3, 1]}
    assert "No partition reassignments found." in tool(reassign_partitions.main, "--list").out
    done = tool(reassign_partitions.main, "--cancel", "--reassignment-json-file", path)
    assert "None of the specified partition reassignments are active." in done.out


def test_cancelling_goes_back_to_the_replicas_there_were(
    tool: Call, call: Call, three: Cluster, tmp_path: Path
) -> None:
    """The new replica is on a node that is stopped, so that the move cannot complete."""
    created(tool, three, "cancelled", "1:2")
    path = tmp_path / "moves.json"
    path.write_text(json.dumps({"partitions": [{"topic": "cancelled", "partition": 0, "replicas": [3, 2]}]}))
    three.kill(3)
    try:
        reassign = tool(reassign_partitions.main, "--execute", "--reassignment-json-file", path)
        if reassign.code:  # fenced already
            assert "Unknown broker id 3" in reassign.out
            three.start(3)
            three.freeze(3)
            reassign = tool(reassign_partitions.main, "--execute", "--reassignment-json-file", path)
        assert reassign.code == 0, reassign.out
        listed = tool(reassign_partitions.main, "--list").out
        assert "cancelled-0: replicas: 3,2,1. adding: 3. removing: 1." in listed
        again = tool(reassign_partitions.main, "--execute", "--reassignment-json-file", path)
        assert again.code == 1
        assert "--additional" in again.out
        controllers = ",".join(f"127.0.0.1:{three.nodes[node].addresses[1][1]}" for node in (1, 2))
        assert "adding: 3" in call(reassign_partitions.main, "--bootstrap-controller", controllers, "--list").out
        done = tool(reassign_partitions.main, "--cancel", "--reassignment-json-file", path, "--preserve-throttles")
        assert "Successfully cancelled partition reassignment for: cancelled-0" in done.out
        assert set(replicas(tool, "cancelled")[0]) == {1, 2}
    finally:
        if three.nodes[3].is_frozen:
            three.thaw(3)
        three.start()
    three.wait_until_in_sync()


def test_reassign_generate(tool: Call, three: Cluster, tmp_path: Path) -> None:
    created(tool, three, "proposed", "1:2,2:1,1:2")
    path = tmp_path / "topics.json"
    path.write_text(json.dumps({"version": 1, "topics": [{"topic": "proposed"}]}))
    done = tool(reassign_partitions.main, "--generate", "--topics-to-move-json-file", path, "--broker-list", "2,3")
    current, proposed = (json.loads(line) for line in done.out.splitlines() if line.startswith("{"))
    assert [each["replicas"] for each in current["partitions"]] == [[1, 2], [2, 1], [1, 2]]
    assert all(set(each["replicas"]) == {2, 3} for each in proposed["partitions"])


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("nonsense", "not a valid JSON"),
        ('{"version":2,"partitions":[]}', "Not supported version"),
        ('{"partitions":[]}', "cannot be empty"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[]}]}', "replica list cannot be empty"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[1,1]}]}', "duplicate entries"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[9]}]}', "Unknown broker id 9"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":[]}]}', "different from size"),
        ('{"partitions":[{"topic":"nowhere","partition":0,"replicas":[1]}]}', "Topic nowhere not found"),
    ],
)
def test_files_that_cannot_be_executed(tool: Call, tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "moves.json"
    path.write_text(content)
    done = tool(reassign_partitions.main, "--execute", "--reassignment-json-file", path)
    assert done.code == 1
    assert complaint in done.out


def test_leader_election(tool: Call, three: Cluster, tmp_path: Path) -> None:
    created(tool, three, "elected", "3:1:2")
    three.restart(3)
    three.wait_until_in_sync("elected")
    eventually(lambda: three.leader_of("elected") != 3 or "already" in _elect(tool, "elected").out)
    done = _elect(tool, "elected")
    assert done.code == 0, done.err
    assert three.leader_of("elected") == 3
    done = _elect(tool, "elected")
    assert "Valid replica already elected for partitions elected-0" in done.out
    path = tmp_path / "partitions.json"
    path.write_text(json.dumps({"partitions": [{"topic": "elected", "partition": 7}]}))
    done = tool(leader_election.main, "--election-type", "unclean", "--path-to-json-file", path)
    assert done.code == 1
    assert "Error completing leader election (UNCLEAN) for partition: elected-7" in done.out
    assert "1 replica(s) could not be elected" in done.err
    assert tool(leader_election.main, "--election-type", "preferred", "--all-topic-partitions").code == 0
    assert tool(leader_election.main, "--election-type", "preferred").code == 1


def _elect(tool: Call, topic: str) -> Done:
    return tool(leader_election.main, "--election-type", "preferred", "--topic", topic, "--partition", 0)


def test_metadata_quorum(tool: Call, call: Call, three: Cluster) -> None:
    status = tool(metadata_quorum.main, "describe", "--status")
    assert status.code == 0, status.err
    assert f"LeaderId:               {three.active_controller()}\n" in status.out
    assert re.search(r'CurrentVoters: +\[\{"id": 1, "directoryId": .*"endpoints": \["CONTROLLER://', status.out)
    done = tool(metadata_quorum.main, "describe", "--replication", "--human-readable")
    lines = done.out.splitlines()
    assert lines[0].split() == [
        "NodeId",
        "DirectoryId",
        "LogEndOffset",
        "Lag",
        "LastFetchTimestamp",
        "LastCaughtUpTimestamp",
        "Status",
    ]
    assert sorted(line.split()[-1] for line in lines[1:4]) == ["Follower", "Follower", "Leader"]
    controllers = ",".join(f"127.0.0.1:{node.addresses[1][1]}" for node in three.nodes.values())
    assert call(metadata_quorum.main, "--bootstrap-controller", controllers, "describe", "--status").out.startswith(
        "ClusterId: "
    )
    assert "One of --status or --replication" in tool(metadata_quorum.main, "describe").err
    assert "configuration file of the controller" in tool(metadata_quorum.main, "add-controller").err


def test_features(tool: Call) -> None:
    done = tool(features.main, "describe")
    assert re.search(r"Feature: metadata.version +SupportedMinVersion: 3.3-IV3 +SupportedMaxVersion: 4.3-IV0", done.out)
    assert tool(features.main, "describe", "--node-id", 2).out == done.out
    down = tool(features.main, "downgrade", "--feature", "group.version=0", "--dry-run")
    assert down.out == "group.version can be downgraded to 0.\n"
    up = tool(features.main, "upgrade", "--feature", "group.version=9")
    assert up.code == 1
    assert "Could not upgrade group.version to 9. " in up.out
    assert "1 out of 1 operation(s) failed." in up.err
    assert tool(features.main, "upgrade", "--release-version", "4.3", "--dry-run").code == 0
    mapping = tool(features.main, "version-mapping", "--release-version", "4.0-IV3")
    assert mapping.out.startswith("metadata.version=25 (4.0-IV3)")
    assert "more than once" in tool(features.main, "disable", "--feature", "a", "--feature", "a").err


def test_cluster_tool(call: Call, three: Cluster) -> None:
    done = call(cluster_tool.main, "cluster-id", "--bootstrap-server", three.bootstrap_servers)
    assert re.fullmatch(r"Cluster ID: \S{22}\n", done.out)
    done = call(cluster_tool.main, "list-endpoints", "-b", three.bootstrap_servers, "--include-fenced-brokers")
    assert [line.split()[0] for line in done.lines] == ["ID", "1", "2", "3"]
    done = call(cluster_tool.main, "unregister", "-b", three.bootstrap_servers, "--id", 99)
    assert done.code == 1
    assert "99" in done.err


def test_broker_api_versions(tool: Call, three: Cluster) -> None:
    done = tool(broker_api_versions.main)
    assert done.out.count("isFenced: false) -> (") == 3
    assert "\tMetadata(3): 0 to 13 [usable: 13]," in done.out
