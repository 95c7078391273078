"""Those who wait for this node to have read the metadata log up to some offset, so that a client sees what it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moldau.metadata.delta import ImageDelta
from moldau.metadata.image import ClusterImage
from moldau.metadata.publisher import MetadataLoader
from moldau.ports import Clock, Timer

# A node that is this far behind answers all the same: the change was made.
LONGEST_WAIT_MS: Final = 2000


class ImageWaiters:
    __slots__ = ("_clock", "_loader", "_waiting")

    def __init__(self, loader: MetadataLoader, clock: Clock) -> None:
        self._loader = loader
        self._clock = clock
        self._waiting: list[tuple[int, Callable[[], None], Timer]] = []
        loader.add_publisher(self._published)

    def wait(self, offset: int, run: Callable[[], None]) -> None:
        """Run when the node's image has everything up to this offset, or when waiting longer is of no use."""
        if self._loader.image.offset >= offset:
            run()
            return
        timer = self._clock.call_later(LONGEST_WAIT_MS, lambda: self._give_up(run))
        self._waiting.append((offset, run, timer))

    def _published(self, delta: ImageDelta, image: ClusterImage) -> None:
        if not self._waiting:
            return
        ready = [each for each in self._waiting if each[0] <= image.offset]
        self._waiting = [each for each in self._waiting if each[0] > image.offset]
        for _, run, timer in ready:
            timer.cancel()
            run()

    def _give_up(self, run: Callable[[], None]) -> None:
        self._waiting = [each for each in self._waiting if each[1] is not run]
        run()
