"""What the broker keys of the quorum, metrics, quotas and the authorizer mean.

Data only; loaded by `docs` when somebody asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CLUSTER: Final[Mapping[str, str]] = {
    "controller.quorum.voters": (
        "The controllers of a quorum that is fixed, as id@host:port; leave it empty for one that can grow and shrink."
    ),
    "controller.quorum.bootstrap.servers": "Controllers, as host:port, to ask who is in the quorum.",
    "controller.quorum.election.timeout.ms": "How long a voter waits without a leader before it calls an election.",
    "controller.quorum.fetch.timeout.ms": (
        "How long a follower goes without an answer from the leader, or a leader without fetches from a majority, "
        "before an election."
    ),
    "controller.quorum.election.backoff.max.ms": (
        "Longest random wait between two elections, so that voters do not keep blocking one another."
    ),
    "controller.quorum.append.linger.ms": (
        "How long the leader collects metadata records before it forces them to disk."
    ),
    "controller.quorum.request.timeout.ms": "How long a quorum node waits for another's answer.",
    "controller.quorum.retry.backoff.ms": "How long a quorum node waits before it repeats a failed request.",
    "controller.quorum.auto.join.enable": "Whether a new controller makes itself a voter of a quorum that can grow.",
    "controller.quorum.fetch.snapshot.max.bytes": "How many bytes of a snapshot are asked for at a time.",
    "controller.quorum.fetch.max.bytes": "How many bytes of the metadata log are asked for at a time.",
    "metrics.num.samples": "How many samples Kafka's own rates are computed from.",
    "metrics.sample.window.ms": "Length of one such sample.",
    "metric.reporters": "Plugins that receive Kafka's metrics.",
    "metrics.recording.level": "How much detail Kafka's metrics record.",
    "kafka.metrics.reporters": "Plugins that receive Kafka's older metrics.",
    "kafka.metrics.polling.interval.secs": "How often those plugins are called.",
    "telemetry.max.bytes": "Largest metrics push a client may send.",
    "quota.window.num": "How many samples client quotas look back at.",
    "replication.quota.window.num": "How many samples replication throttles look back at.",
    "alter.log.dirs.replication.quota.window.num": (
        "How many samples the throttle on moving replicas between directories looks back at."
    ),
    "controller.quota.window.num": "How many samples quotas on creating and deleting partitions look back at.",
    "quota.window.size.seconds": "Length of one sample of client quotas.",
    "replication.quota.window.size.seconds": "Length of one sample of replication throttles.",
    "alter.log.dirs.replication.quota.window.size.seconds": (
        "Length of one sample of the throttle on moving replicas between directories."
    ),
    "controller.quota.window.size.seconds": "Length of one sample of quotas on creating and deleting partitions.",
    "client.quota.callback.class": "A plugin that decides which quota a request counts against.",
    "leader.replication.throttled.rate": (
        "Bytes a second that this broker sends to throttled replicas; above one megabyte it is kept precisely."
    ),
    "follower.replication.throttled.rate": (
        "Bytes a second that this broker fetches for throttled replicas; above one megabyte it is kept precisely."
    ),
    "replica.alter.log.dirs.io.max.bytes.per.second": (
        "Bytes a second that moving replicas between this broker's directories may take."
    ),
    "super.users": "Principals that may do everything, separated by semicolons, for example User:admin;User:ops.",
    "allow.everyone.if.no.acl.found": "Whether a resource without any access rule is open to everybody.",
}
