"""The ports between the core and the world, and the promise a handler may return.

Everything below `moldau.node` is synchronous and event-driven: it owns no socket, no file, no clock and no
randomness. It is given these ports instead. `moldau.node` implements them with an event loop and the operating
system; `moldau.testing` implements them with a virtual clock, a lossy network and a disk that tears writes, so that
the same code runs fast in production and deterministically in a simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
Buffer: TypeAlias = bytes | bytearray | memoryview


class Timer(Protocol):
    """A call that was scheduled and may still be taken back."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Wall-clock milliseconds, and calls at a later time on the same thread."""

    def now_ms(self) -> int: ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never jump, for deadlines and intervals; the origin is arbitrary."""
        ...

    def call_later(self, delay_ms: int, run: Callable[[], None]) -> Timer: ...


class File(Protocol):
    """One open file. Writes reach the page cache at once; only `sync` makes them survive a power cut.

    Any method raises OSError when the disk fails; the owner decides what goes offline.
    """

    def size(self) -> int: ...

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write the buffers one after the other at the end; returns the position of the first byte."""
        ...

    def write_at(self, position: int, data: Buffer) -> None: ...

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`; fewer only at the end of the file."""
        ...

    def lend(self, position: int, length: int) -> Buffer:
        """As `read`, for bytes on their way to a socket: large ones may be the page cache itself, not a copy.

        They may be looked at before the file is cut, never after.
        """
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self, done: Callable[[OSError | None], None] | None = None) -> None:
        """Make everything written so far durable. Without `done` it blocks (and raises); with it, it returns
        at once and `done` is called on the owning thread, with the error if there was one."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """A file system. Paths are plain strings; directories separate with '/'."""

    def open(self, path: str, *, create: bool = True, preallocate: int = 0) -> File: ...

    def read_bytes(self, path: str) -> bytes:
        """The whole file; FileNotFoundError when there is none."""
        ...

    def write_atomically(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        """Replace the file through a temporary sibling and a rename, so that a reader sees the old or the new."""
        ...

    def map_read_only(self, path: str) -> Buffer:
        """The file's content for random reading, without loading it where the system can avoid it."""
        ...

    def exists(self, path: str) -> bool: ...

    def file_size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, when_ms: int) -> None: ...

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory, sorted; FileNotFoundError when there is none."""
        ...

    def make_dirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; no error when it is already gone."""
        ...

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def sync_tree(self, path: str, done: Callable[[OSError | None], None]) -> None:
        """Make everything under a directory durable, contents and names, in one go. It returns at once; `done` is
        called on the owning thread. For thousands of files: each `sync` of its own would wait for the disk."""
        ...

    def free_bytes(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the file system that holds `path`."""
        ...


class Background(Protocol):
    """Work that must not hold up the event loop (compaction, large scans, deletions)."""

    def run(self, steps: Iterator[None], done: Callable[[BaseException | None], None] | None = None) -> None:
        """Run a generator to its end, in slices: between two steps others may run. Steps run on the owning
        thread, so they may touch its state; each should take a few milliseconds at most."""
        ...


class Address(NamedTuple):
    """Where a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Unreachable(NamedTuple):
    """Instead of an answer: why there is none. The request may or may not have been carried out."""

    reason: str
    nobody_listens: bool = False
    """The other machine itself said that no process listens there: a process that died, not a slow network."""


class Network(Protocol):
    """Requests to other nodes. Nothing is promised about order between lanes, and a lost answer looks like a lost
    request: whoever sends must be able to send again."""

    def send(
        self,
        to: Address,
        request: Any,
        api_version: int,
        reply: Callable[[Any], None],
        *,
        timeout_ms: int,
        lane: str = "",
    ) -> None:
        """Send a wire message, in `api_version` or the highest below it that the other side knows. `reply` is called
        exactly once, later, with the response or with `Unreachable`; at once when the connection breaks.

        Requests of one lane to one address are answered in order, so a long poll needs a lane of its own.
        """
        ...


class Pending(Generic[T]):
    """A value that is not there yet: what a handler returns when it must wait.

    Single-threaded, resolved exactly once, callbacks run at once in the order they were added.
    """

    __slots__ = ("_callbacks", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: Any = None
        self._callbacks: list[Callable[[T], None]] | None = None

    @property
    def value(self) -> T:
        assert self.done, "value asked of a promise that is not kept yet"
        value: T = self._value
        return value

    def resolve(self, value: T) -> None:
        assert not self.done, "a promise is kept once"
        self.done = True
        self._value = value
        callbacks, self._callbacks = self._callbacks, None
        if callbacks:
            for callback in callbacks:
                callback(value)

    def then(self, callback: Callable[[T], None]) -> None:
        if self.done:
            callback(self._value)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    @staticmethod
    def of(value: T) -> Pending[T]:
        kept: Pending[T] = Pending()
        kept.done = True
        kept._value = value
        return kept
