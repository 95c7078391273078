"""The clock that tests move by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.testing.clock import VirtualClock


def test_time_stands_still_until_it_is_moved() -> None:
    clock = VirtualClock(wall_ms=5_000, monotonic_ms=10)
    assert (clock.now_ms(), clock.monotonic_ms()) == (5_000, 10)
    clock.advance(7)
    assert (clock.now_ms(), clock.monotonic_ms()) == (5_007, 17)


def test_a_timer_runs_at_its_own_moment_and_once() -> None:
    clock = VirtualClock()
    start = clock.monotonic_ms()
    ran: list[int] = []
    clock.call_later(5, lambda: ran.append(clock.monotonic_ms() - start))
    clock.advance(4)
    assert ran == []
    clock.advance(10)
    clock.advance(10)
    assert ran == [5]


def test_a_timer_that_is_taken_back_does_not_run() -> None:
    clock = VirtualClock()
    ran: list[str] = []
    timer = clock.call_later(5, lambda: ran.append("late"))
    assert (clock.waiting, clock.next_due_ms()) == (1, 5)
    timer.cancel()
    assert (clock.waiting, clock.next_due_ms()) == (0, None)
    clock.advance(10)
    assert ran == []


def test_a_timer_may_set_another_that_is_due_on_the_way() -> None:
    clock = VirtualClock()
    start = clock.monotonic_ms()
    ran: list[int] = []

    def tick() -> None:
        ran.append(clock.monotonic_ms() - start)
        if len(ran) < 3:
            clock.call_later(2, tick)

    clock.call_later(0, tick)
    clock.advance(10)
    assert ran == [0, 2, 4]


@given(st.lists(st.integers(0, 50), max_size=20), st.lists(st.integers(0, 20), max_size=10))
def test_timers_run_in_the_order_they_are_due(delays: list[int], steps: list[int]) -> None:
    clock = VirtualClock()
    ran: list[tuple[int, int]] = []
    for number, delay in enumerate(delays):
        clock.call_later(delay, lambda number=number, delay=delay: ran.append((delay, number)))
    for step in steps:
        clock.advance(step)
    passed = sum(steps)
    expected = [(delay, number) for number, delay in enumerate(delays) if delay <= passed and steps]
    assert ran == sorted(expected)
