"""The properties of each node when one command starts several on one machine: `moldau start --nodes 3`.

Decides ids, roles, ports, directories and how many copies there are. What the given properties say holds for every
node, except for what must differ between them. The first three nodes are the controllers, so that nodes can be added
later without touching the quorum.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Final, NamedTuple

from moldau.config.types import ConfigError

CONTROLLERS_MAX: Final = 3
COPIES_MAX: Final = 3
_CONTROLLER_NAME: Final = "CONTROLLER"
_DEFAULT_CONTROLLER_GAP: Final = 1


class _Listener(NamedTuple):
    name: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> _Listener:
        name, _, address = text.strip().partition("://")
        host, _, port = address.rpartition(":")
        if not name or not port.isdigit() or int(port) == 0:
            raise ConfigError("listeners", text, "several nodes need listeners with fixed ports, NAME://HOST:PORT")
        return cls(name, host, int(port))

    def on(self, port: int) -> str:
        return f"{self.name}://{self.host}:{port}"


def controller_count(nodes: int) -> int:
    """Two controllers would be worse than one: neither could go on without the other."""
    return CONTROLLERS_MAX if nodes >= CONTROLLERS_MAX else 1


def properties_of_nodes(base: Mapping[str, str], nodes: int) -> list[dict[str, str]]:
    """The properties of nodes 1 to `nodes`; the quorum's servers are those of all controllers."""
    properties = dict(base)
    properties.pop("controller.quorum.voters", None)
    controller_name = properties.setdefault("controller.listener.names", _CONTROLLER_NAME).split(",")[0].strip()
    listeners = _listeners(properties, controller_name)
    stride = _stride([each.port for each in listeners], nodes)
    [controller] = [each for each in listeners if each.name == controller_name]
    controllers = controller_count(nodes)
    quorum = ",".join(f"{controller.host or 'localhost'}:{controller.port + i * stride}" for i in range(controllers))
    found = []
    for i in range(nodes):
        is_controller = i < controllers
        own = [each for each in listeners if is_controller or each is not controller]
        each_node = {
            **settings_of_copies(nodes),
            **properties,
            "node.id": str(i + 1),
            "process.roles": "broker,controller" if is_controller else "broker",
            "listeners": ",".join(each.on(each.port + i * stride) for each in own),
            "controller.quorum.bootstrap.servers": quorum,
            "log.dirs": _own_directories(properties.get("log.dirs") or properties.get("log.dir") or "./data", i + 1),
        }
        each_node.pop("log.dir", None)
        if is_controller:
            each_node["controller.quorum.auto.join.enable"] = "true"
        if "metadata.log.dir" in properties:
            each_node["metadata.log.dir"] = _own_directories(properties["metadata.log.dir"], i + 1)
        if "advertised.listeners" in properties:
            advertised = [_Listener.parse(each) for each in properties["advertised.listeners"].split(",")]
            each_node["advertised.listeners"] = ",".join(
                each.on(each.port + i * stride) for each in advertised if is_controller or each.name != controller_name
            )
        host, _, http_port = properties.get("moldau.http.listener", "").rpartition(":")
        if http_port.isdigit() and int(http_port):
            each_node["moldau.http.listener"] = f"{host}:{int(http_port) + i}"
        found.append(each_node)
    return found


def _listeners(properties: Mapping[str, str], controller_name: str) -> list[_Listener]:
    found = [_Listener.parse(each) for each in properties.get("listeners", "PLAINTEXT://:9092").split(",")]
    if all(each.name == controller_name for each in found):
        raise ConfigError("listeners", properties["listeners"], "no listener is for clients")
    if not any(each.name == controller_name for each in found):
        highest = max(found, key=lambda each: each.port)
        found.append(_Listener(controller_name, highest.host, highest.port + _DEFAULT_CONTROLLER_GAP))
    return found


def _stride(ports: list[int], nodes: int) -> int:
    """How far the ports of one node are from those of the next: as near as they do not meet."""
    for stride in count(len(ports)):
        used = {port + i * stride for port in ports for i in range(nodes)}
        if len(used) == len(ports) * nodes:
            return stride
    raise AssertionError("some stride is large enough")


def _own_directories(paths: str, node_id: int) -> str:
    return ",".join(f"{path.strip().rstrip('/')}/node-{node_id}" for path in paths.split(","))


def settings_of_copies(nodes: int) -> dict[str, str]:
    """As many copies as a real cluster would keep, unless the properties say otherwise."""
    copies = str(min(COPIES_MAX, nodes))
    in_sync = "2" if nodes >= COPIES_MAX else "1"
    return {
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
    }
