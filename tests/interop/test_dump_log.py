"""Apache's dump tool reads every file that Moldau left in its directory, and finds nothing to complain about."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from moldau.testing import Cluster
from tests.clients.java_tools import DUMP_LOG, JavaTools
from tests.clients.sample import samples
from tests.interop.conftest import Journey, WrittenByMoldau

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]

COMPLAINTS = (
    "ismatch",
    "out of order",
    "not found",
    "Non-consecutive",
    "isvalid: false",
    "Could not",
    "rror",
    "orrupt",
)
BATCH = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*?partitionLeaderEpoch: (\d+) .*?compresscodec: (\w+)"
)


def dump(java: JavaTools, files: Iterable[Path], *options: str) -> str:
    named = ",".join(map(str, sorted(files)))
    assert named
    printed = java.run(DUMP_LOG, *options, "--files", named)
    for complaint in COMPLAINTS:
        assert complaint not in printed
    return printed


def files_of(directory: Path, pattern: str) -> list[Path]:
    """The matching files of every partition of the topics."""
    return [file for file in directory.glob(f"*/{pattern}") if file.parent.name != "__cluster_metadata-0"]


@pytest.fixture(params=["as Moldau wrote it", "after Kafka had it as well"])
def directory(request: pytest.FixtureRequest, written_by_moldau: WrittenByMoldau) -> Path:
    if request.param == "as Moldau wrote it":
        return written_by_moldau.directory
    journey: Journey = request.getfixturevalue("from_moldau")
    return journey.directories[0]


def test_every_record_of_every_segment_is_valid(
    directory: Path, java_tools: JavaTools, written_by_moldau: WrittenByMoldau
) -> None:
    dumped = dump(java_tools, files_of(directory, "*.log"), "--deep-iteration")
    records = sum(len(each) for each in written_by_moldau.stop.left.records.values())
    # Deleted records stay in their segment until all of it can go.
    assert dumped.count("| offset:") >= records + 33
    assert {match[5] for match in BATCH.finditer(dumped)} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert len(list(directory.glob("codecs-0/*.log"))) > 3


def test_payloads_can_be_printed(written_by_moldau: WrittenByMoldau, java_tools: JavaTools) -> None:
    orders = list(written_by_moldau.directory.glob("orders-*/*.log"))
    dumped = dump(java_tools, orders, "--print-data-log")
    assert dumped.count("payload: kůň 🐎") == 3 * sum(each.value == "kůň 🐎".encode() for each in samples())
    assert "headerKeys: [empty,twice,twice] key:  payload: " in dumped
    assert "key: tombstone" in dumped


def test_indexes_agree_with_their_segments(directory: Path, java_tools: JavaTools) -> None:
    indexes = files_of(directory, "*.index") + files_of(directory, "*.timeindex")
    checked = dump(java_tools, indexes, "--index-sanity-check")
    assert checked.count("passed sanity check") + checked.count("is empty") == len(indexes)
    dump(java_tools, indexes, "--verify-index-only")
    entries = dump(java_tools, directory.glob("codecs-0/*.index"))
    assert entries.count("offset: ") > 10
    assert dump(java_tools, directory.glob("codecs-0/*.timeindex")).count("timestamp: ") > 3


def test_producer_snapshots_name_the_producer(directory: Path, java_tools: JavaTools) -> None:
    newest = max(directory.glob("idempotent-0/*.snapshot"))
    printed = dump(java_tools, [newest])
    end = int(newest.stem)
    assert re.findall(r"producerId: \d+ producerEpoch: (\d+) .*? lastSequence: (\d+)", printed) == [("0", str(end - 1))]


def test_the_leader_epochs_are_those_of_the_batches(directory: Path, java_tools: JavaTools) -> None:
    starts = log_starts(directory)
    for partition in directory.glob("[!_]*-[0-9]"):
        version, count, *entries = (partition / "leader-epoch-checkpoint").read_text().splitlines()
        assert (version, int(count)) == ("0", len(entries))
        written = [(int(epoch), int(offset)) for epoch, offset in map(str.split, entries)]
        assert written == sorted(written)
        expected: dict[int, int] = {}
        for match in BATCH.finditer(dump(java_tools, partition.glob("*.log"))):
            # Where records were deleted from the front, their epoch starts with the first that is left.
            expected.setdefault(int(match[4]), max(int(match[1]), starts.get(partition.name, 0)))
        # An epoch in which nothing was written may be named as well.
        assert expected.items() <= dict(written).items()


def log_starts(directory: Path) -> dict[str, int]:
    """Partition -> where its log starts, of those whose records were deleted from the front."""
    _, _, *entries = (directory / "log-start-offset-checkpoint").read_text().splitlines()
    found = {f"{topic}-{index}": int(offset) for topic, index, offset in map(str.split, entries)}
    assert found["trimmed-0"] == 33
    return found


def payloads(printed: str) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = defaultdict(list)
    for line in printed.splitlines():
        if "payload: {" in line:
            record = json.loads(line.partition("payload: ")[2])
            found[record["type"]].append(record["data"])
    return found


def test_the_metadata_log_tells_what_was_done(written_by_moldau: WrittenByMoldau, java_tools: JavaTools) -> None:
    metadata = written_by_moldau.directory / "__cluster_metadata-0"
    printed = dump(java_tools, metadata.glob("*.log"), "--cluster-metadata-decoder")
    found = payloads(printed)
    created = {each["name"] for each in found["TOPIC_RECORD"]}
    assert created >= {*written_by_moldau.stop.left.topics, "gone"}
    assert len(found["REMOVE_TOPIC_RECORD"]) == 1
    assert {each["name"] for each in found["CONFIG_RECORD"]} >= {"max.message.bytes", "log.cleaner.threads"}
    assert len(found["CLIENT_QUOTA_RECORD"]) == 1
    assert found["REGISTER_BROKER_RECORD"][0]["brokerId"] == 1
    indexes = [*metadata.glob("*.index"), *metadata.glob("*.timeindex")]
    dump(java_tools, indexes, "--index-sanity-check")


def test_a_metadata_snapshot_holds_the_same(
    written_by_moldau: WrittenByMoldau, tmp_path: Path, java_tools: JavaTools
) -> None:
    """A node that is told to write snapshots often leaves one that Apache's tool reads."""
    config = {"metadata.log.max.record.bytes.between.snapshots": "1"}
    with Cluster(config, data_dir=tmp_path) as cluster:
        cluster.create_topic("first", 3, {"retention.ms": "1234"})
        cluster.create_topic("second")
    newest = max((tmp_path / "data" / "__cluster_metadata-0").glob("*.checkpoint"))
    found = payloads(dump(java_tools, [newest], "--cluster-metadata-decoder"))
    assert "first" in {each["name"] for each in found["TOPIC_RECORD"]}
    assert {each["name"] for each in found["FEATURE_LEVEL_RECORD"]} >= {"metadata.version"}
