"""Work that pauses: others run meanwhile, waiting costs no steps, failures arrive."""

from __future__ import annotations

import errno

import pytest

from moldau.log.pacing import PacedWork, Throttle, run_paced, sync_elsewhere
from moldau.testing.background import SteppedBackground
from moldau.testing.clock import VirtualClock
from moldau.testing.disk import SimulatedDisk


def test_a_pause_lets_the_background_go_idle() -> None:
    clock = VirtualClock()
    background = SteppedBackground()
    seen: list[str] = []

    def work() -> PacedWork:
        seen.append("begin")
        yield None
        yield lambda resume: clock.call_later(50, resume) and None
        seen.append("end")

    ended: list[BaseException | None] = []
    run_paced(background, work(), ended.append)
    background.run_all()
    assert seen == ["begin"]
    assert background.idle
    clock.advance(50)
    background.run_all()
    assert seen == ["begin", "end"]
    assert ended == [None]


def test_a_failure_is_told_to_whoever_waits() -> None:
    background = SteppedBackground()

    def work() -> PacedWork:
        yield None
        raise ValueError("broken")

    ended: list[BaseException | None] = []
    run_paced(background, work(), ended.append)
    background.run_all()
    assert [str(error) for error in ended] == ["broken"]


@pytest.mark.parametrize("fails", [False, True])
def test_waiting_for_a_sync(fails: bool) -> None:
    disk = SimulatedDisk()
    disk.make_dirs("/d")
    disk.hold_syncs = True
    file = disk.open("/d/f")
    background = SteppedBackground()
    ended: list[BaseException | None] = []
    run_paced(background, sync_elsewhere(file), ended.append)
    background.run_all()
    assert ended == []
    if fails:
        disk.fail("sync", errno.EIO)
    disk.finish_syncs()
    background.run_all()
    assert len(ended) == 1
    assert isinstance(ended[0], OSError) == fails


def test_a_throttle_keeps_the_rate() -> None:
    clock = VirtualClock()
    throttle = Throttle(clock, 1_000_000)
    began = clock.monotonic_ms()
    for _ in range(50):
        pause = throttle.charge(100_000)
        if pause is not None:
            resumed: list[bool] = []
            pause(lambda done=resumed: done.append(True))  # type: ignore[misc]
            while not resumed:
                clock.advance(1)
    assert 4_700 <= clock.monotonic_ms() - began <= 5_100


def test_no_throttle_without_a_limit() -> None:
    throttle = Throttle(VirtualClock(), 1.7976931348623157e308)
    assert throttle.charge(1 << 40) is None
    assert Throttle(VirtualClock(), float("inf")).charge(1 << 40) is None
