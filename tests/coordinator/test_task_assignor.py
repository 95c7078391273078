"""The task assignor: every task runs once, copies are elsewhere, work is even, and little moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.coordinator.group.streams.task_assignor import TaskAssignee, Work, assign_tasks
from moldau.coordinator.group.streams.tasks import NO_TASKS, TaskIds, Tasks

Flat = set[tuple[str, int]]


def flat(ids: TaskIds) -> Flat:
    return {(name, partition) for name, partitions in ids.items() for partition in partitions}


def members(*processes: str, previous: Mapping[str, Tasks] | None = None) -> list[TaskAssignee]:
    """One member for each; members of process "p" are called p0, p1, ..."""
    seen: Counter[str] = Counter()
    found: list[TaskAssignee] = []
    for process in processes:
        name = f"{process}{seen[process]}"
        seen[process] += 1
        found.append(TaskAssignee(name, process, (previous or {}).get(name, NO_TASKS)))
    return found


def check(who: Sequence[TaskAssignee], work: Mapping[str, Work], standbys: int, result: Mapping[str, Tasks]) -> None:
    assert result.keys() == {member.member_id for member in who}
    every = {(name, index) for name, each in work.items() for index in range(each.tasks)}
    ran = Counter(task for tasks in result.values() for task in flat(tasks.active))
    assert ran == Counter(every)
    process_of = {member.member_id: member.process_id for member in who}
    having = Counter(
        (process_of[name], task) for name, tasks in result.items() for task in flat(tasks.active) | flat(tasks.standby)
    )
    assert all(count == 1 for count in having.values()), "a process has each task once at most"
    copies = Counter(task for tasks in result.values() for task in flat(tasks.standby))
    processes = len(set(process_of.values()))
    for name, index in every:
        wanted = min(standbys, processes - 1) if work[name].is_stateful else 0
        assert copies[name, index] == wanted, (name, index)


def moved(before: Mapping[str, Tasks], after: Mapping[str, Tasks]) -> int:
    return sum(len(flat(tasks.active) - flat(after.get(name, NO_TASKS).active)) for name, tasks in before.items())


WORK = st.dictionaries(
    st.sampled_from(["0", "1", "2", "3"]), st.builds(Work, st.integers(1, 9), st.booleans()), min_size=1
)
PROCESSES = st.lists(st.sampled_from("abcd"), min_size=1, max_size=8)


@settings(max_examples=150, deadline=None)
@given(WORK, PROCESSES, st.integers(0, 2))
def test_fresh_assignments(work: dict[str, Work], processes: list[str], standbys: int) -> None:
    who = members(*processes)
    result = assign_tasks(who, work, standbys)
    check(who, work, standbys, result)
    if len(set(processes)) == len(processes):
        counts = [len(flat(tasks.active)) for tasks in result.values()]
        assert max(counts) - min(counts) <= 1


@settings(max_examples=150, deadline=None)
@given(WORK, PROCESSES, PROCESSES, st.integers(0, 2))
def test_assignments_after_changes(
    work: dict[str, Work], processes: list[str], later: list[str], standbys: int
) -> None:
    before = assign_tasks(members(*processes), work, standbys)
    who = members(*later, previous=before)
    check(who, work, standbys, assign_tasks(who, work, standbys))


@settings(max_examples=100, deadline=None)
@given(WORK, st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True), st.integers(0, 2))
def test_nothing_moves_without_a_reason(work: dict[str, Work], processes: list[str], standbys: int) -> None:
    before = assign_tasks(members(*processes), work, standbys)
    again = assign_tasks(members(*processes, previous=before), work, standbys)
    assert moved(before, again) == 0


def test_a_new_member_takes_only_its_share() -> None:
    work = {"0": Work(6, is_stateful=True)}
    before = assign_tasks(members("a", "b"), work, 0)
    after = assign_tasks(members("a", "b", "c", previous=before), work, 0)
    assert moved(before, after) == 2
    assert {name: len(flat(tasks.active)) for name, tasks in after.items()} == {"a0": 2, "b0": 2, "c0": 2}


def test_a_task_goes_where_its_copy_is() -> None:
    work = {"0": Work(3, is_stateful=True)}
    before = assign_tasks(members("a", "b", "c"), work, 1)
    lost = flat(before["a0"].active)
    after = assign_tasks(members("b", "c", previous=before), work, 1)
    for task in lost:
        (heir,) = (name for name, tasks in after.items() if task in flat(tasks.active))
        assert task in flat(before[heir].standby)


def test_ranges_of_one_subtopology_stay_together() -> None:
    work = {"0": Work(2, is_stateful=False), "1": Work(2, is_stateful=False)}
    result = assign_tasks(members("a", "b"), work, 0)
    assert flat(result["a0"].active) == {("0", 0), ("1", 0)}
    assert flat(result["b0"].active) == {("0", 1), ("1", 1)}


def test_more_members_than_tasks() -> None:
    result = assign_tasks(members("a", "b", "c"), {"0": Work(1, is_stateful=True)}, 1)
    assert sorted(len(flat(tasks.active)) for tasks in result.values()) == [0, 0, 1]
    assert sum(len(flat(tasks.standby)) for tasks in result.values()) == 1


def test_members_of_one_process_share_its_work() -> None:
    result = assign_tasks(members("a", "a", "b"), {"0": Work(9, is_stateful=False)}, 0)
    assert sorted(len(flat(tasks.active)) for tasks in result.values()) == [3, 3, 3]
