"""Brokers on their way in and out: registration, heartbeats, fencing, controlled shutdown, crashes."""

from __future__ import annotations

from controller_world import ControllerWorld

from moldau.metadata.features import METADATA_VERSION, VersionRange, supported_features
from moldau.metadata.image import LOST_DIRECTORY, NO_LEADER, RECOVERING
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire.allocate_producer_ids_request import AllocateProducerIdsRequest
from moldau.protocol.generated.wire.allocate_producer_ids_response import AllocateProducerIdsResponse
from moldau.protocol.generated.wire.broker_heartbeat_request import BrokerHeartbeatRequest
from moldau.protocol.generated.wire.broker_heartbeat_response import BrokerHeartbeatResponse
from moldau.protocol.generated.wire.controller_registration_request import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from moldau.protocol.generated.wire.controller_registration_response import ControllerRegistrationResponse
from moldau.protocol.generated.wire.create_topics_request import CreatableTopic, CreateTopicsRequest
from moldau.protocol.generated.wire.unregister_broker_request import UnregisterBrokerRequest
from moldau.protocol.generated.wire.unregister_broker_response import UnregisterBrokerResponse

SESSION_MS = 9000


def test_a_broker_is_fenced_until_it_knows_of_itself() -> None:
    world = ControllerWorld()
    response = world.register(1, rack="r1")
    assert response.broker_epoch == world.image.offset
    broker = world.image.brokers[1]
    assert (broker.fenced, broker.rack, broker.listeners["PLAINTEXT"].host) == (True, "r1", "host-1")
    behind = world.heartbeat(1, offset=response.broker_epoch - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    wants_to_wait = world.heartbeat(1, want_fence=True)
    assert (wants_to_wait.is_caught_up, wants_to_wait.is_fenced) == (True, True)
    assert not world.heartbeat(1).is_fenced
    assert world.image.brokers[1].is_active


def test_registrations_that_are_refused() -> None:
    world = ControllerWorld()
    world.join(1)
    assert world.register(2, cluster_id="other").error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert world.register(2, features={}).error_code == ErrorCode.INVALID_REGISTRATION
    old = {**supported_features(), METADATA_VERSION: VersionRange(7, 25)}
    assert world.register(2, features=old).error_code == ErrorCode.UNSUPPORTED_VERSION
    without_groups = {name: levels for name, levels in supported_features().items() if name != "group.version"}
    assert world.register(2, features=without_groups).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert world.register(2, directories=[LOST_DIRECTORY]).error_code == ErrorCode.INVALID_REGISTRATION
    assert world.register(2, directories=[b"d" * 16] * 2).error_code == ErrorCode.INVALID_REGISTRATION
    assert world.register(2, directories=world.directories[1]).error_code == ErrorCode.INVALID_REGISTRATION
    assert 2 not in world.image.brokers


def test_a_live_broker_keeps_its_id() -> None:
    world = ControllerWorld()
    world.join(1)
    assert world.register(1, incarnation=1).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    again = world.register(1)
    assert again.broker_epoch == world.epochs[1]
    assert not world.image.brokers[1].fenced
    world.clock.advance(SESSION_MS + 10)
    assert world.register(1, incarnation=1).error_code == 0


def test_a_broker_restarted_with_its_controller_need_not_wait() -> None:
    """A new controller has only read of the old incarnation; the new one's epoch shuts that out anyway."""
    world = ControllerWorld()
    world.join(1)
    old = world.epochs[1]
    world.restart()
    assert world.register(1, incarnation=1).error_code == 0
    stale = BrokerHeartbeatRequest(broker_id=1, broker_epoch=old, current_metadata_offset=world.image.offset)
    assert world.ask(stale, BrokerHeartbeatResponse).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_heartbeats_of_strangers() -> None:
    world = ControllerWorld()
    response = world.ask(BrokerHeartbeatRequest(broker_id=9, broker_epoch=1), BrokerHeartbeatResponse)
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_silent_broker_is_fenced_and_its_partitions_move() -> None:
    world = ControllerWorld()
    world.join(1, 2)
    world.create("orders", assignments={0: [1, 2], 1: [2, 1]})
    for _ in range(5):
        world.clock.advance(2000)
        world.heartbeat(2)
    assert world.image.brokers[1].fenced
    assert not world.image.brokers[2].fenced
    first = world.partition("orders", 0)
    assert (first.leader, first.isr, first.leader_epoch) == (2, (2,), 1)
    assert world.partition("orders", 1).isr == (2,)
    assert not world.heartbeat(1).is_fenced
    assert world.partition("orders", 0).leader == 2


def test_a_fail_over_is_timed_from_the_last_sign_of_life() -> None:
    world = ControllerWorld()
    world.join(1, 2)
    world.create("orders", assignments={0: [1, 2], 1: [2, 1]})
    world.heartbeat(1)
    for _ in range(5):
        world.clock.advance(2000)
        world.heartbeat(2)
    found = world.controller.failovers
    assert (found.count, found.partitions) == (1, 1)
    assert 9000 <= found.last_ms == found.sum_ms <= 9010
    assert sum(found.buckets) == 1
    world.heartbeat(1)
    for _ in range(5):
        world.clock.advance(2000)
        world.heartbeat(2)
    assert found.count == 1, "it led nothing: nobody took over"


def test_a_new_controller_gives_everyone_a_session() -> None:
    world = ControllerWorld()
    world.join(1)
    world.clock.advance(8000)
    world.restart()
    world.clock.advance(8000)
    assert not world.image.brokers[1].fenced
    world.clock.advance(2000)
    assert world.image.brokers[1].fenced


def test_controlled_shutdown_of_one_of_two() -> None:
    world = ControllerWorld()
    world.join(1, 2)
    world.create("orders", assignments={0: [1, 2]})
    first = world.heartbeat(1, want_shut_down=True)
    assert (first.is_fenced, first.should_shut_down) == (False, False)
    partition = world.partition("orders")
    assert (partition.leader, partition.isr) == (2, (2,))
    assert world.image.brokers[1].in_controlled_shutdown
    # The other broker has not read the change yet.
    assert not world.heartbeat(1, want_shut_down=True).should_shut_down
    world.heartbeat(2)
    last = world.heartbeat(1, want_shut_down=True)
    assert (last.is_fenced, last.should_shut_down) == (True, True)
    assert world.image.brokers[1].fenced


def test_a_broker_takes_no_replicas_while_it_goes_and_takes_followers_when_it_has_gone() -> None:
    world = ControllerWorld()
    world.join(1, 2)
    world.create("orders", assignments={0: [1, 2]})
    world.heartbeat(1, want_shut_down=True)
    assert world.create("early", 1, 2).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    world.heartbeat(2)
    assert world.heartbeat(1, want_shut_down=True).should_shut_down
    assert world.create("late", 1, 2).error_code == ErrorCode.NONE
    partition = world.partition("late")
    assert (partition.replicas, partition.leader, partition.isr) == ((2, 1), 2, (2,))


def test_a_broker_without_leaders_may_stop_at_once() -> None:
    world = ControllerWorld()
    world.join(1)
    assert world.heartbeat(1, want_shut_down=True).should_shut_down


def test_the_only_broker_stops_and_comes_back_with_everything() -> None:
    world = ControllerWorld()
    world.join(1)
    world.create("orders", 3, 1)
    assert not world.heartbeat(1, want_shut_down=True).should_shut_down
    stopped = world.partition("orders")
    assert (stopped.leader, stopped.isr, stopped.elr, stopped.last_known_elr) == (NO_LEADER, (), (1,), (1,))
    assert world.heartbeat(1, want_shut_down=True).should_shut_down
    previous = world.epochs[1]
    world.restart()
    world.join(1, incarnation=1, previous_epoch=previous)
    back = world.partition("orders")
    assert (back.leader, back.isr, back.elr, back.last_known_elr) == (1, (1,), (), ())
    assert back.leader_recovery_state == 0
    assert back.leader_epoch == 2


def test_the_only_broker_crashes_and_leads_again_with_a_warning() -> None:
    """It may have lost what it had not synced: it is elected as the last known leader, and must recover."""
    world = ControllerWorld()
    world.join(1)
    world.create("orders", 1, 1)
    world.restart()
    world.register(1, incarnation=1)
    assert world.partition("orders").leader == NO_LEADER
    world.heartbeat(1)
    back = world.partition("orders")
    assert (back.leader, back.isr, back.leader_recovery_state) == (1, (1,), RECOVERING)


def test_without_eligible_leaders_the_last_in_sync_replica_stays_so() -> None:
    world = ControllerWorld(features={"eligible.leader.replicas.version": 0})
    world.join(1)
    world.create("orders", 1, 1)
    world.heartbeat(1, want_shut_down=True)
    stopped = world.partition("orders")
    assert (stopped.leader, stopped.isr, stopped.elr) == (NO_LEADER, (1,), ())
    world.restart()
    world.join(1, incarnation=1)
    assert world.partition("orders").leader == 1


def test_a_lost_directory_moves_its_leaders() -> None:
    world = ControllerWorld()
    good, bad = b"g" * 16, b"b" * 16
    world.join(1, directories=[good, bad])
    world.join(2)
    world.create("orders", assignments={0: [1, 2], 1: [1, 2]})
    world.assign(1, bad, "orders", 0)
    world.assign(1, good, "orders", 1)
    world.heartbeat(1, offline_log_dirs=[bad])
    assert world.image.brokers[1].log_dirs == (good,)
    assert world.partition("orders", 0).leader == 2
    assert world.partition("orders", 1).leader == 1


def test_cordoned_directories_take_no_new_replicas() -> None:
    world = ControllerWorld()
    world.join(1, 2)
    world.heartbeat(1, cordoned_log_dirs=world.directories[1])
    before = world.quorum.next_offset
    world.heartbeat(1, cordoned_log_dirs=world.directories[1])
    assert world.quorum.next_offset == before
    world.create("orders", 6, 1)
    assert {world.partition("orders", i).leader for i in range(6)} == {2}


def test_unregister() -> None:
    world = ControllerWorld()
    world.join(1, 2)
    world.create("orders", assignments={0: [2, 1]})
    response = world.ask(UnregisterBrokerRequest(broker_id=2), UnregisterBrokerResponse)
    assert response.error_code == 0
    assert list(world.image.brokers) == [1]
    assert world.partition("orders").leader == 1
    response = world.ask(UnregisterBrokerRequest(broker_id=2), UnregisterBrokerResponse)
    assert response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_producer_ids_are_never_given_twice() -> None:
    world = ControllerWorld()
    world.join(1)
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=world.epochs[1])
    first = world.ask(request, AllocateProducerIdsResponse)
    assert (first.producer_id_start, first.producer_id_len) == (0, 1000)
    world.restart()
    second = world.ask(request, AllocateProducerIdsResponse)
    assert second.producer_id_start == 1000
    request.broker_epoch += 1
    assert world.ask(request, AllocateProducerIdsResponse).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_controllers_announce_themselves() -> None:
    world = ControllerWorld()
    request = ControllerRegistrationRequest(
        controller_id=1,
        incarnation_id=b"i" * 16,
        listeners=[Listener(name="CONTROLLER", host="localhost", port=9093, security_protocol=0)],
        features=[Feature(name=METADATA_VERSION, min_supported_version=7, max_supported_version=30)],
    )
    assert world.ask(request, ControllerRegistrationResponse).error_code == 0
    assert world.image.controllers[1].features[METADATA_VERSION] == VersionRange(7, 30)


def test_requests_to_a_controller_that_does_not_lead() -> None:
    world = ControllerWorld()
    world.join(1)
    world.quorum.shutdown()
    assert world.create("orders", 1, 1).error_code == ErrorCode.NOT_CONTROLLER
    assert world.heartbeat(1).error_code == ErrorCode.NOT_CONTROLLER


def test_an_answer_waits_for_the_commit_of_everything_before_it() -> None:
    """Also an answer without records: it may speak of records that could still be lost."""
    world = ControllerWorld()
    world.join(1)
    world.disk.hold_syncs = True
    request = CreateTopicsRequest(topics=[CreatableTopic(name="orders", num_partitions=1, replication_factor=1)])
    created = world.controller.handle(request, 7, "User:a")
    exists = world.controller.handle(request, 7, "User:a")
    assert not created.done
    assert not exists.done
    world.disk.finish_syncs()
    assert created.value.topics[0].error_code == 0  # type: ignore[attr-defined]
    assert exists.value.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS  # type: ignore[attr-defined]


def test_a_follower_of_the_log_hears_from_an_idle_controller() -> None:
    world = ControllerWorld()
    world.join(1)
    world.clock.advance(5000)
    alone = world.quorum.next_offset
    world.clock.advance(3000)
    assert world.quorum.next_offset == alone
    world.join(2)
    before = world.quorum.next_offset
    world.clock.advance(3000)
    assert world.quorum.next_offset > before
