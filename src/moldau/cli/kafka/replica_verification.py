"""`kafka-replica-verification`: compares the replicas of topics again and again and reports the greatest lag.

Every report is one pass over all that is committed at its beginning. Differences are printed as they are found.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from moldau.cli.kafka._common import TopicFilter, open_admin
from moldau.cli.kafka._options import OptionParser, Options, integer, run

if TYPE_CHECKING:
    from moldau.cli.replica_check import Verdict
    from moldau.client.admin import Admin

EXIT_DIFFERENT = 1


def main(argv: Sequence[str] | None = None) -> int:
    return run(lambda: execute(argv))


def execute(argv: Sequence[str] | None) -> int:
    options = _parser().parse(argv)
    if options.has("broker-list") and not options.has("bootstrap-server"):
        options.given.append(("bootstrap-server", options.text("broker-list")))
    options.require("bootstrap-server")
    wanted = TopicFilter(options.text("topics-include"))
    different = False
    with open_admin(options, "replica-verification-tool") as admin:
        print(f"{_now()}: verification process is started.")
        while True:
            began = time.monotonic()
            different |= _report(_pass(admin, options, wanted))
            if options.has("once"):
                return EXIT_DIFFERENT if different else 0
            time.sleep(max(0.0, options.value("report-interval-ms") / 1000 - (time.monotonic() - began)))


def _parser() -> OptionParser:
    parser = OptionParser("kafka-replica-verification", "Check that the replicas of topics hold the same records.")
    parser.connection()
    parser.value("broker-list", "HOST:PORT,…", "The older name of --bootstrap-server.")
    parser.value(
        "fetch-size", "BYTES", "Accepted for scripts; how much is read at once is chosen here.", convert=integer
    )
    parser.value("max-wait-ms", "MS", "Accepted for scripts; there is no need to wait here.", convert=integer)
    parser.value("topics-include", "REGEX", "Only these topics.", default=".*")
    parser.value(
        "time", "TIMESTAMP", "From which time on; -1 for the end, -2 for the beginning.", convert=integer, default=-1
    )
    parser.value("report-interval-ms", "MS", "Time between reports.", convert=integer, default=30000)
    parser.flag("once", "End after one report, with 1 when replicas differ (not in Apache's tool).")
    return parser


def _pass(admin: Admin, options: Options, wanted: TopicFilter) -> list[Verdict]:
    from moldau.cli.replica_check import compare_replicas
    from moldau.client.admin.configs import ResourceType, describe_configs
    from moldau.client.admin.topics import describe_topics, list_topics
    from moldau.client.offsets import find_offsets
    from moldau.protocol.errors import ApiError

    topics = [each.name for each in list_topics(admin) if wanted.allows(each.name)]
    if not topics:
        return []
    policies = describe_configs(admin, ResourceType.TOPIC, topics, keys=["cleanup.policy"])
    verdicts = []
    for topic in describe_topics(admin, topics):
        compacted = any("compact" in (entry.value or "") for entry in policies.get(topic.name, ()))
        at = options.value("time")
        starts = find_offsets(admin, {(topic.name, each.index): at for each in topic.partitions})
        for each in topic.partitions:
            start = starts[topic.name, each.index]
            if each.leader < 0 or isinstance(start, ApiError):
                continue
            followers = [broker for broker in each.replicas if broker != each.leader and broker not in each.offline]
            verdicts.append(
                compare_replicas(
                    admin,
                    topic.name,
                    each.index,
                    each.leader,
                    followers,
                    start=max(0, start.offset),
                    compacted=compacted,
                )
            )
    return verdicts


def _report(verdicts: Sequence[Verdict]) -> bool:
    """Print what was found; whether anything differs."""
    different = False
    for each in verdicts:
        for found in each.differences:
            different = True
            print(
                f"{_now()}: partition {each.topic}-{each.partition}: replica {found.broker} at offset {found.offset}: "
                f"{found.what}"
            )
    if verdicts:
        slowest = max(verdicts, key=lambda each: max(each.lag.values(), default=0))
        lag = max(slowest.lag.values(), default=0)
        print(
            f"{_now()}: max lag is {lag} for partition {slowest.topic}-{slowest.partition} at offset "
            f"{slowest.records_end - lag} among {len(verdicts)} partitions"
        )
    else:
        print(f"{_now()}: no partitions to compare")
    return different


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]


if __name__ == "__main__":
    raise SystemExit(main())
