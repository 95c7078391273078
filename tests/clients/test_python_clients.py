"""Every Python client writes with every codec, and every other one reads it back unchanged."""

from __future__ import annotations

import itertools

import pytest

from moldau.testing import Cluster
from tests.clients.python_clients import CONSUMERS, PRODUCERS
from tests.clients.sample import CODECS, samples

_names = itertools.count()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_what_one_client_writes_every_client_reads(moldau_cluster: Cluster, producer: str, codec: str) -> None:
    topic = f"clients-{next(_names)}"
    moldau_cluster.create_topic(topic)
    written = samples()
    PRODUCERS[producer](moldau_cluster.bootstrap_servers, topic, codec, written)
    for name, consume in CONSUMERS.items():
        assert consume(moldau_cluster.bootstrap_servers, topic, len(written)) == written, f"read by {name}"
