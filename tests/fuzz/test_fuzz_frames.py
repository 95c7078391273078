"""Random bytes as frames, against the broker alone and against a real node's port."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.api import API_TABLE, ApiKey
from moldau.protocol.frames import encode_request
from moldau.testing import Cluster
from tests.fuzz.fuzz_node import EFFORT, QUICK, FuzzNode, served
from tests.fuzz.mutations import mutant
from tests.protocol.protocol_schemas import all_cases, messages
from tests.security.wire_client import Disconnected, WireClient, answer_seconds, complaints, resident_bytes

MIB = 1 << 20
CASES = {(case.name, case.version): case for case in all_cases() if case.package == "wire"}
CONNECTIONS = 60


def test_random_bytes() -> None:
    with FuzzNode() as node:

        @given(frame=st.binary(max_size=300))
        @settings(QUICK, max_examples=500 * EFFORT)
        def check(frame: bytes) -> None:
            node.throw(frame)

        check()
        node.alive()


def test_random_bytes_behind_a_right_header() -> None:
    with FuzzNode() as node:
        known = served(node.node.broker)

        @given(api=st.sampled_from(known), seed=st.integers(0, 2**32))
        @settings(QUICK, max_examples=1500 * EFFORT)
        def check(api: tuple[ApiKey, int, int], seed: int) -> None:
            key, low, high = api
            chance = random.Random(seed)
            version = chance.randint(low - 1, high + 1)
            head = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + chance.randbytes(4)
            head += chance.choice((b"\xff\xff", b"\0\0", b"\0\3abc", b"\0\3abc\0", b"\xff\xff\0"))
            node.throw(head + chance.randbytes(chance.choice((0, 1, 5, 20, 100, 400))))

        check()
        node.alive()


def test_the_controllers_listener_as_well() -> None:
    with FuzzNode() as node:
        known = served(node.node.controller_api)

        @given(api=st.sampled_from(known), data=st.data(), seed=st.integers(0, 2**32))
        @settings(QUICK, max_examples=150 * EFFORT)
        def check(api: tuple[ApiKey, int, int], data: st.DataObject, seed: int) -> None:
            key, low, high = api
            chance = random.Random(seed)
            version = chance.randint(low, high)
            case = CASES[API_TABLE[key].request_class().__name__, version]
            message: Any = data.draw(messages(case))
            if chance.randrange(3):
                message = node.inform(case, message, chance)
            frame = encode_request(API_TABLE[key], version, 1, "fuzz", message)[4:]
            node.throw(frame, service=node.node.controller_api)
            for _ in range(8):
                node.throw(mutant(frame, chance, keep=8), service=node.node.controller_api)

        check()
        node.alive()


def test_a_real_nodes_port() -> None:
    """Many frames over many connections: each is answered, or the connection ends; memory stays where it was."""
    with Cluster(in_process=False) as cluster, FuzzNode() as model:
        servers = cluster.bootstrap_servers
        for topic in ("plain", "compacted"):
            cluster.create_topic(topic, 2)
        # A request to add a controller makes the node call the address in it: not from a test.
        known = [each for each in served(model.node.broker) if each[0] != ApiKey.ADD_RAFT_VOTER]
        throw_many(servers, model, known, CONNECTIONS)
        before = resident_bytes(cluster.pid)
        throw_many(servers, model, known, CONNECTIONS * EFFORT)
        answer_seconds(servers)
        assert resident_bytes(cluster.pid) - before < 64 * MIB
        assert complaints(cluster) == []


def throw_many(servers: str, model: FuzzNode, known: list[tuple[ApiKey, int, int]], connections: int) -> None:
    @given(seed=st.integers(0, 2**32), data=st.data())
    @settings(QUICK, max_examples=connections)
    def one_connection(seed: int, data: st.DataObject) -> None:
        chance = random.Random(seed)
        frames = []
        for _ in range(10):
            key, low, high = chance.choice(known)
            version = chance.randint(low, high)
            case = CASES[API_TABLE[key].request_class().__name__, version]
            message = model.inform(case, data.draw(messages(case)), chance)
            frame = encode_request(API_TABLE[key], version, 1, "fuzz", message)[4:]
            frames.append(frame if chance.randrange(3) else mutant(frame, chance))
        talk(servers, frames, chance)

    one_connection()


def talk(servers: str, frames: list[bytes], chance: random.Random) -> None:
    """Send the frames in pieces; take what comes until the node closes or has nothing more to say."""
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    if chance.randrange(4) == 0:
        stream = mutant(stream, chance)
    with WireClient(servers, timeout=0.02) as client:
        try:
            while stream:
                size = chance.choice((1, 3, 100, 100_000))
                client.send(stream[:size])
                stream = stream[size:]
            while True:
                answer = client.receive_frame()
                assert len(answer) >= 4
        except (Disconnected, TimeoutError):
            pass
