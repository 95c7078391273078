"""Whatever arrives, a broker answers or asks for the connection to be closed, and goes on."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from broker_node import Client, SimulatedNode, batch, fetch_request, produce_request
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.ports import Pending
from moldau.protocol.api import API_TABLE, ApiKey
from moldau.protocol.frames import encode_request
from moldau.protocol.generated.wire.describe_cluster_request import DescribeClusterRequest
from moldau.protocol.wire import ProtocolError

NODE = SimulatedNode(num_partitions="1")
NODE.create_topic("orders", 2)
TOPIC_ID = NODE.services.image.topics_by_name["orders"].id


def frames() -> list[bytes]:
    """A frame of every API in every version, without its length."""
    found: list[bytes] = []
    for key in NODE.broker.router.routes:
        spec = API_TABLE[key]
        for version in range(spec.min_version, spec.max_stable_version + 1):
            request: Any = spec.request_class()()
            if key == ApiKey.PRODUCE:
                topic = TOPIC_ID if version >= 13 else "orders"
                request = produce_request(topic, batch(b"a", b"b"), batch(b"c"), version=version)
            elif key == ApiKey.FETCH:
                topic = TOPIC_ID if version >= 13 else "orders"
                request = fetch_request(topic, 0, 0, version=version, session=(0, 0))
            found.append(encode_request(spec, version, 1, "fuzz", request)[4:])
    return found


FRAMES = frames()


class Complaints(logging.Handler):
    """What the broker logged as an error of its own."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(self.format(record))


COMPLAINTS = Complaints()
logging.getLogger("moldau").addHandler(COMPLAINTS)


def survives(frame: bytes) -> None:
    client = Client(NODE)
    COMPLAINTS.messages.clear()
    try:
        outcome = client.raw(frame)
    except ProtocolError:
        outcome = None
    assert outcome is None or isinstance(outcome, (list, Pending))
    if isinstance(outcome, list):
        whole = b"".join(bytes(part) for part in outcome)
        assert int.from_bytes(whole[:4], "big") == len(whole) - 4
        assert len(whole) < 1 << 20
    client.disconnect()
    assert not COMPLAINTS.messages, "a client's nonsense is no error of ours"


def alive() -> None:
    assert Client(NODE).send(DescribeClusterRequest(), 0).error_code == 0


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes(frame: bytes) -> None:
    survives(frame)
    alive()


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(NODE.broker.router.routes)), st.integers(0, 20), st.binary(max_size=300))
def test_any_body(key: int, version: int, body: bytes) -> None:
    survives(key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\0\4fuzz" + body)


@settings(max_examples=1500, deadline=None)
@given(st.sampled_from(FRAMES), st.data())
def test_a_few_bytes_changed(frame: bytes, data: st.DataObject) -> None:
    changed = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(changed) - 1))
        changed[position] = data.draw(st.integers(0, 255))
    survives(bytes(changed))


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(FRAMES), st.data())
def test_cut_short_or_with_more_behind(frame: bytes, data: st.DataObject) -> None:
    survives(frame[: data.draw(st.integers(0, len(frame)))])
    survives(frame + data.draw(st.binary(min_size=1, max_size=20)))
    alive()


@pytest.mark.parametrize("frame", FRAMES[::7])
def test_counts_that_claim_too_much_allocate_nothing(frame: bytes) -> None:
    """Every place where a count could stand is tried with a huge one."""
    for position in range(8, len(frame) - 4):
        survives(frame[:position] + b"\x7f\xff\xff\xff" + frame[position + 4 :])
        survives(frame[:position] + b"\xff\xff\xff\xff\x07" + frame[position + 1 :])
    alive()


def test_a_client_id_that_is_no_text_or_too_long(node: SimulatedNode) -> None:
    for client_id in (b"\0\x02\xff\xfe", b"\x7f\xffshort"):
        with pytest.raises(ProtocolError):
            node.client.raw(b"\0\x3c\0\0" + b"\0\0\0\1" + client_id + b"\0" * 10)
