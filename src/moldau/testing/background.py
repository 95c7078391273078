"""`ports.Background` for tests: work waits until it is asked to run, step by step or to its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

Done = Callable[[BaseException | None], None]


class SteppedBackground:
    """Jobs take turns, one step each, and only when `step` or `run_all` is called."""

    def __init__(self) -> None:
        self._jobs: deque[tuple[Iterator[None], Done | None]] = deque()

    def run(self, steps: Iterator[None], done: Done | None = None) -> None:
        self._jobs.append((steps, done))

    @property
    def idle(self) -> bool:
        return not self._jobs

    def step(self) -> bool:
        """Run one step of the job whose turn it is; False when there is nothing to do.

        An exception ends its job and goes to whoever waits for it; without anybody waiting it is raised here.
        """
        if not self._jobs:
            return False
        steps, done = self._jobs.popleft()
        try:
            next(steps)
        except StopIteration:
            if done is not None:
                done(None)
        except Exception as error:
            if done is None:
                raise
            done(error)
        else:
            self._jobs.append((steps, done))
        return True

    def run_all(self, limit: int = 1_000_000) -> int:
        """Run everything to its end; how many steps that took."""
        for count in range(limit):
            if not self.step():
                return count
        raise AssertionError(f"the work did not end within {limit} steps")
