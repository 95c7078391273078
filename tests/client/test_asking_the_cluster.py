"""Who is asked, who is asked again, and when it is given up: clusters whose every answer is the test's."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from moldau.client import transactions
from moldau.client.cluster import Cluster
from moldau.client.connection import Connection
from moldau.client.coordinators import GROUP, TRANSACTION, find_coordinators, wait_for_coordinator
from moldau.client.errors import Disconnected, FencedError, MoldauError, UnknownTopicError, Unreachable
from moldau.client.group_offsets import commit_group_offsets, group_offsets
from moldau.client.offsets import LATEST, MAX_TIMESTAMP, find_offsets, list_offsets
from moldau.client.settings import Address, ClientSettings, client_settings
from moldau.client.transactions import Transaction
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.generated.wire import find_coordinator_response as found
from moldau.protocol.generated.wire import list_offsets_response as listed
from moldau.protocol.generated.wire import offset_commit_response as committed
from moldau.protocol.generated.wire import offset_fetch_response as fetched
from moldau.protocol.generated.wire.end_txn_response import EndTxnResponse
from moldau.protocol.generated.wire.init_producer_id_response import InitProducerIdResponse
from moldau.protocol.generated.wire.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.client.scripted import ScriptedBroker, metadata

FAST = {"retry.backoff.ms": "1", "retry.backoff.max.ms": "5"}


def settings(*brokers: ScriptedBroker, **more: str) -> ClientSettings:
    names = {name.replace("_", "."): value for name, value in more.items()}
    servers = ",".join(broker.address for broker in brokers)
    return client_settings({**FAST, "bootstrap.servers": servers, **names})


def one_broker(answers: dict[ApiKey, Any], newest: dict[ApiKey, int] | None = None) -> ScriptedBroker:
    """Broker 1, which leads partition 0 of topic t and coordinates everything."""
    broker = ScriptedBroker(answers, newest)
    broker.answers.setdefault(ApiKey.METADATA, lambda *_: metadata({1: broker}, {"t": {0: 1}}))
    broker.answers.setdefault(ApiKey.FIND_COORDINATOR, lambda request, version: at(broker, request, version))
    return broker


def at(broker: ScriptedBroker, request: Any, version: int) -> found.FindCoordinatorResponse:
    place = {"node_id": 1, "host": "127.0.0.1", "port": broker.port}
    if version < 4:
        return found.FindCoordinatorResponse(**place)
    return found.FindCoordinatorResponse(
        coordinators=[found.Coordinator(key=key, **place) for key in request.coordinator_keys]
    )


def offset(code: int = 0, value: int = -1) -> listed.ListOffsetsResponse:
    part = listed.ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=value)
    return listed.ListOffsetsResponse(topics=[listed.ListOffsetsTopicResponse(name="t", partitions=[part])])


# Connections


def test_answers_come_in_the_order_of_the_requests() -> None:
    def echo(request: Any, _: int) -> Any:
        return metadata({1: broker}, {topic.name: {0: 1} for topic in request.topics})

    with ScriptedBroker({ApiKey.METADATA: echo}) as broker:
        connection = Connection(Address("127.0.0.1", broker.port), settings(broker))
        for number in range(20):
            connection.send(MetadataRequest(topics=[MetadataRequestTopic(name=f"t{number}")]))
        assert connection.in_flight == 20
        assert [connection.receive().topics[0].name for _ in range(20)] == [f"t{number}" for number in range(20)]
        connection.close()


def test_a_broker_that_trickles_bytes_does_not_stretch_the_time_of_a_request() -> None:
    def trickle() -> None:
        connection, _ = listener.accept()
        with connection:
            try:
                connection.sendall((1000).to_bytes(4, "big"))
                while True:
                    connection.sendall(b"x")
                    time.sleep(0.05)
            except OSError:
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        address = Address("127.0.0.1", listener.getsockname()[1])
        short = client_settings({"bootstrap.servers": str(address), "request.timeout.ms": "300"})
        before = time.monotonic()
        with pytest.raises(Disconnected, match="timed out"):
            Connection(address, short)
        assert time.monotonic() - before < 20  # byte by byte it would have been 50 s
        thread.join(10)


def test_memory_for_answers_is_the_callers() -> None:
    taken: list[bytearray] = []

    def allocate(size: int) -> bytearray:
        taken.append(bytearray(size))
        return taken[-1]

    with one_broker({}) as broker, Cluster(settings(broker), allocate=allocate) as cluster:
        assert cluster.topics(["t"])["t"].leaders == {0: 1}
    assert len(taken) == 2  # the versions and the metadata


def test_a_broker_that_failed_is_tried_after_the_others() -> None:
    with ScriptedBroker({ApiKey.METADATA: lambda *_: None}) as bad, one_broker({}) as good:
        with Cluster(settings(bad, good)) as cluster:
            assert cluster.topics(["t"])["t"].leaders == {0: 1}
            cluster.close()
            assert cluster.topics(["t"])["t"].leaders == {0: 1}
        assert bad.connections == 1


def test_taken_connections_are_the_takers_until_they_come_back() -> None:
    with one_broker({}) as broker, Cluster(settings(broker)) as cluster:
        mine = cluster.take(1)
        cluster.topics(["t"])
        assert broker.connections == 2
        cluster.give_back(mine)  # there is another one by now
        assert mine.closed
        again = cluster.take(1)
        cluster.give_back(again)
        assert cluster.node(1) is again


def test_time_runs_out_with_the_reason_and_the_name_of_the_setting() -> None:
    with ScriptedBroker({ApiKey.METADATA: lambda *_: None}) as bad:
        prefixed = client_settings(
            {**FAST, "bootstrap.servers": bad.address, "default.api.timeout.ms": "200"}, prefix="kafka."
        )
        with Cluster(prefixed) as cluster, pytest.raises(Unreachable, match=r"closed .*kafka\.security\.protocol"):
            cluster.topics(["t"])
        assert bad.count(ApiKey.METADATA) > 3


# Leaders


def test_a_leader_that_moved_is_found_again() -> None:
    leader = 1

    def refuse(*_: Any) -> Any:
        nonlocal leader
        leader = 2
        return offset(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    with ScriptedBroker({}) as first, ScriptedBroker({ApiKey.LIST_OFFSETS: lambda *_: offset(value=42)}) as second:
        first.answers = {
            ApiKey.LIST_OFFSETS: refuse,
            ApiKey.METADATA: lambda *_: metadata({1: first, 2: second}, {"t": {0: leader}}),
        }
        second.answers[ApiKey.METADATA] = first.answers[ApiKey.METADATA]
        with Cluster(settings(first)) as cluster:
            assert list_offsets(cluster, {("t", 0): LATEST}) == {("t", 0): 42}
            asked = first.count(ApiKey.METADATA) + second.count(ApiKey.METADATA)
            assert list_offsets(cluster, {("t", 0): LATEST}) == {("t", 0): 42}
            # What is known is not asked for again.
            assert first.count(ApiKey.METADATA) + second.count(ApiKey.METADATA) == asked


def test_a_leader_that_does_not_answer_is_asked_again() -> None:
    answers = [None, None, offset(value=7)]
    with one_broker({ApiKey.LIST_OFFSETS: lambda *_: answers.pop(0)}) as broker, Cluster(settings(broker)) as cluster:
        assert list_offsets(cluster, {("t", 0): LATEST}) == {("t", 0): 7}


def test_a_topic_that_is_not_there_is_an_error_at_once() -> None:
    with one_broker({ApiKey.LIST_OFFSETS: lambda *_: offset(value=7)}) as broker, Cluster(settings(broker)) as cluster:
        with pytest.raises(UnknownTopicError, match="There is no topic 'other'"):
            list_offsets(cluster, {("other", 0): LATEST})
        both = find_offsets(cluster, {("other", 0): LATEST, ("t", 0): LATEST})
    missing, there = both["other", 0], both["t", 0]
    assert isinstance(missing, ApiError)
    assert missing.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not isinstance(there, ApiError)
    assert there.offset == 7


def test_a_place_that_an_old_broker_does_not_know_is_refused() -> None:
    old = {ApiKey.LIST_OFFSETS: 6}
    with (
        one_broker({ApiKey.LIST_OFFSETS: lambda *_: offset()}, old) as broker,
        Cluster(settings(broker)) as cluster,
        pytest.raises(ApiError, match="does not know this kind of offset"),
    ):
        find_offsets(cluster, {("t", 0): MAX_TIMESTAMP})


# Coordinators


@pytest.mark.parametrize("newest", [3, 6])
def test_many_coordinators_are_found_in_old_and_new_versions(newest: int) -> None:
    with one_broker({}, {ApiKey.FIND_COORDINATOR: newest}) as broker, Cluster(settings(broker)) as cluster:
        for _ in range(2):
            coordinators = find_coordinators(cluster, ["a", "b", "c"], cluster.deadline())
            assert {str(each) for each in coordinators.values()} == {broker.address}
        # One question for each in the old versions, one for all in the new ones, and none for those that are known.
        assert broker.count(ApiKey.FIND_COORDINATOR) == (1 if newest > 3 else 3)


def test_a_coordinator_that_may_not_be_asked_about_is_named() -> None:
    refused = found.FindCoordinatorResponse(
        coordinators=[found.Coordinator(key="g", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)]
    )
    with one_broker({ApiKey.FIND_COORDINATOR: lambda *_: refused}) as broker, Cluster(settings(broker)) as cluster:
        with pytest.raises(MoldauError, match="coordinator of group 'g' failed: GROUP_AUTHORIZATION_FAILED"):
            wait_for_coordinator(cluster, GROUP, "g")
        with pytest.raises(MoldauError, match="Committing offsets to group 'g' failed: GROUP_AUTHORIZATION_FAILED"):
            commit_group_offsets(cluster, "g", {("t", 0): 1})
    assert broker.count(ApiKey.OFFSET_COMMIT) == 0


def commit_answer(code: int) -> committed.OffsetCommitResponse:
    part = committed.OffsetCommitResponsePartition(partition_index=0, error_code=code)
    return committed.OffsetCommitResponse(topics=[committed.OffsetCommitResponseTopic(name="t", partitions=[part])])


def test_a_coordinator_that_moved_is_looked_for_again() -> None:
    codes = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]
    answers = {ApiKey.OFFSET_COMMIT: lambda *_: commit_answer(codes.pop(0))}
    with one_broker(answers) as broker, Cluster(settings(broker)) as cluster:
        commit_group_offsets(cluster, "g", {("t", 0): 1}, "note")
        assert broker.count(ApiKey.OFFSET_COMMIT) == 3
        assert broker.count(ApiKey.FIND_COORDINATOR) == 3


@pytest.mark.parametrize("version", [7, 9])
def test_offsets_in_open_transactions_are_waited_for(version: int) -> None:
    codes = [ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.NONE]

    def answer(request: Any, spoken: int) -> fetched.OffsetFetchResponse:
        assert spoken == version
        assert request.require_stable
        code = codes.pop(0)
        if spoken < 8:
            assert [each.partition_indexes for each in request.topics] == [[0]]
            one = fetched.OffsetFetchResponsePartition(
                partition_index=0, committed_offset=5, metadata="m", error_code=code
            )
            return fetched.OffsetFetchResponse(topics=[fetched.OffsetFetchResponseTopic(name="t", partitions=[one])])
        part = fetched.OffsetFetchResponsePartitions(
            partition_index=0, committed_offset=5, metadata="m", error_code=code
        )
        topics = [fetched.OffsetFetchResponseTopics(name="t", partitions=[part])]
        return fetched.OffsetFetchResponse(
            groups=[fetched.OffsetFetchResponseGroup(group_id=each.group_id, topics=topics) for each in request.groups]
        )

    newest = {ApiKey.OFFSET_FETCH: version}
    with one_broker({ApiKey.OFFSET_FETCH: answer}, newest) as broker, Cluster(settings(broker)) as cluster:
        assert group_offsets(cluster, "g", [("t", 0)]) == {("t", 0): (5, "m")}
    assert codes == []


# Transactions


def test_a_busy_coordinator_is_asked_again_without_looking_for_another() -> None:
    codes = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE]

    def answer(*_: Any) -> InitProducerIdResponse:
        return InitProducerIdResponse(error_code=codes.pop(0), producer_id=8, producer_epoch=3)

    with one_broker({ApiKey.INIT_PRODUCER_ID: answer}) as broker, Cluster(settings(broker)) as cluster:
        assert transactions.begin(cluster, "x", 1000) == Transaction("x", 8, 3)
        assert broker.count(ApiKey.FIND_COORDINATOR) == 1


def test_whoever_was_fenced_is_told_so() -> None:
    fenced = InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
    with (
        one_broker({ApiKey.INIT_PRODUCER_ID: lambda *_: fenced}) as broker,
        Cluster(settings(broker)) as cluster,
        pytest.raises(FencedError, match="another run of this query has taken over"),
    ):
        transactions.begin(cluster, "x", 1000, expected=Transaction("x", 8, 3))


def test_ends_are_repeated_until_each_is_done_or_superseded() -> None:
    answers = {
        "done": [ErrorCode.NONE],
        "moved": [ErrorCode.NOT_COORDINATOR, ErrorCode.NONE],
        "busy": [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE],
        "lost": [ErrorCode.PRODUCER_FENCED],
    }

    def answer(request: Any, version: int) -> EndTxnResponse:
        assert version == 4  # the last one that can be repeated
        return EndTxnResponse(error_code=answers[request.transactional_id].pop(0))

    with one_broker({ApiKey.END_TXN: answer}) as broker, Cluster(settings(broker)) as cluster:
        many = [Transaction(name, 1, 1) for name in answers]
        assert transactions.end_all(cluster, many, commit=True) == [Transaction("lost", 1, 1)]
        assert find_coordinators(cluster, ["done"], cluster.deadline(), TRANSACTION)["done"].port == broker.port
    assert not any(answers.values())


# What others rely on


def test_settings_travel_and_are_keys() -> None:
    plain = client_settings({"bootstrap.servers": "a:1", "sasl.password": "secret"}, prefix="kafka.")
    assert pickle.loads(pickle.dumps(plain)) == plain
    assert hash(pickle.loads(pickle.dumps(plain))) == hash(plain)
    assert "secret" not in repr(plain)


def test_an_error_says_all_it_knows_and_travels() -> None:
    error = Unreachable("Nobody is there", "Look again.", answered=True)
    assert str(error) == "Nobody is there. Look again."
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.hint, again.answered) == (str(error), "Look again.", True)


def test_the_client_is_light_to_load() -> None:
    program = (
        "import sys, moldau.client.admin.topics, moldau.client.admin.groups, moldau.client.offsets\n"
        "heavy = {'numpy', 'pyarrow', 'pyspark', 'asyncio', 'ssl', 'click', 'rich', 'confluent_kafka', 'hashlib'}\n"
        "messages = [name for name in sys.modules if name.startswith('moldau.protocol.generated.wire.')]\n"
        "print(sorted(heavy & set(sys.modules)), messages)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[] []"
