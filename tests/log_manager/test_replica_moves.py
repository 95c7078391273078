"""Moving a log between directories while it is written, truncated, deleted, and while the machine crashes."""

from __future__ import annotations

import errno
from random import Random

import pytest

from moldau.log.config import LogConfig
from moldau.log.log_dir_report import describe_log_dirs
from moldau.log.manager import LogManager
from moldau.log.manager_settings import LogManagerSettings
from moldau.log.partition_log import PartitionLog
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.batch import iter_batches
from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.testing.background import SteppedBackground
from moldau.testing.clock import VirtualClock
from moldau.testing.disk import SimulatedDisk

KEY = ("t", 0)


class MovingWorld:
    def __init__(self, rate: float = float("inf"), segment_bytes: int = 100_000) -> None:
        self.clock = VirtualClock()
        self.disk = SimulatedDisk(self.clock)
        self.config = LogConfig(segment_bytes=segment_bytes)
        self.rate = rate
        self.moved: list[PartitionLog] = []
        self.start()
        self.log = self.logs.open(*KEY, b"t" * 16, self.config, directory_id=b"a" * 16)

    def start(self) -> None:
        self.background = SteppedBackground()
        self.logs = LogManager(
            self.disk,
            self.clock,
            self.background,
            {"/a": b"a" * 16, "/b": b"b" * 16},
            LogManagerSettings(move_bytes_per_second=self.rate),
            configs=lambda topic: self.config,
            random=Random(1),
            moved=self.moved.append,
        )
        self.logs.load()
        self.logs.start()

    def settle(self) -> None:
        for _ in range(200):
            self.background.run_all()
            self.clock.advance(10)

    @property
    def path(self) -> str:
        directory = self.logs.directory_of(*KEY)
        assert directory is not None
        return directory.path


def fill(opened: PartitionLog, count: int, size: int = 1000, epoch: int = 0) -> None:
    for _ in range(count):
        number = opened.log_end_offset
        batch = build_batch([Record(0, number, b"%d" % number, b"%d" % epoch + bytes(size))])
        opened.append_as_leader(memoryview(batch), epoch)


def content(opened: PartitionLog) -> list[tuple[int, int, int]]:
    """(offset, leader epoch, checksum) of every batch."""
    found = []
    offset = opened.log_start_offset
    while offset < opened.log_end_offset:
        data = opened.read(offset, 1_000_000)
        for records in data.buffers:
            found += [(each.base_offset, each.partition_leader_epoch, each.crc) for each in iter_batches(records)]
        offset = data.next_offset
    return found


def test_a_log_arrives_with_everything_it_had() -> None:
    world = MovingWorld()
    fill(world.log, 700)
    world.log.high_watermark = 600
    world.log.delete_records(50)
    before = content(world.log)
    world.logs.checkpoint_cleaner(*KEY, 33)
    world.logs.move(*KEY, "/b")
    world.settle()
    assert world.path == "/b"
    (arrived,) = world.moved
    assert world.logs.get(*KEY) is arrived
    assert content(arrived) == before
    assert (arrived.log_start_offset, arrived.high_watermark, arrived.log_end_offset) == (50, 600, 700)
    assert world.disk.list_dir("/b/t-0") != []
    assert all(name.endswith("-delete") for name in world.disk.list_dir("/a") if name.startswith("t-0"))
    assert world.logs.directories["/b"].cleaner_offsets.get(KEY) == 33
    fill(arrived, 5)
    world.logs.close(0)
    world.start()
    again = world.logs.get(*KEY)
    assert again is not None
    assert world.path == "/b"
    assert (again.log_start_offset, again.high_watermark, again.log_end_offset) == (50, 600, 705)


def test_appends_during_the_move_are_not_lost() -> None:
    world = MovingWorld()
    fill(world.log, 1000)
    world.logs.move(*KEY, "/b")
    for _ in range(100):
        fill(world.log, 1)
        world.background.step()
        if world.moved:
            break
    before = content(world.log)
    world.settle()
    assert content(world.moved[0]) == before


def test_the_report_shows_the_future_replica() -> None:
    world = MovingWorld()
    fill(world.log, 1000)
    world.logs.move(*KEY, "/b")
    world.background.step()
    world.background.step()
    first, second = describe_log_dirs(world.logs, world.disk)
    assert [replica.is_future for replica in first.replicas] == [False]
    (future,) = second.replicas
    assert future.is_future
    assert 0 < future.size < first.replicas[0].size
    assert future.offset_lag > 0


def test_a_throttled_move_takes_its_time() -> None:
    world = MovingWorld(rate=500_000)
    fill(world.log, 1000)
    began = world.clock.monotonic_ms()
    world.logs.move(*KEY, "/b")
    while not world.moved:
        world.background.run_all()
        world.clock.advance(10)
    assert 1_500 < world.clock.monotonic_ms() - began < 3_500


def test_a_move_can_be_given_up_or_sent_elsewhere() -> None:
    world = MovingWorld()
    fill(world.log, 1000)
    world.logs.move(*KEY, "/b")
    world.background.step()
    world.background.step()
    world.logs.cancel_move(*KEY)
    world.settle()
    assert world.path == "/a"
    assert [name for name in world.disk.list_dir("/b") if name.startswith("t-")] == []
    world.logs.move(*KEY, "/b")
    world.background.step()
    world.logs.move(*KEY, "/a")
    world.settle()
    assert world.path == "/a"
    assert world.moved == []


def test_moving_where_it_is_already_does_nothing() -> None:
    world = MovingWorld()
    world.logs.move(*KEY, "/a")
    world.settle()
    assert world.moved == []


@pytest.mark.parametrize(
    ("topic", "path", "code"),
    [("t", "/nowhere", ErrorCode.LOG_DIR_NOT_FOUND), ("other", "/b", ErrorCode.REPLICA_NOT_AVAILABLE)],
)
def test_moves_that_cannot_be(topic: str, path: str, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as caught:
        MovingWorld().logs.move(topic, 0, path)
    assert caught.value.code is code


def test_an_empty_log_that_does_not_begin_at_zero_can_be_moved() -> None:
    world = MovingWorld()
    fill(world.log, 5)
    world.log.truncate_fully_and_start_at(100)
    world.logs.move(*KEY, "/b")
    world.settle()
    assert world.path == "/b"
    assert (world.moved[0].log_start_offset, world.moved[0].log_end_offset) == (100, 100)


def test_a_log_that_begins_within_a_batch_can_be_moved() -> None:
    world = MovingWorld()
    batch = build_batch([Record(i, i, b"k", b"v") for i in range(10)])
    world.log.append_as_leader(memoryview(batch), 0)
    fill(world.log, 3)
    world.log.high_watermark = 13
    world.log.delete_records(4)
    world.logs.move(*KEY, "/b")
    world.settle()
    assert (world.moved[0].log_start_offset, world.moved[0].log_end_offset) == (4, 13)


def test_the_copy_follows_when_the_log_is_cut_and_goes_on_in_another_epoch() -> None:
    world = MovingWorld()
    fill(world.log, 1000, epoch=1)
    world.logs.move(*KEY, "/b")
    for _ in range(4):
        world.background.step()
    future = world.logs.future_of(*KEY)
    assert future is not None
    copied = future.log_end_offset
    assert 300 < copied < 1000
    world.log.truncate_to(copied - 200)
    fill(world.log, 600, epoch=2)
    expected = content(world.log)
    world.settle()
    assert content(world.moved[0]) == expected


def test_the_copy_begins_anew_when_its_records_were_deleted() -> None:
    world = MovingWorld()
    fill(world.log, 1000)
    world.log.high_watermark = 1000
    world.logs.move(*KEY, "/b")
    world.background.step()
    world.background.step()
    world.log.delete_records(900)
    expected = content(world.log)
    world.settle()
    assert content(world.moved[0]) == expected
    assert world.moved[0].log_start_offset == 900


def test_deleting_the_partition_ends_the_move() -> None:
    world = MovingWorld()
    fill(world.log, 1000)
    world.logs.move(*KEY, "/b")
    world.background.step()
    world.logs.delete(*KEY)
    world.clock.advance(70_000)
    world.background.run_all()
    assert [name for path in ("/a", "/b") for name in world.disk.list_dir(path) if name.startswith("t-")] == []
    assert world.moved == []


def test_a_failing_target_ends_the_move_and_leaves_the_log() -> None:
    world = MovingWorld()
    fill(world.log, 1000)
    world.logs.move(*KEY, "/b")
    world.background.step()
    world.disk.fail("write", errno.ENOSPC, ending=".log")
    world.settle()
    assert not world.logs.directories["/b"].online
    assert world.logs.directories["/a"].online
    fill(world.log, 1)
    assert world.logs.get(*KEY) is world.log


def test_a_failing_source_ends_the_move() -> None:
    world = MovingWorld()
    fill(world.log, 1000)
    world.logs.move(*KEY, "/b")
    world.background.step()
    world.logs.take_offline(world.logs.directories["/a"], OSError(errno.EIO, "gone"))
    world.settle()
    assert world.moved == []
    assert world.logs.directories["/b"].online


@pytest.mark.parametrize("clean", [True, False])
def test_a_move_goes_on_after_a_restart(clean: bool) -> None:
    world = MovingWorld()
    fill(world.log, 1000)
    expected = content(world.log)
    world.logs.move(*KEY, "/b")
    for _ in range(3):
        world.background.step()
    if clean:
        world.logs.close(0)
    else:
        world.log.flush()
        world.disk.crash(keep_unsynced=True)
    world.clock = VirtualClock(world.clock.now_ms())
    reads_before = world.disk.operations["read"]
    world.start()
    world.settle()
    assert world.path == "/b"
    assert content(world.moved[0]) == expected
    assert world.disk.operations["read"] > reads_before


class Crash(BaseException):
    """The machine stops here."""


def crash_at(disk: SimulatedDisk, operation_number: int) -> None:
    """Let the disk stop everything at its n-th operation from now."""
    left = operation_number
    count = disk.count

    def counting(operation: str, path: str) -> None:
        nonlocal left
        if left == 0:
            raise Crash
        left -= 1
        count(operation, path)

    disk.count = counting  # type: ignore[method-assign]


@pytest.mark.parametrize("seed", range(3))
def test_no_record_is_lost_wherever_the_machine_crashes(seed: int) -> None:
    number = 0
    finished = False
    while not finished:
        world = MovingWorld(segment_bytes=5_000)
        fill(world.log, 20)
        world.log.flush()
        expected = content(world.log)
        world.logs.move(*KEY, "/b")
        crash_at(world.disk, number)
        try:
            world.settle()
            finished = True
        except Crash:
            pass
        del world.disk.count
        world.disk.crash(Random(seed * 1000 + number))
        # A directory whose renaming did not survive is there under its old name.
        for path in list(world.disk._names):
            world.disk.make_dirs(path.rpartition("/")[0])
        world.clock = VirtualClock(world.clock.now_ms())
        world.moved.clear()
        world.start()
        opened = world.logs.get(*KEY)
        assert opened is not None, f"the log is gone after a crash at operation {number}"
        assert content(opened) == expected
        world.settle()
        world.logs.move(*KEY, "/b")
        world.settle()
        final = world.logs.get(*KEY)
        assert final is not None
        assert content(final) == expected
        assert world.path == "/b"
        number += 1
    assert number > 30
