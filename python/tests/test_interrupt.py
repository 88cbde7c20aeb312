"""While a planner runs: Ctrl-C, signals, progress, other threads; on a problem that no planner ends."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import remat
from graphs import chain

pytestmark = pytest.mark.usefixtures("ctrl_c_works")

LIMIT_S = 60.0
BUDGET = "8%"


@pytest.fixture(scope="module")
def graph() -> remat.Graph:
    return chain(300, size=1000, duration=7)


def plan(graph: remat.Graph, **arguments: Any) -> remat.PlanResult:
    return remat.plan(graph, BUDGET, time_limit=LIMIT_S, **arguments)


@contextmanager
def signals(number: int, *delays: float) -> Iterator[None]:
    """Sends the signal to this process after each delay, from another thread."""
    threads = [threading.Timer(delay, signal.raise_signal, [number]) for delay in delays]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.cancel()
            thread.join()


def test_ctrl_c_stops_the_planner_and_keeps_its_plan(graph: remat.Graph) -> None:
    start = time.monotonic()
    with signals(signal.SIGINT, 1.0):
        r = plan(graph)
    assert time.monotonic() - start < LIMIT_S / 2
    assert r.stopped_by == "interrupted"
    assert r.status == "feasible"
    assert r.plan is not None
    assert remat.check(graph, r.plan).peak <= graph.keep_all_peak * 0.08


def test_what_another_signal_handler_raises_ends_the_call(graph: remat.Graph) -> None:
    def handler(*_: object) -> None:
        raise TimeoutError("alarm")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with signals(signal.SIGUSR1, 0.3), pytest.raises(TimeoutError, match="alarm"):
            plan(graph)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_other_threads_go_on_while_planning(graph: remat.Graph) -> None:
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.01):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.monotonic()
    remat.plan(graph, BUDGET, time_limit=1.0)
    end = time.monotonic()
    stop.set()
    thread.join()
    during = [t for t in ticks if start <= t <= end]
    assert len(during) >= 10
    assert max(b - a for a, b in itertools.pairwise(during)) < (end - start) / 2


def test_two_threads_plan_at_once(graph: remat.Graph) -> None:
    results: list[remat.PlanResult] = []
    threads = [
        threading.Thread(
            target=lambda: results.append(remat.plan(graph, BUDGET, time_limit=None, work_limit=20000))
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    assert results[0].plan == results[1].plan


def test_progress_comes_in_order_on_the_calling_thread(graph: remat.Graph) -> None:
    calls: list[tuple[str, float, int | None, int | None, bool]] = []
    threads: set[int] = set()

    def progress(planner: str, seconds: float, peak: int | None, duration: int | None, within: bool) -> None:
        threads.add(threading.get_ident())
        calls.append((planner, seconds, peak, duration, within))

    r = remat.plan(graph, BUDGET, time_limit=2.0, progress=progress)
    assert threads == {threading.get_ident()}
    # "known": a plan that an earlier call found.
    assert {planner for planner, *_ in calls} <= {p.name for p in remat.planners()} | {"known"}
    assert r.duration is not None
    within = [(peak, duration) for *_, peak, duration, ok in calls if ok]
    assert within
    assert all(isinstance(peak, int) and isinstance(duration, int) for peak, duration in within)
    assert min(duration for _, duration in within if duration is not None) >= r.duration


def test_what_progress_raises_stops_the_planner_and_comes_out(graph: remat.Graph) -> None:
    def progress(*_: object) -> None:
        raise LookupError("enough")

    start = time.monotonic()
    with pytest.raises(LookupError, match="enough"):
        plan(graph, progress=progress)
    assert time.monotonic() - start < LIMIT_S / 2
