"""What the generated classes promise beyond their bytes: names, defaults, versions, tags, laziness."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from moldau.protocol.codec import decode, encode
from moldau.protocol.generated.group.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from moldau.protocol.generated.metadata.partition_record import PartitionRecord
from moldau.protocol.generated.wire.create_topics_request import CreateTopicsRequest
from moldau.protocol.generated.wire.describe_topic_partitions_request import Cursor, DescribeTopicPartitionsRequest
from moldau.protocol.generated.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from moldau.protocol.generated.wire.kraft_version_record import KRaftVersionRecord
from moldau.protocol.generated.wire.metadata_request import MetadataRequest, MetadataRequestTopic
from moldau.protocol.generated.wire.request_header import RequestHeader
from moldau.protocol.wire import Message, ProtocolError

HEADER = RequestHeader(request_api_key=18, request_api_version=3, correlation_id=7, client_id="me")


def test_classes_say_which_versions_they_have() -> None:
    assert (FetchRequest.API_KEY, FetchRequest.MIN_VERSION, FetchRequest.MAX_VERSION) == (1, 4, 18)
    assert FetchRequest.FLEXIBLE_FROM == 12
    assert KRaftVersionRecord.API_KEY is None


def test_defaults_come_from_the_specification() -> None:
    assert CreateTopicsRequest().timeout_ms == 60000
    assert FetchRequest().max_bytes == 0x7FFFFFFF
    assert FetchRequest().topics == []
    assert FetchRequest().topics is not FetchRequest().topics
    assert FetchRequest().replica_state == ReplicaState(replica_id=-1, replica_epoch=-1)
    record = PartitionRecord()
    assert (record.partition_id, record.eligible_leader_replicas) == (-1, None)
    # Kafka reads a JSON null in a specification as "no default given", which here makes an empty struct.
    assert ConsumerGroupMemberMetadataValue().classic_member_metadata is not None


def test_messages_compare_print_and_copy_by_field() -> None:
    topic = MetadataRequestTopic(name="t")
    request = MetadataRequest(topics=[topic])
    assert request == MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    assert request != MetadataRequest(topics=[])
    assert topic != HEADER
    assert "MetadataRequestTopic(topic_id=" in repr(request)
    assert "name='t'" in repr(request)
    assert dataclasses.replace(topic, name="u").name == "u"
    assert [field.name for field in dataclasses.fields(MetadataRequestTopic)] == ["topic_id", "name"]
    assert dataclasses.asdict(topic) == {"topic_id": bytes(16), "name": "t"}
    assert not dataclasses.is_dataclass(Message)
    with pytest.raises(TypeError):
        hash(topic)
    with pytest.raises(AttributeError):
        topic.nmae = "typo"  # type: ignore[attr-defined]


def test_messages_that_are_compiled_for_the_wheel_are_no_different() -> None:
    partition = FetchPartition(partition=3)
    topic = FetchTopic(topic="t", partitions=[partition])
    request = FetchRequest(topics=[topic], replica_state=ReplicaState(replica_id=1))
    assert request == FetchRequest(topics=[dataclasses.replace(topic)], replica_state=ReplicaState(replica_id=1))
    assert request != FetchRequest(topics=[])
    assert FetchRequest().topics == []
    assert FetchRequest().topics is not FetchRequest().topics
    assert FetchRequest().replica_state == ReplicaState()
    assert "FetchPartition(partition=3, current_leader_epoch=-1," in repr(request)
    assert dataclasses.replace(partition, fetch_offset=7) == FetchPartition(partition=3, fetch_offset=7)
    assert [field.name for field in dataclasses.fields(ReplicaState)] == ["replica_id", "replica_epoch"]
    assert FetchRequest.API_KEY == 1
    with pytest.raises(TypeError):
        hash(partition)
    with pytest.raises(AttributeError):
        partition.nmae = "typo"  # type: ignore[attr-defined]


def test_the_client_id_in_a_header_is_never_compact() -> None:
    assert encode(HEADER, 1) == b"\x00\x12\x00\x03\x00\x00\x00\x07\x00\x02me"
    assert encode(HEADER, 2) == encode(HEADER, 1) + b"\x00"


def test_a_field_the_version_lacks_must_keep_its_default() -> None:
    with pytest.raises(ProtocolError, match="include_topic_authorized_operations is set"):
        encode(MetadataRequest(include_topic_authorized_operations=True), 7)
    # ClusterId is tagged and ignorable nowhere below version 12.
    with pytest.raises(ProtocolError, match="replica_state is set"):
        encode(FetchRequest(replica_state=ReplicaState(replica_id=1)), 14)


def test_an_ignorable_field_is_left_out() -> None:
    request = FetchRequest(rack_id="r1")
    assert decode(FetchRequest, encode(request, 4), 4).rack_id == ""
    assert decode(FetchRequest, encode(request, 11), 11).rack_id == "r1"


def test_null_depends_on_the_version() -> None:
    everything = MetadataRequest(topics=None)
    assert encode(everything, 1)[:4] == b"\xff\xff\xff\xff"
    with pytest.raises(ProtocolError, match="topics must not be null in version 0"):
        encode(everything, 0)
    with pytest.raises(ProtocolError, match="topics must not be null"):
        decode(MetadataRequest, b"\xff\xff\xff\xff", 0)


def test_nullable_structs_have_a_marker() -> None:
    absent = DescribeTopicPartitionsRequest(cursor=None)
    present = DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="t", partition_index=1))
    assert encode(absent, 0)[-2:] == b"\xff\x00"
    assert encode(present, 0)[-9:] == b"\x01\x02t\x00\x00\x00\x01\x00\x00"
    for request in (absent, present):
        assert decode(DescribeTopicPartitionsRequest, encode(request, 0), 0) == request


def test_nullable_structs_among_tagged_fields_have_another_marker() -> None:
    member = ConsumerGroupMemberMetadataValue()
    plain = encode(member, 0)[:-1]
    member.classic_member_metadata = None
    assert encode(member, 0) == plain + b"\x01\x00\x01\x00"
    member.classic_member_metadata = ClassicMemberMetadata(session_timeout_ms=7)
    assert encode(member, 0) == plain + b"\x01\x00\x07\x01\x00\x00\x00\x07\x01\x00"
    assert decode(ConsumerGroupMemberMetadataValue, encode(member, 0), 0) == member


def test_tagged_fields_are_written_only_when_they_say_something() -> None:
    quiet = encode(FetchRequest(), 15)
    loud = encode(FetchRequest(cluster_id="c", replica_state=ReplicaState(replica_id=3)), 15)
    assert quiet.endswith(b"\x00")
    assert loud == quiet[:-1] + b"\x02" + b"\x00\x02\x02c" + b"\x01\x0d\x00\x00\x00\x03" + b"\xff" * 8 + b"\x00"


@pytest.mark.parametrize(
    "section",
    [
        b"\x01\x00\x03\x02c",  # the tag claims one byte more than its field takes
        b"\x01\x00\x01\x02c",  # and one byte less
        b"\x02\x00\x02\x02c\x00\x02\x02c",  # the same tag twice
        b"\x02\x63\x00\x00\x02\x02c",  # tags out of order
        b"\x05",  # fields that are not there
    ],
)
def test_malformed_tagged_fields_are_refused(section: bytes) -> None:
    body = encode(FetchRequest(), 15)[:-1]
    with pytest.raises(ProtocolError):
        decode(FetchRequest, body + section, 15)


def test_unknown_tagged_fields_are_skipped() -> None:
    body = encode(FetchRequest(), 15)[:-1]
    request = decode(FetchRequest, body + b"\x02\x00\x02\x02c\x63\x03abc", 15)
    assert request == FetchRequest(cluster_id="c")


@pytest.mark.parametrize(
    "request_", [FetchRequest(max_wait_ms=2**31), FetchRequest(rack_id="x" * 32768), FetchRequest(rack_id="\ud800")]
)
@pytest.mark.parametrize("version", [11, 15])
def test_values_that_do_not_fit_cannot_be_written(request_: FetchRequest, version: int) -> None:
    with pytest.raises(ProtocolError):
        encode(request_, version)


def test_importing_one_message_imports_no_other() -> None:
    program = (
        "import sys, moldau.protocol.api, moldau.protocol.frames, moldau.protocol.errors\n"
        "import moldau.protocol.generated.wire.produce_request\n"
        "print(*sorted(name for name in sys.modules if '.generated.' in name))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "moldau.protocol.generated.api_table",
        "moldau.protocol.generated.wire",
        "moldau.protocol.generated.wire.produce_request",
    ]
