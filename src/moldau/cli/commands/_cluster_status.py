"""`moldau cluster status`: is everything led and replicated, who carries what, and when was the last fail-over."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.commands._shared import Target, cluster_options, output_option
from moldau.cli.output import Column, show_facts, show_json, show_rows, time_text
from moldau.client.errors import MoldauError
from moldau.protocol.errors import ApiError

if TYPE_CHECKING:
    from moldau.client.admin import Admin
    from moldau.client.admin.cluster import ClusterDescription, QuorumDescription
    from moldau.client.admin.topics import PartitionDescription, TopicDescription

EXIT_UNHEALTHY = 1
LOOK_EVERY_SECONDS = 0.5
MIN_ISR = "min.insync.replicas"
HTTP_LISTENER = "moldau.http.listener"
HTTP_SECONDS_MAX = 2.0
TOPICS_PER_REQUEST = 500


@dataclass(slots=True)
class Picture:
    """All that was found out."""

    cluster: ClusterDescription
    quorum: QuorumDescription | None
    topics: list[TopicDescription]
    min_isr: dict[str, int]
    reassigning: int
    cordoned: set[int] = field(default_factory=set)
    problems: list[dict[str, Any]] = field(default_factory=list)
    last_failover: dict[str, Any] | None = None

    @property
    def up(self) -> set[int]:
        return {each.node_id for each in self.cluster.brokers if not each.fenced}

    @property
    def partitions(self) -> list[tuple[str, PartitionDescription]]:
        return [(topic.name, each) for topic in self.topics for each in topic.partitions]


@click.command()
@click.option(
    "--wait", type=click.FloatRange(min=0), default=0.0, metavar="SECONDS", help="Wait so long for it to be healthy."
)
@output_option
@cluster_options
def status(wait: float, output: str, target: Target) -> int:
    """Tell whether all partitions are led and replicated; ends with 1 when not."""
    picture = _look_until_healthy(target, wait)
    counts, brokers = _counts(picture), _brokers(picture)
    if output == "json":
        show_json(
            {
                "healthy": not picture.problems,
                "problems": picture.problems,
                **counts,
                "quorum": _quorum(picture),
                "lastFailover": picture.last_failover,
                "brokers": brokers,
            }
        )
    elif output == "plain":
        print("\n".join("\t".join(each.values()) for each in picture.problems) or "healthy")
    else:
        _show(picture, counts, brokers)
    return EXIT_UNHEALTHY if picture.problems else 0


# ---- finding out


def _look_until_healthy(target: Target, wait: float) -> Picture:
    """The last look at the cluster: the first one that is good, or the one when the time is up."""
    deadline = time.monotonic() + wait
    while True:
        last = time.monotonic() >= deadline
        try:
            with target.admin() as admin:
                picture = _look(admin)
            if last or not picture.problems:
                return picture
        except (MoldauError, ApiError):
            # Nobody answers, or nobody who knows: so it is while nodes start.
            if last:
                raise
        time.sleep(min(LOOK_EVERY_SECONDS, max(0.0, deadline - time.monotonic())))


def _look(admin: Admin) -> Picture:
    from moldau.client.admin.cluster import describe_cluster, describe_quorum
    from moldau.client.admin.reassignments import all_reassignments
    from moldau.client.admin.topics import describe_topics, list_topics

    quorum = None
    with contextlib.suppress(MoldauError, ApiError):
        quorum = describe_quorum(admin)
    reassigning = 0
    with contextlib.suppress(MoldauError, ApiError):
        reassigning = len(all_reassignments(admin))
    names = [each.name for each in list_topics(admin)]
    picture = Picture(
        cluster=describe_cluster(admin, fenced=True),
        quorum=quorum,
        topics=describe_topics(admin, names) if names else [],
        min_isr=_min_isr(admin, names),
        reassigning=reassigning,
    )
    picture.problems = _problems(admin, picture)
    picture.last_failover = _last_failover(admin, picture)
    return picture


def _min_isr(admin: Admin, topics: list[str]) -> dict[str, int]:
    from moldau.client.admin.configs import ResourceType, describe_configs

    found: dict[str, int] = {}
    for start in range(0, len(topics), TOPICS_PER_REQUEST):
        some = topics[start : start + TOPICS_PER_REQUEST]
        for topic, entries in describe_configs(admin, ResourceType.TOPIC, some, keys=[MIN_ISR]).items():
            found[topic] = next((int(entry.value or 1) for entry in entries if entry.name == MIN_ISR), 1)
    return found


def _problems(admin: Admin, picture: Picture) -> list[dict[str, Any]]:
    from moldau.client.admin.cluster import describe_log_dirs

    problems = [
        {"what": "broker fenced", "where": f"broker {each.node_id}", "detail": f"{each.host}:{each.port}"}
        for each in picture.cluster.brokers
        if each.fenced
    ]
    for topic, each in picture.partitions:
        where = f"{topic}-{each.index}"
        if each.leader not in picture.up:
            problems.append({"what": "no leader", "where": where, "detail": f"replicas {each.replicas}"})
        elif len(each.isr) < len(each.replicas):
            missing = sorted(set(each.replicas) - set(each.isr))
            too_few = len(each.isr) < min(picture.min_isr.get(topic, 1), len(each.replicas))
            what = "below min ISR" if too_few else "under-replicated"
            problems.append({"what": what, "where": where, "detail": f"out of sync: {missing}"})
    for broker, directories in describe_log_dirs(admin, sorted(picture.up)).items():
        if directories and all(each.cordoned for each in directories):
            picture.cordoned.add(broker)
        problems += [
            {
                "what": "log directory failed",
                "where": f"broker {broker}",
                "detail": f"{each.path}: {each.error.message}",
            }
            for each in directories
            if each.error is not None
        ]
    return problems


def _last_failover(admin: Admin, picture: Picture) -> dict[str, Any] | None:
    """What the active controller's metrics page tells; other makes of broker, and controllers apart, tell nothing."""
    if picture.quorum is None or picture.quorum.leader_id not in picture.up:
        return None
    metrics = _metrics_of(admin, picture, picture.quorum.leader_id)
    if not metrics.get("moldau_failovers_total"):
        return None
    return {
        "at": int(metrics.get("moldau_failover_last_timestamp_seconds", 0) * 1000),
        "seconds": metrics.get("moldau_failover_last_seconds"),
        "count": int(metrics["moldau_failovers_total"]),
    }


def _metrics_of(admin: Admin, picture: Picture, broker: int) -> dict[str, float]:
    from urllib.request import urlopen

    from moldau.client.admin.configs import ResourceType, describe_configs

    try:
        described = describe_configs(admin, ResourceType.BROKER, [str(broker)], keys=[HTTP_LISTENER])
    except (MoldauError, ApiError):
        return {}
    listener = next((e.value for entries in described.values() for e in entries if e.name == HTTP_LISTENER), None)
    if not listener:
        return {}
    host, _, port = listener.rpartition(":")
    if host in ("", "0.0.0.0", "::", "*"):  # everywhere, so also where its clients go
        host = next(each.host for each in picture.cluster.brokers if each.node_id == broker)
    values: dict[str, float] = {}
    try:
        with urlopen(f"http://{host}:{port}/metrics", timeout=HTTP_SECONDS_MAX) as page:
            for line in page.read().decode().splitlines():
                name, _, value = line.partition(" ")
                if name.startswith("moldau_failover"):
                    values[name] = float(value)
    except (OSError, ValueError):
        return {}
    return values


# ---- showing


def _counts(picture: Picture) -> dict[str, int]:
    partitions = picture.partitions
    at_min = [
        1
        for topic, each in partitions
        if len(each.isr) == picture.min_isr.get(topic, 1) and len(each.isr) < len(each.replicas)
    ]
    what = [problem["what"] for problem in picture.problems]
    return {
        "topics": len(picture.topics),
        "partitions": len(partitions),
        "underReplicated": what.count("under-replicated") + what.count("below min ISR"),
        "atMinIsr": len(at_min),
        "belowMinIsr": what.count("below min ISR"),
        "offline": what.count("no leader"),
        "notPreferred": sum(each.leader != each.replicas[0] for _, each in partitions if each.replicas),
        "reassigning": picture.reassigning,
    }


def _brokers(picture: Picture) -> list[dict[str, Any]]:
    partitions = [each for _, each in picture.partitions]
    voters = set() if picture.quorum is None else {each.node_id for each in picture.quorum.voters}
    active = None if picture.quorum is None else picture.quorum.leader_id
    return [
        {
            "id": broker.node_id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "state": "fenced" if broker.fenced else "cordoned" if broker.node_id in picture.cordoned else "up",
            "quorum": "leads" if broker.node_id == active else "votes" if broker.node_id in voters else None,
            "leaders": sum(each.leader == broker.node_id for each in partitions),
            "replicas": sum(broker.node_id in each.replicas for each in partitions),
            "inSync": sum(broker.node_id in each.isr for each in partitions),
        }
        for broker in picture.cluster.brokers
    ]


def _quorum(picture: Picture) -> dict[str, Any] | None:
    quorum = picture.quorum
    if quorum is None:
        return None
    end = max((each.log_end_offset for each in quorum.voters), default=0)
    lags = [end - each.log_end_offset for each in quorum.voters if each.log_end_offset >= 0]
    return {
        "leader": quorum.leader_id,
        "epoch": quorum.leader_epoch,
        "voters": [each.node_id for each in quorum.voters],
        "maxLag": max(lags, default=0),
        "maxObserverLag": max((end - each.log_end_offset for each in quorum.observers), default=0),
    }


def _show(picture: Picture, counts: dict[str, int], brokers: list[dict[str, Any]]) -> None:
    quorum = _quorum(picture)
    failover = picture.last_failover
    facts: dict[str, Any] = {
        "Cluster": picture.cluster.cluster_id,
        "Health": f"{len(picture.problems)} problem(s)" if picture.problems else "healthy",
    }
    if quorum is not None:
        facts["Quorum"] = (
            f"node {quorum['leader']} leads epoch {quorum['epoch']}, voters {', '.join(map(str, quorum['voters']))}, "
            f"greatest lag {quorum['maxLag']}"
        )
    facts["Partitions"] = (
        f"{counts['partitions']} in {counts['topics']} topics: {counts['underReplicated']} under-replicated, "
        f"{counts['atMinIsr']} at min ISR, {counts['belowMinIsr']} below, {counts['offline']} offline"
    )
    if counts["reassigning"]:
        facts["Moving"] = f"{counts['reassigning']} partitions"
    if counts["notPreferred"]:
        facts["Leaders"] = f"{counts['notPreferred']} partitions are not led by their preferred replica"
    if failover is not None:
        facts["Fail-over"] = f"{failover['seconds']:.3f} s, at {time_text(failover['at'])} ({failover['count']} so far)"
    show_facts(facts, "table")
    print()
    columns = (
        Column("id", "BROKER", number=True, style="bold"),
        Column("host", "HOST"),
        Column("port", "PORT", number=True),
        Column("rack", "RACK"),
        Column("state", "STATE"),
        Column("quorum", "QUORUM"),
        Column("leaders", "LEADS", number=True),
        Column("replicas", "REPLICAS", number=True),
        Column("inSync", "IN SYNC", number=True),
    )
    show_rows(brokers, columns, "table")
    if picture.problems:
        print()
        titles = (Column("what", "PROBLEM", style="bold red"), Column("where", "WHERE"), Column("detail", "DETAIL"))
        show_rows(picture.problems, titles, "table")
    else:
        print("\nThe cluster is healthy.")
