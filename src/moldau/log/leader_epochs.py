"""Which leader epoch began at which offset, and the checkpoint file that remembers it.

Replicas compare these to find where their logs part ways. An epoch is written down lazily: every batch carries its
epoch, so what a crash loses is found again when the log is recovered; `write` must run before the recovery point moves,
and before compaction removes batches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Final

from moldau.log.checkpoints import CheckpointError, parse_lines, render_lines
from moldau.ports import Disk

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1


class LeaderEpochs:
    """Epochs and their first offsets, both increasing. The file is read at the first question."""

    __slots__ = ("_dirty", "_disk", "_epochs", "_from_batches", "_loaded", "_starts", "path")

    def __init__(
        self, disk: Disk, path: str, *, exists: bool, from_batches: Callable[[], Iterable[tuple[int, int]]]
    ) -> None:
        """`from_batches` gives (epoch, base offset) of every batch, for when the file cannot be read."""
        self._disk = disk
        self.path = path
        self._from_batches = from_batches
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._loaded = not exists
        self._dirty = False

    def _load(self) -> list[int]:
        if not self._loaded:
            self._loaded = True
            try:
                data = self._disk.read_bytes(self.path)
                if not data.endswith(b"\n"):
                    raise CheckpointError(f"{self.path} is cut off")
                lines = parse_lines(data, 2)
                entries = [(int(epoch), int(start)) for epoch, start in lines]
            except FileNotFoundError:
                entries = []
            except ValueError:
                for epoch, start in self._from_batches():
                    self.assign(epoch, start)
                return self._epochs
            self._epochs = [epoch for epoch, _ in entries]
            self._starts = [start for _, start in entries]
        return self._epochs

    @property
    def latest(self) -> int:
        epochs = self._load()
        return epochs[-1] if epochs else NO_EPOCH

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._load(), self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """A batch of `epoch` begins at this offset; remembered when the epoch is new."""
        epochs = self._load()
        if epoch <= (epochs[-1] if epochs else NO_EPOCH):
            return
        # An epoch without records says nothing: the newer one takes its place.
        while self._starts and self._starts[-1] >= start_offset:
            self._starts.pop()
            epochs.pop()
        epochs.append(epoch)
        self._starts.append(start_offset)
        self._dirty = True

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(largest epoch not above `epoch`, its end offset); (-1, -1) when nothing can be said."""
        epochs = self._load()
        if not epochs or epoch == NO_EPOCH or epoch > epochs[-1]:
            return NO_EPOCH, NO_OFFSET
        if epoch == epochs[-1]:
            return epoch, log_end_offset
        after = bisect_right(epochs, epoch)
        if after == 0:
            return epoch, self._starts[0]
        return epochs[after - 1], self._starts[after]

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at this offset; -1 when it is older than everything known."""
        epochs = self._load()
        i = bisect_right(self._starts, offset) - 1
        return epochs[i] if i >= 0 else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that begin at or after the end of the log."""
        epochs = self._load()
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            epochs.pop()
            self._dirty = True

    def take_from(self, offset: int) -> list[tuple[int, int]]:
        """Forget the epochs that begin at or after this offset, and say which they were."""
        taken = [(epoch, start) for epoch, start in self.entries() if start >= offset]
        self.truncate_from_end(offset)
        return taken

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget the epochs that ended before the log begins; the one it begins with begins there."""
        epochs = self._load()
        last = bisect_right(self._starts, start_offset) - 1
        if last < 0 or (last == 0 and self._starts[0] == start_offset):
            return
        del epochs[:last]
        del self._starts[:last]
        self._starts[0] = start_offset
        self._dirty = True

    def replace(self, entries: Iterable[tuple[int, int]]) -> None:
        """Know what another replica of the same log knows."""
        self.clear()
        for epoch, start in entries:
            self._epochs.append(epoch)
            self._starts.append(start)

    def clear(self) -> None:
        self._loaded = True
        self._epochs.clear()
        self._starts.clear()
        self._dirty = True

    def write(self, *, sync: bool = True) -> None:
        """Write the checkpoint if something changed since. A file that a power cut tore is noticed when it is read."""
        if self._dirty:
            self._disk.write_atomically(self.path, render_lines(0, self.entries()), sync=sync)
            self._dirty = False
