"""What `AdminTour.java` must be told by a node with id 1, be it Moldau or Apache Kafka."""

from __future__ import annotations

from typing import Any


def check_admin_tour(seen: dict[str, Any], servers: str, *, directories: int = 1) -> None:
    assert len(seen.pop("cluster id")) == 22
    assert seen.pop("metadata version") >= 25
    assert {"metadata.version", "kraft.version", "group.version", "transaction.version"} <= set(seen.pop("features"))
    dynamic = {"source": "DYNAMIC_TOPIC_CONFIG", "read only": False}
    default = {"source": "DEFAULT_CONFIG", "read only": False}
    before = {"by time": 5, "after all": -1, "earliest": 0, "earliest local": 0, "latest": 10, "max timestamp": 9}
    assert seen == {
        "nodes": [f"1@{servers}"],
        "controller": 1,
        "quorum leader": 1,
        "voters": [1],
        "quorum caught up": True,
        "validated": "done",
        "exists after validation": False,
        "created": "2x1",
        "created with": "12345",
        "again": "TopicExistsException",
        "bad name": "InvalidTopicException",
        "too many replicas": "InvalidReplicationFactorException",
        "bad setting": "InvalidConfigurationException",
        "assigned": "done",
        "described alike": True,
        "described": ["0:1:1:1", "1:1:1:1"],
        "unknown topic": "UnknownTopicOrPartitionException",
        "grown": "done",
        "shrunk": "InvalidPartitionsException",
        "partitions after growing, one per answer": 4,
        "topic setting": {"value": "12345", "type": "LONG", **dynamic},
        "topic default": {"value": "1073741824", "type": "INT", **default},
        "altered": "done",
        "altered setting": {"value": "2000", "type": "INT", **dynamic},
        "appended": "done",
        "appended setting": {"value": "delete,compact", "type": "LIST", **dynamic},
        "deleted": "done",
        "deleted setting": {"value": "604800000", "type": "LONG", **default},
        "refused": "InvalidConfigurationException",
        "unknown setting": "InvalidConfigurationException",
        "broker altered": "done",
        "broker setting": {"value": "2", "source": "DYNAMIC_BROKER_CONFIG", "type": "INT", "read only": False},
        "read-only": "InvalidRequestException",
        "offsets before": before,
        "low watermark": 4,
        "beyond the end": "OffsetOutOfRangeException",
        "offsets after": {**before, "earliest": 4, "earliest local": 4},
        "producers": ["0:9"],
        "log directories": directories,
        "replica in a directory": [True, True],
        "elected": "ElectionNotNeededException",
        "reassignments": 0,
        "quota set": "done",
        "quotas": {"producer_byte_rate": 1e6},
        "quotas after": 0,
        "acls": "SecurityDisabledException",
        "topic deleted": "done",
        "topic deleted twice": "UnknownTopicOrPartitionException",
        "id unknown": "UnknownTopicIdException",
        "listed after": False,
    }
