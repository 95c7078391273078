"""Who belongs to the cluster and what it may do: unregistering brokers, the quorum's voters, finalised features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from moldau.client.admin.client import Admin
from moldau.client.errors import failure, raise_for
from moldau.protocol.errors import ApiError, ErrorCode

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


class VoterAddress(NamedTuple):
    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def unregister_broker(admin: Admin, broker_id: int) -> None:
    from moldau.protocol.generated.wire.unregister_broker_request import UnregisterBrokerRequest

    request = UnregisterBrokerRequest(broker_id=broker_id)
    answer = admin.ask_controller(request, codes=lambda reply: [reply.error_code])
    raise_for(answer.error_code, answer.error_message)


def add_voter(admin: Admin, cluster_id: str, voter_id: int, directory: bytes, at: Sequence[VoterAddress]) -> None:
    from moldau.protocol.generated.wire.add_raft_voter_request import AddRaftVoterRequest, Listener

    request = AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=int(admin.settings.request_timeout * 1000),
        voter_id=voter_id,
        voter_directory_id=directory,
        listeners=[Listener(name=each.name, host=each.host, port=each.port) for each in at],
    )
    answer = admin.ask_controller(request, codes=lambda reply: [reply.error_code])
    raise_for(answer.error_code, answer.error_message)


def remove_voter(admin: Admin, cluster_id: str, voter_id: int, directory: bytes) -> None:
    from moldau.protocol.generated.wire.remove_raft_voter_request import RemoveRaftVoterRequest

    request = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=directory)
    answer = admin.ask_controller(request, codes=lambda reply: [reply.error_code])
    raise_for(answer.error_code, answer.error_message)


def update_features(
    admin: Admin, levels: Mapping[str, int], kind: int, *, validate_only: bool = False
) -> dict[str, ApiError | None]:
    """Finalise these levels, all or none; each feature's error, if any."""
    from moldau.protocol.generated.wire.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest

    request = UpdateFeaturesRequest(
        timeout_ms=int(admin.settings.request_timeout * 1000),
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level in levels.items()
        ],
        validate_only=validate_only,
    )
    answer = admin.ask_controller(request, codes=lambda reply: [reply.error_code])
    if answer.error_code != ErrorCode.NONE:
        return dict.fromkeys(levels, failure(answer.error_code, answer.error_message))
    told: dict[str, ApiError | None] = dict.fromkeys(levels)
    for each in answer.results:
        if each.error_code != ErrorCode.NONE:
            told[each.feature] = failure(each.error_code, each.error_message)
    return told
