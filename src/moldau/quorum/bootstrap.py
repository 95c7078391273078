"""`bootstrap.checkpoint`: the records a new cluster begins with, written by formatting into every log directory.

The first controller of a cluster appends these records to the empty log; after that the file is not looked at again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from moldau.metadata.features import KRAFT_VERSION, LATEST_METADATA_VERSION, METADATA_VERSION
from moldau.metadata.records import MetadataRecord
from moldau.ports import Disk
from moldau.protocol.generated.metadata.feature_level_record import FeatureLevelRecord
from moldau.quorum.snapshots import read_snapshot, snapshot_batches, write_whole

BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"


def bootstrap_records(levels: Mapping[str, int]) -> list[MetadataRecord]:
    """Feature levels as records; kraft.version is not among them, since the log's own control records carry it."""
    others = sorted(name for name in levels if name not in (METADATA_VERSION, KRAFT_VERSION) and levels[name] > 0)
    return [FeatureLevelRecord(name=name, feature_level=levels[name]) for name in (METADATA_VERSION, *others)]


def write_bootstrap(
    disk: Disk, directory: str, records: Sequence[MetadataRecord], metadata_version: int, now_ms: int
) -> None:
    batches = snapshot_batches(records, metadata_version, epoch=0, timestamp_ms=now_ms, last_timestamp_ms=0)
    write_whole(disk, f"{directory}/{BOOTSTRAP_FILE}", batches)


def read_bootstrap(disk: Disk, directory: str) -> list[MetadataRecord]:
    """What the cluster begins with; a directory without the file begins with the latest stable release alone."""
    try:
        data = disk.read_bytes(f"{directory}/{BOOTSTRAP_FILE}")
    except FileNotFoundError:
        return bootstrap_records({METADATA_VERSION: LATEST_METADATA_VERSION})
    return read_snapshot(data).records
