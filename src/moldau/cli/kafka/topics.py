"""`kafka-topics`: create, list, describe, alter and delete topics."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.cli.errors import CliError, hint_for
from moldau.cli.kafka._common import TopicFilter, open_admin
from moldau.cli.kafka._options import OptionParser, Options, integer, run
from moldau.client.errors import MoldauError

if TYPE_CHECKING:
    from moldau.client.admin import Admin
    from moldau.client.admin.configs import ConfigEntry
    from moldau.client.admin.topics import PartitionDescription, Reassignment, TopicDescription

ACTIONS = ("create", "list", "alter", "describe", "delete")
REPORTS = (
    "under-replicated-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "unavailable-partitions",
)
MAX_REPLICATION_FACTOR = 32767
_ALTER_CONFIG_HINT = " (To alter topic configurations, the kafka-configs tool can be used.)"


def main(argv: Sequence[str] | None = None) -> int:
    return run(lambda: execute(argv))


def execute(argv: Sequence[str] | None) -> int:
    options = _parser().parse(argv)
    _check(options)
    from moldau.protocol.errors import ApiError

    with open_admin(options, "kafka-topics") as admin:
        try:
            if options.has("create"):
                _create(admin, options)
            elif options.has("alter"):
                _alter(admin, options)
            elif options.has("list"):
                print("\n".join(_matching_names(admin, options)))
            elif options.has("describe"):
                _describe(admin, options)
            else:
                _delete(admin, options)
        except (ApiError, MoldauError) as error:
            # Kafka's tool reports a failed operation on standard output, in this form.
            print(f"Error while executing topic command : {error.message}")
            hint = hint_for(error) if isinstance(error, MoldauError) else None
            if hint:
                print(hint, file=sys.stderr)
            return 1
    return 0


def _parser() -> OptionParser:
    parser = OptionParser("kafka-topics", "Create, list, describe, alter or delete topics.")
    parser.connection()
    parser.flag("create", "Create a topic.")
    parser.flag("list", "List topics.")
    parser.flag("describe", "Show topics with their partitions.")
    parser.flag("alter", "Add partitions to a topic.")
    parser.flag("delete", "Delete topics.")
    parser.value("topic", "NAME", "The topic; for all actions but --create also a regular expression.")
    parser.value("topic-id", "UUID", "The id of the topic to describe.")
    parser.value("config", "NAME=VALUE", "A setting of the topic to create. May be repeated.")
    parser.value("delete-config", "NAME", "No longer supported since Kafka 4.0; ignored.")
    parser.value("partitions", "N", "Number of partitions to create, or to grow to.", convert=integer)
    parser.value("replication-factor", "N", "Replicas of each partition of the topic to create.", convert=integer)
    parser.value(
        "replica-assignment", "B1:B2,B3:B4", "Brokers of each partition, instead of partitions and replication factor."
    )
    parser.flag("under-replicated-partitions", "Describe only partitions with replicas that are not in sync.")
    parser.flag("unavailable-partitions", "Describe only partitions without a live leader.")
    parser.flag("under-min-isr-partitions", "Describe only partitions below min.insync.replicas.")
    parser.flag("at-min-isr-partitions", "Describe only partitions at exactly min.insync.replicas.")
    parser.flag("topics-with-overrides", "Describe only topics with settings of their own, without partitions.")
    parser.flag("if-exists", "Do nothing, successfully, when the topic does not exist.")
    parser.flag("if-not-exists", "Succeed when the topic to create is there already.")
    parser.flag("exclude-internal", "Leave out internal topics when listing or describing.")
    parser.value(
        "partition-size-limit-per-response",
        "N",
        "How many partitions one DescribeTopicPartitions answer may hold.",
        convert=integer,
    )
    return parser


def _check(options: Options) -> None:
    """Which options go together, as in Kafka's tool."""
    if sum(options.has(action) for action in ACTIONS) != 1:
        raise options.error(
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
        )
    if options.has("delete-config"):
        print("delete-config has had no effect since Kafka 4.0; use kafka-configs instead.", file=sys.stderr)
    if not options.has("bootstrap-server"):
        raise options.error("--bootstrap-server must be specified")
    if (
        options.has("describe")
        and options.has("if-exists")
        and not options.has("topic")
        and not options.has("topic-id")
    ):
        raise options.error("--topic or --topic-id is required to describe a topic")
    if not options.has("list") and not options.has("describe"):
        options.require("topic")
    if options.has("alter"):
        if options.has("config"):
            raise options.error(
                'Option combination "[bootstrap-server],[config]" can\'t be used with option "[alter]"'
                f"{_ALTER_CONFIG_HINT}"
            )
        options.require("partitions")
    _only_with(options, "config", "alter", "create")
    _only_with(options, "partitions", "alter", "create")
    _only_with(options, "replication-factor", "create")
    _only_with(options, "replica-assignment", "alter", "create")
    if options.has("create"):
        options.forbid("replica-assignment", "partitions", "replication-factor")
    for report in REPORTS:
        _only_with(options, report, "describe")
        options.forbid(report, "topics-with-overrides")
    _only_with(options, "topics-with-overrides", "describe")
    _only_with(options, "if-exists", "alter", "delete", "describe")
    _only_with(options, "if-not-exists", "create")
    _only_with(options, "exclude-internal", "list", "describe")


def _only_with(options: Options, option: str, *actions: str) -> None:
    options.forbid(option, *(action for action in ACTIONS if action not in actions))


def parse_assignment(text: str) -> dict[int, list[int]]:
    """`1:2,2:3` as the brokers of partition 0 and 1."""
    assignment: dict[int, list[int]] = {}
    for index, part in enumerate(text.split(",")):
        try:
            brokers = [int(each.strip()) for each in part.split(":")]
        except ValueError:
            raise CliError(f"'{part}' in the replica assignment is not a list of broker ids like 1:2:3") from None
        duplicates = sorted({broker for broker in brokers if brokers.count(broker) > 1})
        if duplicates:
            listed = ",".join(map(str, duplicates))
            raise CliError(f"Partition replica lists may not contain duplicate entries: {listed}")
        assignment[index] = brokers
        if len(brokers) != len(assignment[0]):
            raise CliError(f"Partition {index} has different replication factor: {brokers}")
    return assignment


def parse_configs(pairs: Sequence[str]) -> dict[str, str]:
    configs = {}
    for pair in pairs:
        parts = re.split(r"\s*=\s*", pair)
        if len(parts) != 2:
            raise CliError('Invalid topic config: all configs to be added must be in the format "key=val".')
        configs[parts[0].strip()] = parts[1].strip()
    return configs


def _create(admin: Admin, options: Options) -> None:
    from moldau.client.admin.topics import create_topic
    from moldau.protocol.errors import ApiError, ErrorCode

    name = options.text("topic")
    if "." in name or "_" in name:
        print(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could "
            "collide. To avoid issues it is best to use either, but not both."
        )
    factor = options.value("replication-factor")
    if factor is not None and not 1 <= factor <= MAX_REPLICATION_FACTOR:
        raise CliError(f"The replication factor must be between 1 and {MAX_REPLICATION_FACTOR} inclusive")
    partitions = options.value("partitions")
    if partitions is not None and partitions < 1:
        raise CliError("The partitions must be greater than 0")
    assignment = options.value("replica-assignment")
    try:
        create_topic(
            admin,
            name,
            partitions=partitions,
            replication_factor=factor,
            assignment=parse_assignment(assignment) if assignment else None,
            configs=parse_configs(options.values("config")),
        )
    except ApiError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not options.has("if-not-exists"):
            raise
    else:
        print(f"Created topic {name}.")


def _alter(admin: Admin, options: Options) -> None:
    from moldau.client.admin.topics import create_partitions, describe_topics

    names = _existing_names(admin, options)
    if not names:
        return
    count = options.value("partitions")
    assignments = None
    if options.value("replica-assignment"):
        whole = list(parse_assignment(options.text("replica-assignment")).values())
        # The list names every partition of the topic; those that exist keep their replicas.
        assignments = {topic.name: whole[len(topic.partitions) :] for topic in describe_topics(admin, names)}
    for error in create_partitions(admin, dict.fromkeys(names, count), assignments).values():
        raise error


def _delete(admin: Admin, options: Options) -> None:
    from moldau.client.admin.topics import delete_topics

    names = _existing_names(admin, options)
    if names:
        for error in delete_topics(admin, names).values():
            raise error


def _matching_names(admin: Admin, options: Options) -> list[str]:
    from moldau.client.admin.topics import list_topics

    pattern = TopicFilter(options.text("topic")) if options.has("topic") else None
    exclude_internal = options.has("exclude-internal")
    return [
        topic.name
        for topic in list_topics(admin)
        if not (topic.internal and exclude_internal) and (pattern is None or pattern.allows(topic.name))
    ]


def _existing_names(admin: Admin, options: Options) -> list[str]:
    names = _matching_names(admin, options)
    wanted = options.value("topic")
    if wanted and not names and not options.has("if-exists"):
        raise CliError(f"Topic '{wanted}' does not exist as expected")
    return names


def _topics_to_describe(admin: Admin, options: Options) -> list[TopicDescription]:
    from moldau.client.admin.topics import PARTITIONS_PER_RESPONSE, describe_topic_ids, describe_topics, list_topics
    from moldau.protocol.uuids import ZERO_UUID, uuid_from_string

    topic_id = ZERO_UUID
    if options.has("topic-id"):
        try:
            topic_id = uuid_from_string(options.text("topic-id"))
        except ValueError as error:
            raise CliError(str(error)) from None
        if options.has("topic"):
            print(
                "Only topic id will be used when both --topic and --topic-id are specified and topicId is not "
                "Uuid.ZERO_UUID"
            )
    if topic_id == ZERO_UUID:
        limit = options.value("partition-size-limit-per-response") or PARTITIONS_PER_RESPONSE
        return describe_topics(admin, _existing_names(admin, options), limit)
    if any(topic.topic_id == topic_id for topic in list_topics(admin)):
        return describe_topic_ids(admin, [topic_id])
    if options.has("if-exists"):
        return []
    raise CliError(f"TopicId '{options.text('topic-id')}' does not exist as expected")


def _describe(admin: Admin, options: Options) -> None:
    from moldau.client.admin.cluster import describe_cluster
    from moldau.client.admin.configs import ResourceType, describe_configs
    from moldau.client.admin.topics import list_reassignments

    topics = _topics_to_describe(admin, options)
    if not topics:
        return
    configs = describe_configs(admin, ResourceType.TOPIC, [topic.name for topic in topics])
    live = {broker.node_id for broker in describe_cluster(admin).brokers}
    reassignments = list_reassignments(admin, topics)
    reports = [report for report in REPORTS if options.has(report)]
    for topic in topics:
        entries = configs.get(topic.name, [])
        overridden = any(not entry.is_default for entry in entries)
        if not reports and (overridden or not options.has("topics-with-overrides")):
            print(format_topic(topic, entries, reassignments))
        if options.has("topics-with-overrides"):
            continue
        minimum = next((int(entry.value or 1) for entry in entries if entry.name == "min.insync.replicas"), 1)
        for partition in topic.partitions:
            reassignment = reassignments.get((topic.name, partition.index))
            if not reports or any(_reported(report, partition, reassignment, minimum, live) for report in reports):
                print(format_partition(topic.name, partition, reassignment))


def replication_factor(partition: PartitionDescription, reassignment: Reassignment | None) -> int:
    """Replicas the partition is meant to have: while it is being reassigned, those added do not count yet."""
    if reassignment and set(partition.replicas) & {*reassignment.adding, *reassignment.removing}:
        return len(reassignment.replicas) - len(reassignment.adding)
    return len(partition.replicas)


def _reported(
    report: str,
    partition: PartitionDescription,
    reassignment: Reassignment | None,
    minimum: int,
    live: set[int],
) -> bool:
    has_leader = partition.leader >= 0
    if report == "under-replicated-partitions":
        return len(partition.isr) < replication_factor(partition, reassignment)
    if report == "under-min-isr-partitions":
        return not has_leader or len(partition.isr) < minimum
    if report == "at-min-isr-partitions":
        return len(partition.isr) == minimum
    return not has_leader or partition.leader not in live


def format_topic(
    topic: TopicDescription, entries: Sequence[ConfigEntry], reassignments: dict[tuple[str, int], Reassignment]
) -> str:
    from moldau.protocol.uuids import ZERO_UUID, uuid_to_string

    factor = 0
    if topic.partitions:
        first = topic.partitions[0]
        factor = replication_factor(first, reassignments.get((topic.name, first.index)))
    configs = ",".join(f"{entry.name}={entry.value}" for entry in entries if not entry.is_default)
    topic_id = "" if topic.topic_id == ZERO_UUID else f"\tTopicId: {uuid_to_string(topic.topic_id)}"
    return (
        f"Topic: {topic.name}{topic_id}\tPartitionCount: {len(topic.partitions)}"
        f"\tReplicationFactor: {factor}\tConfigs: {configs}"
    )


def format_partition(name: str, partition: PartitionDescription, reassignment: Reassignment | None) -> str:
    def ids(brokers: Sequence[int] | None) -> str:
        return "N/A" if brokers is None else ",".join(map(str, brokers))

    moving = ""
    if reassignment is not None:
        moving = f"\tAdding Replicas: {ids(reassignment.adding)}\tRemoving Replicas: {ids(reassignment.removing)}"
    return (
        f"\tTopic: {name}\tPartition: {partition.index}"
        f"\tLeader: {partition.leader if partition.leader >= 0 else 'none'}"
        f"\tReplicas: {ids(partition.replicas)}\tIsr: {ids(partition.isr)}{moving}"
        f"\tElr: {ids(partition.eligible)}\tLastKnownElr: {ids(partition.last_known_eligible)}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
