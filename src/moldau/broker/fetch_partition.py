"""One partition that a reader asks for in its session, as it was last asked for and answered."""

from __future__ import annotations

TopicKey = bytes  # the topic's name, or its id from version 13 on


class FetchPartition:
    """One partition a reader asks for, and what it was last told."""

    __slots__ = (
        "fetch_offset",
        "follower_log_start",
        "high_watermark",
        "index",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start",
        "max_bytes",
        "topic_key",
    )

    def __init__(self, topic_key: TopicKey, index: int) -> None:
        self.topic_key = topic_key
        self.index = index
        self.fetch_offset = -1
        # Where the reader's own log begins, if it is a replica.
        self.follower_log_start = -1
        self.leader_epoch = -1
        self.last_fetched_epoch = -1
        self.max_bytes = 0
        # What the last answer of the session said; -1 before the first.
        self.high_watermark = -1
        self.log_start = -1
