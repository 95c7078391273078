"""The bytes of offsets, written by hand for speed, are those of the generated messages; and Java's hash is Java's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinator.group.offset_records import (
    CommittedOffset,
    offset_key,
    offset_value,
    read_offset_key,
    read_offset_value,
)
from moldau.coordinator.hashing import java_hash, partition_for
from moldau.protocol.coordinator_records import decode_key, decode_value, encode_key, encode_value
from moldau.protocol.generated.group.offset_commit_key import OffsetCommitKey
from moldau.protocol.generated.group.offset_commit_value import OffsetCommitValue

names = st.text(max_size=60)
int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
ids = st.one_of(st.just(bytes(16)), st.binary(min_size=16, max_size=16))


@given(names, names, int32)
def test_keys(group: str, topic: str, partition: int) -> None:
    key = offset_key(group.encode(), topic.encode(), partition)
    assert key == encode_key(OffsetCommitKey(group, topic, partition))
    assert read_offset_key(key) == (group, topic, partition)
    assert decode_key("group", key) == OffsetCommitKey(group, topic, partition)


@given(int64, int32, st.text(max_size=300), int64, st.one_of(st.just(-1), st.integers(0, 2**62)), ids)
def test_values(offset: int, epoch: int, metadata: str, time: int, expires: int, topic_id: bytes) -> None:
    value = offset_value(offset, epoch, metadata, time, expires, topic_id)
    message, version = decode_value("group", 1, value)
    assert version == (4 if expires == -1 else 1)
    assert isinstance(message, OffsetCommitValue)
    assert encode_value(message, version) == value
    found = read_offset_value(value)
    if expires == -1:
        assert found == CommittedOffset(offset, epoch, metadata, time, -1, topic_id)
    else:
        assert found == CommittedOffset(offset, -1, metadata, time, expires, bytes(16)), "version 1 has no epoch"


@pytest.mark.parametrize("version", range(5))
@given(int64, st.text(max_size=200), int64)
def test_values_of_every_version_are_read(version: int, offset: int, metadata: str, time: int) -> None:
    message = OffsetCommitValue(offset=offset, metadata=metadata, commit_timestamp=time)
    found = read_offset_value(encode_value(message, version))
    assert (found.offset, found.metadata, found.commit_timestamp) == (offset, metadata, time)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("schema-registry", -2135014679),
        ("polygenelubricants", -(2**31)),
        ("Žluťoučký kůň", 217635678),
        ("\U0001f40e", 1772401),
    ],
)
def test_java_hash(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_partitions_of_keys() -> None:
    assert partition_for("polygenelubricants", 50) == 0, "the lowest number has no positive counterpart"
    assert partition_for("group", 50) == 98629247 % 50
    assert partition_for("schema-registry", 50) == 2135014679 % 50
