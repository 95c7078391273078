"""What this room asks brokers itself: which topics there are, and where their partitions begin and end.

Everything else is read and written by Spark through `moldau.spark`. Options are those of format("moldau").
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from moldau.client.cluster import Cluster
from moldau.client.errors import MoldauError, Unreachable
from moldau.client.offsets import EARLIEST, LATEST, READ_UNCOMMITTED, list_offsets
from moldau.pipeline.errors import PipelineError
from moldau.spark.brokers import client_settings

# Somebody waits for an answer: a broker that is there takes milliseconds, one that is restarting a second or two.
_PATIENCE = {"kafka.default.api.timeout.ms": "5000"}


@contextlib.contextmanager
def _connected(options: Mapping[str, str]) -> Iterator[Cluster]:
    properties = {name[len("kafka.") :]: value for name, value in options.items() if name.startswith("kafka.")}
    cluster = Cluster(client_settings(properties))
    try:
        yield cluster
    finally:
        cluster.close()


def topic_names(options: Mapping[str, str]) -> list[str]:
    """The topics of the cluster that everybody may know of; a PipelineError when nobody answers."""
    try:
        with _connected({**_PATIENCE, **options}) as cluster:
            return sorted(name for name, view in cluster.all_topics().items() if not view.error)
    except MoldauError as error:
        raise _unanswered(error) from None


def offset_bounds(options: Mapping[str, str], topic: str) -> dict[int, tuple[int, int]]:
    """The first offset of each partition of a topic, and the one after its last."""
    with _connected(options) as cluster:
        parts = [(topic, index) for index in cluster.topics([topic])[topic].leaders]
        first = list_offsets(cluster, dict.fromkeys(parts, EARLIEST), READ_UNCOMMITTED)
        last = list_offsets(cluster, dict.fromkeys(parts, LATEST), READ_UNCOMMITTED)
    return {index: (first[topic, index], last[topic, index]) for _, index in parts}


def _unanswered(error: MoldauError) -> PipelineError:
    """The client's sentence names its settings; here people have given --bootstrap-server."""
    if not isinstance(error, Unreachable) or error.answered:
        return PipelineError(error.message, error.hint)
    hint = "Is one running there? Start one with 'moldau start', or name another with --bootstrap-server."
    return PipelineError(error.message, hint)
