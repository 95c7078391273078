"""Formatting log directories: what is written, for whom, and what is refused."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from quorum_world import CLUSTER_ID, own_voter

from moldau.metadata.records import MetadataRecord
from moldau.protocol.generated.metadata.feature_level_record import FeatureLevelRecord
from moldau.protocol.generated.metadata.user_scram_credential_record import UserScramCredentialRecord
from moldau.protocol.uuids import uuid_to_string
from moldau.quorum.bootstrap import read_bootstrap
from moldau.quorum.format import (
    FormatError,
    FormatRequest,
    FormatResult,
    existing_directories,
    format_storage,
)
from moldau.quorum.meta_properties import (
    CorruptMetaProperties,
    MetaProperties,
    new_uuid,
    read_meta_properties,
)
from moldau.quorum.snapshots import read_snapshot
from moldau.quorum.voters import initial_controllers, static_voters
from moldau.testing.disk import SimulatedDisk


def formatted(disk: SimulatedDisk | None = None, **settings: Any) -> tuple[SimulatedDisk, FormatResult]:
    disk = disk or SimulatedDisk()
    settings = {
        "node_id": 1,
        "cluster_id": CLUSTER_ID,
        "directories": ["/a", "/b"],
        "metadata_directory": "/a",
        **settings,
    }
    return disk, format_storage(disk, FormatRequest(**settings), now_ms=1000, random=Random(5))


def levels(records: list[MetadataRecord]) -> dict[str, int]:
    return {r.name: r.feature_level for r in records if isinstance(r, FeatureLevelRecord)}


def test_every_directory_gets_its_properties_and_the_bootstrap_records() -> None:
    disk, result = formatted()
    first, second = read_meta_properties(disk, "/a"), read_meta_properties(disk, "/b")
    assert first is not None
    assert second is not None
    assert (first.cluster_id, first.node_id) == (second.cluster_id, second.node_id) == (CLUSTER_ID, 1)
    assert first.directory_id != second.directory_id
    assert [each.kind for each in result.formatted] == ["metadata directory", "data directory"]
    assert read_bootstrap(disk, "/a") == read_bootstrap(disk, "/b")
    assert levels(read_bootstrap(disk, "/a")) == {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }
    text = disk.read_bytes("/a/meta.properties").decode()
    assert f"cluster.id={CLUSTER_ID}\n" in text
    assert "version=1\n" in text


def test_an_older_release_begins_with_its_own_features() -> None:
    disk, result = formatted(release_version="3.9")
    assert levels(read_bootstrap(disk, "/a")) == {"metadata.version": 21}
    assert result.levels["kraft.version"] == 0


def test_the_unstable_release_needs_permission() -> None:
    with pytest.raises(FormatError, match=r"metadata\.version 4\.4-IV0 is not yet stable"):
        formatted(release_version="4.4-IV0")
    disk, _ = formatted(release_version="4.4-IV0", unstable_features=True)
    assert levels(read_bootstrap(disk, "/a"))["metadata.version"] == 31


def test_features_by_name() -> None:
    disk, _ = formatted(features={"group.version": 0, "transaction.version": 1})
    found = levels(read_bootstrap(disk, "/a"))
    assert "group.version" not in found
    assert found["transaction.version"] == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"features": {"no.such": 1}}, "Unsupported feature: no.such"),
        ({"features": {"group.version": 9}}, "No feature:group.version with feature level 9"),
        ({"features": {"metadata.version": 25}, "release_version": "4.0"}, "Use --release-version instead"),
        ({"features": {"kraft.version": 1}}, "Cannot set kraft.version to 1 unless"),
        ({"features": {"kraft.version": 0}, "dynamic": True}, "Cannot set kraft.version to 0 if"),
        (
            {"features": {"eligible.leader.replicas.version": 1}, "release_version": "3.9"},
            "depends on metadata.version level 23",
        ),
        ({"release_version": "9.9"}, "Unknown metadata.version '9.9'"),
        ({"metadata_directory": "/c"}, "metadata log directory, /c was not one of the given"),
        ({"directories": []}, "at least one directory"),
        ({"node_id": -1}, "non-negative node ID"),
        ({"cluster_id": ""}, "must specify the cluster id"),
        ({"scram": ["SCRAM-SHA-256=[name=alice,password=x]"], "release_version": "3.4"}, "SCRAM is only supported"),
        ({"scram": ["SCRAM-SHA-1=[name=alice,password=x]"]}, "SCRAM-SHA-1 is not supported"),
        ({"scram": ["SCRAM-SHA-256=[password=x]"]}, "must supply 'name'"),
        ({"scram": ["SCRAM-SHA-256=[name=a]"]}, "must supply one of 'password' or 'saltedpassword'"),
        ({"scram": ["SCRAM-SHA-256=[name=a,password=x,iterations=5]"]}, "must be >= 4096"),
        ({"scram": ["SCRAM-SHA-256=[name=a,password=x,color=red]"]}, "Unknown SCRAM configurations: color"),
    ],
)
def test_what_is_refused(settings: dict[str, Any], message: str) -> None:
    disk = SimulatedDisk()
    with pytest.raises(FormatError, match=message.replace(".", r"\.")):
        formatted(disk, **settings)
    assert not disk.exists("/a/meta.properties")


def test_a_dynamic_quorum_begins_with_its_voters() -> None:
    disk, result = formatted(dynamic=True, initial_voters={1: own_voter()})
    snapshot = read_snapshot(disk.read_bytes("/a/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"))
    assert (snapshot.kraft_version, snapshot.voters, snapshot.records) == (1, {1: own_voter()}, [])
    assert result.formatted[0].directory_id == own_voter().directory_id
    assert result.formatted[0].kind == "dynamic metadata voter directory"
    assert not disk.exists("/b/__cluster_metadata-0")


def test_a_node_that_joins_later_gets_no_voters() -> None:
    disk, result = formatted(dynamic=True)
    assert result.levels["kraft.version"] == 1
    assert not disk.exists("/a/__cluster_metadata-0")


def test_scram_users_are_among_the_first_records() -> None:
    disk, _ = formatted(scram=['SCRAM-SHA-256=[name=alice,password="secret",salt="c2FsdA==",iterations=8192]'])
    (user,) = [r for r in read_bootstrap(disk, "/a") if isinstance(r, UserScramCredentialRecord)]
    assert (user.name, user.mechanism, user.salt, user.iterations) == ("alice", 1, b"salt", 8192)
    # Computed by Apache Kafka's ScramFormatter for the same password, salt and iterations.
    assert user.stored_key.hex() == "5f91478c462a04fe57ff623052edb5ad91ebdd7f0cf6dd2a4bc4203fbc61265a"
    assert user.server_key.hex() == "f7bf348917d09e80a3297462968e2ed14ef1498bbbe524015483afe16791863d"


def test_formatted_directories_are_left_alone() -> None:
    disk, _ = formatted(directories=["/a"])
    before = disk.read_bytes("/a/meta.properties")
    with pytest.raises(FormatError, match="Log directory /a is already formatted"):
        formatted(disk)
    _, result = formatted(disk, ignore_formatted=True)
    assert result.already_formatted == ["/a"]
    assert [each.path for each in result.formatted] == ["/b"]
    assert disk.read_bytes("/a/meta.properties") == before


def test_directories_of_another_cluster_or_node_are_refused() -> None:
    disk, _ = formatted(directories=["/a"])
    with pytest.raises(FormatError, match=r"Invalid cluster\.id in: /a/meta\.properties. Expected other"):
        formatted(disk, cluster_id="other", ignore_formatted=True)
    with pytest.raises(FormatError, match="Stored node id 1 doesn't match previous node id 2"):
        formatted(disk, node_id=2, ignore_formatted=True)


def test_two_directories_with_one_id_are_refused() -> None:
    disk, _ = formatted()
    disk.write_atomically("/b/meta.properties", disk.read_bytes("/a/meta.properties"))
    with pytest.raises(FormatError, match="Duplicate directory ID"):
        existing_directories(disk, ["/a", "/b"])


def test_a_crash_before_the_end_leaves_the_directory_unformatted() -> None:
    disk = SimulatedDisk()
    disk.fail("atomic", ending="/a/meta.properties")
    with pytest.raises(OSError, match=r"meta\.properties"):
        formatted(disk)
    assert read_meta_properties(disk, "/a") is None
    formatted(disk)
    assert set(existing_directories(disk, ["/a", "/b"])) == {"/a", "/b"}


def test_meta_properties_of_apache_kafka_are_read() -> None:
    disk = SimulatedDisk()
    disk.make_dirs("/k")
    disk.write_atomically(
        "/k/meta.properties",
        b"#\n#Sun Nov 15 12:00:00 UTC 2026\nnode.id=3\ndirectory.id=dGVzdC1kaXJlY3RvcnktMQ\n"
        b"version=1\ncluster.id=abc\n",
    )
    assert read_meta_properties(disk, "/k") == MetaProperties("abc", 3, b"test-directory-1")
    disk.write_atomically("/k/meta.properties", b"version=7\n")
    with pytest.raises(CorruptMetaProperties, match="version 7"):
        read_meta_properties(disk, "/k")
    disk.write_atomically("/k/meta.properties", b"version=1\ncluster.id=a\n")
    with pytest.raises(CorruptMetaProperties, match="cannot be read"):
        read_meta_properties(disk, "/k")


def test_ids_are_random_and_never_look_like_a_flag() -> None:
    random = Random(1)
    made = {new_uuid(random) for _ in range(500)}
    assert len(made) == 500
    assert not any(uuid_to_string(each).startswith("-") for each in made)


def test_voters_from_text() -> None:
    voters = initial_controllers("1@a.example:9093:dGVzdC1kaXJlY3RvcnktMQ, 2@[::1]:9094:dGVzdC1kaXJlY3RvcnktMg", "C")
    assert voters[1].directory_id == b"test-directory-1"
    assert voters[2].endpoints[0] == ("C", "[::1]", 9094)
    for text in ("1@host:9093", "1@host", "x@host:1:dGVzdC1kaXJlY3RvcnktMQ", ""):
        with pytest.raises(ValueError, match="not a"):
            initial_controllers(text, "C")
    with pytest.raises(ValueError, match="named twice"):
        initial_controllers("1@h:1:dGVzdC1kaXJlY3RvcnktMQ,1@h:2:dGVzdC1kaXJlY3RvcnktMg", "C")
    assert static_voters(["7@h:1"], "C")[7].directory_id == bytes(16)
