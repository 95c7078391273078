"""The machine stops at every single operation of a compaction: the log is then the old one or the new one, and never
lacks the latest value of a key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from compaction_world import COMPACTED, CompactedWorld, committed_records, raw_records, view

from moldau.records.compression import Codec
from moldau.testing.disk import SimulatedDisk


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


def prepared() -> tuple[CompactedWorld, dict[str, str]]:
    """A log with many small segments, tombstones, several codecs, a committed and an aborted transaction."""
    world = CompactedWorld(replace(COMPACTED, delete_retention_ms=5_000, file_delete_delay_ms=10))
    for number in range(12):
        world.append((f"k{number % 4}", f"{number}" + "x" * 120), codec=list(Codec)[number % 5])
    world.append(("k0", None))
    world.append(("k1", "committed"), producer_id=5, sequence=0, transactional=True)
    world.append(("k2", "aborted"), ("new", "aborted"), producer_id=6, sequence=0, transactional=True)
    world.end_transaction(5, committed=True)
    world.end_transaction(6, committed=False)
    for number in range(4):
        world.append((f"m{number % 2}", f"{number}" + "y" * 120))
    world.roll()
    world.log.flush()
    return world, view(committed_records(world.log))


def lose_everything_unsynced(disk: SimulatedDisk, number: int) -> None:
    disk.crash()


def lose_a_random_part(disk: SimulatedDisk, number: int) -> None:
    disk.crash(Random(number))


def lose_another_random_part(disk: SimulatedDisk, number: int) -> None:
    disk.crash(Random(-number - 1))


def only_the_process_dies(disk: SimulatedDisk, number: int) -> None:
    disk.crash(keep_unsynced=True)


@pytest.mark.parametrize(
    ("stop", "first", "stride"),
    [
        (lose_everything_unsynced, 0, 1),
        (lose_a_random_part, 0, 2),
        (lose_another_random_part, 1, 2),
        (only_the_process_dies, 1, 2),
    ],
)
def test_the_latest_values_survive_a_crash_anywhere(
    stop: Callable[[SimulatedDisk, int], None], first: int, stride: int
) -> None:
    number = first
    finished = False
    sizes = set()
    while not finished:
        world, expected = prepared()
        end = world.log.log_end_offset
        world.clock.advance(1000)
        crash_at(world.disk, number)
        try:
            world.background.run_all()
            finished = True
        except Crash:
            pass
        del world.disk.count
        stop(world.disk, number)
        world.restart()
        where = f"after a crash at operation {number}"
        world.log.high_watermark = world.log.log_end_offset
        assert view(committed_records(world.log)) == expected, where
        assert world.log.log_end_offset == end, where
        names = world.disk.list_dir("/a/t-0")
        assert not any(name.endswith((".cleaned", ".swap", ".deleted")) for name in names), where
        sizes.add(len(raw_records(world.log)))
        # And the log goes on from there: it can be compacted again and written to.
        world.clean(2000)
        assert view(committed_records(world.log)) == expected, where
        world.append(("k1", "later"))
        assert view(committed_records(world.log)) == expected | {"k1": "later"}, where
        number += stride
    assert number > 100
    assert len(sizes) > 2, "some crashes must leave the old log, some a part of the new one"


@pytest.mark.parametrize("synced", [True, False])
def test_where_epochs_began_is_known_after_their_batches_are_gone_and_a_crash(synced: bool) -> None:
    world = CompactedWorld()
    for number in range(30):
        # Epochs 0, 1, 2: of each the first records are replaced by later ones of the same epoch, of 1 all of them.
        world.append(("k" if number < 20 else f"last{number % 2}", f"{number}" + "x" * 60), leader_epoch=number // 10)
    world.roll()
    if synced:
        world.log.flush()
    before = world.log.epochs.entries()
    assert before == [(0, 0), (1, 10), (2, 20)]
    world.clean(2000)
    assert min(record.offset for record in raw_records(world.log)) > 10
    world.disk.crash(keep_unsynced=True)
    world.restart()
    assert world.log.epochs.entries() == before
    # A replica that had written more in epoch 0 than others have is still told to cut it off.
    assert world.log.end_offset_for_epoch(0) == (0, 10)


def test_where_epochs_began_is_known_after_a_move_to_another_directory() -> None:
    world = CompactedWorld()
    for number in range(30):
        world.append(("k" if number < 20 else f"last{number % 2}", f"{number}" + "x" * 60), leader_epoch=number // 10)
    world.roll()
    world.clean(2000)
    before = world.log.epochs.entries()
    world.logs.move("t", 0, "/b")
    for _ in range(50):
        world.background.run_all()
        world.clock.advance(10)
    moved = world.logs.get("t", 0)
    assert moved is not None
    assert moved is not world.log
    assert moved.epochs.entries() == before
    assert b"1 10" in world.disk.read_bytes("/b/t-0/leader-epoch-checkpoint")


def test_what_the_checkpoint_claims_yields_to_what_batches_say() -> None:
    world = CompactedWorld()
    for number in range(12):
        world.append((f"k{number}", "x" * 60), leader_epoch=number // 4)
    before = world.log.epochs.entries()
    world.log.flush()
    for claim in ("0\n3\n0 0\n1 6\n2 8\n", "0\n3\n0 0\n1 2\n2 8\n", "0\n4\n0 0\n1 4\n2 8\n7 10\n", "0\n1\n2 0\n"):
        world.disk.write_atomically("/a/t-0/leader-epoch-checkpoint", claim.encode(), sync=True)
        world.disk.write_atomically("/a/recovery-point-offset-checkpoint", b"0\n0\n", sync=True)
        world.disk.crash(keep_unsynced=True)
        world.restart()
        assert world.log.epochs.entries() == before, claim


def test_aborted_transactions_stay_aborted_when_their_segments_are_rewritten_and_recovered() -> None:
    world, expected = prepared()
    world.clean(1000)
    world.log.flush()
    world.disk.remove("/a/recovery-point-offset-checkpoint")
    world.disk.sync_dir("/a")
    world.disk.crash()
    world.restart()
    world.log.high_watermark = world.log.log_end_offset
    assert view(committed_records(world.log)) == expected
    world.clock.advance(20_000)
    world.append(("z", "1"))
    world.roll()
    world.clean(3000)
    assert view(committed_records(world.log)) == expected | {"z": "1"}
