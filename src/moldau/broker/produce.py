"""Produce (API 0), versions 3-13: from the bytes of a request to the logs, and the answer.

The hot path. A request is walked in place: nothing is copied but the topic names, and the records go to the log as
a view of the receive buffer. A handler must therefore not keep that view after it returns: a request that has to wait
for a transaction coordinator copies its records first. Answers without any error are packed by hand; those with an
error go through the generated message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias

from moldau.broker.authorization import Guard, Operation, ResourceKind
from moldau.broker.context import Caller
from moldau.broker.router import Outcome
from moldau.broker.topic_names import INTERNAL_TOPICS
from moldau.log.append_checks import unpacking
from moldau.ports import Clock, Pending, Timer
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.frames import encode_response
from moldau.protocol.wire import ProtocolError, WireMessage
from moldau.replication.partition import Partition
from moldau.replication.partition_table import PartitionTable

if TYPE_CHECKING:
    from moldau.broker.transaction_gate import TransactionGate, Verdict
    from moldau.log.producer_state import VerificationGuard

log: Final = logging.getLogger("moldau.broker")

_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_ACKS_TIMEOUT: Final = Struct(">hi")
_OK_V3: Final = Struct(">ihqq")
_OK_V5: Final = Struct(">ihqqq")
# An answer about one partition, before and after the topic: length, correlation id, no tags, one topic, length of its
# name; one partition, what `_OK_V5` says of it, and nothing else to tell.
_ONE_BY_NAME: Final = Struct(">iixBB")
_ONE_BY_ID: Final = Struct(">iixB")
_ONE_OK: Final = Struct(">BihqqqB8x")
_ADMIN_CLIENT: Final = "__admin_client"
_ZSTD_SINCE: Final = 7
_ZSTD: Final = 4
# Where a batch's codec is: the low bits of the second byte of its attributes.
_CODEC_AT: Final = 22
_CODEC_MASK: Final = 7
_TRANSACTIONAL_BIT: Final = 0x10


class PartitionResult:
    """What one partition of a request is answered with."""

    __slots__ = (
        "append_time",
        "base_offset",
        "error",
        "index",
        "log_start",
        "message",
        "partition",
        "record_errors",
        "wait_for",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.error = 0
        self.message: str | None = None
        self.record_errors: list[tuple[int, str | None]] | None = None
        self.base_offset = -1
        self.append_time = -1
        self.log_start = -1
        self.partition: Partition | None = None
        # The high watermark that commits it; 0 when there is nothing to wait for.
        self.wait_for = 0


Topic = tuple[bytes, list[PartitionResult]]
Append: TypeAlias = "tuple[PartitionResult, Partition | None, bytes, memoryview | None]"


class ProduceHandler:
    """Appends and, for acks=all, waits until every in-sync replica has the records."""

    def __init__(
        self,
        partitions: PartitionTable,
        clock: Clock,
        shape_errors: Callable[[Caller, list[Topic]], WireMessage],
        guard: Guard | None = None,
        gate: Callable[[], TransactionGate] | None = None,
    ) -> None:
        """`gate` stands before transactional records; it is loaded with the first of them."""
        self._partitions = partitions
        self._clock = clock
        self._shape_errors = shape_errors
        self._guard = guard
        self._gate = gate

    def handle(self, frame: memoryview, position: int, caller: Caller) -> Outcome:
        version = caller.api_version
        flexible = version >= 9
        transactional_id, position = _nullable_string(frame, position, flexible)
        if position + 6 > len(frame):
            raise ProtocolError("Produce: the request ends before acks")
        acks: int
        timeout_ms: int
        acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
        position += 6
        unpacking.begin(len(frame))
        request = _Request(self._partitions, caller, acks, transactional_id, self._guard)
        appends = request.walk(frame, position, version, flexible)
        if transactional_id is not None and self._gate is not None:
            admitted = request.admit(self._gate(), transactional_id, appends)
            if admitted is not None:
                return self._append_later(request, appends, admitted, timeout_ms)
        request.append(appends)
        return self._appended(request, acks, timeout_ms, caller)

    def _append_later(
        self, request: _Request, appends: list[Append], admitted: Pending[None], timeout_ms: int
    ) -> Outcome:
        """The coordinator has to be waited for; the receive buffer will be used again meanwhile."""
        kept: list[Append] = [
            (result, partition, topic_key, None if records is None else memoryview(bytes(records)))
            for result, partition, topic_key, records in appends
        ]
        answer: Pending[list[bytes | bytearray | memoryview] | None] = Pending()

        def go_on(_: None) -> None:
            request.append(kept)
            try:
                outcome = self._appended(request, request.acks, timeout_ms, request.caller)
            except ProtocolError as error:
                log.warning("%s", error)
                outcome = None
            if isinstance(outcome, Pending):
                outcome.then(answer.resolve)
            else:
                answer.resolve(outcome)

        admitted.then(go_on)
        return answer

    def _appended(self, request: _Request, acks: int, timeout_ms: int, caller: Caller) -> Outcome:
        """The answer once everything was appended or refused."""
        if acks == 0:
            if request.failed:
                # Without an answer to carry the error, only a closed connection tells the client.
                raise ProtocolError(f"Produce with acks=0 failed: {request.first_error()}")
            return None
        if acks == -1:
            waiting = [
                result
                for _, results in request.topics
                for result in results
                if result.partition is not None and not result.partition.is_committed(result.wait_for)
            ]
            if waiting:
                return _Committing(self, request, waiting, timeout_ms, caller).promise
        elif request.unsynced:
            return _Committing(self, request, request.unsynced, timeout_ms, caller).promise
        return [self.encode(request, caller)]

    def encode(self, request: _Request, caller: Caller) -> bytes | bytearray:
        if request.failed:
            response = self._shape_errors(caller, request.topics)
            return encode_response(caller.api_key, caller.api_version, caller.correlation_id, response)
        if caller.api_version >= 9:
            return _encode_flexible(request.topics, caller)
        return _encode_plain(request.topics, caller)

    def later(self, delay_ms: int, run: Callable[[], None]) -> Timer:
        return self._clock.call_later(delay_ms, run)


class _Request:
    """One Produce request while it is walked: what was appended, what failed."""

    __slots__ = (
        "_guard",
        "_partitions",
        "_transactional",
        "_verdicts",
        "acks",
        "caller",
        "failed",
        "topics",
        "unsynced",
    )

    def __init__(
        self,
        partitions: PartitionTable,
        caller: Caller,
        acks: int,
        transactional_id: bytes | None,
        guard: Guard | None,
    ) -> None:
        self._partitions = partitions
        self._guard = guard
        self.caller = caller
        self.acks = acks
        self._transactional = transactional_id is not None
        # What the transaction coordinator said about a partition's records, by the result they lead to.
        self._verdicts: dict[PartitionResult, Verdict] | None = None
        self.topics: list[Topic] = []
        self.failed = False
        self.unsynced: list[PartitionResult] = []

    def walk(self, frame: memoryview, position: int, version: int, flexible: bool) -> list[Append]:
        """Read the whole request first: a malformed one must not leave half of itself in the logs."""
        end = len(frame)
        appends: list[Append] = []
        topic_count, position = _count(frame, position, flexible)
        for _ in range(topic_count):
            if version >= 13:
                topic_key = bytes(frame[position : position + 16])
                position += 16
                if position > end:
                    raise ProtocolError("Produce: a topic id reaches beyond the request")
                hosted = self._partitions.by_id.get(topic_key)
            else:
                topic_key, position = _string(frame, position, flexible)
                hosted = self._partitions.by_name.get(topic_key)
            partition_count, position = _count(frame, position, flexible)
            results: list[PartitionResult] = []
            self.topics.append((topic_key, results))
            for _ in range(partition_count):
                if position + 4 > end:
                    raise ProtocolError("Produce: a partition reaches beyond the request")
                index: int = _I32.unpack_from(frame, position)[0]
                records, position = _records(frame, position + 4, flexible)
                if flexible:
                    position = _tags(frame, position)
                result = PartitionResult(index)
                results.append(result)
                partition = hosted.by_index.get(index) if hosted is not None else None
                appends.append((result, partition, topic_key, records))
            if flexible:
                position = _tags(frame, position)
        if flexible:
            _tags(frame, position)
        return appends

    def append(self, appends: list[Append]) -> None:
        for result, partition, topic_key, records in appends:
            self._append(result, partition, topic_key, records)

    def admit(self, gate: TransactionGate, transactional_id: bytes, appends: list[Append]) -> Pending[None] | None:
        """Ask whether the transaction is known; None when the answer is there already."""
        from moldau.broker.transaction_gate import Write, client_of, producer_of

        try:
            name = transactional_id.decode()
        except UnicodeDecodeError:
            raise ProtocolError("Produce: the transactional id is not UTF-8") from None
        allowed = self._guard is None or self._guard.allows(
            self.caller, Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, name
        )
        results: list[PartitionResult] = []
        writes: list[Write] = []
        verdicts: dict[PartitionResult, Verdict] = {}
        self._verdicts = verdicts
        for result, partition, _, records in appends:
            written = producer_of(records) if records is not None else None
            if partition is None or written is None or not self._may_write(partition):
                # Refused further down, and not made part of any transaction.
                continue
            if not allowed:
                verdicts[result] = ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                continue
            results.append(result)
            writes.append(Write(partition, *written))
        if not writes:
            return None
        outcome = gate.admit(name, writes, client_of("produce", self.caller.api_version))
        if not isinstance(outcome, Pending):
            verdicts.update(zip(results, outcome, strict=True))
            return None
        admitted: Pending[None] = Pending()

        def judged(found: list[Verdict]) -> None:
            verdicts.update(zip(results, found, strict=True))
            admitted.resolve(None)

        outcome.then(judged)
        return admitted

    def _append(
        self, result: PartitionResult, partition: Partition | None, topic_key: bytes, records: memoryview | None
    ) -> None:
        try:
            if partition is None:
                raise self._unknown(topic_key, result.index)
            if self._guard is not None:
                self._authorize(self._guard, partition)
            if not -1 <= self.acks <= 1:
                raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
            if records is None or not len(records):
                raise ApiError(ErrorCode.INVALID_RECORD, "a partition without records")
            if partition.topic in INTERNAL_TOPICS and self.caller.client_id != _ADMIN_CLIENT:
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "internal topics are written by the broker only")
            if self.caller.api_version < _ZSTD_SINCE:
                _refuse_zstd(records)
            if self._transactional:
                info = partition.append(records, self.acks, self._proof(result))
            else:
                if len(records) > _CODEC_AT and records[_CODEC_AT] & _TRANSACTIONAL_BIT:
                    # Nobody said under which id, so nobody could be asked whether the caller may.
                    raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                info = partition.append(records, self.acks)
        except ApiError as error:
            self._fail(result, error)
            return
        except Exception:
            log.exception("appending to partition %d of %r failed", result.index, topic_key)
            self._fail(result, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        result.base_offset = info.first_offset
        result.append_time = info.log_append_time
        result.log_start = info.log_start_offset
        result.partition = partition
        result.wait_for = info.last_offset + 1
        if partition.syncs_to_commit:
            self.unsynced.append(result)

    def _proof(self, result: PartitionResult) -> VerificationGuard | None:
        verdict = None if self._verdicts is None else self._verdicts.get(result)
        if isinstance(verdict, ApiError):
            raise verdict
        return verdict

    def _fail(self, result: PartitionResult, error: ApiError) -> None:
        self.failed = True
        result.error = error.code
        result.message = error.message
        result.record_errors = error.record_errors

    def _authorize(self, guard: Guard, partition: Partition) -> None:
        if not guard.allows(self.caller, Operation.WRITE, ResourceKind.TOPIC, partition.topic):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _may_write(self, partition: Partition) -> bool:
        if partition.topic in INTERNAL_TOPICS:
            return False
        guard = self._guard
        return guard is None or guard.allows(self.caller, Operation.WRITE, ResourceKind.TOPIC, partition.topic)

    def _unknown(self, topic_key: bytes, index: int) -> ApiError:
        if self.caller.api_version >= 13:
            if self._partitions.knows_id(topic_key):
                return ApiError(self._partitions.absent_by_id(topic_key, index))
            return ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        return ApiError(self._partitions.absent(topic_key, index))

    def first_error(self) -> str:
        for topic, results in self.topics:
            for result in results:
                if result.error:
                    return f"{ErrorCode(result.error).name} for {topic!r}-{result.index}"
        return "no error"


def _refuse_zstd(records: memoryview) -> None:
    """A client this old cannot have meant it: its readers would not understand the codec."""
    if len(records) > _CODEC_AT and records[_CODEC_AT] & _CODEC_MASK == _ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd is allowed from Produce version 7 on")


class _Committing:
    """An append that is in the leader's log and not yet committed: answers when it is, or when time is up."""

    __slots__ = ("_caller", "_handler", "_left", "_request", "_timer", "promise")

    def __init__(
        self,
        handler: ProduceHandler,
        request: _Request,
        waiting: list[PartitionResult],
        timeout_ms: int,
        caller: Caller,
    ) -> None:
        self._handler = handler
        self._request = request
        self._caller = caller
        self._left = {id(result): result for result in waiting}
        self.promise: Pending[list[bytes | bytearray | memoryview] | None] = Pending()
        self._timer = handler.later(max(timeout_ms, 1), self._timed_out)
        for result in waiting:
            self._wait_for(result)

    def _wait_for(self, result: PartitionResult) -> None:
        assert result.partition is not None
        result.partition.when_committed(
            result.wait_for, lambda: self._committed(id(result)), lambda code: self._failed(result, code)
        )

    def _committed(self, key: int) -> None:
        self._left.pop(key, None)
        if not self._left and not self.promise.done:
            self._timer.cancel()
            self._answer()

    def _failed(self, result: PartitionResult, code: ErrorCode) -> None:
        """It never will be committed: the disk it was written to is gone."""
        if not self.promise.done:
            self._refuse(result, code)
            self._committed(id(result))

    def _timed_out(self) -> None:
        if self.promise.done:
            return
        for result in self._left.values():
            self._refuse(result, ErrorCode.REQUEST_TIMED_OUT)
        self._answer()

    def _refuse(self, result: PartitionResult, code: ErrorCode) -> None:
        result.error = code
        result.base_offset = result.append_time = -1
        self._request.failed = True

    def _answer(self) -> None:
        self.promise.resolve([self._handler.encode(self._request, self._caller)])


# ---- answers without errors


def _encode_plain(topics: list[Topic], caller: Caller) -> bytearray:
    version = caller.api_version
    out = bytearray(b"\0\0\0\0")
    out += _I32.pack(caller.correlation_id)
    out += _I32.pack(len(topics))
    for name, results in topics:
        out += _I16.pack(len(name))
        out += name
        out += _I32.pack(len(results))
        for r in results:
            if version >= 5:
                out += _OK_V5.pack(r.index, 0, r.base_offset, r.append_time, r.log_start)
                if version >= 8:
                    out += b"\0\0\0\0\xff\xff"  # no record errors, no message
            else:
                out += _OK_V3.pack(r.index, 0, r.base_offset, r.append_time)
    out += b"\0\0\0\0"  # throttle time
    _I32.pack_into(out, 0, len(out) - 4)
    return out


def _encode_flexible(topics: list[Topic], caller: Caller) -> bytes | bytearray:
    by_id = caller.api_version >= 13
    if len(topics) == 1:
        key, results = topics[0]
        size = len(key)
        if len(results) == 1 and size < 127:
            r = results[0]
            body = _ONE_OK.pack(2, r.index, 0, r.base_offset, r.append_time, r.log_start, 1)
            size += len(body)
            if by_id:
                return _ONE_BY_ID.pack(size + 6, caller.correlation_id, 2) + key + body
            return _ONE_BY_NAME.pack(size + 7, caller.correlation_id, 2, len(key) + 1) + key + body
    out = bytearray(b"\0\0\0\0")
    out += _I32.pack(caller.correlation_id)
    out += b"\0"
    out += _uvarint(len(topics) + 1)
    for key, results in topics:
        if not by_id:
            out += _uvarint(len(key) + 1)
        out += key
        out += _uvarint(len(results) + 1)
        for r in results:
            out += _OK_V5.pack(r.index, 0, r.base_offset, r.append_time, r.log_start)
            out += b"\x01\0\0"  # no record errors, no message, no tags
        out += b"\0"
    out += b"\0\0\0\0\0"  # throttle time, no tags
    _I32.pack_into(out, 0, len(out) - 4)
    return out


# ---- walking a request in place


def _uvarint(value: int) -> bytes:
    if value < 0x80:
        return value.to_bytes(1, "big")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_uvarint(frame: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = frame[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7
            if shift > 28:
                raise ProtocolError("Produce: a variable-length number that is too long")
    except IndexError:
        raise ProtocolError("Produce: the request ends inside a number") from None


def _count(frame: memoryview, position: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        count, position = _read_uvarint(frame, position)
        count -= 1
    else:
        if position + 4 > len(frame):
            raise ProtocolError("Produce: the request ends inside a count")
        count = int(_I32.unpack_from(frame, position)[0])
        position += 4
    # An element takes at least six bytes, so a count cannot claim more than the frame could hold.
    if count < 0 or count * 6 > len(frame) - position:
        raise ProtocolError(f"Produce: an array of {count} elements does not fit into the request")
    return count, position


def _string(frame: memoryview, position: int, flexible: bool) -> tuple[bytes, int]:
    text, position = _nullable_string(frame, position, flexible)
    if text is None:
        raise ProtocolError("Produce: a topic name is null")
    return text, position


def _nullable_string(frame: memoryview, position: int, flexible: bool) -> tuple[bytes | None, int]:
    if flexible:
        length, position = _read_uvarint(frame, position)
        length -= 1
    else:
        if position + 2 > len(frame):
            raise ProtocolError("Produce: the request ends inside a string")
        length = int(_I16.unpack_from(frame, position)[0])
        position += 2
    if length < 0:
        return None, position
    end = position + length
    if end > len(frame):
        raise ProtocolError("Produce: a string reaches beyond the request")
    return bytes(frame[position:end]), end


def _records(frame: memoryview, position: int, flexible: bool) -> tuple[memoryview | None, int]:
    if flexible:
        length, position = _read_uvarint(frame, position)
        length -= 1
    else:
        if position + 4 > len(frame):
            raise ProtocolError("Produce: the request ends before the records")
        length = int(_I32.unpack_from(frame, position)[0])
        position += 4
    if length < 0:
        return None, position
    end = position + length
    if end > len(frame):
        raise ProtocolError("Produce: the records reach beyond the request")
    return frame[position:end], end


def _tags(frame: memoryview, position: int) -> int:
    if position < len(frame) and frame[position] == 0:
        return position + 1
    count, position = _read_uvarint(frame, position)
    if count > len(frame) - position:
        raise ProtocolError("Produce: more tagged fields than bytes")
    for _ in range(count):
        _, position = _read_uvarint(frame, position)
        size, position = _read_uvarint(frame, position)
        position += size
        if position > len(frame):
            raise ProtocolError("Produce: a tagged field reaches beyond the request")
    return position
