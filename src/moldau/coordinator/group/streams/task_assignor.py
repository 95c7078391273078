"""Who runs which task, and who keeps copies of its state: evenly, and with as little moved as possible.

A pure function, after Kafka's "sticky" assignor: tasks stay where they ran; else they go where a copy is; else to the
process with the least to do. Copies never go to the process that runs the task itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from moldau.coordinator.group.streams.tasks import TaskIds, Tasks

log = logging.getLogger("moldau.coordinator")


class Task(NamedTuple):
    subtopology_id: str
    partition: int


class TaskAssignee(NamedTuple):
    """One member, as the assignor sees it."""

    member_id: str
    process_id: str
    # What it was to have so far.
    previous: Tasks


class Work(NamedTuple):
    """One subtopology. Only tasks with state can have copies."""

    tasks: int
    is_stateful: bool


def assign_tasks(members: Sequence[TaskAssignee], work: Mapping[str, Work], standbys: int) -> dict[str, Tasks]:
    """What each member gets, when each task with state is to have this many copies."""
    return _Assignment(members, work, standbys).assign()


class _Process:
    """The members of one process, and what they have been given."""

    __slots__ = ("_by_load", "_count", "load", "order", "tasks", "workers")

    def __init__(self, order: int) -> None:
        self.order = order
        self.workers: dict[str, _Worker] = {}
        self.tasks: set[Task] = set()
        self.load = 0.0
        self._count = 0
        self._by_load: list[tuple[int, int, _Worker]] | None = None

    def _give(self, worker: _Worker, task: Task, active: bool) -> None:
        (worker.active if active else worker.standby).append(task)
        worker.count += 1
        self.tasks.add(task)
        self._count += 1
        self.load = self._count / len(self.workers)

    def give_to(self, worker: _Worker, task: Task, active: bool) -> int:
        self._give(worker, task, active)
        self._by_load = None
        return worker.count

    def give_to_least_loaded(self, task: Task, active: bool) -> int:
        if self._by_load is None:
            self._by_load = [(worker.count, worker.order, worker) for worker in self.workers.values()]
            heapify(self._by_load)
        _, order, worker = heappop(self._by_load)
        self._give(worker, task, active)
        heappush(self._by_load, (worker.count, order, worker))
        return worker.count


class _Worker:
    """One member, and what it has been given."""

    __slots__ = ("active", "count", "member_id", "order", "process", "standby")

    def __init__(self, member_id: str, order: int, process: _Process) -> None:
        self.member_id = member_id
        self.order = order
        self.process = process
        self.active: list[Task] = []
        self.standby: list[Task] = []
        self.count = 0


class _Quota:
    """How many tasks a member may keep; those who have their share are left out of what the others share."""

    __slots__ = ("_members", "_tasks", "each")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.each = self._share()

    def _share(self) -> int:
        return -(-self._tasks // self._members) if self._members else 0

    def reached_by(self, count: int) -> None:
        if count == self.each:
            self._members -= 1
            self._tasks -= count
            self.each = self._share()


class _Assignment:
    def __init__(self, members: Sequence[TaskAssignee], work: Mapping[str, Work], standbys: int) -> None:
        self._work = work
        self._standbys = standbys
        active = sum(each.tasks for each in work.values())
        copies = sum(each.tasks for each in work.values() if each.is_stateful) * standbys
        self._active_quota = _Quota(active, len(members))
        self._quota = _Quota(active + copies, len(members))
        self._processes: dict[str, _Process] = {}
        self._workers: list[_Worker] = []
        # Where tasks ran, and where there were copies of them.
        self._ran: dict[Task, _Worker] = {}
        self._copied: dict[Task, list[_Worker]] = {}
        for order, member in enumerate(members):
            process = self._processes.setdefault(member.process_id, _Process(len(self._processes)))
            worker = process.workers[member.member_id] = _Worker(member.member_id, order, process)
            self._workers.append(worker)
            for task in _tasks(member.previous.active):
                self._ran[task] = worker
            for task in _tasks(member.previous.standby):
                self._copied.setdefault(task, []).append(worker)

    def assign(self) -> dict[str, Tasks]:
        self._assign_active()
        if self._standbys:
            self._assign_standbys()
        return {worker.member_id: Tasks(_ids(worker.active), _ids(worker.standby), {}) for worker in self._workers}

    # ---- active tasks

    def _assign_active(self) -> None:
        tasks = [Task(name, index) for name, each in self._work.items() for index in range(each.tasks)]
        # The same partitions of several subtopologies are best kept together: partition by partition.
        tasks.sort(key=lambda task: (task.partition, task.subtopology_id))
        tasks = [task for task in tasks if not self._keep(task, self._ran.get(task))]
        tasks = [task for task in tasks if not self._keep(task, self._least_loaded(self._copied.get(task), None))]
        tasks.sort()
        by_load = self._processes_by_load()
        for task in tasks:
            _, order, process = heappop(by_load)
            self._counted(process.give_to_least_loaded(task, active=True))
            heappush(by_load, (process.load, order, process))

    def _keep(self, task: Task, worker: _Worker | None) -> bool:
        if worker is None or worker.count >= self._active_quota.each:
            return False
        self._counted(worker.process.give_to(worker, task, active=True))
        return True

    def _counted(self, count: int) -> None:
        self._active_quota.reached_by(count)
        self._quota.reached_by(count)

    # ---- copies

    def _assign_standbys(self) -> None:
        tasks = [
            Task(name, index) for name, each in self._work.items() if each.is_stateful for index in range(each.tasks)
        ]
        tasks.sort(key=lambda task: (task.partition, task.subtopology_id), reverse=True)
        left: list[tuple[Task, int]] = []
        for task in tasks:
            for done in range(self._standbys):
                if not self._keep_copy(task):
                    left.append((task, self._standbys - done))
                    break
        left.sort(reverse=True)
        by_load = self._processes_by_load()
        without = 0
        for task, copies in left:
            for done in range(copies):
                if not self._copy_to_least_loaded(by_load, task):
                    without += copies - done
                    break
        if without:
            log.info("%d copies of tasks find no process of their own; more processes would help", without)

    def _keep_copy(self, task: Task) -> bool:
        """A copy where the task ran, or where a copy was before."""
        for worker in (self._ran.get(task), self._least_loaded(self._copied.get(task), task)):
            if worker is not None and task not in worker.process.tasks and worker.count < self._quota.each:
                self._quota.reached_by(worker.process.give_to(worker, task, active=False))
                return True
        return False

    def _copy_to_least_loaded(self, by_load: list[tuple[float, int, _Process]], task: Task) -> bool:
        passed: list[tuple[float, int, _Process]] = []
        found = False
        while by_load and not found:
            _, order, process = heappop(by_load)
            if task not in process.tasks:
                self._quota.reached_by(process.give_to_least_loaded(task, active=False))
                found = True
            passed.append((process.load, order, process))
        for entry in passed:
            heappush(by_load, entry)
        return found

    def _least_loaded(self, workers: Sequence[_Worker] | None, task: Task | None) -> _Worker | None:
        """Of those that had a copy; a process that has the task already is no place for another copy."""
        if not workers:
            return None
        best = workers[0]
        process_load, load = best.process.load, best.count
        for worker in workers[1:]:
            process = worker.process
            if process.load < process_load and worker.count < load and (task is None or task not in process.tasks):
                process_load, load, best = process.load, worker.count, worker
        # As in Kafka, it is the first one that must not have the task.
        return best if task is None or task not in workers[0].process.tasks else None

    def _processes_by_load(self) -> list[tuple[float, int, _Process]]:
        by_load = [(process.load, process.order, process) for process in self._processes.values()]
        heapify(by_load)
        return by_load


def _tasks(ids: TaskIds) -> Iterator[Task]:
    for subtopology_id, partitions in ids.items():
        for partition in partitions:
            yield Task(subtopology_id, partition)


def _ids(tasks: Sequence[Task]) -> TaskIds:
    ids: dict[str, set[int]] = {}
    for task in tasks:
        ids.setdefault(task.subtopology_id, set()).add(task.partition)
    return {subtopology_id: frozenset(partitions) for subtopology_id, partitions in ids.items()}
