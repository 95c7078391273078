"""Partitions that nobody writes to while others are busy: their replicas stay in sync, and go on at once."""

from __future__ import annotations

from typing import Any

from tests.replication.replicated_world import ReplicatedWorld

from moldau.broker.fetch_partition import FetchPartition
from moldau.broker.session_watch import LOOK_AT_ALL_MS, UNHEARD_MAX, SessionWatch
from moldau.ports import Pending
from moldau.protocol.generated.wire import fetch_request
from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.replication.partition import Partition

LAG_MS = 4000
LONG_POLLS = {"replica.fetch.wait.max.ms": "5000", "replica.lag.time.max.ms": "10000"}


def test_a_long_silence_is_no_lag() -> None:
    """Who had everything all the time may take the whole lag time for what is new, and not a moment less."""
    world = ReplicatedWorld(11, partitions=6, overrides={"replica.lag.time.max.ms": str(LAG_MS)})
    for index in range(world.partitions):
        world.write(index)
        world.run(20)
    found = world.registration(1)
    assert found is not None
    busy = next(index for index in range(world.partitions) if index != 1)
    for _ in range(3 * LAG_MS // 100):
        world.write(busy)
        world.run(100)
    silent = next(replica for replica in found.isr if replica != found.leader)
    world.network.cut(world.brokers[silent].address, world.brokers[found.leader].address)
    world.write(1)
    world.run(6 * LAG_MS // 10)  # leaders look for laggards in every half of the time
    assert _in_sync(world) == set(found.isr)
    world.run(2 * LAG_MS)
    assert _in_sync(world) == set(found.isr) - {silent}
    world.network.heal()
    world.run(15_000)
    assert _in_sync(world) == set(found.isr)
    world.check_contents()


def _in_sync(world: ReplicatedWorld) -> set[int]:
    found = world.registration(1)
    assert found is not None
    return set(found.isr)


def test_each_of_many_is_copied_when_its_turn_comes() -> None:
    world = ReplicatedWorld(12, partitions=40)
    for index in range(world.partitions):
        before = len(world.acknowledged)
        world.write(index)
        world.run(30)
        assert len(world.acknowledged) == before + 1, f"partition {index} was not copied at once"
    world.check_contents()


def _watches(world: ReplicatedWorld) -> list[SessionWatch]:
    """Of every session in which one broker follows another."""
    sessions = [each for broker in world.brokers.values() for each in broker.broker.fetch.sessions.all()]
    return [session.watch for session in sessions if session.watch is not None]


def _led(world: ReplicatedWorld, index: int) -> Partition:
    """A partition as its leader has it."""
    partition = world.leader(index).partition(index)
    assert partition is not None
    return partition


def _waiters(world: ReplicatedWorld, index: int) -> int:
    """How many of its followers a leader would tell of a record."""
    return len(_led(world, index)._follower_waiters or [])


def test_nobody_looks_at_partitions_that_do_not_change() -> None:
    world = ReplicatedWorld(13, partitions=30)
    for index in range(world.partitions):
        world.write(index)
    world.run(2 * LOOK_AT_ALL_MS + 1000)
    watches = _watches(world)
    assert len(watches) == 6, "each of three brokers follows two others"
    assert [len(watch.changed) for watch in watches] == [0] * 6
    # What one partition gets concerns its two followers, and only with regard to that partition.
    for watch in watches:
        watch.to_look_at({}, world.clock.monotonic_ms(), every=True)  # not again for a while
    world.write(5)
    assert sorted(len(watch.changed) for watch in watches) == [0, 0, 0, 0, 1, 1]
    world.run(1000)
    assert [len(watch.changed) for watch in watches] == [0] * 6
    world.check_contents()


def test_replicas_of_quiet_partitions_hear_what_is_committed() -> None:
    world = ReplicatedWorld(14, partitions=4)
    for index in range(world.partitions):
        world.write(index)
    world.run(1000)
    for index in range(world.partitions):
        copies = [copy for broker in world.brokers.values() if (copy := broker.partition(index)) is not None]
        assert [copy.log.high_watermark for copy in copies] == [1, 1, 1]


def test_conversations_that_begin_again_leave_nothing_behind() -> None:
    world = ReplicatedWorld(15, partitions=3)
    one, other = world.brokers[1].address, world.brokers[2].address
    for _ in range(6):
        world.write(0)
        world.run(100)
        world.network.cut(one, other)
        world.run(700)
        world.network.heal()
        world.run(3000)
    for index in range(world.partitions):
        world.write(index)
        world.run(500)
        assert _waiters(world, index) == 2
    world.check_contents()


def test_a_replica_that_never_comes_back_is_forgotten() -> None:
    world = ReplicatedWorld(16, partitions=2)
    world.write(0)
    world.run(500)
    partition = _led(world, 0)
    asked = FetchPartition(partition.topic_id, 0)
    watch = SessionWatch()
    watch.keep_watch(asked, partition)
    watch.keep_watch(asked, partition)
    assert _waiters(world, 0) == 3
    watch.keep_watch(FetchPartition(partition.topic_id, 1), _led(world, 1))
    for _ in range(UNHEARD_MAX):
        assert not watch.noticed(asked, 1)
    assert (_waiters(world, 0), _waiters(world, 1)) == (3, 3)
    world.write(0)
    world.run(500)
    assert (_waiters(world, 0), _waiters(world, 1)) == (2, 2)
    # Should it come back after all, it looks at what it missed, and listens again.
    assert watch.to_look_at({}, LOOK_AT_ALL_MS - 1, every=False) == []
    assert watch.to_look_at({}, LOOK_AT_ALL_MS - 2, every=False) == [asked]
    watch.keep_watch(asked, partition)
    assert _waiters(world, 0) == 3
    watch.end()
    watch.keep_watch(asked, partition)
    assert _waiters(world, 0) == 2


def test_a_partition_that_a_session_forgets_is_not_watched() -> None:
    world = ReplicatedWorld(17, partitions=1)
    world.write(0)
    world.run(500)
    partition = _led(world, 0)
    asked = FetchPartition(partition.topic_id, 0)
    watch = SessionWatch()
    watch.keep_watch(asked, partition)
    watch.changed[asked] = None
    watch.forget(asked)
    assert _waiters(world, 0) == 2
    assert not watch.changed


def test_what_is_appended_because_something_was_committed_is_copied_at_once() -> None:
    """It is appended in the midst of the fetch that has committed: after that has read, and before it waits."""
    world = ReplicatedWorld(18, partitions=1, overrides=LONG_POLLS)
    world.write(0)
    world.run(6000)
    partition = _led(world, 0)

    def answer() -> None:
        partition.append_own(build_batch([Record(0, world.clock.now_ms(), None, b"an answer", ())]))

    partition.when_committed(2, answer)
    world.write(0)
    world.run(100)
    copies = [copy for broker in world.brokers.values() if (copy := broker.partition(0)) is not None]
    assert [copy.log.log_end_offset for copy in copies] == [3, 3, 3]


def _fetch(world: ReplicatedWorld, replica: int, **session: int) -> Pending[Any]:
    """What a replica of partition 0 asks its leader when it has everything."""
    leader = world.leader(0)
    partition = leader.partition(0)
    assert partition is not None
    asked = fetch_request.FetchPartition(
        partition=0,
        current_leader_epoch=partition.leader_epoch,
        fetch_offset=partition.log.log_end_offset,
        last_fetched_epoch=partition.leader_epoch,
        log_start_offset=0,
        partition_max_bytes=1 << 20,
    )
    request = fetch_request.FetchRequest(
        replica_state=fetch_request.ReplicaState(replica_id=replica, replica_epoch=world.brokers[replica].epoch),
        max_wait_ms=5000,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[fetch_request.FetchTopic(topic_id=partition.topic_id, partitions=[asked])],
        **session,
    )
    return world.leader(0).ask(request, 17)


def test_a_fetch_whose_session_begins_anew_is_answered_at_once() -> None:
    """Nothing else is taken up on its connection before."""
    world = ReplicatedWorld(19, partitions=1, overrides=LONG_POLLS)
    world.write(0)
    world.run(6000)
    replica = next(each for each in world.brokers if each != world.leader(0).id)
    begun = _fetch(world, replica, session_id=0, session_epoch=0)
    session_id = world.until(begun, 6000).session_id
    waiting = _fetch(world, replica, session_id=session_id, session_epoch=1)
    world.run(200)
    assert not waiting.done
    _fetch(world, replica, session_id=session_id, session_epoch=0)
    world.run(1)
    assert waiting.done
    assert waiting.value.responses == []


def test_uncommitted_records_are_not_forgotten_until_they_are_committed() -> None:
    """The replica that copied them first hears of it with its next answer, whatever that is about."""
    world = ReplicatedWorld(20, partitions=1)
    world.write(0)
    world.run(1000)
    partition = _led(world, 0)
    asked = FetchPartition(partition.topic_id, 0)
    watch = SessionWatch()
    watch.changed[asked] = None
    partition.append_own(build_batch([Record(0, world.clock.now_ms(), None, b"uncommitted", ())]))
    watch.is_quiet(asked, partition)
    assert asked in watch.changed
    world.run(1000)
    watch.is_quiet(asked, partition)
    assert asked not in watch.changed
