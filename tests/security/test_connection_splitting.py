"""A connection without a network: however the bytes are cut, the same requests come out, and answers keep their order.

The transport here only records; the connection, the listener, the pool and the limits are the node's own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.broker.router import LongPoll
from moldau.node import buffers
from moldau.node.alertness import Alertness
from moldau.node.buffers import BufferPool
from moldau.node.connection import HELD_BYTES_MAX, REQUESTS_IN_FLIGHT_MAX, TURN_SECONDS, KafkaConnection
from moldau.node.listener import ConnectionCounts, ConnectionLimits, Listener
from moldau.node.unread import UnreadAnswers
from moldau.ports import Pending
from moldau.protocol.wire import ProtocolError

MAX_FRAME = 8 << 20


class Transport(asyncio.Transport):
    """Keeps what was written; `unread` is what a client has not taken."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.unread = 0
        self.reading = True
        self.ended: str | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unread

    def writelines(self, buffers: Any) -> None:
        for each in buffers:
            self.written += each

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"


class Echo:
    """Answers every request with itself; what begins with 'later' waits, 'poll' polls, 'bad' is an offence."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.promises: list[Pending[Any]] = []
        self.reply: Callable[[bytes], list[bytes]] = lambda frame: [frame]

    def dispatch(self, frame: memoryview, connection: object) -> Any:
        data = bytes(frame)
        self.requests.append(data)
        if data.startswith(b"bad"):
            raise ProtocolError("an offence")
        if data.startswith((b"later", b"poll")):
            promise: Pending[Any] = LongPoll() if data.startswith(b"poll") else Pending()
            self.promises.append(promise)
            return promise
        return self.reply(data)

    def after_requests(self) -> None:
        pass

    def disconnected(self, connection: object) -> None:
        pass


class LoopFree(Listener):
    """A listener whose turns are given by the test."""

    def soon(self, call: Callable[[], None]) -> None:
        self.turns.append(call)

    def run(self) -> None:
        while self.turns:
            self.turns.pop(0)()

    turns: list[Callable[[], None]]


class Peer:
    """One connection and the means to feed it."""

    def __init__(self, pool: BufferPool | None = None) -> None:
        self.pool = pool or BufferPool()
        self.echo = Echo()
        limits = ConnectionLimits(100, 100, {}, 0, MAX_FRAME, 100)
        self.unread = UnreadAnswers(1 << 30, lambda _: None)
        alertness = Alertness(0)
        self.listener = LoopFree("TEST", self.echo, self.pool, self.unread, limits, ConnectionCounts(), alertness)
        self.listener.turns = []
        self.connection = KafkaConnection(self.listener, self.echo, self.pool, self.unread, alertness, MAX_FRAME)
        self.transport = Transport()
        self.connection.connection_made(self.transport)

    def feed(self, data: bytes) -> None:
        """What one read of the socket does, as often as it takes."""
        while data and self.transport.ended is None:
            buffer = self.connection.get_buffer(-1)
            assert len(buffer) > 0, "no room to read into"
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self.connection.buffer_updated(size)
            self.listener.run()
            data = data[size:]


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@given(st.lists(st.binary(min_size=8, max_size=300), max_size=12), st.lists(st.integers(1, 400), max_size=40))
@settings(max_examples=150, deadline=None)
def test_any_cut_gives_the_same_requests(bodies: list[bytes], cuts: list[int]) -> None:
    bodies = [b"x" + body for body in bodies]
    stream = b"".join(map(frame, bodies))
    peer = Peer()
    for cut in cuts:
        peer.feed(stream[:cut])
        stream = stream[cut:]
    peer.feed(stream)
    assert peer.echo.requests == bodies
    assert bytes(peer.transport.written) == b"".join(bodies)
    assert peer.pool.lent == 0


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) - 4, (1 << 20) + 1, 2 << 20, 5 << 20, MAX_FRAME])
@pytest.mark.parametrize("first", [1, 3, 4, 5, 100, 1 << 20])
def test_large_frames_in_any_pieces(size: int, first: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    peer = Peer()
    whole = frame(body) + frame(b"the next")
    peer.feed(whole[:first])
    peer.feed(whole[first:])
    assert peer.echo.requests == [body, b"the next"]
    assert peer.pool.lent == 0


def test_a_long_request_grows_with_what_arrives() -> None:
    pool = BufferPool()
    pool.lent = buffers.GENEROUS_UNTIL_BYTES
    peer = Peer(pool)
    peer.feed((MAX_FRAME).to_bytes(4, "big"))
    assert pool.lent - buffers.GENEROUS_UNTIL_BYTES == buffers.STINGY_ALLOCATION_BYTES
    peer.feed(bytes(100_000))
    assert pool.lent - buffers.GENEROUS_UNTIL_BYTES <= 4 * 100_000
    peer.connection.connection_lost(None)
    assert pool.lent == buffers.GENEROUS_UNTIL_BYTES


def test_when_all_requests_together_are_too_large_the_next_one_is_refused() -> None:
    pool = BufferPool()
    pool.lent = buffers.LENT_BYTES_MAX - 4096
    calm, greedy = Peer(pool), Peer(pool)
    calm.feed(frame(b"12345678")[:3])
    greedy.feed((5000).to_bytes(4, "big"))
    assert greedy.transport.ended == "closed"
    calm.feed(frame(b"12345678")[3:])
    assert calm.echo.requests == [b"12345678"]


def test_answers_keep_the_order_of_their_requests() -> None:
    peer = Peer()
    for body in (b"later 01", b"at once ", b"later 02", b"at once!"):
        peer.feed(frame(body))
    assert not peer.transport.written
    first, second = peer.echo.promises
    second.resolve([b"<2>"])
    assert not peer.transport.written
    first.resolve([b"<1>"])
    assert bytes(peer.transport.written) == b"<1>at once <2>at once!"


def test_a_poll_holds_up_what_comes_after_it() -> None:
    peer = Peer()
    peer.feed(frame(b"poll 001") + frame(b"request2") + frame(b"request3"))
    assert peer.echo.requests == [b"poll 001"]
    assert not peer.transport.reading
    peer.echo.promises[0].resolve([b"news"])
    assert bytes(peer.transport.written) == b"newsrequest2request3"
    assert peer.transport.reading


def test_so_many_requests_may_wait_and_no_more() -> None:
    peer = Peer()
    peer.feed(frame(b"later ..") * (REQUESTS_IN_FLIGHT_MAX + 10))
    assert len(peer.echo.requests) == REQUESTS_IN_FLIGHT_MAX
    assert not peer.transport.reading
    for promise in peer.echo.promises[:10]:
        promise.resolve([b"."])
    assert len(peer.echo.requests) == REQUESTS_IN_FLIGHT_MAX + 10
    assert peer.transport.reading


def test_large_answers_do_not_pile_up_behind_one_that_waits() -> None:
    peer = Peer()
    peer.echo.reply = lambda _: [bytes(HELD_BYTES_MAX // 4)]
    peer.feed(frame(b"later 01") + frame(b"large...") * 20)
    assert len(peer.echo.requests) == 1 + 4
    peer.echo.promises[0].resolve([b"."])
    peer.listener.run()
    assert len(peer.echo.requests) == 21
    assert len(peer.transport.written) == 1 + 20 * (HELD_BYTES_MAX // 4)


def test_a_client_with_many_requests_lets_others_have_their_turn() -> None:
    peer = Peer()

    def slowly(data: bytes) -> list[bytes]:
        time.sleep(TURN_SECONDS / 2)
        return [data]

    peer.echo.reply = slowly
    whole = b"".join(frame(b"request%d" % number) for number in range(9))
    peer.connection.get_buffer(-1)[: len(whole)] = whole
    peer.connection.buffer_updated(len(whole))
    assert 0 < len(peer.echo.requests) < 9
    assert not peer.transport.reading
    peer.listener.run()
    assert peer.echo.requests == [b"request%d" % number for number in range(9)]
    assert peer.transport.reading


def test_nothing_more_is_taken_from_a_client_that_does_not_read() -> None:
    peer = Peer()
    peer.transport.unread = 5 << 20
    peer.connection.pause_writing()
    assert peer.unread.total == 5 << 20
    peer.feed(frame(b"request1"))
    assert peer.echo.requests == []
    assert not peer.transport.reading
    peer.connection.resume_writing()
    assert peer.echo.requests == [b"request1"]
    assert peer.unread.total == 0
    assert peer.transport.reading


def test_an_offence_ends_the_connection_and_nothing_after_it_counts() -> None:
    peer = Peer()
    peer.feed(frame(b"request1") + frame(b"bad one.") + frame(b"request2"))
    assert peer.echo.requests == [b"request1", b"bad one."]
    assert bytes(peer.transport.written) == b"request1"
    assert peer.transport.ended == "closed"


def test_an_answer_that_comes_while_another_request_is_handled_keeps_its_place() -> None:
    peer = Peer()
    peer.feed(frame(b"later 01") * REQUESTS_IN_FLIGHT_MAX + frame(b"request2") + frame(b"request3"))
    waiting = peer.echo.promises

    def resolve_while_handled(data: bytes) -> list[bytes]:
        if data == b"request2":
            waiting[-1].resolve([b"<last>"])
        return [data]

    peer.echo.reply = resolve_while_handled
    for promise in waiting[:-1]:
        promise.resolve([b""])
    assert bytes(peer.transport.written) == b"<last>request2request3"


class Stuck:
    def __init__(self) -> None:
        self.given_up = False

    def give_up(self) -> None:
        self.given_up = True


def test_the_connections_stuck_longest_go_when_too_much_is_unread() -> None:
    told: list[bool] = []
    unread = UnreadAnswers(100, told.append)
    first, second, third = Stuck(), Stuck(), Stuck()
    unread.stuck(first, 40)
    assert told == []
    unread.stuck(second, 40)
    assert told == [True]
    unread.stuck(third, 40)
    assert [each.given_up for each in (first, second, third)] == [True, False, False]
    unread.free(second)
    assert told == [True, False]
    assert (unread.total, unread.given_up) == (40, 1)
    unread.stuck(third, 5000)
    assert not third.given_up, "one alone may have a large answer"
