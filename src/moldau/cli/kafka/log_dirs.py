"""`kafka-log-dirs`: what each broker keeps in its log directories, as one line of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from moldau.cli.errors import CliError
from moldau.cli.kafka._common import open_admin
from moldau.cli.kafka._options import OptionParser, Options, run


def main(argv: Sequence[str] | None = None) -> int:
    return run(lambda: execute(argv))


def execute(argv: Sequence[str] | None) -> int:
    options = _parser().parse(argv)
    options.require("bootstrap-server", "describe")
    from moldau.client.admin.cluster import describe_cluster, describe_log_dirs

    with open_admin(options, "log-dirs-tool") as admin:
        existing = [broker.node_id for broker in describe_cluster(admin).brokers]
        wanted = _broker_ids(options)
        missing = sorted(set(wanted) - set(existing))
        if missing:
            raise CliError(
                f"ERROR: The given brokers do not exist from --broker-list: {_joined(missing)}. "
                f"Current existent brokers: {_joined(existing)}"
            )
        asked = sorted(set(wanted)) or existing
        print("Querying brokers for log directories information")
        described = describe_log_dirs(admin, asked)
    print(f"Received log directory information from brokers {_joined(asked)}")
    topics = {name for name in options.text("topic-list").split(",") if name}
    brokers = [{"broker": broker, "logDirs": _printable(dirs, topics)} for broker, dirs in described.items()]
    print(json.dumps({"brokers": brokers, "version": 1}, separators=(",", ":")))
    return 0


def _parser() -> OptionParser:
    parser = OptionParser("kafka-log-dirs", "Show how much brokers keep in their log directories.")
    parser.connection()
    parser.flag("describe", "Required. Describe the log directories.")
    parser.value("topic-list", "T1,T2,…", "Only these topics.", default="")
    parser.value("broker-list", "ID,…", "Only these brokers.", default="")
    return parser


def _broker_ids(options: Options) -> list[int]:
    text = options.text("broker-list")
    try:
        return [int(part) for part in text.split(",") if part]
    except ValueError:
        raise CliError(f"--broker-list expects broker ids, but received: {text}") from None


def _joined(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))


def _printable(dirs: Sequence[Any], topics: set[str]) -> list[dict[str, Any]]:
    """The shape Kafka's tool prints, in its order of fields."""
    from moldau.cli.java_errors import java_name

    return [
        {
            "partitions": [
                {
                    "partition": f"{replica.topic}-{replica.partition}",
                    "size": replica.size,
                    "offsetLag": replica.offset_lag,
                    "isFuture": replica.is_future,
                }
                for replica in each.replicas
                if not topics or replica.topic in topics
            ],
            "error": None if each.error is None else java_name(each.error),
            "logDir": each.path,
        }
        for each in dirs
    ]


if __name__ == "__main__":
    raise SystemExit(main())
