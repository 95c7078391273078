"""What the handlers of a broker are given: the rooms below, and the few facts about the node itself.

A plain container, filled once by the node. Handlers hold it and read `image` and `config` anew on each request,
because both are replaced as a whole when the cluster changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from moldau.broker.authorization import Authorizer, Guard, guard_for
from moldau.config.node_config import NodeConfig
from moldau.metadata.image import EMPTY_IMAGE, ClusterImage, Endpoint
from moldau.ports import Background, Clock, Disk, Network, Pending
from moldau.protocol.errors import ErrorCode
from moldau.replication.partition_table import PartitionTable

if TYPE_CHECKING:
    from moldau.log.manager import LogManager


class ControllerChannel(Protocol):
    """The way to the active controller; in a combined node it is a direct call."""

    def ask(self, request: Any, api_version: int, principal: str, *, host: str = "") -> Pending[Any]:
        """The controller's response to a wire message. A controller that cannot be reached answers ApiError.

        With `host`, where the client is, the request is passed on in that client's name.
        """
        ...

    def serves(self, api_key: int) -> bool:
        """Whether the controller answers this API at all; what it does not is not advertised."""
        ...

    def leader_id(self) -> int:
        """The node that is the active controller, as far as is known; -1 when nobody is."""
        ...

    def committed_offset(self) -> int:
        """How far a node must have read the metadata log to see everything answered so far; -1 if nobody knows."""
        ...


class Coordinators(Protocol):
    """Where group, transaction and share coordinators live, for FindCoordinator."""

    def locate(self, key_type: int, key: str, listener_name: str) -> tuple[int, Endpoint] | ErrorCode:
        """(node id, its endpoint on that listener), or why there is none."""
        ...

    def wait_for_topic(self, key_type: int, principal: str) -> Pending[None] | None:
        """None when `locate` knows all it ever will; else a promise for when that is so. Creates missing topics."""
        ...


@dataclass(slots=True)
class BrokerServices:
    node_id: int
    cluster_id: str
    clock: Clock
    background: Background
    random: Random
    config: NodeConfig
    partitions: PartitionTable
    logs: LogManager
    disk: Disk
    controller: ControllerChannel
    # Requests to other nodes; None where there are none (in tests of one broker).
    network: Network | None = None
    image: ClusterImage = EMPTY_IMAGE
    when_image_reaches: Callable[[int, Callable[[], None]], None] | None = None
    # Level of `kraft.version`, which the quorum keeps outside of the metadata records.
    kraft_version: Callable[[], int] = lambda: 0
    authorizer: Authorizer | None = None
    coordinators: Coordinators | None = None
    # The epoch of this broker's registration; -1 before it is registered.
    broker_epoch: Callable[[], int] = lambda: -1

    @property
    def guard(self) -> Guard | None:
        return guard_for(self.authorizer)
