"""What surrounds a cluster under test: which links between its nodes are cut or slow just now, whose clock is wrong.

Each node holds or delays the bytes of its own connections (`moldau.node.link_faults`); here is decided which. No
privileges are needed, and clients are not affected: only what nodes say to each other. A node that is started while
links are cut finds them cut.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

ORDER_SECONDS_MAX: Final = 5.0


class LinkedNode(Protocol):
    """What is asked of a node whose links are steered."""

    id: int

    @property
    def addresses(self) -> Sequence[tuple[str, int]]: ...
    @property
    def is_running(self) -> bool: ...
    @property
    def is_frozen(self) -> bool: ...


class Links:
    def __init__(self) -> None:
        # Not in the data directory: the path of a Unix socket must be short.
        self._directory = Path(tempfile.mkdtemp(prefix="moldau-links-"))
        self._nodes: dict[int, LinkedNode] = {}
        self._cut: set[tuple[int, int]] = set()
        self._delay_ms: dict[frozenset[int], float] = {}
        self._clock_ms: dict[int, int] = {}

    def socket_of(self, node_id: int) -> str:
        return str(self._directory / f"{node_id}.sock")

    def add(self, node: LinkedNode) -> None:
        self._nodes[node.id] = node

    def close(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    # ---- faults

    def cut(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Nothing gets from the first node of a pair to the second any more."""
        self._cut |= set(pairs)
        self._tell_all()

    def slow(self, pairs: Iterable[tuple[int, int]], delay_ms: float) -> None:
        """Everything between these nodes takes so much longer, each way."""
        self._delay_ms.update({frozenset(pair): delay_ms for pair in pairs})
        self._tell_all()

    def shift_clock(self, node_id: int, shift_ms: int) -> None:
        """This node's clock jumps, and is wrong by so much from now on."""
        self._clock_ms[node_id] = shift_ms
        self._order(self._nodes[node_id])

    def heal(self) -> None:
        self._cut.clear()
        self._delay_ms.clear()
        self._clock_ms.clear()
        self._tell_all()

    def reset(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Break the connections that there are; new ones can be made at once."""
        broken = {frozenset(pair) for pair in pairs}
        for node in self._nodes.values():
            others = [each for each in self._nodes.values() if frozenset((node.id, each.id)) in broken]
            self._order(node, reset=[address for each in others for address in each.addresses])

    # ---- telling the nodes

    def _tell_all(self) -> None:
        for node in self._nodes.values():
            self._order(node)

    def _rules_of(self, node: LinkedNode) -> list[tuple[str, int, bool, bool, float]]:
        rules = []
        for other in self._nodes.values():
            out, back = (node.id, other.id) in self._cut, (other.id, node.id) in self._cut
            delay = self._delay_ms.get(frozenset((node.id, other.id)), 0.0)
            if other is not node and (out or back or delay):
                rules += [(host, port, out, back, delay) for host, port in other.addresses]
        return rules

    def _order(self, node: LinkedNode, reset: Sequence[tuple[str, int]] = ()) -> None:
        order = {"rules": self._rules_of(node), "clock_ms": self._clock_ms.get(node.id, 0)}
        path = self.socket_of(node.id)
        Path(path + ".order").write_text(json.dumps(order))
        if not node.is_running:
            return
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as control:
            control.settimeout(ORDER_SECONDS_MAX)
            try:
                control.connect(path)
                control.sendall(json.dumps({**order, "reset": reset}).encode() + b"\n")
                # A frozen node finds the order when it thaws.
                if not node.is_frozen:
                    control.recv(16)
            except (ConnectionError, FileNotFoundError):
                pass  # it is just starting, and reads the file; or it is just going
