"""What the broker keys of the process, its listeners and replication mean.

Data only; loaded by `docs` when somebody asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SERVER: Final[Mapping[str, str]] = {
    "broker.id": "Older name of node.id; when both are set they must agree.",
    "message.max.bytes": "Largest record batch a broker takes, unless the topic sets max.message.bytes.",
    "num.io.threads": "Size of Kafka's pool of request-handler threads.",
    "num.replica.alter.log.dirs.threads": "How many threads move replicas between log directories in Kafka.",
    "background.threads": "Size of Kafka's pool for housekeeping tasks.",
    "request.timeout.ms": "How long this node waits for another node's answer before it tries again.",
    "socket.connection.setup.timeout.ms": (
        "How long a connection to another node may take to open; it doubles with each failure."
    ),
    "socket.connection.setup.timeout.max.ms": (
        "Upper limit of the time a connection to another node may take to open after repeated failures."
    ),
    "config.providers": "Aliases of plugins that replace placeholders in other settings by values from elsewhere.",
    "authorizer.class.name": (
        "Which authorizer checks access; empty lets everybody do everything. Kafka's StandardAuthorizer keeps access "
        "rules in the cluster's metadata."
    ),
    "early.start.listeners": (
        "Listeners that open before the broker has read all metadata; those of the controller unless set."
    ),
    "broker.rack": (
        "The rack or zone this broker stands in. Replicas are spread over racks, and consumers may read from the "
        "nearest."
    ),
    "controlled.shutdown.enable": "Whether a broker hands its leaderships over before it stops.",
    "delete.topic.enable": "Whether topics can be deleted.",
    "compression.type": (
        "Codec in which batches are stored unless the topic says otherwise; producer keeps each batch as it came."
    ),
    "compression.gzip.level": "Level for topics that are stored with gzip; -1 is the library's default.",
    "compression.lz4.level": "Level for topics that are stored with lz4.",
    "compression.zstd.level": "Level for topics that are stored with zstd.",
    "max.incremental.fetch.session.cache.slots": (
        "How many fetch sessions a broker remembers, so that those clients name only the partitions that changed."
    ),
    "fetch.max.bytes": (
        "Largest answer to one fetch request, whatever the client asks for; a single larger batch is still sent."
    ),
    "max.request.partition.size.limit": "How many partitions one DescribeTopicPartitions answer holds at most.",
    "unstable.api.versions.enable": "Whether API versions that are still being developed are offered.",
    "unstable.feature.versions.enable": "Whether feature versions that are still being developed can be chosen.",
    "process.roles": "What this node is: broker, controller, or both.",
    "node.id": "This node's number, unlike any other node's in the cluster.",
    "initial.broker.registration.timeout.ms": (
        "How long a starting broker tries to register with a controller before it gives up."
    ),
    "broker.heartbeat.interval.ms": "How often a broker reports to the controller.",
    "broker.session.timeout.ms": "How long a broker may stay silent before the controller takes its leaderships away.",
    "controller.listener.names": (
        "Names of the listeners controllers use. A node that is only a broker connects to the first of them."
    ),
    "sasl.mechanism.controller.protocol": "SASL mechanism with which nodes log in to controllers.",
    "controller.performance.sample.period.ms": "How often Kafka's controller logs how long its events took.",
    "controller.performance.always.log.threshold.ms": "Duration from which Kafka's controller always logs an event.",
    "server.max.startup.time.ms": "How long a start may take in all before the node gives up.",
    "metadata.log.max.record.bytes.between.snapshots": (
        "How much the metadata log grows before a new snapshot of it is written."
    ),
    "metadata.log.max.snapshot.interval.ms": (
        "Longest time between two snapshots while there are new metadata records; 0 leaves it to size alone."
    ),
    "metadata.log.dir": "Directory of the metadata log; the first of log.dirs unless set.",
    "metadata.log.segment.bytes": "Largest size of a segment of the metadata log.",
    "metadata.log.segment.ms": "Age at which a segment of the metadata log is closed.",
    "metadata.max.retention.bytes": "How much metadata log and snapshots are kept before old ones are deleted.",
    "metadata.max.retention.ms": "How long metadata log and snapshots are kept before old ones are deleted.",
    "metadata.max.idle.interval.ms": (
        "How often the active controller writes an empty record when nothing else happens, so that lag can be seen; 0"
        " turns it off."
    ),
    "internal.metadata.log.segment.bytes": "Replaces metadata.log.segment.bytes without its lower limit, for tests.",
    "internal.metadata.max.batch.size.in.bytes": "Largest batch of metadata records, for tests.",
    "internal.metadata.delete.delay.millis": (
        "How long a deleted metadata segment or snapshot stays on disk, for tests."
    ),
    "listeners": "Addresses the node listens on, as NAME://host:port. An empty host is every interface.",
    "advertised.listeners": (
        "Addresses clients and other nodes are told to connect to, when they differ from listeners."
    ),
    "listener.security.protocol.map": "Which security protocol each listener name stands for, as NAME:PROTOCOL pairs.",
    "socket.send.buffer.bytes": "Size of a connection's kernel send buffer; -1 leaves it to the operating system.",
    "socket.receive.buffer.bytes": (
        "Size of a connection's kernel receive buffer; -1 leaves it to the operating system."
    ),
    "socket.request.max.bytes": "Largest request a client may send; a connection that announces more is closed.",
    "socket.listen.backlog.size": "How many connections the kernel holds until they are accepted.",
    "max.connections.per.ip": "How many connections one address may have open.",
    "max.connections.per.ip.overrides": "Different limits for some addresses or host names, as address:limit pairs.",
    "max.connections": "How many connections a broker accepts in all, or a listener with the listener prefix.",
    "max.connection.creation.rate": (
        "How many connections a second a broker accepts, or a listener with the listener prefix."
    ),
    "connections.max.idle.ms": "How long a connection may be idle before it is closed.",
    "connection.failed.authentication.delay.ms": (
        "How long a connection that failed to authenticate is held before it is closed, to slow guessing down."
    ),
    "queued.max.requests": "How many requests Kafka's network threads may queue before they stop reading.",
    "queued.max.request.bytes": (
        "How many bytes of requests Kafka's network threads may queue before they stop reading."
    ),
    "num.network.threads": "How many network threads each of Kafka's listeners has.",
    "controller.socket.timeout.ms": "How long a broker waits for a controller's answer.",
    "default.replication.factor": (
        "How many replicas a topic gets when its creator does not say, automatic creation included."
    ),
    "replica.lag.time.max.ms": (
        "How long a follower may be behind the end of the leader's log before it leaves the in-sync replicas."
    ),
    "replica.socket.timeout.ms": "How long a follower waits for a leader's answer.",
    "replica.socket.receive.buffer.bytes": "Size of the kernel receive buffer of a follower's connection to a leader.",
    "replica.fetch.max.bytes": (
        "How many bytes a follower asks for in each partition; a single larger batch is still sent."
    ),
    "replica.fetch.wait.max.ms": "How long a leader may hold a follower's fetch back while there is nothing new.",
    "replica.fetch.backoff.ms": "How long a follower leaves a partition alone after an error.",
    "replica.fetch.min.bytes": "How many new bytes a leader waits for before it answers a follower's fetch.",
    "replica.fetch.response.max.bytes": (
        "How many bytes a follower asks for in one fetch; a single larger batch is still sent."
    ),
    "num.replica.fetchers": "How many threads fetch from each other broker in Kafka.",
    "replica.high.watermark.checkpoint.interval.ms": "How often the high watermarks are written to disk.",
    "fetch.purgatory.purge.interval.requests": (
        "After how many requests Kafka removes answered fetches from its list of waiting ones."
    ),
    "producer.purgatory.purge.interval.requests": (
        "After how many requests Kafka removes answered produces from its list of waiting ones."
    ),
    "delete.records.purgatory.purge.interval.requests": (
        "After how many requests Kafka removes answered record deletions from its list of waiting ones."
    ),
    "auto.leader.rebalance.enable": "Whether leadership goes back by itself to each partition's preferred replica.",
    "leader.imbalance.check.interval.seconds": (
        "How often the controller looks for partitions that are not led by their preferred replica."
    ),
    "unclean.leader.election.interval.ms": (
        "How often the controller looks for leaderless partitions that may elect a replica that is behind."
    ),
    "unclean.leader.election.enable": (
        "Whether a replica that is behind may become leader when no other is left, unless the topic says otherwise."
    ),
    "security.inter.broker.protocol": "Security protocol between brokers when inter.broker.listener.name is not set.",
    "inter.broker.listener.name": "Name of the listener brokers use among themselves.",
    "replica.selector.class": (
        "Which replica a consumer is sent to; Kafka's RackAwareReplicaSelector prefers the consumer's rack, unset is "
        "always the leader."
    ),
    "follower.fetch.last.tiered.offset.enable": "Whether a new follower starts behind what remote storage already has.",
}
