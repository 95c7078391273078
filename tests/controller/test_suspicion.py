"""Brokers that are suspected dead: asked for, and fenced only on the word of their own machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from moldau.controller.sessions import BrokerSessions
from moldau.controller.suspicion import FIRST_LOOK_MS, NEXT_LOOK_MS, Suspicions
from moldau.metadata.image import BrokerRegistration
from moldau.testing.clock import VirtualClock


class World:
    def __init__(self, *brokers: BrokerRegistration) -> None:
        self.clock = VirtualClock()
        self.brokers = {broker.id: broker for broker in brokers}
        self.sessions = BrokerSessions(self.clock, 9000, brokers)
        self.asked: list[tuple[int, Callable[[bool], None]]] = []
        self.dead: list[int] = []
        self.suspicions = Suspicions(
            self.clock,
            self.sessions,
            lambda broker, answered: self.asked.append((broker.id, answered)),
            lambda: self.brokers,
            lambda broker, _since: self.dead.append(broker.id),
        )

    def hear(self, broker_id: int) -> None:
        self.sessions.touch(broker_id, fenced=False, metadata_offset=1)


@pytest.fixture
def broker() -> BrokerRegistration:
    return BrokerRegistration(1, 7, bytes(16), {}, {}, None, fenced=False, in_controlled_shutdown=False, log_dirs=())


def test_a_lost_connection_is_looked_into(broker: BrokerRegistration) -> None:
    world = World(broker)
    world.hear(1)
    world.suspicions.connection_lost(1, 6)
    assert not world.asked, "that was an earlier life of it"
    world.suspicions.connection_lost(1, 7)
    ((_, answered),) = world.asked
    answered(False)
    assert not world.dead, "somebody is there"
    world.suspicions.connection_lost(1, 7)
    world.asked[-1][1](True)
    assert world.dead == [1]


def test_a_sign_of_life_saves_it(broker: BrokerRegistration) -> None:
    world = World(broker)
    world.hear(1)
    world.suspicions.connection_lost(1, 7)
    world.clock.advance(5)
    world.hear(1)
    world.asked[-1][1](True)
    assert not world.dead
    world.suspicions.connection_lost(1, 7)
    world.brokers[1] = replace(broker, epoch=8)
    world.asked[-1][1](True)
    assert not world.dead, "it is another life already"


def test_a_new_controller_looks_for_those_it_has_not_heard_of(broker: BrokerRegistration) -> None:
    world = World(broker, replace(broker, id=2), replace(broker, id=3, fenced=True))
    world.hear(2)
    world.clock.advance(FIRST_LOOK_MS)
    assert [broker_id for broker_id, _ in world.asked] == [1]
    world.clock.advance(NEXT_LOOK_MS)
    assert [broker_id for broker_id, _ in world.asked] == [1, 1]
    world.asked[-1][1](True)
    assert world.dead == [1]
    world.brokers[1] = replace(broker, fenced=True)
    world.clock.advance(10 * NEXT_LOOK_MS)
    assert len(world.asked) == 2
    assert not world.clock.waiting
