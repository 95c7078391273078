from __future__ import annotations

import pytest
from broker_node import SimulatedNode


@pytest.fixture
def node() -> SimulatedNode:
    return SimulatedNode()
