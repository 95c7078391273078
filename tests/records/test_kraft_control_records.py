"""Control records of the metadata log, through a batch and back."""

from __future__ import annotations

import pytest

from moldau.protocol.generated.wire.kraft_version_record import KRaftVersionRecord
from moldau.protocol.generated.wire.leader_change_message import LeaderChangeMessage, Voter
from moldau.protocol.generated.wire.snapshot_footer_record import SnapshotFooterRecord
from moldau.protocol.generated.wire.snapshot_header_record import SnapshotHeaderRecord
from moldau.protocol.generated.wire.voters_record import VotersRecord
from moldau.records.batch import BatchHeader
from moldau.records.builder import build_control_batch, build_end_transaction_marker
from moldau.records.compression import CorruptRecords
from moldau.records.control import build_kraft_control_batch, decode_kraft_control
from moldau.records.record import read_control_records


def test_every_kind_comes_back() -> None:
    messages = [
        SnapshotHeaderRecord(version=0, last_contained_log_timestamp=1234),
        KRaftVersionRecord(version=0, kraft_version=1),
        VotersRecord(version=0),
        LeaderChangeMessage(version=1, leader_id=3, voters=[Voter(3, bytes(range(16)))], granting_voters=[Voter(3)]),
        SnapshotFooterRecord(version=0),
    ]
    batch = build_kraft_control_batch(messages, timestamp=99, base_offset=7, leader_epoch=2)
    header = BatchHeader(batch)
    assert (header.base_offset, header.partition_leader_epoch, header.is_control) == (7, 2, True)
    records = read_control_records(batch)
    assert [record.type for record in records] == [3, 5, 6, 2, 4]
    assert [decode_kraft_control(record) for record in records] == messages


def test_a_transaction_marker_is_not_krafts() -> None:
    marker = build_end_transaction_marker(
        committed=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=0
    )
    assert decode_kraft_control(read_control_records(marker)[0]) is None


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x01\x00", b"\xff\xff\x00"])
def test_a_value_that_cannot_be_read_is_corrupt(value: bytes) -> None:
    (record,) = read_control_records(build_control_batch([(2, value)], timestamp=0))
    with pytest.raises(CorruptRecords):
        decode_kraft_control(record)
