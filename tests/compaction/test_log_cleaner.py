"""Whole compactions: what consumers see stays the same, less is stored, and nobody is held up."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from compaction_world import COMPACTED, CompactedWorld, batches, committed_records, raw_records, view
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.log.cleaner import CleanerSettings
from moldau.log.compaction import BYTES_PER_KEY
from moldau.log.config import LogConfig
from moldau.records.compression import Codec

KEYS = ["a", "b", "c", "d", "a key that is long enough to be remembered by its digest"]

pairs = st.lists(
    st.tuples(st.sampled_from(KEYS), st.none() | st.sampled_from(["1", "22", "333"])), min_size=1, max_size=4
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), pairs, st.sampled_from(list(Codec))),
        st.tuples(st.just("transaction"), pairs, st.booleans()),
        st.tuples(st.just("roll"), st.none(), st.none()),
        st.tuples(st.just("clean"), st.none(), st.none()),
        st.tuples(st.just("time"), st.sampled_from([1_000, 60_000, 200_000]), st.none()),
        st.tuples(st.just("restart"), st.booleans(), st.none()),
    ),
    max_size=25,
)


@given(steps=steps, capacity=st.sampled_from([2, 4, 1000]))
@settings(max_examples=120, deadline=None)
def test_the_committed_view_is_always_that_of_a_dictionary(steps: list[tuple], capacity: int) -> None:
    memory = int(capacity * BYTES_PER_KEY / 0.9) + 1
    world = CompactedWorld(settings=CleanerSettings(backoff_ms=1000, dedupe_buffer_bytes=memory))
    model: dict[str, str] = {}
    sequences: dict[int, int] = {}
    for action, what, how in steps:
        if action in ("append", "transaction"):
            committed = True
            if action == "append":
                world.append(*what, codec=how)
            else:
                committed = how
                producer = 7 if committed else 8
                world.append(*what, producer_id=producer, sequence=sequences.get(producer, 0), transactional=True)
                sequences[producer] = sequences.get(producer, 0) + len(what)
                world.end_transaction(producer, committed=committed)
            if committed:
                for key, value in what:
                    model.pop(key, None)
                    if value is not None:
                        model[key] = value
        elif action == "roll":
            world.roll()
        elif action == "clean":
            world.clean()
        elif action == "time":
            world.clock.advance(what)
            world.background.run_all()
        else:
            if what:
                world.logs.close(0)
            else:
                world.log.flush()
                world.disk.crash()
            world.restart()
            world.log.high_watermark = world.log.log_end_offset
        assert view(committed_records(world.log)) == model
    world.clean()
    end = world.log.log_end_offset
    world.roll()
    world.clean()
    assert view(committed_records(world.log)) == model
    assert world.log.log_end_offset == end


def test_old_values_go_and_offsets_stay() -> None:
    world = CompactedWorld()
    for number in range(40):
        world.append((f"k{number % 4}", str(number)))
    world.roll()
    size = world.log.size
    world.clean()
    assert [(r.offset, r.key, r.value) for r in raw_records(world.log)] == [
        (36 + i, b"k%d" % i, b"%d" % (36 + i)) for i in range(4)
    ]
    assert world.log.size < size / 5
    assert world.log.log_end_offset == 40
    assert world.log.log_start_offset == 0
    assert world.logs.directories["/a"].cleaner_offsets.get(("t", 0)) == 40
    assert world.cleaner.last_stats is not None
    assert world.cleaner.last_stats.records_kept == 4


def test_the_active_segment_is_left_alone() -> None:
    world = CompactedWorld(replace(COMPACTED, segment_bytes=1 << 20))
    for number in range(10):
        world.append(("a", str(number)))
    world.clean()
    assert len(raw_records(world.log)) == 10


def test_what_is_not_committed_is_left_alone() -> None:
    world = CompactedWorld()
    for number in range(40):
        world.append(("a", str(number)))
    world.roll()
    world.log.high_watermark = 20
    world.clean()
    offsets = [record.offset for record in raw_records(world.log)]
    assert set(range(20, 40)) <= set(offsets)
    assert len(offsets) < 40


def test_an_open_transaction_holds_compaction_back() -> None:
    world = CompactedWorld()
    for number in range(20):
        world.append(("a", str(number)))
    world.append(("a", "open"), producer_id=5, sequence=0, transactional=True)
    for number in range(20, 40):
        world.append(("a", str(number)))
    world.roll()
    world.clean()
    assert [record.offset for record in raw_records(world.log)][-21:] == list(range(20, 41))
    world.end_transaction(5, committed=False)
    world.append(("b", "last"))
    world.roll()
    world.clean()
    assert view(committed_records(world.log)) == {"a": "39", "b": "last"}
    assert len(raw_records(world.log)) == 2


def test_small_segments_are_merged_up_to_the_segment_size() -> None:
    world = CompactedWorld()
    for number in range(60):
        world.append((f"k{number % 20}", "x" * 40))
    world.roll()
    before = len(world.log.segments)
    world.clean()
    world.append(("k0", "again"))
    world.roll()
    world.clean()
    after = world.log.segments
    assert len(after) < before / 2
    assert all(segment.size <= COMPACTED.segment_bytes for segment in after)
    assert view(raw_records(world.log)) == {f"k{i}": "x" * 40 for i in range(1, 20)} | {"k0": "again"}


def test_tombstones_stay_for_their_time_and_then_go() -> None:
    world = CompactedWorld()
    world.append(("a", "1"), ("b", "2"))
    world.append(("a", None))
    world.roll()
    world.clean()
    assert [(record.key, record.value) for record in raw_records(world.log)] == [(b"b", b"2"), (b"a", None)]
    world.clock.advance(50_000)
    world.append(("c", "3"))
    world.roll()
    world.clean()
    assert (b"a", None) in [(record.key, record.value) for record in raw_records(world.log)]
    world.clock.advance(100_000)
    world.append(("c", "4"))
    world.roll()
    world.clean()
    assert [(record.key, record.value) for record in raw_records(world.log)] == [(b"b", b"2"), (b"c", b"4")]


def test_a_log_is_compacted_when_enough_of_it_is_dirty() -> None:
    world = CompactedWorld(replace(COMPACTED, min_cleanable_dirty_ratio=0.5))
    for number in range(30):
        world.append((f"k{number}", "x" * 50))
    world.roll()
    world.clean()
    assert world.cleaner.rounds == 1
    for number in range(10):
        world.append((f"k{number}", "y" * 50))
    world.roll()
    world.clean()
    assert world.cleaner.rounds == 1
    assert 0 < world.cleaner.dirtiest_ratio < 0.5
    for number in range(30):
        world.append((f"k{number}", "z" * 50))
    world.roll()
    world.clean()
    assert world.cleaner.rounds == 2
    assert len(raw_records(world.log)) == 30


def test_young_records_are_not_compacted_before_the_minimal_lag() -> None:
    world = CompactedWorld(replace(COMPACTED, min_compaction_lag_ms=60_000))
    for number in range(20):
        world.append(("a", str(number)))
    world.roll()
    world.clean()
    assert len(raw_records(world.log)) == 20
    world.clock.advance(61_000)
    for number in range(20):
        world.append(("a", str(number)))
    world.roll()
    world.clean()
    offsets = [record.offset for record in raw_records(world.log)]
    assert offsets[-20:] == list(range(20, 40))
    assert len(offsets) == 21


def test_the_maximal_lag_overrules_the_dirty_ratio() -> None:
    world = CompactedWorld(replace(COMPACTED, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=30_000))
    for number in range(20):
        world.append(("a", str(number)))
    world.roll()
    world.clean()
    assert world.cleaner.rounds == 0
    world.clean(32_000)
    assert world.cleaner.rounds == 1
    assert len(raw_records(world.log)) == 1


def test_the_producers_sequence_survives_compaction_and_recovery() -> None:
    world = CompactedWorld()
    world.append(("a", "1"), producer_id=9, sequence=0)
    world.append(("a", "2"), ("a", "3"), producer_id=9, sequence=1)
    for number in range(30):
        world.append(("a", str(number)))
    world.roll()
    world.clean()
    assert len(raw_records(world.log)) == 1
    empty = [header for header, _ in batches(world.log) if header.record_count == 0]
    assert [(header.producer_id, header.last_sequence) for header in empty] == [(9, 2)]
    world.log.flush()
    for name in world.disk.list_dir("/a/t-0"):
        if name.endswith(".snapshot"):
            world.disk.remove(f"/a/t-0/{name}")
    world.disk.sync_dir("/a/t-0")
    world.disk.crash()
    world.restart()
    world.log.high_watermark = world.log.log_end_offset
    world.append(("a", "next"), producer_id=9, sequence=3)


def test_compaction_and_deletion_work_together() -> None:
    world = CompactedWorld(replace(COMPACTED, cleanup_delete=True, retention_ms=200_000))
    world.append(("old", "o" * 400))
    world.roll()
    world.clock.advance(150_000)
    world.append(("a", "1" * 400))
    world.append(("a", "2" * 400))
    world.roll()
    world.clean()
    assert view(raw_records(world.log)) == {"old": "o" * 400, "a": "2" * 400}
    world.clock.advance(100_000)
    assert world.log.delete_old_segments(world.clock.now_ms()) == 1
    assert view(raw_records(world.log)) == {"a": "2" * 400}
    world.append(("a", "3"))
    world.roll()
    world.clean()
    assert view(raw_records(world.log)) == {"a": "3"}


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 6, 8])
def test_a_log_cut_during_its_compaction_stays_whole(steps: int) -> None:
    world = CompactedWorld(replace(COMPACTED, segment_bytes=30_000))
    for number in range(400):
        world.append((f"k{number % 7}", f"{number} " + "x" * 100))
    world.roll()
    world.clock.advance(1000)
    for _ in range(steps):
        world.background.step()
    assert world.cleaner.rounds == 0
    world.logs.truncate("t", 0, 150)
    # The same number of bytes comes back with other records, and the segment is closed again.
    for number in range(150, 400):
        world.append((f"k{number % 7}", f"{number} " + "y" * 100))
    world.roll()
    world.background.run_all()
    assert not any(name.endswith(".cleaned") for name in world.disk.list_dir("/a/t-0"))
    expected = {f"k{number % 7}": f"{number} " + "y" * 100 for number in range(393, 400)}
    assert view(raw_records(world.log)) == expected
    assert not [record for record in raw_records(world.log) if record.offset >= 150 and b"x" in (record.value or b"")]
    world.clean(3000)
    assert view(raw_records(world.log)) == expected
    assert len(raw_records(world.log)) == 7


def test_deleting_the_partition_ends_its_compaction() -> None:
    world = CompactedWorld()
    for number in range(200):
        world.append((f"k{number % 7}", "x" * 100))
    world.roll()
    world.clock.advance(1000)
    for _ in range(3):
        world.background.step()
    world.logs.delete("t", 0)
    world.background.run_all()
    assert world.cleaner.rounds == 0
    assert world.logs.directories["/a"].online


def test_a_failing_disk_ends_compaction_and_takes_the_directory_offline() -> None:
    world = CompactedWorld()
    for number in range(100):
        world.append((f"k{number % 7}", "x" * 100))
    world.roll()
    world.disk.fail("write", errno.EIO, ending=".log.cleaned")
    world.clean()
    assert not world.logs.directories["/a"].online
    world.clean(5000)


@pytest.mark.parametrize(
    ("position", "damage"),
    [(66, b"\xff"), (70, b"\xff" * 8), (78, b"\x7f"), (86, b"\x00"), (93, b"\xff" * 4), (127, b"\x00\x00\x00\x09")],
    ids=["key", "base offset", "length", "magic", "last offset", "count"],
)
def test_a_damaged_log_is_left_as_it_is_and_the_others_go_on(position: int, damage: bytes) -> None:
    world = CompactedWorld()
    other = world.logs.open("u", 0, b"u" * 16, world.config)
    for number in range(40):
        world.append(("a", str(number)))
    world.log, damaged = other, world.log
    for number in range(40):
        world.append(("a", str(number)))
    world.roll()
    damaged.roll()
    damaged.high_watermark = 40
    world.disk.corrupt("/a/t-0/00000000000000000000.log", position, damage)
    before = world.disk.read_bytes("/a/t-0/00000000000000000000.log")
    world.clean()
    assert damaged in world.cleaner.uncleanable
    assert world.disk.read_bytes("/a/t-0/00000000000000000000.log") == before
    assert not any(name.endswith((".cleaned", ".swap")) for name in world.disk.list_dir("/a/t-0"))
    assert len(raw_records(other)) == 1
    rounds = world.cleaner.rounds
    world.clean(10_000)
    assert world.cleaner.rounds == rounds


def test_appends_are_possible_between_any_two_steps() -> None:
    world = CompactedWorld(replace(COMPACTED, segment_bytes=20_000))
    for number in range(2000):
        world.append((f"k{number % 50}", "x" * 50))
    world.roll()
    world.clock.advance(1000)
    appended = 0
    while world.background.step():
        world.append(("new", str(appended)))
        appended += 1
        assert appended < 10_000
    assert world.cleaner.rounds >= 1
    assert appended > 5
    final = view(raw_records(world.log))
    assert final["new"] == str(appended - 1)
    assert len(final) == 51


def test_a_step_does_little() -> None:
    world = CompactedWorld(replace(COMPACTED, segment_bytes=1 << 20))
    for _ in range(5):
        world.append(*[(f"k{number}", "x" * 20) for number in range(3000)])
    world.roll()
    world.clock.advance(1000)
    steps = 0
    while world.background.step():
        steps += 1
    assert steps > 15_000 / 500
    assert len(raw_records(world.log)) == 3000


def test_a_throttled_compaction_takes_its_time() -> None:
    world = CompactedWorld(
        replace(COMPACTED, segment_bytes=20_000), CleanerSettings(backoff_ms=1000, bytes_per_second=50_000)
    )
    for number in range(1000):
        world.append((f"k{number % 5}", "x" * 100))
    world.roll()
    size = world.log.size
    began = world.clock.monotonic_ms()
    while world.cleaner.rounds == 0:
        world.clock.advance(10)
        world.background.run_all()
    elapsed = world.clock.monotonic_ms() - began
    assert 2 * size / 50_000 * 1000 - 500 < elapsed < 2 * size / 50_000 * 1000 + 3000


def test_a_switched_off_cleaner_does_nothing() -> None:
    world = CompactedWorld(settings=CleanerSettings(enabled=False))
    for number in range(40):
        world.append(("a", str(number)))
    world.roll()
    world.clean(30_000)
    assert len(raw_records(world.log)) == 40


def test_logs_that_are_not_compacted_are_left_alone() -> None:
    world = CompactedWorld(LogConfig(segment_bytes=600))
    for number in range(40):
        world.append(("a", str(number)))
    world.roll()
    world.clean()
    assert len(raw_records(world.log)) == 40


def test_stopping_in_the_middle_leaves_the_log_as_it_was() -> None:
    world = CompactedWorld(replace(COMPACTED, segment_bytes=100_000))
    for number in range(200):
        world.append((f"k{number % 7}", "x" * 100))
    world.roll()
    world.clock.advance(1000)
    for _ in range(4):
        world.background.step()
    world.cleaner.stop()
    world.background.run_all()
    assert len(raw_records(world.log)) == 200
    assert not any(name.endswith((".cleaned", ".swap")) for name in world.disk.list_dir("/a/t-0"))


def test_the_checkpoint_is_remembered_over_a_restart() -> None:
    world = CompactedWorld()
    for number in range(40):
        world.append(("a", str(number)))
    world.roll()
    world.clean()
    world.logs.close(0)
    world.restart()
    assert world.logs.directories["/a"].cleaner_offsets.get(("t", 0)) == 40
    world.clean(5000)
    assert world.cleaner.rounds == 0


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_compacted_batches_keep_their_codec(codec: Codec) -> None:
    world = CompactedWorld()
    world.append(("a", "1"), ("b", "2"), codec=codec)
    world.append(("a", "3"), codec=codec)
    world.roll()
    world.clean()
    assert [header.codec for header, _ in batches(world.log)] == [codec, codec]
    assert view(raw_records(world.log)) == {"a": "3", "b": "2"}
