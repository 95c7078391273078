"""Formatting: give empty log directories to one node of one cluster, with the records that cluster begins with.

What `kafka-storage format` does, and what a node does on its first start, over the same function. It decides which
feature levels a new cluster gets and what is written where. It must never touch a directory that is already
formatted, and a directory counts as formatted only when everything else in it is durable (`meta.properties` comes
last).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from moldau.metadata.features import (
    FEATURES,
    KRAFT_VERSION,
    LATEST_METADATA_VERSION,
    LATEST_UNSTABLE_METADATA_VERSION,
    METADATA_VERSION,
    SCRAM_SINCE,
    FeatureError,
    Release,
    check_dependencies,
    release_from_string,
    release_of,
)
from moldau.metadata.image import RESERVED_DIRECTORIES
from moldau.metadata.records import MetadataRecord
from moldau.ports import Disk
from moldau.protocol.uuids import uuid_to_string
from moldau.quorum.bootstrap import bootstrap_records, write_bootstrap
from moldau.quorum.meta_properties import (
    META_PROPERTIES,
    CorruptMetaProperties,
    MetaProperties,
    new_uuid,
    read_meta_properties,
    write_meta_properties,
)
from moldau.quorum.scram_arguments import ScramArgumentError, parse_scram_argument
from moldau.quorum.snapshots import BOOTSTRAP_SNAPSHOT_ID, snapshot_batches, snapshot_name, write_whole
from moldau.quorum.voters import VoterSet

METADATA_DIRECTORY: Final = "__cluster_metadata-0"


class FormatError(Exception):
    """Why nothing, or nothing more, was formatted; the text is for the person at the keyboard."""


@dataclass(frozen=True, slots=True)
class FormatRequest:
    """What is to be formatted. `dynamic` is true with any of --standalone, --initial-controllers and
    --no-initial-controllers; `initial_voters` is None without the first two."""

    node_id: int
    cluster_id: str
    directories: Sequence[str]
    metadata_directory: str | None
    """The log directory that will hold the metadata log; None on a node that formats data directories only."""
    release_version: str | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    unstable_features: bool = False
    ignore_formatted: bool = False
    dynamic: bool = False
    initial_voters: VoterSet | None = None
    scram: Sequence[str] = ()


class FormattedDirectory(NamedTuple):
    path: str
    kind: str
    directory_id: bytes


@dataclass(frozen=True, slots=True)
class FormatResult:
    release: Release
    levels: Mapping[str, int]
    formatted: Sequence[FormattedDirectory]
    already_formatted: Sequence[str]


def format_storage(disk: Disk, request: FormatRequest, *, now_ms: int, random: Random) -> FormatResult:
    """Format every directory that is not yet; FormatError when the request cannot be met."""
    _check_request(request)
    release = _release(request)
    levels = _feature_levels(request, release)
    try:
        records: list[MetadataRecord] = bootstrap_records(levels)
        if request.scram and release.level < SCRAM_SINCE:
            raise FormatError(f"SCRAM is only supported in metadata.version {release_of(SCRAM_SINCE).name} or later.")
        records += [parse_scram_argument(argument, random) for argument in request.scram]
    except ScramArgumentError as error:
        raise FormatError(str(error)) from error
    existing = existing_directories(disk, request.directories, cluster_id=request.cluster_id, node_id=request.node_id)
    if existing and not request.ignore_formatted:
        raise FormatError(
            f"Log directory {min(existing)} is already formatted. "
            "Use --ignore-formatted to ignore this directory and format the others."
        )
    formatted = [
        _format_directory(disk, directory, request, levels, records, now_ms, random)
        for directory in sorted(set(request.directories) - existing.keys())
    ]
    return FormatResult(release, levels, formatted, sorted(existing))


def existing_directories(
    disk: Disk, directories: Sequence[str], *, cluster_id: str | None = None, node_id: int | None = None
) -> dict[str, MetaProperties]:
    """The formatted ones among the directories. They must all belong to the same cluster and node (the given ones,
    if any), and no two may have the same directory id."""
    found: dict[str, MetaProperties] = {}
    owner_of: dict[bytes, str] = {}
    for directory in sorted(set(directories)):
        try:
            properties = read_meta_properties(disk, directory)
        except CorruptMetaProperties as error:
            raise FormatError(str(error)) from error
        if properties is None:
            continue
        path = f"{directory}/{META_PROPERTIES}"
        cluster_id = properties.cluster_id if cluster_id is None else cluster_id
        node_id = properties.node_id if node_id is None else node_id
        if properties.cluster_id != cluster_id:
            raise FormatError(f"Invalid cluster.id in: {path}. Expected {cluster_id}, but read {properties.cluster_id}")
        if properties.node_id != node_id:
            raise FormatError(
                f"Stored node id {properties.node_id} doesn't match previous node id {node_id} in {path}. If you moved "
                "your data, make sure your configured node id matches. To create a new node, use empty directories."
            )
        directory_id = properties.directory_id
        if directory_id is not None:
            text = uuid_to_string(directory_id)
            if directory_id in RESERVED_DIRECTORIES:
                raise FormatError(f"Invalid reserved directory ID {text} found in {directory}")
            if directory_id in owner_of:
                raise FormatError(
                    f"Duplicate directory ID {text} found. It was the ID of {owner_of[directory_id]}, "
                    f"but also of {directory}"
                )
            owner_of[directory_id] = directory
        found[directory] = properties
    return found


def _check_request(request: FormatRequest) -> None:
    if request.node_id < 0:
        raise FormatError("You must specify a valid non-negative node ID.")
    if not request.cluster_id:
        raise FormatError("You must specify the cluster id.")
    if not request.directories:
        raise FormatError("You must specify at least one directory to format")
    if request.metadata_directory is not None and request.metadata_directory not in request.directories:
        raise FormatError(
            f"The specified metadata log directory, {request.metadata_directory} was not one of the given "
            f"directories: {', '.join(sorted(request.directories))}"
        )


def _release(request: FormatRequest) -> Release:
    try:
        if METADATA_VERSION in request.features:
            if request.release_version is not None:
                raise FormatError("Use --release-version instead of --feature metadata.version=X to avoid ambiguity.")
            release = release_of(request.features[METADATA_VERSION])
        elif request.release_version is not None:
            release = release_from_string(request.release_version, unstable=True)
        elif request.unstable_features:
            release = release_of(LATEST_UNSTABLE_METADATA_VERSION)
        else:
            release = release_of(LATEST_METADATA_VERSION)
    except FeatureError as error:
        raise FormatError(str(error)) from error
    if not release.stable and not request.unstable_features:
        raise FormatError(f"metadata.version {release.name} is not yet stable.")
    return release


def _feature_levels(request: FormatRequest, release: Release) -> dict[str, int]:
    for name in request.features:
        if name != METADATA_VERSION and name not in FEATURES:
            raise FormatError(f"Unsupported feature: {name}. Supported features are: {', '.join(sorted(FEATURES))}")
    levels = {name: feature.default_level(release.level) for name, feature in FEATURES.items()}
    levels.update(request.features)
    levels[METADATA_VERSION] = release.level
    levels[KRAFT_VERSION] = _kraft_version(request)
    try:
        for name in FEATURES:
            check_dependencies(name, levels[name], levels)
    except FeatureError as error:
        raise FormatError(str(error)) from error
    return levels


def _kraft_version(request: FormatRequest) -> int:
    flags = "one of the flags --standalone, --initial-controllers, or --no-initial-controllers is used"
    wanted = request.features.get(KRAFT_VERSION)
    if wanted is None:
        return 1 if request.dynamic else 0
    if wanted == 0 and request.dynamic:
        raise FormatError(
            f"Cannot set kraft.version to 0 if controller.quorum.voters is empty and {flags}. "
            "For dynamic controllers support, try removing the --feature flag for kraft.version."
        )
    if wanted > 0 and not request.dynamic:
        raise FormatError(
            f"Cannot set kraft.version to {wanted} unless controller.quorum.voters is empty and {flags}. "
            "For dynamic controllers support, use one of these flags and remove controller.quorum.voters."
        )
    return wanted


def _kind(directory: str, request: FormatRequest) -> str:
    if directory != request.metadata_directory:
        return "data directory"
    if request.initial_voters is None:
        return "metadata directory"
    if request.node_id in request.initial_voters:
        return "dynamic metadata voter directory"
    return "dynamic metadata directory"


def _format_directory(
    disk: Disk,
    directory: str,
    request: FormatRequest,
    levels: Mapping[str, int],
    records: Sequence[MetadataRecord],
    now_ms: int,
    random: Random,
) -> FormattedDirectory:
    directory_id = new_uuid(random)
    disk.make_dirs(directory)
    write_bootstrap(disk, directory, records, levels[METADATA_VERSION], now_ms)
    voters = request.initial_voters
    if directory == request.metadata_directory and voters is not None:
        if request.node_id in voters:
            directory_id = voters[request.node_id].directory_id
        log_directory = f"{directory}/{METADATA_DIRECTORY}"
        disk.make_dirs(log_directory)
        batches = snapshot_batches(
            (),
            levels[METADATA_VERSION],
            epoch=BOOTSTRAP_SNAPSHOT_ID.epoch,
            timestamp_ms=now_ms,
            last_timestamp_ms=now_ms,
            kraft_version=levels[KRAFT_VERSION],
            voters=voters,
        )
        write_whole(disk, f"{log_directory}/{snapshot_name(BOOTSTRAP_SNAPSHOT_ID)}", batches)
    write_meta_properties(disk, directory, MetaProperties(request.cluster_id, request.node_id, directory_id))
    disk.sync_dir(directory)
    return FormattedDirectory(directory, _kind(directory, request), directory_id)
