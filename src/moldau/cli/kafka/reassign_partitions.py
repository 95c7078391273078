"""`kafka-reassign-partitions`: propose, begin, follow, cancel and list moves of replicas.

What may be moved where is the controller's to decide; this file reads the JSON files, asks, and says what came of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Sized
from typing import TYPE_CHECKING

from moldau.cli.errors import CliError
from moldau.cli.kafka._assignment_json import (
    Assignment,
    Partition,
    Replica,
    check_executable,
    duplicates,
    format_assignment,
    parse_assignment,
    parse_topics,
    partition_name,
    read_file,
)
from moldau.cli.kafka._common import open_admin
from moldau.cli.kafka._options import OptionParser, Options, integer, run
from moldau.client.errors import MoldauError

if TYPE_CHECKING:
    from moldau.client.admin import Admin
    from moldau.client.admin.reassignments import ReplicaPlace

ACTIONS = ("generate", "execute", "verify", "cancel", "list")
CONNECTION = ("bootstrap-server", "bootstrap-controller", "command-config")
REQUIRED = {
    "verify": ("reassignment-json-file",),
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": ("reassignment-json-file",),
    "cancel": ("reassignment-json-file",),
    "list": (),
}
PERMITTED = {
    "verify": ("preserve-throttles",),
    "generate": ("disable-rack-aware",),
    "execute": (
        "additional",
        "throttle",
        "replica-alter-log-dirs-throttle",
        "timeout",
        "disallow-replication-factor-change",
    ),
    "cancel": ("preserve-throttles", "timeout"),
    "list": (),
}
ALSO_BY_CONTROLLER = ("cancel", "list")
MOVE_RETRY_SECONDS = 0.1
UNLIMITED = -1
EXISTING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a "
    "new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
    "throttle by resubmitting the current reassignment."
)
RUN_VERIFY = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)


def main(argv: Sequence[str] | None = None) -> int:
    return run(lambda: execute(argv))


def execute(argv: Sequence[str] | None) -> int:
    options = _parser().parse(argv)
    action = _check(options)
    try:
        _act(options, action)
    except MoldauError as error:
        # Where Kafka's tool says it, and where scripts look for it.
        print(error.message)
        return 1
    return 0


def _act(options: Options, action: str) -> None:
    controllers = options.text("bootstrap-controller") if options.has("bootstrap-controller") else None
    with open_admin(options, "reassign-partitions-tool", controllers=controllers) as admin:
        if action == "list":
            _list(admin)
        elif action == "generate":
            _generate(admin, options)
        else:
            assignment = parse_assignment(read_file(options.text("reassignment-json-file")))
            {"execute": _execute, "verify": _verify, "cancel": _cancel}[action](admin, options, assignment)


def _parser() -> OptionParser:
    parser = OptionParser("kafka-reassign-partitions", "Move replicas of topic partitions between brokers.")
    parser.connection()
    parser.value("bootstrap-controller", "HOST:PORT,…", "Controllers to reach the cluster through (list and cancel).")
    parser.flag("generate", "Propose an assignment; nothing is moved.")
    parser.flag("execute", "Begin to move replicas as the file says.")
    parser.flag("verify", "Show whether the moves of the file are complete; takes the throttles off when they are.")
    parser.flag("cancel", "Cancel the moves of the file.")
    parser.flag("list", "List the moves under way.")
    parser.value("reassignment-json-file", "FILE", "The assignment: partitions with their replicas and log_dirs.")
    parser.value("topics-to-move-json-file", "FILE", "The topics to propose an assignment for.")
    parser.value("broker-list", "ID,…", "The brokers to propose an assignment to.")
    parser.flag("disable-rack-aware", "Propose without regard to racks.")
    parser.value("throttle", "BYTES/S", "Limit what moves between brokers.", convert=integer, default=UNLIMITED)
    parser.value(
        "replica-alter-log-dirs-throttle",
        "BYTES/S",
        "Limit what moves between log directories.",
        convert=integer,
        default=UNLIMITED,
    )
    parser.value(
        "timeout", "MS", "How long to wait for moves between directories to begin.", convert=integer, default=10000
    )
    parser.flag("additional", "Begin moves although others are under way; also changes their throttle.")
    parser.flag("preserve-throttles", "Leave throttles as they are.")
    parser.flag("disallow-replication-factor-change", "Refuse what changes the number of replicas.")
    return parser


def _check(options: Options) -> str:
    chosen = [action for action in ACTIONS if options.has(action)]
    if len(chosen) != 1:
        raise options.error(
            "Command must include exactly one action: " + ", ".join(f"--{action}" for action in ACTIONS)
        )
    [action] = chosen
    if options.has("bootstrap-server") and options.has("bootstrap-controller"):
        raise options.error("Please don't specify both --bootstrap-server and --bootstrap-controller")
    if not options.has("bootstrap-server") and not options.has("bootstrap-controller"):
        raise options.error("Please specify either --bootstrap-server or --bootstrap-controller")
    options.require(*REQUIRED[action])
    allowed = {action, *REQUIRED[action], *PERMITTED[action], *CONNECTION}
    if action not in ALSO_BY_CONTROLLER:
        allowed.discard("bootstrap-controller")
    for name in options.specs:
        if options.has(name) and name not in allowed:
            raise options.error(f'Option "[{name}]" can\'t be used with action "[{action}]"')
    return action


# ---- list


def _list(admin: Admin) -> None:
    from moldau.client.admin.reassignments import all_reassignments

    under_way = all_reassignments(admin)
    if not under_way:
        print("No partition reassignments found.")
        return
    print("Current partition reassignments:")
    for partition, each in sorted(under_way.items()):
        adding = f" adding: {_joined(each.adding)}." if each.adding else ""
        removing = f" removing: {_joined(each.removing)}." if each.removing else ""
        print(f"{partition_name(partition)}: replicas: {_joined(each.replicas)}.{adding}{removing}")


def _joined(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))


# ---- generate


def _generate(admin: Admin, options: Options) -> None:
    from random import SystemRandom

    from moldau.client.admin.cluster import describe_cluster
    from moldau.controller.placement import StripedPlacer, UsableBroker

    brokers = _broker_list(options)
    topics = parse_topics(read_file(options.text("topics-to-move-json-file")))
    twice = duplicates(topics)
    if twice:
        raise CliError(f"Error: List of topics to reassign contains duplicate entries: {', '.join(twice)}")
    current = _current(admin, topics)
    with_racks = not options.has("disable-rack-aware")
    known = [each for each in describe_cluster(admin).brokers if each.node_id in brokers]
    without = [each.rack is None for each in known]
    if with_racks and any(without) and not all(without):
        raise CliError(
            "Error: Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            "assignment without rack information."
        )
    usable = [UsableBroker(each.node_id, each.rack if with_racks else None, False) for each in known]
    proposed: dict[Partition, list[int]] = {}
    for topic in topics:
        indexes = sorted(index for name, index in current if name == topic)
        factor = len(current[topic, indexes[0]])
        placer = StripedPlacer(usable, SystemRandom())
        placer.check(factor)
        proposed.update({(topic, index): placer.place(factor) for index in indexes})
    print(f"Current partition replica assignment\n{format_assignment(current)}\n")
    print(f"Proposed partition reassignment configuration\n{format_assignment(proposed)}")


def _broker_list(options: Options) -> list[int]:
    text = options.text("broker-list")
    try:
        brokers = [int(part) for part in text.split(",")]
    except ValueError:
        raise CliError(f"Error: --broker-list expects broker ids, but received: {text}") from None
    twice = duplicates(brokers)
    if twice:
        raise CliError(f"Error: Broker list contains duplicate entries: {_joined(twice)}")
    return brokers


def _current(admin: Admin, topics: Sequence[str]) -> dict[Partition, list[int]]:
    from moldau.client.admin.topics import describe_topics, list_topics

    known = {each.name for each in list_topics(admin)}
    for topic in topics:
        if topic not in known:
            raise CliError(f"Error: Topic {topic} not found.")
    return {
        (topic.name, each.index): list(each.replicas)
        for topic in describe_topics(admin, sorted(set(topics)))
        for each in topic.partitions
    }


# ---- execute


def _execute(admin: Admin, options: Options, assignment: Assignment) -> None:
    from moldau.client.admin.cluster import describe_cluster
    from moldau.client.admin.reassignments import (
        all_reassignments,
        moves_of,
        reassign,
        throttle_directories,
        throttle_moves,
    )

    check_executable(assignment)
    proposed = assignment.replicas
    under_way = all_reassignments(admin)
    if under_way and not options.has("additional"):
        raise CliError(EXISTING)
    known = {each.node_id for each in describe_cluster(admin).brokers}
    for broker in sorted({each for replicas in proposed.values() for each in replicas} - known):
        raise CliError(f"Error: Unknown broker id {broker}")
    current = _current(admin, [topic for topic, _ in proposed])
    missing = sorted(proposed.keys() - current.keys())
    if missing:
        raise CliError(f"Error: Unable to find partition: {', '.join(map(partition_name, missing))}")
    concerned = {partition: current[partition] for partition in proposed}
    print(f"Current partition replica assignment\n\n{format_assignment(concerned, _directories(admin, concerned))}\n")
    print("Save this to use as the --reassignment-json-file option during rollback")
    throttle, directory_throttle = options.value("throttle"), options.value("replica-alter-log-dirs-throttle")
    if throttle >= 0 or directory_throttle >= 0:
        print(RUN_VERIFY)
    if throttle >= 0:
        throttle_moves(admin, moves_of(under_way, proposed, current), throttle)
        print(f"The inter-broker throttle limit was set to {throttle} B/s")
    if directory_throttle >= 0:
        throttle_directories(admin, (broker for _, _, broker in assignment.directories), directory_throttle)
        print(f"The replica-alter-dir throttle limit was set to {directory_throttle} B/s")
    may_change_factor = not options.has("disallow-replication-factor-change")
    errors = reassign(admin, proposed, may_change_factor=may_change_factor)
    if errors:
        lines = [f"{partition_name(partition)}: {error.message}" for partition, error in sorted(errors.items())]
        raise CliError("\n".join(["Error reassigning partition(s):", *lines]))
    names = ",".join(map(partition_name, sorted(proposed)))
    print(f"Successfully started partition reassignment{_s(proposed)} for {names}")
    if assignment.directories:
        _move_directories(admin, assignment.directories, options.value("timeout"))


def _directories(admin: Admin, current: Mapping[Partition, Sequence[int]]) -> dict[Replica, str]:
    """Where these replicas are; of brokers that are not there nobody knows."""
    from moldau.client.admin.cluster import describe_cluster
    from moldau.client.admin.reassignments import replica_places

    known = {each.node_id for each in describe_cluster(admin).brokers}
    replicas = [(*partition, broker) for partition, brokers in current.items() for broker in brokers if broker in known]
    return {replica: place.current for replica, place in replica_places(admin, replicas).items() if place.current}


def _move_directories(admin: Admin, moves: Mapping[Replica, str], timeout_ms: int) -> None:
    """A replica that is not there yet cannot be told its directory: ask until it is."""
    from moldau.client.admin.reassignments import move_between_directories
    from moldau.protocol.errors import ErrorCode

    pending = dict(moves)
    end = time.monotonic() + timeout_ms / 1000
    while True:
        for replica, error in sorted(move_between_directories(admin, pending).items(), key=lambda told: _by(told[0])):
            if error is None:
                topic, index, broker = replica
                path = pending.pop(replica)
                print(
                    f"Successfully started moving log directory to {path} for replica {topic}-{index} with broker "
                    f"{broker} "
                )
            elif error.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
                raise CliError(f"Error: Failed to alter dir for {_replica_name(replica)}: {error.message}")
        if not pending:
            return
        if time.monotonic() >= end:
            names = ",".join(map(_replica_name, sorted(pending, key=_by)))
            raise CliError(f"Timed out before log directory move{_s(pending)} could be started for: {names}")
        time.sleep(MOVE_RETRY_SECONDS)


def _by(replica: Replica) -> tuple[int, str, int]:
    topic, index, broker = replica
    return broker, topic, index


def _replica_name(replica: Replica) -> str:
    return "-".join(map(str, replica))


def _s(many: Sized) -> str:
    return "" if len(many) == 1 else "s"


# ---- verify


def _verify(admin: Admin, options: Options, assignment: Assignment) -> None:
    from moldau.client.admin.reassignments import all_reassignments, replica_places

    under_way = all_reassignments(admin)
    print("Status of partition reassignment:")
    known = _known(admin, [topic for (topic, _), _ in assignment.partitions])
    for partition, target in sorted(assignment.partitions):
        name = partition_name(partition)
        current = known.get(partition, [])
        if partition in under_way:
            print(f"Reassignment of partition {name} is still in progress.")
        elif current == target:
            print(f"Reassignment of partition {name} is completed.")
        else:
            print(
                f"There is no active reassignment of partition {name}, but replica set is {_joined(current)} rather "
                f"than {_joined(target)}."
            )
    places = replica_places(admin, assignment.directories)
    lines = [
        _directory_state(replica, assignment.directories[replica], places.get(replica))
        for replica in sorted(assignment.directories, key=_by)
    ]
    print("\n".join(lines))
    moving = any(place.future is not None for place in places.values())
    if not under_way and not moving and not options.has("preserve-throttles"):
        _clear_throttles(admin, assignment)


def _known(admin: Admin, topics: Sequence[str]) -> dict[Partition, list[int]]:
    """As `_current`, but topics that are gone are no error here."""
    from moldau.client.admin.topics import list_topics

    existing = {each.name for each in list_topics(admin)}
    return _current(admin, [topic for topic in topics if topic in existing])


def _directory_state(replica: Replica, target: str, place: ReplicaPlace | None) -> str:
    topic, index, broker = replica
    name = f"Partition {topic}-{index}"
    if place is None:
        return f"{name} cannot be found in any live log directory on broker {broker}."
    if place.current is None:
        return (
            f"{name} is not found in any live log dir on broker {broker}. There is likely an offline log directory on "
            "the broker."
        )
    if place.future is None:
        if place.current == target:
            return f"Reassignment of replica {_replica_name(replica)} completed successfully."
        return f"{name} on broker {broker} is not being moved from log dir {place.current} to {target}."
    if place.future == target:
        return f"Reassignment of replica {_replica_name(replica)} is still in progress."
    return f"{name} on broker {broker} is being moved to log dir {place.future} instead of {target}."


def _clear_throttles(admin: Admin, assignment: Assignment) -> None:
    from moldau.client.admin.cluster import describe_cluster
    from moldau.client.admin.reassignments import clear_throttles

    brokers = {each.node_id for each in describe_cluster(admin).brokers}
    brokers |= {broker for _, replicas in assignment.partitions for broker in replicas}
    topics = sorted({topic for (topic, _), _ in assignment.partitions})
    print(f"Clearing broker-level throttles on broker{_s(sorted(brokers))} {_joined(sorted(brokers))}")
    clear_throttles(admin, brokers, ())
    print(f"Clearing topic-level throttles on topic{_s(topics)} {','.join(topics)}")
    clear_throttles(admin, (), topics)


# ---- cancel


def _cancel(admin: Admin, options: Options, assignment: Assignment) -> None:
    from moldau.client.admin.reassignments import all_reassignments, reassign, replica_places

    active = sorted(all_reassignments(admin, [partition for partition, _ in assignment.partitions]))
    if active:
        errors = reassign(admin, dict.fromkeys(active))
        if errors:
            lines = [f"{partition_name(partition)}: {error.message}" for partition, error in sorted(errors.items())]
            raise CliError("\n".join([f"Error cancelling partition reassignment{_s(errors)} for:", *lines]))
        names = ",".join(map(partition_name, active))
        print(f"Successfully cancelled partition reassignment{_s(active)} for: {names}")
    else:
        print("None of the specified partition reassignments are active.")
    places = replica_places(admin, assignment.directories) if assignment.directories else {}
    back = {replica: place.current for replica, place in places.items() if place.future and place.current}
    if back:
        _move_directories(admin, back, options.value("timeout"))
    else:
        print("None of the specified partition moves are active.")
    if not options.has("preserve-throttles"):
        _clear_throttles(admin, assignment)


if __name__ == "__main__":
    raise SystemExit(main())
