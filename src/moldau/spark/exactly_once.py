"""Each micro-batch counts once, whatever dies in between: how that is made of Kafka's transactions.

Every task writes in a transaction of its own (`<id>-<task>`) and leaves it open. When all tasks are done the driver
writes down which transactions make up the batch, in a transaction of its own (`<id>`), as offsets with metadata of the
group `<id>`: that is the decision. Then it commits the tasks' transactions, and notes that this is done.

- A task that fails leaves nothing: its next attempt takes the id over, which aborts what the first one wrote.
- A driver killed before the decision: the batch runs again, its tasks take their ids over.
- A driver killed after it: whoever plans the next batch finds the decision and completes it; the tasks of the batch
  that Spark then runs again see that it counts already and write nothing.
- Transactions that timed out after the decision and before they were committed: only the tasks they belong to write
  again. The others show by a fingerprint that their rows are the ones that were committed; if not, the query fails
  rather than writing a batch that is half of one run and half of another.
- A zombie driver: the next one takes `<id>` first, so the zombie's decision is refused. Its tasks ask with the driver's
  epoch before they take an id, and take it only if it is still held as it was before that question.

It never decides what is written, only whether it counts.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from moldau.client import transactions
from moldau.client.cluster import Cluster, TopicPartition
from moldau.client.coordinators import GROUP, wait_for_coordinator
from moldau.client.errors import FencedError, MoldauError
from moldau.client.group_offsets import commit_group_offsets, group_offsets
from moldau.client.settings import ClientSettings
from moldau.client.transactions import Transaction
from moldau.spark.brokers import shared_cluster

# Where decisions are kept: offsets must belong to a topic that exists, and this one always does.
DECISIONS_TOPIC = "__consumer_offsets"

_FORMAT = "moldau-1"
_ENTRY = struct.Struct(">IqhqQ")
# Brokers take 4096 bytes of metadata with an offset unless they are told otherwise (offset.metadata.max.bytes).
_ENTRIES_PER_CHUNK = 90
_OPEN_STATES = frozenset({"Ongoing", "PrepareEpochFence"})


@dataclass(slots=True, frozen=True)
class TaskWork:
    """What one task wrote for a batch: under which producer, how many rows, and a number that tells which."""

    task: int
    producer_id: int
    epoch: int
    rows: int
    fingerprint: int


@dataclass(slots=True, frozen=True)
class Decision:
    """A batch that counts: its number in which query, and the work it is made of."""

    batch: int
    query: str
    work: tuple[TaskWork, ...]


@dataclass(slots=True, frozen=True)
class Plan:
    """What tasks must know before they write: who the driver is, and which batch was decided on last."""

    driver: Transaction
    last: Decision | None
    # Tasks of the last decision whose transactions are lost, so that they have to write again.
    lost: frozenset[int] = field(default=frozenset())


@dataclass(slots=True, frozen=True)
class CommitSettings:
    client: ClientSettings
    transactional_id: str
    timeout_ms: int
    decisions_topic: str = DECISIONS_TOPIC
    ignore_missing_history: bool = False

    def task_id(self, task: int) -> str:
        return f"{self.transactional_id}-{task}"


# ---- the driver, before a batch


def plan(settings: CommitSettings) -> Plan:
    """Take over from any earlier driver, complete what it decided, and say where things stand."""
    cluster = shared_cluster(settings.client)
    # First the id: an earlier driver cannot decide anything from here on. Then what was decided.
    driver = transactions.begin(cluster, settings.transactional_id, settings.timeout_ms)
    last, completed = _read_decision(cluster, settings)
    if last is None or completed:
        return Plan(driver, last)
    lost = transactions.end_all(cluster, [_transaction(settings, each) for each in last.work], commit=True)
    if not lost:
        _mark_completed(cluster, settings, last.batch)
        return Plan(driver, last)
    ids = {each.transactional_id for each in lost}
    return Plan(driver, last, frozenset(each.task for each in last.work if settings.task_id(each.task) in ids))


# ---- a task


@dataclass(slots=True, frozen=True)
class Duty:
    """What a task has to do for its batch: write, or show that its rows are those already written, or nothing."""

    write: bool
    verify: TaskWork | None = None


def duty_of(plan: Plan, settings: CommitSettings, query: str, batch: int, task: int) -> Duty:
    last = plan.last
    if last is None or (last.query != query and batch == 0):
        if batch > 0 and not settings.ignore_missing_history:
            raise MoldauError(
                f"The query is at batch {batch}, but group '{settings.transactional_id}' holds no record of its "
                "earlier commits: they have expired (offsets.retention.minutes), or the transactionalId was changed. "
                f"Whether batch {batch} was written before cannot be known. If it was not, set "
                "ignoreMissingHistory=true for one run"
            )
        return Duty(write=True)
    if last.query != query:
        raise MoldauError(
            f"transactionalId '{settings.transactional_id}' belongs to another query "
            f"({last.query}, at batch {last.batch}): give each query an id of its own"
        )
    if batch > last.batch:
        if plan.lost:
            raise MoldauError(
                f"Batch {last.batch} of '{settings.transactional_id}' was decided but tasks {sorted(plan.lost)} timed "
                f"out before their commit, and Spark now runs batch {batch}: start the query from a checkpoint that "
                f"still has batch {last.batch} to do"
            )
        return Duty(write=True)
    if batch < last.batch:
        raise MoldauError(
            f"The checkpoint is at batch {batch}, but batch {last.batch} of '{settings.transactional_id}' was "
            "committed: the checkpoint was put back. Use a new checkpoint together with a new transactionalId"
        )
    if not plan.lost:
        return Duty(write=False)
    done = {each.task: each for each in last.work}
    if task in plan.lost:
        return Duty(write=True)
    return Duty(write=False, verify=done.get(task, TaskWork(task, -1, -1, 0, 0)))


def take_task_id(settings: CommitSettings, driver: Transaction, task: int) -> Transaction:
    """A transaction for a task, unless its driver is a zombie."""
    cluster = shared_cluster(settings.client)
    name = settings.task_id(task)
    held = transactions.look_up(cluster, name)
    _check_driver(cluster, settings, driver)
    if held is None:
        return transactions.begin(cluster, name, settings.timeout_ms)
    holder, state = held
    if holder.epoch < 0:
        return transactions.begin(cluster, name, settings.timeout_ms)
    if state in _OPEN_STATES:
        # An earlier attempt's rows. Aborted by hand, because that only works while nobody else has taken the id.
        transactions.end(cluster, holder, commit=False)
    return transactions.begin(cluster, name, settings.timeout_ms, expected=holder)


def _check_driver(cluster: Cluster, settings: CommitSettings, driver: Transaction) -> None:
    """Fails when another driver has come. A write, so that no coordinator that was itself deposed can answer."""
    doing = f"Asking whether the driver '{driver.transactional_id}' is still in charge"
    if transactions.add_group(cluster, driver, settings.transactional_id, doing):
        raise FencedError(f"{doing}: no, another run of this query has taken over; stop this one")


# ---- the driver, after a batch


def commit(settings: CommitSettings, driver: Transaction, decision: Decision) -> None:
    """Decide that a batch counts, and make it so. May be repeated."""
    cluster = shared_cluster(settings.client)
    _write_decision(cluster, settings, driver, decision)
    lost = transactions.end_all(cluster, [_transaction(settings, each) for each in decision.work], commit=True)
    if lost:
        raise MoldauError(
            f"Batch {decision.batch} of '{settings.transactional_id}' is decided, but {len(lost)} of its transactions "
            "ended before they could be committed (kafka.transaction.timeout.ms). Nothing is lost: restart the query, "
            "and these tasks write again"
        )
    _mark_completed(cluster, settings, decision.batch)


def commit_without_history(settings: CommitSettings, work: Sequence[TaskWork]) -> None:
    """Commit a batch write that is no part of a stream: nobody will repeat it, so nothing is written down."""
    cluster = shared_cluster(settings.client)
    lost = transactions.end_all(cluster, [_transaction(settings, each) for each in work], commit=True)
    if lost:
        raise MoldauError(
            f"{len(lost)} of {len(work)} transactions of '{settings.transactional_id}' ended before they could be "
            "committed (kafka.transaction.timeout.ms): the write is incomplete. Raise that timeout, or write with "
            "deliveryGuarantee=at-least-once"
        )


def abort(settings: CommitSettings, work: Sequence[TaskWork]) -> None:
    """Drop what tasks wrote. What this does not reach is aborted by whoever takes the ids next, or by its timeout."""
    cluster = shared_cluster(settings.client)
    transactions.end_all(cluster, [_transaction(settings, each) for each in work], commit=False)


def _transaction(settings: CommitSettings, work: TaskWork) -> Transaction:
    return Transaction(settings.task_id(work.task), work.producer_id, work.epoch)


# ---- how a decision is kept


def encode_decision(decision: Decision) -> list[str]:
    """The texts of a decision: the first says which query and how many there are."""
    packed = [
        _ENTRY.pack(each.task, each.producer_id, each.epoch, each.rows, each.fingerprint) for each in decision.work
    ]
    chunks = [packed[at : at + _ENTRIES_PER_CHUNK] for at in range(0, max(len(packed), 1), _ENTRIES_PER_CHUNK)]
    return [
        f"{_FORMAT} {decision.query} {len(chunks)} {base64.b64encode(b''.join(chunk)).decode()}" for chunk in chunks
    ]


def decode_decision(found: Mapping[int, tuple[int, str]]) -> Decision | None:
    """The decision whose texts stand at partitions 0, 1, ...; each with the batch's number plus one as its offset."""
    if 0 not in found:
        return None
    offset, first = found[0]
    work: list[TaskWork] = []
    try:
        form, query, count, _ = first.split(" ")
        for index in range(int(count)):
            there, text = found[index]
            if there != offset or form != _FORMAT:
                raise ValueError("parts of different batches")
            packed = base64.b64decode(text.split(" ")[3], validate=True)
            work += [TaskWork(*_ENTRY.unpack_from(packed, at)) for at in range(0, len(packed), _ENTRY.size)]
    except (ValueError, KeyError, IndexError, struct.error) as error:
        raise MoldauError(
            f"The record of the last commit cannot be read ({error}): is the group used by something else? "
            "Give the query a transactionalId of its own"
        ) from None
    return Decision(offset - 1, query, tuple(work))


def _places(cluster: Cluster, settings: CommitSettings) -> int:
    """How many partitions there are to keep texts at."""
    # Asking for a group's coordinator creates the topic on a cluster that never had a group.
    wait_for_coordinator(cluster, GROUP, settings.transactional_id)
    return cluster.partition_count(settings.decisions_topic, cluster.deadline())


def _write_decision(cluster: Cluster, settings: CommitSettings, driver: Transaction, decision: Decision) -> None:
    texts = encode_decision(decision)
    places = _places(cluster, settings)
    if len(texts) > max(1, places - 1):
        raise MoldauError(
            f"A batch of {len(decision.work)} tasks is too large to be decided on at once: reduce the number of tasks "
            f"with coalesce, to at most {max(1, places - 1) * _ENTRIES_PER_CHUNK}"
        )
    topic = settings.decisions_topic
    offsets: dict[TopicPartition, tuple[int, str]] = {
        (topic, index): (decision.batch + 1, text) for index, text in enumerate(texts)
    }
    transactions.commit_offsets(cluster, driver, settings.transactional_id, offsets)
    if not transactions.end(cluster, driver, commit=True):
        raise FencedError(
            f"Another run of '{settings.transactional_id}' has taken over; batch {decision.batch} is its own"
        )


def _read_decision(cluster: Cluster, settings: CommitSettings) -> tuple[Decision | None, bool]:
    """The last decision, and whether its transactions are known to be committed."""
    places = _places(cluster, settings)
    topic = settings.decisions_topic
    found = group_offsets(cluster, settings.transactional_id, [(topic, index) for index in range(places)])
    decision = decode_decision({index: text for (_, index), text in found.items()})
    completed = found.get((topic, places - 1)) if places > 1 else None
    return decision, decision is not None and completed is not None and completed[0] == decision.batch + 1


def _mark_completed(cluster: Cluster, settings: CommitSettings, batch: int) -> None:
    """Spare the next planning the question. A zombie may write an old number here: that only costs the question."""
    places = _places(cluster, settings)
    if places > 1:
        commit_group_offsets(
            cluster, settings.transactional_id, {(settings.decisions_topic, places - 1): batch + 1}, "completed"
        )
