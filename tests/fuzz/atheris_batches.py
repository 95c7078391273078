"""Coverage-guided fuzzing of record batches in Produce requests; see `atheris_runner.py` for how to run it.

The first byte of an input chooses the topic (and so which checks and codecs the batch goes through) and whether its
checksum and length are made right; the rest is the batch.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import atheris

with atheris.instrument_imports(include=["moldau"]):
    from tests.fuzz.fuzz_node import TOPICS, FuzzNode, sample_batch
    from tests.fuzz.test_fuzz_batches import look_at, produce, sealed

from tests.fuzz.atheris_runner import run

NAMES = tuple(TOPICS)
RIGHT_CHECKSUM = 0x80
# Looking at everything that is stored takes longer than storing it.
LOOK_EVERY = 50

_fed = 0


def feed(node: FuzzNode, data: bytes) -> None:
    global _fed
    if not data:
        return
    _fed += 1
    topic = NAMES[data[0] % len(NAMES)]
    batch = data[1:]
    produce(node, topic, sealed(batch) if data[0] & RIGHT_CHECKSUM else batch)
    if _fed % LOOK_EVERY == 0:
        look_at(node, topic)


def seeds() -> Iterator[bytes]:
    chance = random.Random(1)
    for topic in range(len(NAMES)):
        for _ in range(20):
            yield bytes([topic | RIGHT_CHECKSUM]) + sample_batch(chance)


if __name__ == "__main__":
    run(feed, seeds())
