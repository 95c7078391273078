"""The manager on a simulated disk: opening, checkpoints, deletion, failing directories, restarts."""

from __future__ import annotations

import errno
from random import Random

import pytest

from moldau.log.checkpoints import TopicPartition, read_offsets
from moldau.log.config import LogConfig
from moldau.log.log_dir_report import describe_log_dirs
from moldau.log.log_directory import LogDirectory
from moldau.log.manager import SYNC_TOGETHER_FROM, LogManager
from moldau.log.manager_settings import LogManagerSettings
from moldau.log.partition_log import PartitionLog
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.testing.background import SteppedBackground
from moldau.testing.clock import VirtualClock
from moldau.testing.disk import SimulatedDisk

TOPIC_ID = bytes(range(16))
DIRECTORIES = {"/a": b"a" * 16, "/b": b"b" * 16}


class World:
    """A disk that survives and managers that come and go on it."""

    def __init__(self, directories: dict[str, bytes] | None = None, config: LogConfig | None = None) -> None:
        self.clock = VirtualClock()
        self.disk = SimulatedDisk(self.clock)
        self.paths = directories or DIRECTORIES
        self.config = config or LogConfig()
        self.failed: list[tuple[str, list[TopicPartition]]] = []
        self.moved: list[PartitionLog] = []
        self.background = SteppedBackground()
        self.logs = self.start()

    def start(self) -> LogManager:
        self.background = SteppedBackground()
        self.logs = LogManager(
            self.disk,
            self.clock,
            self.background,
            self.paths,
            LogManagerSettings(),
            configs=lambda topic: None if topic.startswith("unknown") else self.config,
            random=Random(1),
            directory_failed=self._failed,
            moved=self.moved.append,
        )
        self.logs.load()
        self.logs.start()
        return self.logs

    def _failed(self, directory: LogDirectory, lost: list[TopicPartition]) -> None:
        self.failed.append((directory.path, lost))

    def restart(self, *, clean: bool = True) -> LogManager:
        if clean:
            self.logs.close(7)
        else:
            self.disk.crash(keep_unsynced=True)
        self.clock = VirtualClock(self.clock.now_ms())
        return self.start()

    def open(self, topic: str, partition: int = 0, **options: object) -> PartitionLog:
        return self.logs.open(topic, partition, TOPIC_ID, self.config, **options)  # type: ignore[arg-type]

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass in small portions, running what becomes due in the background."""
        left = milliseconds
        while left > 0:
            self.clock.advance(min(left, 1000))
            self.background.run_all()
            left -= 1000


def fill(opened: PartitionLog, count: int, size: int = 10, epoch: int = 0) -> None:
    for _ in range(count):
        batch = build_batch([Record(0, opened.clock.now_ms(), b"k", bytes(size))])
        opened.append_as_leader(memoryview(batch), epoch)


def names(world: World, path: str) -> list[str]:
    return world.disk.list_dir(path)


# ---- where logs live


def test_new_logs_go_to_the_directory_with_the_fewest() -> None:
    world = World()
    where = []
    for partition in range(4):
        world.open("t", partition)
        directory = world.logs.directory_of("t", partition)
        assert directory is not None
        where.append(directory.path)
    assert sorted(where) == ["/a", "/a", "/b", "/b"]


def test_a_directory_can_be_asked_for_and_cordoned() -> None:
    world = World()
    world.open("t", 0, directory_id=b"b" * 16)
    world.logs.prefer("t", 1, "/b")
    world.open("t", 1)
    assert [d.path for p in (0, 1) if (d := world.logs.directory_of("t", p))] == ["/b", "/b"]
    world.logs.cordoned = frozenset({"/a"})
    world.open("t", 2)
    directory = world.logs.directory_of("t", 2)
    assert directory is not None
    assert directory.path == "/b"
    with pytest.raises(ApiError) as caught:
        world.logs.prefer("t", 3, "/c")
    assert caught.value.code is ErrorCode.LOG_DIR_NOT_FOUND


def test_a_log_is_opened_once_and_found_by_everybody() -> None:
    world = World()
    opened = world.open("t")
    assert world.open("t") is opened
    assert world.logs.get("t", 0) is opened
    assert world.logs.get("t", 1) is None
    assert world.logs.is_current(opened)


# ---- restarts


def test_records_and_offsets_survive_a_clean_restart() -> None:
    world = World()
    opened = world.open("t")
    fill(opened, 5)
    opened.high_watermark = 4
    opened.delete_records(2)
    logs = world.restart()
    assert logs.partitions() == [("t", 0)]
    assert list(logs.open_logs()) == []
    again = logs.get("t", 0)
    assert again is not None
    assert (again.log_start_offset, again.high_watermark, again.log_end_offset) == (2, 4, 5)
    assert logs.topic_id("t", 0) == TOPIC_ID


def test_the_clean_shutdown_marker_tells_the_epoch_and_is_used_up() -> None:
    world = World()
    fill(world.open("t"), 1)
    logs = world.restart()
    assert {path: d.clean_epoch for path, d in logs.directories.items()} == {"/a": 7, "/b": 7}
    used = next(path for path in ("/a", "/b") if logs.directories[path].current)
    unused = next(path for path in ("/a", "/b") if path != used)
    assert ".kafka_cleanshutdown" in names(world, used)
    assert logs.get("t", 0) is not None
    assert ".kafka_cleanshutdown" not in names(world, used)
    logs = world.restart(clean=False)
    assert {path: d.clean_epoch for path, d in logs.directories.items()} == {used: None, unused: 7}


def test_a_life_in_which_nothing_is_opened_leaves_the_clean_shutdown_of_the_one_before() -> None:
    world = World()
    fill(world.open("t"), 1)
    logs = world.restart()
    logs.close(-1)  # told to stop before any cluster has let it in
    logs = world.restart(clean=False)
    assert [d.clean_epoch for d in logs.directories.values()] == [7, 7]
    again = logs.get("t", 0)
    assert again is not None
    assert again.log_end_offset == 1
    logs.close(9)
    logs = world.restart(clean=False)
    assert [d.clean_epoch for d in logs.directories.values()] == [9, 9]


def test_after_a_crash_every_log_is_recovered_in_the_background() -> None:
    world = World()
    for partition in range(6):
        fill(world.open("t", partition), 3)
    logs = world.restart(clean=False)
    assert list(logs.open_logs()) == []
    world.background.run_all()
    assert sorted(opened.log_end_offset for opened in logs.open_logs()) == [3] * 6
    assert not any(directory.unrecovered for directory in logs.directories.values())


def test_many_logs_reach_the_disk_together() -> None:
    """A power cut right after the syncs: nothing that was appended before may be gone, epochs included."""
    world = World({"/a": b"a" * 16})
    count = SYNC_TOGETHER_FROM + 5
    for partition in range(count):
        fill(world.open("t", partition), 2, epoch=3)
    ended: list[bool] = []
    world.logs.flush_all(lambda: ended.append(True))
    assert ended == [True]
    assert all(opened.recovery_point == 2 for opened in world.logs.open_logs())
    world.disk.crash(Random(1))
    logs = world.start()
    world.background.run_all()
    opened = list(logs.open_logs())
    assert len(opened) == count
    assert {each.log_end_offset for each in opened} == {2}
    assert {each.epochs.latest for each in opened} == {3}


def test_a_disk_that_fails_while_many_logs_are_synced_goes_offline() -> None:
    world = World({"/a": b"a" * 16})
    for partition in range(SYNC_TOGETHER_FROM):
        fill(world.open("t", partition), 1)
    world.disk.fail("sync", errno.EIO, ending="/a")
    ended: list[bool] = []
    world.logs.flush_all(lambda: ended.append(True))
    assert ended == [True]
    assert [path for path, _ in world.failed] == ["/a"]


def test_logs_of_topics_the_metadata_does_not_know_are_recovered_too() -> None:
    world = World({"/a": b"a" * 16})
    fill(world.open("unknown"), 3)
    fill(world.open("t"), 3)
    logs = world.restart(clean=False)
    world.background.run_all()
    assert not logs.directories["/a"].unrecovered
    assert [opened.name for opened in logs.open_logs()] == ["t-0"]
    assert logs.directories["/a"].recovery_points.get(("unknown", 0)) == 3
    logs = world.restart()
    assert logs.directories["/a"].clean_epoch == 7


def test_a_log_left_in_two_directories_is_kept_where_it_is_longer() -> None:
    world = World()
    opened = world.open("t", directory_id=b"b" * 16)
    fill(opened, 5)
    world.logs.close(0)
    for name in world.disk.list_dir("/b/t-0"):
        world.disk.make_dirs("/a/t-0")
        data = world.disk.read_bytes(f"/b/t-0/{name}")
        world.disk.write_atomically(f"/a/t-0/{name}", data[: len(data) // 2] if name.endswith(".log") else data)
    logs = world.start()
    directory = logs.directory_of("t", 0)
    assert directory is not None
    assert directory.path == "/b"
    assert next(name for name in names(world, "/a") if name.startswith("t-0")).endswith("-delete")
    found = logs.get("t", 0)
    assert found is not None
    assert found.log_end_offset == 5


def test_without_full_recovery_the_next_start_recovers_again() -> None:
    world = World({"/a": b"a" * 16})
    for partition in range(2):
        fill(world.open("t", partition), 3)
    logs = world.restart(clean=False)
    logs.get("t", 0)
    logs = world.restart()
    assert logs.directories["/a"].unrecovered == {("t", 0), ("t", 1)}


def test_offsets_of_logs_nobody_opened_survive_rewritten_checkpoints() -> None:
    world = World({"/a": b"a" * 16})
    for partition in range(2):
        opened = world.open("t", partition)
        fill(opened, 8)
        opened.high_watermark = 6
        opened.delete_records(3)
    logs = world.restart()
    opened = world.open("t", 0)
    fill(opened, 1)
    opened.high_watermark = 9
    world.pass_time(10_000)
    assert logs.opened("t", 1) is None
    assert read_offsets(world.disk, "/a/replication-offset-checkpoint") == {("t", 0): 9, ("t", 1): 6}
    world.logs.close(0)
    assert read_offsets(world.disk, "/a/log-start-offset-checkpoint") == {("t", 0): 3, ("t", 1): 3}
    assert read_offsets(world.disk, "/a/recovery-point-offset-checkpoint") == {("t", 0): 9, ("t", 1): 8}


def test_checkpoints_are_written_at_their_intervals_and_only_when_something_changed() -> None:
    world = World({"/a": b"a" * 16})
    opened = world.open("t")
    fill(opened, 3)
    opened.high_watermark = 2
    world.pass_time(5_000)
    assert read_offsets(world.disk, "/a/replication-offset-checkpoint") == {("t", 0): 2}
    assert not world.disk.exists("/a/recovery-point-offset-checkpoint")
    writes = world.disk.operations["atomic"]
    world.pass_time(20_000)
    assert world.disk.operations["atomic"] == writes
    opened.flush()
    world.pass_time(40_000)
    assert read_offsets(world.disk, "/a/recovery-point-offset-checkpoint") == {("t", 0): 3}


def test_a_damaged_checkpoint_counts_as_empty() -> None:
    world = World({"/a": b"a" * 16})
    fill(world.open("t"), 3)
    world.logs.close(0)
    world.disk.write_atomically("/a/replication-offset-checkpoint", b"0\n5\nt 0\n")
    world.disk.write_atomically("/a/log-start-offset-checkpoint", b"\xff\xfe\x00")
    logs = world.start()
    opened = logs.get("t", 0)
    assert opened is not None
    assert (opened.high_watermark, opened.log_end_offset) == (0, 3)


def test_a_cut_log_is_recovered_from_the_cut_on() -> None:
    world = World({"/a": b"a" * 16})
    opened = world.open("t")
    fill(opened, 10)
    opened.flush()
    world.pass_time(61_000)
    assert read_offsets(world.disk, "/a/recovery-point-offset-checkpoint") == {("t", 0): 10}
    assert world.logs.truncate("t", 0, 4)
    assert opened.log_end_offset == 4
    assert read_offsets(world.disk, "/a/recovery-point-offset-checkpoint") == {("t", 0): 4}
    world.logs.truncate_fully("t", 0, 20)
    assert (opened.log_start_offset, opened.log_end_offset) == (20, 20)


def test_a_log_of_a_deleted_topic_with_the_same_name_is_set_aside() -> None:
    world = World({"/a": b"a" * 16})
    fill(world.open("t"), 3)
    logs = world.restart()
    opened = logs.open("t", 0, b"\x09" * 16, world.config)
    assert opened.log_end_offset == 0
    assert [name.split(".")[-1][32:] for name in names(world, "/a") if name.startswith("t-0.")] == ["-stray"]
    logs = world.restart()
    assert logs.partitions() == [("t", 0)]


def test_directories_that_are_no_partitions_are_left_alone() -> None:
    world = World({"/a": b"a" * 16})
    world.disk.make_dirs("/a/__cluster_metadata-0")
    world.disk.make_dirs("/a/lost+found")
    world.disk.make_dirs("/a/bad name-0")
    logs = world.restart()
    assert logs.partitions() == []
    assert names(world, "/a/__cluster_metadata-0") == []


def test_starting_touches_no_partition_and_opening_one_touches_few_files() -> None:
    world = World({"/a": b"a" * 16})
    count = 300
    for partition in range(count):
        fill(world.open("t", partition), 1)
    world.logs.close(0)
    world.disk.operations.clear()
    logs = world.start()
    assert sum(world.disk.operations.values()) < 20
    world.disk.operations.clear()
    for partition in range(count):
        logs.get("t", partition)
    assert sum(world.disk.operations.values()) <= 6 * count, world.disk.operations


# ---- deleting


def test_a_deleted_log_is_gone_at_once_and_its_files_later() -> None:
    world = World({"/a": b"a" * 16})
    fill(world.open("t"), 3)
    world.logs.delete("t", 0)
    assert world.logs.get("t", 0) is None
    (marked,) = [name for name in names(world, "/a") if name.startswith("t-0")]
    assert marked.endswith("-delete")
    world.pass_time(59_000)
    assert marked in names(world, "/a")
    world.pass_time(2_000)
    assert marked not in names(world, "/a")
    fresh = world.open("t")
    assert fresh.log_end_offset == 0


def test_a_reader_of_a_deleted_log_does_not_take_the_directory_offline() -> None:
    world = World({"/a": b"a" * 16})
    opened = world.open("t")
    fill(opened, 3)
    world.logs.delete("t", 0)
    world.pass_time(61_000)
    with pytest.raises(ApiError):
        opened.read(0, 1000)
    assert world.failed == []
    world.open("u")


def test_deletions_that_a_restart_interrupted_are_finished() -> None:
    world = World({"/a": b"a" * 16})
    fill(world.open("t"), 3)
    world.logs.delete("t", 0)
    world.restart()
    world.pass_time(61_000)
    assert [name for name in names(world, "/a") if name.startswith("t-0")] == []


def test_checkpoints_forget_deleted_partitions() -> None:
    world = World({"/a": b"a" * 16})
    fill(world.open("t", 0), 1)
    fill(world.open("t", 1), 1)
    world.pass_time(5_000)
    world.logs.delete("t", 0)
    world.pass_time(6_000)
    assert read_offsets(world.disk, "/a/replication-offset-checkpoint") == {("t", 1): 0}


def test_deleting_what_is_not_here_does_nothing() -> None:
    World().logs.delete("t", 0)


def test_very_long_topic_names_can_be_deleted() -> None:
    world = World({"/a": b"a" * 16})
    topic = "x" * 249
    world.open(topic)
    world.logs.delete(topic, 0)
    assert max(len(name) for name in names(world, "/a")) <= 255


# ---- retention


def test_retention_reaches_every_log_also_those_nobody_opened() -> None:
    world = World({"/a": b"a" * 16}, LogConfig(segment_bytes=200, retention_ms=60_000))
    for partition in range(3):
        opened = world.open("t", partition)
        fill(opened, 6, size=100)
        opened.high_watermark = opened.log_end_offset
    logs = world.restart()
    world.pass_time(340_000)
    assert [logs.get("t", partition).log_start_offset for partition in range(3)] == [6, 6, 6]  # type: ignore[union-attr]


# ---- failing disks


def test_a_failing_directory_goes_offline_and_the_others_stay() -> None:
    world = World()
    opened = {partition: world.open("t", partition) for partition in range(4)}
    in_a = [p for p in opened if (d := world.logs.directory_of("t", p)) and d.path == "/a"]
    in_b = [p for p in opened if p not in in_a]
    world.disk.fail("write", errno.EIO, ending=f"/a/t-{in_a[0]}/00000000000000000000.log")
    with pytest.raises(ApiError) as caught:
        fill(opened[in_a[0]], 1)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.failed == [("/a", [("t", p) for p in in_a])]
    for partition in in_a:
        with pytest.raises(ApiError):
            fill(opened[partition], 1)
        with pytest.raises(ApiError):
            world.logs.get("t", partition)
        with pytest.raises(ApiError):
            world.open("t", partition)
    for partition in in_b:
        fill(opened[partition], 1)
    world.open("t", 10)
    directory = world.logs.directory_of("t", 10)
    assert directory is not None
    assert directory.path == "/b"
    with pytest.raises(ApiError):
        world.open("t", 11, is_new=False)
    world.pass_time(120_000)
    world.logs.close(0)


def test_a_directory_that_cannot_be_read_at_the_start_is_offline() -> None:
    world = World()
    world.open("t")
    world.logs.close(0)
    world.disk.fail("list", errno.EIO, ending="/a")
    logs = world.start()
    assert [path for path, _ in world.failed] == ["/a"]
    assert [directory.online for directory in logs.directories.values()] == [False, True]


def test_a_failing_checkpoint_takes_its_directory_offline() -> None:
    world = World({"/a": b"a" * 16})
    fill(world.open("t"), 1)
    world.disk.fail("atomic", errno.ENOSPC, ending="replication-offset-checkpoint")
    world.pass_time(6_000)
    assert world.failed == [("/a", [("t", 0)])]
    with pytest.raises(ApiError) as caught:
        world.open("u")
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_failed_directory_gets_no_clean_shutdown_marker() -> None:
    world = World({"/a": b"a" * 16})
    opened = world.open("t")
    fill(opened, 1)
    world.disk.fail("sync", errno.EIO, ending=".log")
    world.logs.close(0)
    assert world.failed == [("/a", [("t", 0)])]
    assert ".kafka_cleanshutdown" not in names(world, "/a")


# ---- describing


def test_the_report_tells_sizes_and_room_without_opening_logs() -> None:
    world = World()
    for partition in range(2):
        fill(world.open("t", partition), 4)
    size = world.open("t", 0).size
    logs = world.restart()
    described = describe_log_dirs(logs, world.disk)
    assert [(d.path, d.error, len(d.replicas)) for d in described] == [
        ("/a", ErrorCode.NONE, 1),
        ("/b", ErrorCode.NONE, 1),
    ]
    assert all(d.total_bytes == 1 << 40 and d.usable_bytes < 1 << 40 for d in described)
    assert [replica.size for d in described for replica in d.replicas] == [size, size]
    assert list(logs.open_logs()) == []
    only = describe_log_dirs(logs, world.disk, lambda topic, partition: partition == 1)
    assert [replica.partition for d in only for replica in d.replicas] == [1]


def test_the_report_names_a_failed_directory() -> None:
    world = World()
    logs = world.logs
    logs.take_offline(logs.directories["/a"], OSError(errno.EIO, "gone"))
    first, second = describe_log_dirs(logs, world.disk)
    assert (first.error, first.replicas, first.total_bytes) == (ErrorCode.KAFKA_STORAGE_ERROR, [], -1)
    assert second.error is ErrorCode.NONE
