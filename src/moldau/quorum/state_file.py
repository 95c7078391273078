"""The file `quorum-state`: the epoch this node has seen, and whom it voted for in it.

It must be durable before a vote or a claim of leadership leaves the node: forgetting a vote could elect two leaders
in one epoch. The format is Apache Kafka's, one line of JSON, version 0 for kraft.version 0 and version 1 after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, NamedTuple

from moldau.ports import Disk
from moldau.protocol.uuids import ZERO_UUID, uuid_from_string, uuid_to_string

QUORUM_STATE_FILE: Final = "quorum-state"
NOBODY: Final = -1


class ElectionState(NamedTuple):
    epoch: int
    leader_id: int = NOBODY
    voted_id: int = NOBODY
    voted_directory_id: bytes = ZERO_UUID


class CorruptQuorumState(Exception):
    """The file is there, but is not what any version of Kafka or this one writes."""


def read_election_state(disk: Disk, directory: str) -> ElectionState | None:
    """What the file says; None before the first election."""
    path = f"{directory}/{QUORUM_STATE_FILE}"
    try:
        text = disk.read_bytes(path).decode()
    except FileNotFoundError:
        return None
    try:
        data = json.loads(text)
        if data["data_version"] not in (0, 1):
            raise CorruptQuorumState(f"{path} has data_version {data['data_version']}, this software knows 0 and 1")
        directory_text = data.get("votedDirectoryId")
        return ElectionState(
            epoch=int(data["leaderEpoch"]),
            leader_id=int(data["leaderId"]),
            voted_id=int(data["votedId"]),
            voted_directory_id=uuid_from_string(directory_text) if directory_text else ZERO_UUID,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptQuorumState(f"{path} cannot be read: {error!r}") from error


def write_election_state(
    disk: Disk, directory: str, state: ElectionState, kraft_version: int, voter_ids: Iterable[int]
) -> None:
    data: dict[str, object]
    if kraft_version == 0:
        data = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter_id} for voter_id in voter_ids],
            "data_version": 0,
        }
    else:
        data = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted_id,
            "votedDirectoryId": uuid_to_string(state.voted_directory_id),
            "data_version": 1,
        }
    disk.write_atomically(f"{directory}/{QUORUM_STATE_FILE}", json.dumps(data, separators=(",", ":")).encode())
