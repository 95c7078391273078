"""The real disk: files through the operating system, few of them open at a time, syncs off the event loop.

Decides which file descriptors stay open and where an fsync runs. It never interprets what it stores and never
swallows an error: every OSError reaches the caller.

A broker may hold tens of thousands of files while the process may open far fewer, so a file that was not used lately
gives its descriptor back and gets another one at its next use, unnoticed. Durability of a file includes its name:
the first sync of a file made here also syncs its directory.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from moldau.node.libc import sync_file_system
from moldau.ports import Buffer

Post = Callable[[Callable[[], None]], None]

DEFAULT_OPEN_FILES = 4096
SYNC_THREADS = 4
# Linux takes at most this many buffers in one writev.
_IOV_MAX = 1024
_CLOSED = -1
# From this size on mapping pages is cheaper than copying them into fresh memory.
LEND_FROM_BYTES = 512 << 10
# Smaller files are read at once where others are mapped: making and ending a mapping costs more than the copy.
MAP_FROM_BYTES = 16 << 10
# Brings the pages in at once and reports a bad disk as an error instead of a signal; Linux 5.14 and later.
_MADV_POPULATE_READ = 22


class OsFile:
    """One file of an `OsDisk`. Its descriptor may be taken away between calls and is opened again when needed."""

    __slots__ = ("_disk", "_name_is_durable", "_size", "_syncing", "closed", "fd", "path", "used")

    def __init__(self, disk: OsDisk, path: str, fd: int, size: int, *, created: bool) -> None:
        self._disk = disk
        self.path = path
        self.fd = fd
        # Opening alone is no use yet: a file that is opened once in passing goes first.
        self.used = False
        self.closed = False
        self._size = size
        self._name_is_durable = not created
        # Syncs under way in other threads; the descriptor must stay while there are any.
        self._syncing = 0

    def size(self) -> int:
        return self._size

    def append(self, buffers: Sequence[Buffer]) -> int:
        fd = self.fd
        if fd < 0:
            fd = self._disk.reopen(self)
        self.used = True
        position = self._size
        written = os.pwritev(fd, buffers, position) if len(buffers) <= _IOV_MAX else 0
        wanted = 0
        for buffer in buffers:
            wanted += len(buffer)
        if written != wanted:
            self._write_rest(fd, b"".join(buffers), position, written)
        self._size = position + wanted
        return position

    def write_at(self, position: int, data: Buffer) -> None:
        fd = self.fd
        if fd < 0:
            fd = self._disk.reopen(self)
        self.used = True
        self._write_rest(fd, data, position, 0)
        self._size = max(self._size, position + len(data))

    @staticmethod
    def _write_rest(fd: int, data: Buffer, position: int, done: int) -> None:
        """The kernel may write less than asked (a nearly full disk, a signal): go on until all of it is written."""
        view = memoryview(data)
        while done < len(view):
            done += os.pwrite(fd, view[done:], position + done)

    def read(self, position: int, length: int) -> bytes:
        fd = self.fd
        if fd < 0:
            fd = self._disk.reopen(self)
        self.used = True
        data = os.pread(fd, length, position)
        if len(data) == length or not data:
            return data
        return self._read_rest(fd, data, position, length)

    def lend(self, position: int, length: int) -> Buffer:
        if length < LEND_FROM_BYTES or not self._disk.lends:
            return self.read(position, length)
        fd = self.fd
        if fd < 0:
            fd = self._disk.reopen(self)
        self.used = True
        ahead = position % mmap.PAGESIZE
        try:
            pages = mmap.mmap(fd, ahead + length, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ, offset=position - ahead)
        except ValueError:
            # The file is shorter than it was left: reading tells how much there is.
            return self.read(position, length)
        try:
            pages.madvise(_MADV_POPULATE_READ)
        except OSError as error:
            if error.errno == errno.EINVAL:
                self._disk.lends = False
            return self.read(position, length)
        return memoryview(pages)[ahead:]

    @staticmethod
    def _read_rest(fd: int, data: bytes, position: int, length: int) -> bytes:
        parts = [data]
        done = len(data)
        while done < length:
            more = os.pread(fd, length - done, position + done)
            if not more:
                break
            parts.append(more)
            done += len(more)
        return b"".join(parts)

    def truncate(self, size: int) -> None:
        fd = self.fd
        if fd < 0:
            fd = self._disk.reopen(self)
        self.used = True
        os.ftruncate(fd, size)
        self._size = size

    def sync(self, done: Callable[[OSError | None], None] | None = None) -> None:
        fd = self.fd
        if fd < 0:
            fd = self._disk.reopen(self)
        self.used = True
        directory = None if self._name_is_durable else os.path.dirname(self.path)
        if done is None:
            _sync(fd, directory)
            self._name_is_durable = True
            return
        self._syncing += 1
        self._disk.sync_elsewhere(fd, directory, lambda error: self._synced(error, done))

    def _synced(self, error: OSError | None, done: Callable[[OSError | None], None]) -> None:
        self._syncing -= 1
        if error is None:
            self._name_is_durable = True
        if self.closed and not self._syncing:
            self._disk.forget(self)
        done(error)

    @property
    def busy(self) -> bool:
        return self._syncing > 0

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if not self._syncing:
                self._disk.forget(self)


def _sync(fd: int, directory: str | None) -> None:
    os.fsync(fd)
    if directory is not None:
        _sync_directory(directory)


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class OsDisk:
    """`ports.Disk` over the operating system.

    `post` hands a call to the thread that owns the files; completions of syncs come back through it.
    """

    __slots__ = ("_open", "_open_limit", "_post", "_threads", "lends")

    def __init__(self, post: Post, *, open_files: int = DEFAULT_OPEN_FILES) -> None:
        self._post = post
        # Whether files may lend their pages; given up where the system cannot bring them in safely.
        self.lends = sys.platform == "linux"
        self._open_limit = max(open_files, 1)
        # Every file that has a descriptor, as a clock: the hand passes over files used since it last came by.
        self._open: deque[OsFile] = deque()
        self._threads: ThreadPoolExecutor | None = None

    # ---- files

    def open(self, path: str, *, create: bool = True, preallocate: int = 0) -> OsFile:
        self._make_room()
        created = False
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            if not create:
                raise
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            created = True
        try:
            size = os.fstat(fd).st_size
            if created and preallocate:
                # The blank space is not part of what was written; the owner cuts it off when the file is full.
                os.posix_fallocate(fd, 0, preallocate)
        except OSError:
            os.close(fd)
            raise
        file = OsFile(self, path, fd, size, created=created)
        self._open.append(file)
        return file

    def reopen(self, file: OsFile) -> int:
        if file.closed:
            raise ValueError(f"{file.path} is closed")
        self._make_room()
        file.fd = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
        self._open.append(file)
        return file.fd

    def _make_room(self) -> None:
        """Take the descriptor of a file that was not used since the hand last passed it."""
        files = self._open
        passes = 2 * len(files)
        while len(files) >= self._open_limit and passes:
            passes -= 1
            file = files.popleft()
            if file.fd < 0:
                continue
            if file.used or file.busy:
                file.used = False
                files.append(file)
            else:
                os.close(file.fd)
                file.fd = _CLOSED

    def forget(self, file: OsFile) -> None:
        """Close a file for good. Its place in the clock is cleared when the hand comes by."""
        if file.fd >= 0:
            os.close(file.fd)
            file.fd = _CLOSED
            if len(self._open) > 64 and self._open[0].fd < 0:
                self._open.popleft()

    @property
    def open_files(self) -> int:
        return sum(1 for file in self._open if file.fd >= 0)

    def sync_elsewhere(self, fd: int, directory: str | None, done: Callable[[OSError | None], None]) -> None:
        self._elsewhere(lambda: _sync(fd, directory), done)

    def sync_tree(self, path: str, done: Callable[[OSError | None], None]) -> None:
        self._elsewhere(lambda: sync_file_system(path), done)

    def _elsewhere(self, call: Callable[[], None], done: Callable[[OSError | None], None]) -> None:
        """Run what waits for the disk in another thread, and say in the owning one how it ended."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="moldau-sync")
        post = self._post

        def work() -> None:
            failure: OSError | None = None
            try:
                call()
            except OSError as error:
                failure = error
            post(lambda: done(failure))

        self._threads.submit(work)

    def close(self) -> None:
        """Wait for the syncs under way and close every file."""
        if self._threads is not None:
            self._threads.shutdown(wait=True)
            self._threads = None
        for file in self._open:
            if file.fd >= 0:
                os.close(file.fd)
                file.fd = _CLOSED
        self._open.clear()

    # ---- whole files

    def read_bytes(self, path: str) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size
            parts = [os.read(fd, size + 1)]
            while parts[-1]:
                parts.append(os.read(fd, 1 << 20))
            return b"".join(parts)
        finally:
            os.close(fd)

    def write_atomically(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        temporary = path + ".tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            OsFile._write_rest(fd, data, 0, 0)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
        if sync:
            _sync_directory(os.path.dirname(path) or ".")

    def map_read_only(self, path: str) -> Buffer:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(fd, MAP_FROM_BYTES, 0)
            if len(data) < MAP_FROM_BYTES:
                return data
            return memoryview(mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ))
        finally:
            os.close(fd)

    # ---- names

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def file_size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, when_ms: int) -> None:
        os.utime(path, ns=(when_ms * 1_000_000, when_ms * 1_000_000))

    def list_dir(self, path: str) -> list[str]:
        names = os.listdir(path)
        names.sort()
        return names

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass

    def sync_dir(self, path: str) -> None:
        _sync_directory(path)

    def free_bytes(self, path: str) -> tuple[int, int]:
        stats = os.statvfs(path)
        return stats.f_blocks * stats.f_frsize, stats.f_bavail * stats.f_frsize
