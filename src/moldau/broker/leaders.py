"""Who leads a partition now, so that a client that asked the wrong broker need not ask for metadata first (KIP-951);
and where brokers reach each other."""

from __future__ import annotations

from typing import NamedTuple

from moldau.broker.services import BrokerServices
from moldau.metadata.image import Endpoint
from moldau.ports import Address


class CurrentLeader(NamedTuple):
    leader_id: int
    leader_epoch: int
    # Where the leader can be reached through the caller's listener; None when it cannot.
    endpoint: Endpoint | None
    rack: str | None


UNKNOWN_LEADER = CurrentLeader(-1, -1, None, None)


def current_leader(services: BrokerServices, topic: str, index: int, listener_name: str) -> CurrentLeader:
    hosted = services.partitions.find(topic, index)
    if hosted is not None:
        leader, epoch = hosted.leader_id, hosted.leader_epoch
    else:
        known = services.image.partition(topic, index)
        if known is None:
            return UNKNOWN_LEADER
        leader, epoch = known.leader, known.leader_epoch
    broker = services.image.brokers.get(leader)
    if broker is None or broker.fenced:
        return CurrentLeader(leader, epoch, None, None)
    return CurrentLeader(leader, epoch, broker.listeners.get(listener_name), broker.rack)


def broker_address(services: BrokerServices, broker_id: int) -> Address | None:
    """Where another broker takes requests of brokers; None while the cluster does not count on it."""
    broker = services.image.brokers.get(broker_id)
    endpoint = None if broker is None or broker.fenced else broker.listeners.get(services.config.inter_broker_listener)
    return None if endpoint is None else Address(endpoint.host, endpoint.port)


def topic_name(services: BrokerServices, topic_key: bytes, *, by_id: bool) -> str | None:
    """The name of a topic that a request named by the bytes of its name or by its id."""
    if not by_id:
        return topic_key.decode(errors="replace")
    topic = services.image.topic_by_id(topic_key)
    return None if topic is None else topic.name
