"""Where new replicas go: striped over racks, and over the brokers inside each rack.

Leaders go round the racks and round the brokers, the replicas of one partition go to different racks as far as there
are racks; fenced brokers take followers only when nobody else is left. Only ids and racks are looked at here.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import NamedTuple

from moldau.protocol.errors import ApiError, ErrorCode


class UsableBroker(NamedTuple):
    id: int
    rack: str | None
    fenced: bool


class _Ring:
    """Brokers taken in turn; each partition ("round") begins one broker further than the one before."""

    __slots__ = ("_brokers", "_offset", "_round", "_taken")

    def __init__(self, brokers: list[int], random: Random) -> None:
        self._brokers = sorted(brokers)
        self._offset = random.randrange(len(brokers)) if brokers else 0
        self._round = 0
        self._taken = 0

    def next(self, round_: int) -> int | None:
        """The next broker of this round; None when each was taken once."""
        brokers = self._brokers
        if not brokers:
            return None
        if round_ != self._round:
            self._round = round_
            self._taken = 0
            self._offset = (self._offset + 1) % len(brokers)
        if self._taken >= len(brokers):
            return None
        broker = brokers[(self._taken + self._offset) % len(brokers)]
        self._taken += 1
        return broker

    def shuffle(self, random: Random) -> None:
        random.shuffle(self._brokers)


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self, brokers: list[UsableBroker], random: Random) -> None:
        self.fenced = _Ring([broker.id for broker in brokers if broker.fenced], random)
        self.unfenced = _Ring([broker.id for broker in brokers if not broker.fenced], random)

    def next(self, round_: int) -> int | None:
        broker = self.unfenced.next(round_)
        return self.fenced.next(round_) if broker is None else broker


class StripedPlacer:
    """Places the partitions of one topic; make a new one for each request."""

    __slots__ = ("_offset", "_racks", "_random", "_round", "_unfenced_count", "broker_count")

    def __init__(self, brokers: Iterable[UsableBroker], random: Random) -> None:
        by_rack: dict[str | None, list[UsableBroker]] = {}
        for broker in brokers:
            by_rack.setdefault(broker.rack, []).append(broker)
        names = sorted(by_rack, key=lambda rack: (rack is not None, rack or ""))
        self._random = random
        self._racks = [_Rack(by_rack[name], random) for name in names]
        self.broker_count = sum(map(len, by_rack.values()))
        self._unfenced_count = sum(not broker.fenced for group in by_rack.values() for broker in group)
        self._round = 0
        self._offset = random.randrange(len(names)) if names else 0

    def check(self, replication_factor: int) -> None:
        """Raise unless so many replicas can be placed."""
        if replication_factor <= 0:
            reason = f"Invalid replication factor {replication_factor}: the replication factor must be positive."
        elif self._unfenced_count == 0:
            reason = "All brokers are currently fenced, or have all their log directories cordoned."
        elif replication_factor > self.broker_count:
            reason = (
                f"The target replication factor of {replication_factor} cannot be reached because only "
                f"{self.broker_count} broker(s) are registered or some brokers have all their log directories cordoned."
            )
        else:
            return
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)

    def place(self, replication_factor: int) -> list[int]:
        """The replicas of the next partition, the preferred leader first; `check` must have passed."""
        if self._round == self._unfenced_count and self._unfenced_count > 1:
            self._random.shuffle(self._racks)
            for rack in self._racks:
                rack.fenced.shuffle(self._random)
                rack.unfenced.shuffle(self._random)
            self._round = 0
        if self._offset == len(self._racks):
            self._offset = 0
        leader_rack, leader = self._place_leader()
        replicas = [leader]
        index = self._offset
        while len(replicas) < replication_factor:
            if index == leader_rack:
                # The leader stands there already; from the next time round that rack takes followers as well.
                leader_rack = -1
            else:
                broker = self._racks[index].next(self._round)
                if broker is not None:
                    replicas.append(broker)
            index = (index + 1) % len(self._racks)
        self._round += 1
        self._offset += 1
        return replicas

    def _place_leader(self) -> tuple[int, int]:
        index = self._offset
        while True:
            broker = self._racks[index].unfenced.next(self._round)
            if broker is not None:
                return index, broker
            index = (index + 1) % len(self._racks)
