"""What clients are told while a broker is dying: nothing before the controller has decided, or time is up."""

from __future__ import annotations

from dataclasses import replace

from broker_node import SimulatedNode

from moldau.broker.departures import LISTED_AFTER_FENCING_MS, LOOK_AROUND_MS, WAIT_MS_MAX, Departures
from moldau.metadata.image import BrokerRegistration, ClusterImage, PartitionRegistration, TopicImage


class World:
    def __init__(self) -> None:
        self.node = SimulatedNode()
        self.clock = self.node.clock
        self.lost: dict[int, int] = {}
        self.departures = Departures(self.node.services, self.lost.get)
        own = self.node.services.image.brokers[1]
        self.topics: dict[bytes, TopicImage] = {}
        self.brokers = {1: own, 2: replace(own, id=2, epoch=200), 3: replace(own, id=3, epoch=300)}
        self.publish()

    def publish(self) -> None:
        image: ClusterImage = replace(self.node.services.image, brokers=dict(self.brokers), topics_by_id=self.topics)
        self.departures.image_published(image)

    def fence(self, broker_id: int, *, fenced: bool = True) -> BrokerRegistration:
        broker = self.brokers[broker_id] = replace(self.brokers[broker_id], fenced=fenced)
        self.publish()
        return broker

    def lead(self, broker_id: int) -> None:
        """There is a topic that this broker leads."""
        partition = PartitionRegistration((broker_id,), (bytes(16),), (broker_id,), (), (), (), (), broker_id, 0, 0, 0)
        self.topics = {bytes(16): TopicImage("orders", bytes(16), {0: partition})}
        self.publish()

    def lose(self, broker_id: int) -> None:
        self.lost[broker_id] = self.clock.monotonic_ms()


def test_with_nobody_lost_the_answer_comes_after_a_look_around() -> None:
    world = World()
    promise = world.departures.settled()
    assert promise is not None
    assert not promise.done
    world.clock.advance(LOOK_AROUND_MS)
    assert promise.done


def test_a_broker_alone_answers_at_once() -> None:
    world = World()
    del world.brokers[2], world.brokers[3]
    world.publish()
    assert world.departures.settled() is None


def test_a_lost_broker_is_waited_for_until_it_is_fenced() -> None:
    world = World()
    promise = world.departures.settled()
    assert promise is not None
    world.lose(2)
    world.clock.advance(LOOK_AROUND_MS + 50)
    assert not promise.done
    world.publish()
    assert not promise.done, "other news of the cluster decide nothing"
    world.fence(2)
    assert promise.done


def test_nobody_waits_for_ever() -> None:
    world = World()
    world.lose(2)
    promise = world.departures.settled()
    assert promise is not None
    world.clock.advance(WAIT_MS_MAX - 1)
    assert not promise.done
    world.clock.advance(1 + LOOK_AROUND_MS)
    assert promise.done
    later = world.departures.settled()
    assert later is not None
    world.clock.advance(LOOK_AROUND_MS)
    assert later.done, "a broker that is lost for long is nobody's reason to wait"


def test_a_broker_that_led_is_listed_for_a_moment_after_it_was_fenced() -> None:
    world = World()
    world.lead(2)
    gone = world.fence(2)
    assert world.departures.is_listed(gone)
    world.clock.advance(LISTED_AFTER_FENCING_MS)
    assert not world.departures.is_listed(gone)
    assert world.departures.is_listed(world.fence(2, fenced=False))


def test_a_broker_that_has_handed_over_everything_is_listed_no_more() -> None:
    world = World()
    world.lead(2)
    world.lead(3)
    assert not world.departures.is_listed(world.fence(2))


def test_a_broker_that_was_fenced_from_the_beginning_is_not_listed() -> None:
    world = World()
    world.brokers[4] = replace(world.brokers[2], id=4, fenced=True)
    world.publish()
    assert not world.departures.is_listed(world.brokers[4])
