"""The node's own disk with faults that a test switches on: errors below certain directories, for certain actions."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from moldau.node.disk import OsDisk, OsFile
from moldau.ports import Buffer


class Faults:
    """Which directories fail, in what, and how."""

    def __init__(self) -> None:
        self._rules: list[tuple[str, frozenset[str], int]] = []
        self.hits = 0

    def fail(self, directory: object, *actions: str, code: int = errno.EIO) -> None:
        """From now on these actions (all, if none is named) fail on every path under the directory."""
        self._rules.append((f"{directory}/", frozenset(actions), code))

    def mend(self) -> None:
        self._rules.clear()

    def check(self, action: str, path: str) -> None:
        for directory, actions, code in self._rules:
            if f"{path}/".startswith(directory) and (not actions or action in actions):
                self.hits += 1
                raise OSError(code, os.strerror(code), path)


FAULTS = Faults()


class FaultyFile(OsFile):
    __slots__ = ()

    def append(self, buffers: Sequence[Buffer]) -> int:
        FAULTS.check("write", self.path)
        return super().append(buffers)

    def write_at(self, position: int, data: Buffer) -> None:
        FAULTS.check("write", self.path)
        super().write_at(position, data)

    def read(self, position: int, length: int) -> bytes:
        FAULTS.check("read", self.path)
        return super().read(position, length)

    def lend(self, position: int, length: int) -> Buffer:
        FAULTS.check("read", self.path)
        return super().lend(position, length)

    def truncate(self, size: int) -> None:
        FAULTS.check("write", self.path)
        super().truncate(size)

    def sync(self, done: Callable[[OSError | None], None] | None = None) -> None:
        try:
            FAULTS.check("sync", self.path)
        except OSError as error:
            if done is None:
                raise
            # As from another thread: not within this call.
            failure = error
            self._disk._post(lambda: done(failure))
            return
        super().sync(done)


class FaultyDisk(OsDisk):
    __slots__ = ()

    def open(self, path: str, *, create: bool = True, preallocate: int = 0) -> OsFile:
        FAULTS.check("open", path)
        return super().open(path, create=create, preallocate=preallocate)


def _guarded(action: str, name: str) -> Any:
    original = getattr(OsDisk, name)

    def call(self: OsDisk, path: str, *args: Any, **options: Any) -> Any:
        FAULTS.check(action, path)
        return original(self, path, *args, **options)

    return call


for _name in ("read_bytes", "map_read_only", "list_dir", "file_size", "modified_ms"):
    setattr(FaultyDisk, _name, _guarded("read", _name))
for _name in ("write_atomically", "make_dirs", "rename", "remove", "remove_tree", "set_modified_ms"):
    setattr(FaultyDisk, _name, _guarded("write", _name))
FaultyDisk.sync_dir = _guarded("sync", "sync_dir")  # type: ignore[method-assign]


@contextmanager
def faulty_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    """Nodes started in this process get a disk that can fail."""
    monkeypatch.setattr("moldau.node.node.OsDisk", FaultyDisk)
    monkeypatch.setattr("moldau.node.disk.OsFile", FaultyFile)
    FAULTS.mend()
    FAULTS.hits = 0
    try:
        yield FAULTS
    finally:
        FAULTS.mend()
