"""The quorum's timeouts and sizes, as Kafka's `controller.quorum.*` settings give them."""

from __future__ import annotations

from typing import Final, NamedTuple

from moldau.config.node_config import NodeConfig

# How long a fetch of a replica waits at the leader for something new; Kafka has no setting for it either.
FETCH_MAX_WAIT_MS: Final = 500


class QuorumSettings(NamedTuple):
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_bytes: int = 1 << 20
    fetch_snapshot_max_bytes: int = 1 << 20
    auto_join: bool = False

    @classmethod
    def of(cls, config: NodeConfig) -> QuorumSettings:
        return cls(
            election_timeout_ms=config.integer("controller.quorum.election.timeout.ms"),
            fetch_timeout_ms=config.integer("controller.quorum.fetch.timeout.ms"),
            election_backoff_max_ms=config.integer("controller.quorum.election.backoff.max.ms"),
            request_timeout_ms=config.integer("controller.quorum.request.timeout.ms"),
            retry_backoff_ms=config.integer("controller.quorum.retry.backoff.ms"),
            fetch_max_bytes=config.integer("controller.quorum.fetch.max.bytes"),
            fetch_snapshot_max_bytes=config.integer("controller.quorum.fetch.snapshot.max.bytes"),
            auto_join=config.flag("controller.quorum.auto.join.enable"),
        )

    @property
    def check_quorum_timeout_ms(self) -> int:
        """A leader that a majority has not fetched from for this long resigns."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_epoch_interval_ms(self) -> int:
        return max(1, self.fetch_timeout_ms // 2)
