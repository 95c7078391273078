"""The answer to a Fetch: packed by hand around the records, which are not copied.

Decides only how an answer looks in each version. What is in it was decided by `fetch.py`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from moldau.broker.context import Caller
from moldau.broker.fetch_partition import FetchPartition
from moldau.broker.fetch_session import FetchContext
from moldau.broker.leaders import UNKNOWN_LEADER, CurrentLeader, current_leader, topic_name
from moldau.broker.router import Answer
from moldau.broker.services import BrokerServices
from moldau.ports import Buffer
from moldau.protocol.errors import ErrorCode
from moldau.protocol.wire import Writer, put_uvarint
from moldau.replication.partition import Partition

_I32: Final = Struct(">i")
_HEAD: Final = Struct(">ihi")  # throttle time, error, session id
_PARTITION: Final = Struct(">ihqqq")  # index, error, high watermark, last stable offset, log start offset
_DIVERGING: Final = Struct(">iqx")  # epoch, end offset, no tags
_LEADER: Final = Struct(">iix")  # id, epoch, no tags
# Size, correlation id, no tags, then _HEAD, a topic with its id, and one partition up to the size of its records.
_ONE_PARTITION: Final = Struct(">iix" + "ihi" + "B16sB" + "ihqqq" + "Bi")
_NO_TAGS: Final = b"\0\0\0"  # of the partition, of the topic, of the answer
# Up to here one piece of memory is cheaper to send than three.
_JOINED_BYTES_MAX: Final = 4096
# Older clients would not look for another replica when a disk fails.
_STORAGE_ERROR_SINCE: Final = 6
_TOPIC_IDS_SINCE: Final = 13
_LEADERS_SINCE: Final = 16
_LEADER_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class PartitionRead:
    """What one partition contributes to an answer."""

    __slots__ = (
        "aborted",
        "asked",
        "diverging",
        "error",
        "high_watermark",
        "last_stable",
        "log_start",
        "partition",
        "preferred_replica",
        "records",
        "size",
    )

    def __init__(self, asked: FetchPartition) -> None:
        self.asked = asked
        self.partition: Partition | None = None
        self.error = 0
        self.high_watermark = -1
        self.last_stable = -1
        self.log_start = -1
        # (producer id, first offset) of aborted transactions; None for readers that do not ask.
        self.aborted: list[tuple[int, int]] | None = None
        # (epoch, end offset) from where on the reader's log is not this one's.
        self.diverging: tuple[int, int] | None = None
        # Another broker that the reader should turn to.
        self.preferred_replica = -1
        self.records: list[Buffer] | None = None
        self.size = 0

    def failed(self, code: int) -> None:
        """Nothing but the error is said of this partition."""
        self.error = code
        self.high_watermark = self.last_stable = self.log_start = -1
        self.aborted = self.records = self.diverging = None
        self.size = 0

    def is_news(self) -> bool:
        """Whether an incremental session must mention this partition."""
        asked = self.asked
        return bool(
            self.size
            or self.error
            or self.high_watermark != asked.high_watermark
            or self.log_start != asked.log_start
            or self.diverging is not None
            or self.preferred_replica >= 0
        )


def encode_answer(
    services: BrokerServices, caller: Caller, context: FetchContext, reads: list[PartitionRead]
) -> Answer:
    writer = _AnswerWriter(services, caller, context)
    writer.begin()
    by_topic: dict[bytes, list[PartitionRead]] = {}
    for read in reads:
        by_topic.setdefault(read.asked.topic_key, []).append(read)
    writer.topics(by_topic)
    return writer.finish()


def one_partition(caller: Caller, context: FetchContext, read: PartitionRead, records: list[Buffer]) -> Answer:
    """What most answers are: records of one partition and nothing else to say, from version 13 on."""
    size = bytearray()
    put_uvarint(size, read.size + 1)
    asked = read.asked
    head = _ONE_PARTITION.pack(
        _ONE_PARTITION.size - 4 + len(size) + read.size + len(_NO_TAGS),
        caller.correlation_id,
        0,  # throttle time
        0,  # no error
        context.session_id,
        2,  # one topic
        asked.topic_key,
        2,  # one partition
        asked.index,
        0,  # no error
        read.high_watermark,
        read.last_stable,
        read.log_start,
        0,  # aborted transactions: null
        read.preferred_replica,
    )
    if read.size <= _JOINED_BYTES_MAX:
        return [b"".join((head, size, *records, _NO_TAGS))]
    return [head + size, *records, _NO_TAGS]


class _AnswerWriter:
    __slots__ = ("_buffers", "_caller", "_context", "_flexible", "_leaders", "_out", "_services", "_size")

    def __init__(self, services: BrokerServices, caller: Caller, context: FetchContext) -> None:
        self._services = services
        self._caller = caller
        self._context = context
        self._flexible = caller.api_version >= 12
        self._buffers: list[Buffer] = []
        self._leaders: dict[int, CurrentLeader] = {}
        self._out = Writer()
        self._size = 0

    def begin(self) -> None:
        out = self._out
        caller = self._caller
        out.buf += b"\0\0\0\0"
        out.int32(caller.correlation_id)
        if self._flexible:
            out.buf.append(0)
        if caller.api_version >= 7:
            out.buf += _HEAD.pack(0, self._context.error, self._context.session_id)
        else:
            out.int32(0)

    def topics(self, by_topic: dict[bytes, list[PartitionRead]]) -> None:
        version = self._caller.api_version
        flexible = self._flexible
        self._array(len(by_topic))
        for key, reads in by_topic.items():
            out = self._out
            if version < _TOPIC_IDS_SINCE:
                if flexible:
                    out.uvarint(len(key) + 1)
                else:
                    out.int16(len(key))
            out.buf += key
            self._array(len(reads))
            for read in reads:
                self._partition(read, version)
            if flexible:
                self._out.buf.append(0)
        if flexible:
            if self._leaders:
                self._node_endpoints()
            else:
                self._out.buf.append(0)

    def _array(self, count: int) -> None:
        if self._flexible:
            self._out.uvarint(count + 1)
        else:
            self._out.int32(count)

    def _partition(self, read: PartitionRead, version: int) -> None:
        out = self._out
        error = read.error
        if error == ErrorCode.KAFKA_STORAGE_ERROR and version < _STORAGE_ERROR_SINCE:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        body = _PARTITION.pack(read.asked.index, error, read.high_watermark, read.last_stable, read.log_start)
        out.buf += body if version >= 5 else body[:-8]
        aborted = read.aborted
        if aborted is None:
            out.buf += b"\0" if self._flexible else b"\xff\xff\xff\xff"
        else:
            self._array(len(aborted))
            for producer_id, first_offset in aborted:
                out.int64(producer_id)
                out.int64(first_offset)
                if self._flexible:
                    out.buf.append(0)
        if version >= 11:
            out.int32(read.preferred_replica)
        if self._flexible:
            out.uvarint(read.size + 1)
        else:
            out.int32(read.size)
        if read.records is not None:
            self._splice(read.records, read.size)
        if self._flexible:
            if read.diverging is None and not read.error:
                self._out.buf.append(0)
            else:
                self._partition_tags(read, version)

    def _partition_tags(self, read: PartitionRead, version: int) -> None:
        tags: list[bytes] = []
        if read.diverging is not None:
            tags.append(b"\x00\x0d" + _DIVERGING.pack(*read.diverging))
        if version >= _LEADERS_SINCE and read.error in _LEADER_ERRORS:
            leader = self._leader(read)
            tags.append(b"\x01\x09" + _LEADER.pack(leader.leader_id, leader.leader_epoch))
            if leader.endpoint is not None:
                self._leaders[leader.leader_id] = leader
        out = self._out.buf
        out.append(len(tags))
        for tag in tags:
            out += tag

    def _leader(self, read: PartitionRead) -> CurrentLeader:
        name = topic_name(self._services, read.asked.topic_key, by_id=True)
        if name is None:
            return UNKNOWN_LEADER
        return current_leader(self._services, name, read.asked.index, self._caller.listener_name)

    def _node_endpoints(self) -> None:
        """Tag 0 of the answer: where the leaders named in it can be reached."""
        nodes = Writer()
        nodes.compact_array_length(len(self._leaders))
        for node_id, leader in self._leaders.items():
            assert leader.endpoint is not None
            nodes.int32(node_id)
            nodes.compact_string(leader.endpoint.host)
            nodes.int32(leader.endpoint.port)
            nodes.compact_nullable_string(leader.rack)
            nodes.empty_tagged_fields()
        out = self._out
        out.buf += b"\x01\x00"  # one tag, number 0
        out.uvarint(len(nodes.buf))
        out.buf += nodes.buf

    def _splice(self, records: list[Buffer], size: int) -> None:
        self._buffers.append(self._out.buf)
        self._size += len(self._out.buf) + size
        self._buffers += records
        self._out = Writer()

    def finish(self) -> Answer:
        if self._out.buf:
            self._buffers.append(self._out.buf)
            self._size += len(self._out.buf)
        head = self._buffers[0]
        assert isinstance(head, bytearray)
        _I32.pack_into(head, 0, self._size - 4)
        return self._buffers
