"""One client connection: bytes to frames, frames to the broker, answers back in order.

Decides how much of a client may be in memory at once: the frame size limit, how many requests and how many bytes of
answers may wait for each other, when to stop reading from a client that does not read, and when others get their turn.
It must never look inside a request; that is the broker's business.
"""

from __future__ import annotations

import asyncio
from collections import deque
from struct import Struct
from time import monotonic
from typing import TYPE_CHECKING, Final, cast

from moldau.broker.router import LongPoll
from moldau.node.alertness import Alertness
from moldau.node.buffers import BufferPool
from moldau.ports import Buffer, Pending
from moldau.protocol.wire import ProtocolError

if TYPE_CHECKING:
    from moldau.broker.context import ClientConnection
    from moldau.node.listener import Listener, Service
    from moldau.node.unread import UnreadAnswers

_LENGTH: Final = Struct(">i")
# A request that is nothing but its header. (Written as a number where each frame is looked at.)
REQUEST_BYTES_MIN: Final = 8
# Requests of one connection that may wait for their answers at the same time; clients pipeline five by default.
REQUESTS_IN_FLIGHT_MAX: Final = 64
# Answers that are ready but behind one that is not; with more than this no further request is taken up.
HELD_BYTES_MAX: Final = 256 << 10
# Answers the client has not read yet; beyond the high mark no further request of its own is taken up. A client that
# reads never gets there: what the socket takes at once is not counted.
WRITE_BUFFER_HIGH_BYTES: Final = 256 << 10
WRITE_BUFFER_LOW_BYTES: Final = 64 << 10
# A client that pipelines thousands of requests gets others to wait this long, then it is their turn.
TURN_SECONDS: Final = 0.005


class KafkaConnection(asyncio.BufferedProtocol):
    """Reads frames into shared or pooled memory and writes answers in the order of their requests."""

    __slots__ = (
        "_alertness",
        "_answers",
        "_catching_up",
        "_client",
        "_closing",
        "_deferred",
        "_frame",
        "_frame_end",
        "_frame_filled",
        "_frame_view",
        "_held",
        "_listener",
        "_max_frame",
        "_min_frame",
        "_pool",
        "_reading",
        "_resting",
        "_service",
        "_unread",
        "_unread_before",
        "_writable",
        "closing_since",
        "last_active",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(
        self,
        listener: Listener,
        service: Service,
        pool: BufferPool,
        unread: UnreadAnswers,
        alertness: Alertness,
        max_frame: int,
    ) -> None:
        self._listener = listener
        self._service = service
        self._pool = pool
        self._unread = unread
        self._alertness = alertness
        self._max_frame = max_frame
        # Only tokens of a login may be shorter than a request.
        self._min_frame = REQUEST_BYTES_MIN
        # None until a connection limit lets it in.
        self._client: ClientConnection | None = None
        # Answers that cannot leave yet: a promise not kept, or behind one that is not kept.
        self._answers: deque[Pending[list[Buffer] | None]] = deque()
        # Bytes of the answers among them that are ready.
        self._held = 0
        # The frame under way: a pooled buffer with the length prefix at its start.
        self._frame: bytearray | None = None
        self._frame_view: memoryview | None = None
        self._frame_filled = 0
        self._frame_end = 0
        # Whole frames that arrived while too many requests were waiting, oldest first.
        self._deferred: deque[bytes] = deque()
        self._catching_up = False
        # Others have their turn before the deferred frames go on; or it was not let in yet.
        self._resting = False
        self._reading = True
        self._writable = True
        self._closing = False
        self._unread_before = 0
        self.closing_since = 0.0
        self.last_active = 0.0

    # ---- the event loop's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes, only their look-alikes.
        self.transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES, low=WRITE_BUFFER_LOW_BYTES)
        self._listener.arrived(self)

    def wait_outside(self) -> None:
        """A limit is reached: nothing this client says is looked at until `admit`."""
        self._resting = True

    def admit(self, client: ClientConnection) -> None:
        """The listener lets this connection in."""
        self._client = client
        self.last_active = monotonic()
        if self._resting:
            self._rested()

    def serve_with(self, service: Service, *, max_frame: int | None = None) -> None:
        """From the next frame on, this answers; a gate before the broker, or the broker behind it."""
        self._service = service
        self._max_frame = self._listener.max_frame_bytes if max_frame is None else max_frame

    def expect_tokens(self, *, bare: bool) -> None:
        """Whether the next frames are tokens of a login, which may be shorter than a request."""
        self._min_frame = 1 if bare else REQUEST_BYTES_MIN

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._answers.clear()
        self._deferred.clear()
        self._drop_frame()
        self._unread.free(self)
        self._listener.forget(self)
        if self._client is not None:
            self._service.disconnected(self._client)

    def get_buffer(self, sizehint: int) -> memoryview:
        view = self._frame_view
        if view is None:
            return self._pool.scratch_view
        return view[self._frame_filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing:
            return
        self._alertness.arrived()
        self.last_active = monotonic()
        try:
            if self._frame is None:
                self._split(self._pool.scratch_view, nbytes)
            else:
                self._fill(nbytes)
        except ProtocolError as error:
            self._listener.bad_client(self, error)
            self.close()
        self._service.after_requests()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable = False
        self._account()
        self._update_reading()

    def resume_writing(self) -> None:
        self._writable = True
        self.last_active = monotonic()
        self._account()
        self._take_deferred()
        self._service.after_requests()

    # ---- bytes to frames

    def _split(self, view: memoryview, filled: int) -> None:
        """Handle every whole frame in the scratch buffer; keep the beginning of the last, partial one."""
        start = 0
        while filled - start >= 4:
            size: int = _LENGTH.unpack_from(view, start)[0]
            if size < 8 or size > self._max_frame:
                self._check_size(size)
            end = start + 4 + size
            if end > filled:
                break
            if start and not self._resting and monotonic() - self.last_active > TURN_SECONDS:
                self._rest()
            self._accept(view[start + 4 : end])
            if self._closing:
                return
            start = end
        rest = filled - start
        if rest:
            self._begin_frame(view[start:filled], rest)

    def _begin_frame(self, head: memoryview, filled: int) -> None:
        if filled >= 4:
            size: int = _LENGTH.unpack_from(head, 0)[0]
            needed = 4 + size
        else:
            needed = 4
        buffer = self._pool.begin(filled, needed)
        buffer[:filled] = head
        self._frame = buffer
        self._frame_end = needed
        self._frame_filled = filled
        self._frame_view = memoryview(buffer)[: min(needed, len(buffer))]

    def _fill(self, nbytes: int) -> None:
        """More bytes of the frame under way have arrived in its own buffer."""
        buffer = self._frame
        assert buffer is not None
        filled = self._frame_filled = self._frame_filled + nbytes
        if self._frame_end == 4 and filled == 4:
            size: int = _LENGTH.unpack_from(buffer, 0)[0]
            if size < 8 or size > self._max_frame:
                self._check_size(size)
            self._frame_end = 4 + size
        if filled == self._frame_end > 4:
            # The buffer leaves the connection before the request runs, and the pool after: it is never shared.
            self._frame = self._frame_view = None
            try:
                self._accept(memoryview(buffer)[4:filled])
            finally:
                self._pool.give(buffer)
            return
        if filled == len(buffer):
            larger = self._pool.take(min(self._frame_end, 2 * filled))
            larger[:filled] = memoryview(buffer)[:filled]
            self._pool.give(buffer)
            self._frame = buffer = larger
        self._frame_view = memoryview(buffer)[: min(self._frame_end, len(buffer))]

    def _drop_frame(self) -> None:
        buffer, self._frame, self._frame_view = self._frame, None, None
        if buffer is not None:
            self._pool.give(buffer)

    def _check_size(self, size: int) -> None:
        if not self._min_frame <= size <= self._max_frame:
            raise ProtocolError(self._describe_bad_size(size))

    def _describe_bad_size(self, size: int) -> str:
        if size.to_bytes(4, "big", signed=True) in (b"GET ", b"POST", b"HEAD", b"PUT "):
            return "this port speaks Kafka's protocol, not HTTP"
        if (size >> 16) & 0xFFFF == 0x1603:
            return "a TLS handshake arrived on a plaintext listener"
        return f"a request of {size} bytes; allowed are {self._min_frame} to {self._max_frame}"

    # ---- frames to the broker, answers back

    def _accept(self, frame: memoryview) -> None:
        if self._deferred or self._resting or not self._writable or (self._answers and not self._may_follow()):
            self._deferred.append(bytes(frame))
            self._update_reading()
            return
        self._handle(frame)

    def _may_follow(self) -> bool:
        """Whether another request may be looked at although answers are outstanding."""
        answers = self._answers
        return (
            len(answers) < REQUESTS_IN_FLIGHT_MAX
            and self._held < HELD_BYTES_MAX
            # Whoever polls has asked for all it wants: as in Kafka, nothing overtakes and nothing piles up behind it.
            and type(answers[-1]) is not LongPoll
        )

    def _handle(self, frame: memoryview) -> None:
        client = self._client
        assert client is not None, "a request of a connection that was not let in"
        answer = self._service.dispatch(frame, client)
        if answer is None:
            return
        if isinstance(answer, Pending):
            if answer.done and not self._answers:
                self._write(answer.value)
                return
            self._answers.append(answer)
            answer.then(self._answer_ready)
        elif self._answers:
            self._answers.append(Pending.of(answer))
            self._held += _size(answer)
            if self._held >= HELD_BYTES_MAX:
                self._account()
        else:
            self.transport.writelines(answer)
            if client.in_conversation:
                self._alertness.expect()

    def _write(self, buffers: list[Buffer] | None) -> None:
        if buffers is not None:
            self.transport.writelines(buffers)

    def _answer_ready(self, answer: list[Buffer] | None) -> None:
        if self._closing:
            return
        answers = self._answers
        if len(answers) == 1 and answers[0].done:
            # As mostly: nothing is before it, nothing behind it.
            only = answers.popleft()
            self._write(only.value)
            if type(only) is not LongPoll:
                # A client that waits for each answer sends its next request now.
                self._alertness.expect()
        else:
            self._held += _size(answer)
            much = self._held >= HELD_BYTES_MAX
            while answers and answers[0].done:
                ready = answers.popleft().value
                self._held -= _size(ready)
                self._write(ready)
            if much:
                self._account()
        self.last_active = monotonic()
        if self._deferred:
            self._take_deferred()

    def _take_deferred(self) -> None:
        """Go on with the frames that had to wait, as far as they may now and for no longer than a turn."""
        if self._catching_up:
            # An answer became ready while a deferred request is handled: that one's answer must come first.
            return
        self._catching_up = True
        deferred = self._deferred
        until = monotonic() + TURN_SECONDS
        try:
            while deferred and self._writable and not (self._resting or self._closing):
                if self._answers and not self._may_follow():
                    break
                self._handle(memoryview(deferred.popleft()))
                if monotonic() > until:
                    self._rest()
        except ProtocolError as error:
            self._listener.bad_client(self, error)
            self.close()
        finally:
            self._catching_up = False
        self._update_reading()

    def _rest(self) -> None:
        self._resting = True
        self._listener.soon(self._rested)

    def _rested(self) -> None:
        self._resting = False
        if not self._closing:
            self._take_deferred()
            self._service.after_requests()

    def _account(self) -> None:
        """Tell the node what this connection keeps in memory for a client that does not take it."""
        size = 0 if self._writable else self.transport.get_write_buffer_size()
        if self._held >= HELD_BYTES_MAX:
            size += self._held
        if size:
            self._unread.stuck(self, size)
        else:
            self._unread.free(self)

    def _update_reading(self) -> None:
        """Read on only while the client reads its answers and does not run too far ahead of them."""
        wanted = self._writable and not self._deferred
        if wanted != self._reading and not self._closing:
            self._reading = wanted
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    # ---- the end

    @property
    def is_closing(self) -> bool:
        return self._closing

    def is_idle(self, since: float) -> bool:
        """Whether nothing has moved since then: nothing came, no answer is due, and none was read."""
        unread = self.transport.get_write_buffer_size()
        if unread < self._unread_before:
            self.last_active = monotonic()
        self._unread_before = unread
        return self.last_active < since and not self._answers

    def close(self) -> None:
        """Close after what was already written has left."""
        if not self._closing:
            self._closing = True
            self.closing_since = monotonic()
            self.transport.close()

    def give_up(self) -> None:
        """Close at once; what was not read is lost."""
        self._closing = True
        self.transport.abort()


def _size(answer: list[Buffer] | None) -> int:
    return sum(map(len, answer)) if answer is not None else 0
