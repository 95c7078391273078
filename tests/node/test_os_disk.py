"""The real disk: it must do what the simulated one does, with few descriptors open, and sync off the owner's thread."""

from __future__ import annotations

import errno
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.node.disk import OsDisk
from moldau.ports import Disk
from moldau.testing.disk import SimulatedDisk


@pytest.fixture
def calls() -> queue.SimpleQueue[Callable[[], None]]:
    return queue.SimpleQueue()


@pytest.fixture(params=["os", "simulated"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return OsDisk(lambda call: call()) if request.param == "os" else SimulatedDisk()


@pytest.fixture
def root(disk: Disk, tmp_path: Path) -> str:
    disk.make_dirs(str(tmp_path))
    return str(tmp_path)


# ---- what every disk does


def test_files_grow_at_the_end_and_are_read_anywhere(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/a")
    assert file.append([b"hello", memoryview(b" "), bytearray(b"world")]) == 0
    assert file.append([b"!"]) == 11
    assert file.size() == 12
    assert file.read(6, 5) == b"world"
    assert file.read(6, 500) == b"world!"
    assert file.read(12, 5) == b""
    file.write_at(0, b"J")
    file.write_at(14, b"x")
    assert file.read(0, 100) == b"Jello world!\x00\x00x"
    assert file.size() == 15
    file.truncate(5)
    assert file.append([b"..."]) == 5
    assert disk.read_bytes(f"{root}/a") == b"Jello..."
    file.sync()
    file.close()
    again = disk.open(f"{root}/a", create=False)
    assert again.size() == 8


def test_more_buffers_than_one_system_call_takes(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/a")
    pieces = [b"%04d" % i for i in range(3000)]
    file.append([b"start"])
    assert file.append(pieces) == 5
    assert file.read(5, 12_000) == b"".join(pieces)


def test_missing_files(disk: Disk, root: str) -> None:
    for call in (disk.read_bytes, disk.map_read_only, disk.list_dir, disk.file_size, disk.modified_ms):
        with pytest.raises(FileNotFoundError):
            call(f"{root}/none")
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/none", create=False)
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/no/such/directory")
    disk.remove(f"{root}/none")
    assert not disk.exists(f"{root}/none")


def test_names(disk: Disk, root: str) -> None:
    disk.make_dirs(f"{root}/t-0/x")
    for name in ("b", "a", "c"):
        disk.write_atomically(f"{root}/t-0/{name}", name.encode(), sync=name == "a")
    assert disk.list_dir(f"{root}/t-0") == ["a", "b", "c", "x"]
    disk.rename(f"{root}/t-0/a", f"{root}/t-0/b")
    assert disk.read_bytes(f"{root}/t-0/b") == b"a"
    assert not disk.exists(f"{root}/t-0/a")
    disk.rename(f"{root}/t-0", f"{root}/t-1")
    assert disk.list_dir(root) == ["t-1"]
    assert disk.read_bytes(f"{root}/t-1/c") == b"c"
    disk.remove(f"{root}/t-1/c")
    assert disk.list_dir(f"{root}/t-1") == ["b", "x"]
    disk.sync_dir(f"{root}/t-1")
    disk.remove_tree(f"{root}/t-1")
    disk.remove_tree(f"{root}/t-1")
    assert disk.list_dir(root) == []


def test_whole_files(disk: Disk, root: str) -> None:
    path = f"{root}/a"
    disk.write_atomically(path, b"first")
    disk.write_atomically(path, memoryview(b"second one"))
    assert disk.read_bytes(path) == b"second one"
    assert bytes(disk.map_read_only(path)) == b"second one"
    assert disk.file_size(path) == 10
    disk.set_modified_ms(path, 1_234_567)
    assert disk.modified_ms(path) == 1_234_567
    disk.write_atomically(path, b"")
    assert disk.read_bytes(path) == b""
    assert len(disk.map_read_only(path)) == 0
    total, free = disk.free_bytes(root)
    assert 0 < free <= total


# ---- the real one only


def test_descriptors_are_few_and_nobody_notices(tmp_path: Path) -> None:
    disk = OsDisk(lambda call: call(), open_files=8)
    before = len(os.listdir("/proc/self/fd"))
    files = [disk.open(f"{tmp_path}/{i}") for i in range(100)]
    for round_number in range(3):
        for i, file in enumerate(files):
            assert file.append([b"%d.%d;" % (i, round_number)]) == sum(
                len(b"%d.%d;" % (i, r)) for r in range(round_number)
            )
            assert disk.open_files <= 8
            assert len(os.listdir("/proc/self/fd")) <= before + 8
    for i, file in enumerate(files):
        assert file.read(0, 100) == b"".join(b"%d.%d;" % (i, r) for r in range(3))
    disk.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_in_use_keeps_its_descriptor(tmp_path: Path) -> None:
    disk = OsDisk(lambda call: call(), open_files=4)
    hot = disk.open(f"{tmp_path}/hot")
    kept = hot.fd
    for i in range(50):
        disk.open(f"{tmp_path}/{i}")
        hot.append([b"y"])
    assert hot.fd == kept
    disk.close()


def test_closed_files_stay_closed(tmp_path: Path) -> None:
    disk = OsDisk(lambda call: call())
    file = disk.open(f"{tmp_path}/a")
    file.close()
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.append([b"x"])
    for i in range(1000):
        disk.open(f"{tmp_path}/{i % 7}").close()
    assert disk.open_files == 0
    assert len(disk._open) < 200


def test_syncs_run_elsewhere_and_end_here(tmp_path: Path, calls: queue.SimpleQueue[Callable[[], None]]) -> None:
    disk = OsDisk(calls.put)
    file = disk.open(f"{tmp_path}/a")
    file.append([b"x"])
    ended: list[tuple[OSError | None, int]] = []
    file.sync(lambda error: ended.append((error, threading.get_ident())))
    # The descriptor stays for as long as the sync needs it.
    file.close()
    assert file.fd >= 0
    call = calls.get(timeout=10)
    assert ended == []
    call()
    assert ended == [(None, threading.get_ident())]
    assert file.fd < 0
    disk.close()


def test_a_failed_sync_is_told(
    tmp_path: Path, calls: queue.SimpleQueue[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk(calls.put)
    file = disk.open(f"{tmp_path}/a")

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fsync", broken)
    ended: list[OSError | None] = []
    file.sync(ended.append)
    calls.get(timeout=10)()
    assert ended[0] is not None
    assert ended[0].errno == errno.EIO
    with pytest.raises(OSError, match="broken"):
        file.sync()
    disk.close()


def test_the_first_sync_of_a_new_file_covers_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    disk = OsDisk(lambda call: call())
    file = disk.open(f"{tmp_path}/a")
    file.sync()
    file.sync()
    disk.open(f"{tmp_path}/a").sync()
    name, directory = f"{tmp_path}/a", str(tmp_path)
    assert synced == [name, directory, name, name]


def test_short_writes_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = OsDisk(lambda call: call())
    file = disk.open(f"{tmp_path}/a")
    file.append([b"0123"])
    whole = os.pwrite

    def half(fd: int, buffers: list[bytes], offset: int) -> int:
        return whole(fd, b"".join(buffers)[:5], offset)

    monkeypatch.setattr(os, "pwritev", half)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: whole(fd, data[:3], offset))
    assert file.append([b"abcdefgh", b"ijklmnop"]) == 4
    assert disk.read_bytes(f"{tmp_path}/a") == b"0123abcdefghijklmnop"
    assert file.size() == 20


def test_a_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = OsDisk(lambda call: call())
    file = disk.open(f"{tmp_path}/a")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(OSError, match="full"):
        file.append([b"x"])
    assert file.size() == 0


def test_preallocated_space_does_not_count(tmp_path: Path) -> None:
    disk = OsDisk(lambda call: call())
    file = disk.open(f"{tmp_path}/a", preallocate=1 << 16)
    assert file.size() == 0
    assert os.stat(f"{tmp_path}/a").st_size == 1 << 16
    assert file.append([b"x"]) == 0
    file.truncate(1)
    assert disk.read_bytes(f"{tmp_path}/a") == b"x"


def test_a_mapping_outlives_the_name(tmp_path: Path) -> None:
    disk = OsDisk(lambda call: call())
    disk.write_atomically(f"{tmp_path}/a", b"content")
    view = disk.map_read_only(f"{tmp_path}/a")
    disk.remove(f"{tmp_path}/a")
    assert bytes(view) == b"content"
