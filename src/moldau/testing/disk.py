"""A disk in memory that fails as disks do: it loses what was not synced, tears the last write, fills up, breaks.

Decides what survives a crash. The model is a journalled file system: changes of names (create, rename, remove) survive
in order, and any sync makes all of them so far durable; bytes of a file survive only up to its own last sync, plus
whatever part of the later writes the crash leaves. Everything is deterministic: chance comes from the caller's random.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random

from moldau.ports import Buffer, Clock

Done = Callable[[OSError | None], None]

# A write, or (with None) a truncation to that size.
_Change = tuple[int, bytes | None]


class _Inode:
    """The bytes of a file, and the changes to them that no sync has covered."""

    __slots__ = ("data", "durable", "modified_ms", "synced", "unsynced")

    def __init__(self, now_ms: int) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.unsynced: list[_Change] = []
        # How many changes a sync has covered.
        self.synced = 0
        self.modified_ms = now_ms

    def apply(self, change: _Change, now_ms: int) -> None:
        _apply(self.data, change)
        self.unsynced.append(change)
        self.modified_ms = now_ms

    @property
    def changes(self) -> int:
        """How many there were so far."""
        return self.synced + len(self.unsynced)

    def sync(self, changes: int | None = None) -> None:
        """All changes are durable, or as many as there were when a sync was asked for."""
        count = len(self.unsynced) if changes is None else changes - self.synced
        if count > 0:
            for change in self.unsynced[:count]:
                _apply(self.durable, change)
            del self.unsynced[:count]
            self.synced += count

    def crash(self, random: Random | None) -> None:
        """Go back to what is durable, with a part of what came after it when chance is given."""
        left: Iterable[_Change] = ()
        if random is not None and self.unsynced:
            whole = random.randint(0, len(self.unsynced))
            left = self.unsynced[:whole]
            if whole < len(self.unsynced):
                position, written = self.unsynced[whole]
                if written is not None:
                    left = [*left, (position, written[: random.randint(0, len(written))])]
        for change in left:
            _apply(self.durable, change)
        self.data = bytearray(self.durable)
        self.unsynced.clear()


def _apply(data: bytearray, change: _Change) -> None:
    position, written = change
    if written is None:
        if position <= len(data):
            del data[position:]
        else:
            data.extend(bytes(position - len(data)))
        return
    if position > len(data):
        data.extend(bytes(position - len(data)))
    data[position : position + len(written)] = written


@dataclass(slots=True)
class _Fault:
    operation: str
    ending: str
    error: int
    after: int
    times: int


class SimulatedFile:
    """`ports.File` of a `SimulatedDisk`."""

    __slots__ = ("_disk", "_inode", "_life", "closed", "path")

    def __init__(self, disk: SimulatedDisk, path: str, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode
        self._life = disk.life
        self.path = path
        self.closed = False

    def _use(self, operation: str) -> None:
        if self.closed or self._life != self._disk.life:
            raise ValueError(f"{self.path} is not open")
        self._disk.count(operation, self.path)

    def size(self) -> int:
        return len(self._inode.data)

    def append(self, buffers: Sequence[Buffer]) -> int:
        position = len(self._inode.data)
        self._write(position, b"".join(buffers))
        return position

    def write_at(self, position: int, data: Buffer) -> None:
        self._write(position, bytes(data))

    def _write(self, position: int, data: bytes) -> None:
        self._use("write")
        room = self._disk.room_for(position + len(data) - len(self._inode.data))
        if room < len(data):
            self._inode.apply((position, data[:room]), self._disk.now_ms())
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        self._inode.apply((position, data), self._disk.now_ms())

    def read(self, position: int, length: int) -> bytes:
        self._use("read")
        return bytes(memoryview(self._inode.data)[position : position + length])

    def lend(self, position: int, length: int) -> Buffer:
        return self.read(position, length)

    def truncate(self, size: int) -> None:
        self._use("truncate")
        self._inode.apply((size, None), self._disk.now_ms())

    def sync(self, done: Done | None = None) -> None:
        if done is None:
            self._use("sync")
            self._inode.sync()
            self._disk.names_are_durable()
            return
        covered = self._inode.changes
        self._disk.sync_later(lambda: self._finish_sync(covered, done))

    def _finish_sync(self, covered: int, done: Done) -> None:
        """What was written when the sync was asked for is durable when it ends; later writes are not."""
        if self._life != self._disk.life:
            return
        try:
            self._disk.count("sync", self.path)
        except OSError as error:
            done(error)
            return
        self._inode.sync(covered)
        self._disk.names_are_durable()
        done(None)

    def close(self) -> None:
        self.closed = True


class SimulatedDisk:
    """`ports.Disk` in memory.

    `hold_syncs` keeps syncs with a callback waiting until `finish_syncs`; otherwise they end at once. `operations`
    counts what was done: open, read, write, sync, truncate, map, list, stat, rename, remove, atomic, sync_dir.
    """

    def __init__(self, clock: Clock | None = None, *, capacity: int | None = None) -> None:
        self._clock = clock
        self._names: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}
        # Directories only grow: losing an empty one tells nothing.
        self._directories: set[str] = set()
        self._journal: list[Callable[[dict[str, _Inode]], object]] = []
        self._faults: list[_Fault] = []
        self._held: list[Callable[[], None]] = []
        self.hold_syncs = False
        self.capacity = capacity
        self.operations: Counter[str] = Counter()
        # Grows with every crash: files opened before are gone.
        self.life = 0

    # ---- faults

    def crash(self, random: Random | None = None, *, keep_unsynced: bool = False) -> None:
        """Stop everything. Without `random` all that was not synced is lost; with it, a random part survives.

        `keep_unsynced` is a process that dies while its machine lives on: the kernel still has every write.
        """
        self.life += 1
        self._held.clear()
        self._faults.clear()
        if keep_unsynced:
            return
        names = dict(self._durable_names)
        if random is not None:
            for change in self._journal[: random.randint(0, len(self._journal))]:
                change(names)
        seen: set[int] = set()
        for _, inode in sorted({**names, **self._names}.items()):
            if id(inode) not in seen:
                seen.add(id(inode))
                inode.crash(random)
        self._names = names
        self._durable_names = dict(names)
        self._journal.clear()
        # A rename that is undone brings its directory back.
        for path in names:
            self._directories.add(path.rpartition("/")[0])

    def fail(self, operation: str, error: int = errno.EIO, *, ending: str = "", after: int = 0, times: int = 1) -> None:
        """Let an operation on a path with this ending fail, after so many that succeed, so many times."""
        self._faults.append(_Fault(operation, ending, error, after, times))

    def heal(self) -> None:
        self._faults.clear()
        self.capacity = None

    def corrupt(self, path: str, position: int, data: bytes) -> None:
        """Change bytes behind everybody's back, durably."""
        inode = self._inode(path)
        inode.apply((position, data), inode.modified_ms)
        inode.sync()

    def finish_syncs(self, count: int | None = None) -> int:
        """End the syncs that are held, the oldest first; how many there were."""
        due = self._held[:count]
        del self._held[: len(due)]
        for finish in due:
            finish()
        return len(due)

    @property
    def syncs_held(self) -> int:
        return len(self._held)

    # ---- used by files

    def now_ms(self) -> int:
        return self._clock.now_ms() if self._clock is not None else 0

    def count(self, operation: str, path: str) -> None:
        self.operations[operation] += 1
        if self._faults:
            self._fail_if_due(operation, path)

    def _fail_if_due(self, operation: str, path: str) -> None:
        for fault in self._faults:
            if fault.operation == operation and path.endswith(fault.ending):
                if fault.after > 0:
                    fault.after -= 1
                    continue
                fault.times -= 1
                if fault.times <= 0:
                    self._faults.remove(fault)
                raise OSError(fault.error, os.strerror(fault.error), path)

    def room_for(self, growth: int) -> int:
        if self.capacity is None or growth <= 0:
            return 1 << 62
        used = sum(len(inode.data) for inode in self._names.values())
        return max(self.capacity - used, 0)

    def sync_later(self, finish: Callable[[], None]) -> None:
        if self.hold_syncs:
            self._held.append(finish)
        else:
            finish()

    def names_are_durable(self) -> None:
        for change in self._journal:
            change(self._durable_names)
        self._journal.clear()

    # ---- ports.Disk

    def open(self, path: str, *, create: bool = True, preallocate: int = 0) -> SimulatedFile:
        self.count("open", path)
        inode = self._names.get(path)
        if inode is None:
            if not create:
                raise _missing(path)
            self._require_directory(path)
            inode = _Inode(self.now_ms())
            self._rename_all(lambda names: names.__setitem__(path, inode))
        return SimulatedFile(self, path, inode)

    def read_bytes(self, path: str) -> bytes:
        self.count("read", path)
        return bytes(self._inode(path).data)

    def write_atomically(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        self.count("atomic", path)
        self._require_directory(path)
        if self.room_for(len(data)) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        inode = _Inode(self.now_ms())
        inode.apply((0, bytes(data)), self.now_ms())
        if sync:
            inode.sync()
        self._rename_all(lambda names: names.__setitem__(path, inode))
        if sync:
            self.names_are_durable()

    def map_read_only(self, path: str) -> Buffer:
        self.count("map", path)
        return bytes(self._inode(path).data)

    def exists(self, path: str) -> bool:
        self.count("stat", path)
        return path in self._names or path in self._directories

    def file_size(self, path: str) -> int:
        self.count("stat", path)
        return len(self._inode(path).data)

    def modified_ms(self, path: str) -> int:
        self.count("stat", path)
        return self._inode(path).modified_ms

    def set_modified_ms(self, path: str, when_ms: int) -> None:
        self._inode(path).modified_ms = when_ms

    def list_dir(self, path: str) -> list[str]:
        self.count("list", path)
        if path not in self._directories:
            raise _missing(path)
        start = path + "/"
        inside = [*self._names, *self._directories]
        return sorted({entry[len(start) :].split("/", 1)[0] for entry in inside if entry.startswith(start)})

    def make_dirs(self, path: str) -> None:
        self.count("mkdir", path)
        parts = path.split("/")
        for i in range(1, len(parts) + 1):
            self._directories.add("/".join(parts[:i]))

    def rename(self, source: str, target: str) -> None:
        self.count("rename", source)
        if source in self._directories:
            self._rename_directory(source, target)
            return
        inode = self._inode(source)

        def change(names: dict[str, _Inode]) -> None:
            del names[source]
            names[target] = inode

        self._rename_all(change)

    def _rename_directory(self, source: str, target: str) -> None:
        def change(names: dict[str, _Inode]) -> None:
            for path in [path for path in names if path.startswith(source + "/")]:
                names[target + path[len(source) :]] = names.pop(path)

        moved = [path for path in self._directories if path == source or path.startswith(source + "/")]
        self._directories |= {target + path[len(source) :] for path in moved}
        self._directories -= set(moved)
        self._rename_all(change)

    def remove(self, path: str) -> None:
        self.count("remove", path)
        if path in self._names:
            self._rename_all(lambda names: names.pop(path))

    def remove_tree(self, path: str) -> None:
        self.count("remove", path)
        inside = [entry for entry in self._names if entry.startswith(path + "/")]
        self._rename_all(lambda names: [names.pop(entry) for entry in inside])
        self._directories = {d for d in self._directories if d != path and not d.startswith(path + "/")}

    def sync_dir(self, path: str) -> None:
        self.count("sync_dir", path)
        self.names_are_durable()

    def sync_tree(self, path: str, done: Done) -> None:
        life = self.life

        def finish() -> None:
            if life != self.life:
                return
            try:
                self.count("sync", path)
            except OSError as error:
                done(error)
                return
            for name, inode in self._names.items():
                if name.startswith(f"{path}/"):
                    inode.sync()
            self.names_are_durable()
            done(None)

        self.sync_later(finish)

    def free_bytes(self, path: str) -> tuple[int, int]:
        used = sum(len(inode.data) for inode in self._names.values())
        total = self.capacity if self.capacity is not None else 1 << 40
        return total, max(total - used, 0)

    # ---- names

    def _inode(self, path: str) -> _Inode:
        inode = self._names.get(path)
        if inode is None:
            raise _missing(path)
        return inode

    def _require_directory(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent and parent not in self._directories:
            raise _missing(path)

    def _rename_all(self, change: Callable[[dict[str, _Inode]], object]) -> None:
        """Change the names, and note the change: a crash keeps the first so many of those that no sync covers."""
        change(self._names)
        self._journal.append(change)


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
