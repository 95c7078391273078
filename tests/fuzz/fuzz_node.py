"""A node without sockets to throw bytes at: simulated disk, virtual clock, and an ear for what it logs."""

from __future__ import annotations

import logging
import os
import random
from typing import Any

from hypothesis import HealthCheck, Phase, settings

from moldau.broker.context import ClientConnection
from moldau.ports import Pending
from moldau.protocol.api import API_TABLE, ApiKey
from moldau.protocol.frames import decode_response, encode_request
from moldau.protocol.generated.wire.api_versions_request import ApiVersionsRequest
from moldau.protocol.generated.wire.broker_heartbeat_request import BrokerHeartbeatRequest
from moldau.protocol.generated.wire.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from moldau.protocol.generated.wire.find_coordinator_request import FindCoordinatorRequest
from moldau.protocol.generated.wire.init_producer_id_request import InitProducerIdRequest
from moldau.protocol.generated.wire.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.generated.wire.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from moldau.protocol.generated.wire.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from moldau.protocol.wire import Message, ProtocolError
from moldau.records.builder import build_batch
from moldau.records.record import Record
from tests.broker.broker_node import SimulatedNode
from tests.protocol.protocol_schemas import RANGES, Case, within

# How much longer than usual to look; with more than 1 every run looks elsewhere.
EFFORT = int(os.environ.get("MOLDAU_FUZZ_EFFORT", "1"))
QUICK = settings(
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=EFFORT == 1,
)
TOPICS = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "both": {"cleanup.policy": "compact,delete", "compression.type": "zstd"},
    "gzip": {"compression.type": "gzip"},
    "snappy": {"compression.type": "snappy"},
    "lz4": {"compression.type": "lz4"},
    "stamped": {"message.timestamp.type": "LogAppendTime", "compression.type": "uncompressed"},
    "timely": {"message.timestamp.before.max.ms": "3600000", "message.timestamp.after.max.ms": "3600000"},
}
PARTITIONS = 2
# (key type, key) of what coordinators coordinate here.
COORDINATORS = ((0, "classic"), (0, "next"), (0, "share"), (0, "streams"), (1, "txn"))
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
THROWS_PER_STEP = 200
STEP_MS = 4000
WORDS = ("group", "1", "retention.ms", "cleanup.policy", "compact", "range", "")
# An answer may be larger than its request, but not without bound.
ANSWER_BYTES_MAX = 8 << 20


class Complaints(logging.Handler):
    """What the node logged as an error of its own."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + (self.formatter or logging.Formatter()).formatException(record.exc_info)
        self.found.append(text)


class Silence:
    """A network in which nobody ever answers: a client may name any address as that of a new controller."""

    def send(self, *_: object, **__: object) -> None:
        pass


class FuzzNode:
    """One node with some topics and records, and what was thrown at it."""

    def __init__(self) -> None:
        self.node = SimulatedNode(
            num_partitions="1",
            max_incremental_fetch_session_cache_slots="10",
            offsets_topic_num_partitions="1",
            transaction_state_log_num_partitions="1",
            share_coordinator_state_topic_num_partitions="1",
        )
        self.complaints = Complaints()
        quorum = self.node.quorum
        quorum.peers = quorum.peers._replace(network=Silence())
        self.topic_ids = {
            name: self.node.create_topic(name, PARTITIONS, **{k.replace(".", "_"): v for k, v in config.items()})
            for name, config in TOPICS.items()
        }
        self._number = 0
        self.words: tuple[str, ...] = (*TOPICS, *WORDS)
        self.numbers: tuple[int, ...] = (0, 1, 2)
        # A request may end this broker's registration; that is no reason to stop.
        self.node.heartbeat = self._try_heartbeat  # type: ignore[method-assign]
        self._populate()

    def _try_heartbeat(self) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=1,
            broker_epoch=self.node.broker_epoch,
            current_metadata_offset=self.node.services.image.offset,
        )
        self.node.ask(request, 1)

    def _populate(self) -> None:
        """Groups of every kind with a member, and a transactional producer: names that mean something."""
        for key_type, key in COORDINATORS:
            self._ask_for_long(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\1\0\5plain\xff\xff\xff\xff")
        joined = self._ask_for_long(
            JoinGroupRequest(
                group_id="classic",
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                protocol_type="consumer",
                protocols=[protocol],
            ),
            3,
        )
        for request in (
            ConsumerGroupHeartbeatRequest(
                group_id="next",
                member_id=MEMBER,
                rebalance_timeout_ms=30_000,
                subscribed_topic_names=["plain"],
                topic_partitions=[],
            ),
            ShareGroupHeartbeatRequest(group_id="share", member_id=MEMBER, subscribed_topic_names=["plain"]),
            StreamsGroupHeartbeatRequest(
                group_id="streams",
                member_id=MEMBER,
                rebalance_timeout_ms=30_000,
                process_id="process",
                topology=Topology(epoch=1, subtopologies=[Subtopology(subtopology_id="0", source_topics=["plain"])]),
                active_tasks=[],
                standby_tasks=[],
                warmup_tasks=[],
            ),
        ):
            if type(request).API_KEY in self.node.broker.router.routes:
                self._ask_for_long(request, type(request).MAX_VERSION)
        producer = self._ask_for_long(InitProducerIdRequest(transactional_id="txn", transaction_timeout_ms=60_000), 5)
        self.words += (joined.member_id, MEMBER, *(key for _, key in COORDINATORS))
        self.numbers += (producer.producer_id, producer.producer_id + 1)

    def _ask_for_long(self, request: Any, version: int) -> Any:
        """The answer to a request that takes some (virtual) time."""
        answer = self.node.client.post(request, version)
        for _ in range(100):
            if answer.done:
                break
            self.node.clock.advance(100)
        return answer.value

    def __enter__(self) -> FuzzNode:
        self._logger = logging.getLogger("moldau")
        self._logger.addHandler(self.complaints)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self.complaints)

    # ---- throwing

    def throw(self, frame: bytes, *, service: Any = None) -> str:
        """What came of a frame (without its length): 'answered', 'silent', 'waiting' or 'refused'."""
        self._number += 1
        service = service or self.node.broker
        connection = ClientConnection(self._number, "PLAINTEXT", "192.0.2.9", 40000)
        try:
            outcome = service.dispatch(memoryview(frame), connection)
            service.after_requests()
        except ProtocolError:
            return "refused"
        finally:
            self.check(frame)
        if self._number % THROWS_PER_STEP == 0:
            # Sessions end, transactions take too long, members are waited for in vain.
            self.node.clock.advance(STEP_MS)
            self.check(frame)
        if isinstance(outcome, Pending) and not outcome.done:
            service.disconnected(connection)
            return "waiting"
        value = outcome.value if isinstance(outcome, Pending) else outcome
        service.disconnected(connection)
        if value is None:
            return "silent"
        whole = b"".join(bytes(each) for each in value)
        assert int.from_bytes(whole[:4], "big") == len(whole) - 4, f"a frame with the wrong length after {frame!r}"
        assert len(whole) < ANSWER_BYTES_MAX, f"{len(whole)} bytes in answer to {frame!r}"
        assert whole[4:8] == frame[4:8], "somebody else's correlation id"
        return "answered"

    def check(self, frame: bytes) -> None:
        if self.complaints.found:
            raise AssertionError(f"{frame!r} made the node complain:\n" + "\n".join(self.complaints.found))

    def alive(self) -> None:
        request = ApiVersionsRequest(client_software_name="fuzz", client_software_version="1")
        answer = self.ask(request, 4)
        assert answer.error_code == 0

    def ask(self, request: Any, version: int) -> Any:
        spec = API_TABLE[type(request).API_KEY]
        frame = encode_request(spec, version, 7, "fuzz", request)[4:]
        connection = ClientConnection(0, "PLAINTEXT", "192.0.2.9", 40000)
        outcome = self.node.broker.dispatch(memoryview(frame), connection)
        self.node.broker.after_requests()
        self.check(frame)
        value = outcome.value if isinstance(outcome, Pending) else outcome
        return decode_response(spec, version, b"".join(bytes(each) for each in value)[4:])[1]

    # ---- requests that get somewhere

    def inform(self, case: Case, message: Any, chance: random.Random, struct: str | None = None) -> Any:
        """Put names, ids, numbers and records into a message that mean something to this node."""
        for field in case.fields(struct or case.name):
            if chance.randrange(4):
                name = field["attribute"]
                setattr(message, name, self._informed(case, field, getattr(message, name), chance))
        return message

    def _informed(self, case: Case, field: dict[str, Any], value: Any, chance: random.Random) -> Any:
        kind = field["type"]
        if isinstance(value, list):
            return [self._informed(case, field, each, chance) for each in value]
        if isinstance(value, Message):
            return self.inform(case, value, chance, kind)
        if value is None:
            return None
        if kind == "string":
            return chance.choice([*self.words, value])
        if kind == "uuid":
            return chance.choice([*self.topic_ids.values(), bytes(16), value])
        if kind == "records":
            return sample_batch(chance)
        if kind in RANGES:
            low, high = RANGES[kind]
            return chance.choice([value, max(-1, low), *(each for each in self.numbers if each <= high)])
        return value


def sample_batch(chance: random.Random, *, now: int = 1_700_000_000_000) -> bytes:
    """A batch as a client would send it."""
    count = chance.choice((1, 1, 2, 5, 30))
    records = [
        Record(
            i,
            now + chance.randrange(1000),
            chance.choice((None, b"", b"key", b"key2", bytes(200))),
            chance.choice((None, b"", b"value", bytes(300))),
            chance.choice(((), (("h", b"v"),), (("h", None), ("", b"")))),
        )
        for i in range(count)
    ]
    producer = chance.randrange(3) == 0
    return build_batch(
        records,
        codec=chance.randrange(5),
        producer_id=chance.choice((1, 2, 3)) if producer else -1,
        producer_epoch=0 if producer else -1,
        base_sequence=chance.choice((0, 1, 5, 2**31 - 1)) if producer else -1,
    )


def sample_message(case: Case, chance: random.Random, struct: str | None = None) -> Any:
    """A small message of this version, without hypothesis: for tools that mutate by themselves."""
    message = getattr(case.module(), struct or case.name)()
    for field in case.fields(struct or case.name):
        nullable = within(field.get("nullable"), case.version) and chance.randrange(4) == 0
        if field.get("array"):
            value: Any = [_sample_value(case, field, chance) for _ in range(chance.randrange(3))]
        else:
            value = _sample_value(case, field, chance)
        setattr(message, field["attribute"], None if nullable else value)
    return message


def _sample_value(case: Case, field: dict[str, Any], chance: random.Random) -> Any:
    kind = field["type"]
    if kind in RANGES:
        return chance.choice((0, 1, RANGES[kind][0], RANGES[kind][1]))
    simple = {
        "bool": bool(chance.randrange(2)),
        "float64": 1.5,
        "uuid": chance.randbytes(16),
        "string": chance.choice((*TOPICS, *WORDS)),
        "bytes": chance.randbytes(5),
        "records": b"",
    }
    return simple[kind] if kind in simple else sample_message(case, chance, kind)


def served(service: Any) -> list[tuple[ApiKey, int, int]]:
    """(key, lowest, highest version) of everything that can be asked there."""
    return [(ApiKey(key), route.min_version, route.max_version) for key, route in sorted(service.router.routes.items())]
