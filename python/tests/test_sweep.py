"""Sweeps, and the plans that a process remembers."""

from __future__ import annotations

import pytest
import remat
from graphs import chain


def test_overhead_never_falls_as_the_budget_falls() -> None:
    graph = chain(12)
    result = remat.sweep(graph, points=6, time_limit=None, work_limit=200_000)
    overheads = [point.overhead for point in result.points]
    assert overheads == sorted(overheads)
    assert overheads[0] == 0.0
    assert result.points[0].budget == result.keep_all_peak == graph.keep_all_peak
    assert result.points[-1].budget == result.smallest_peak >= result.peak_lower_bound
    for point in result.points:
        assert remat.check(graph, point.plan).peak == point.peak <= point.budget


@pytest.mark.parametrize("points", [1, 1001, 10**6, -5])
def test_the_number_of_points_has_the_limits_of_the_command_line(points: int) -> None:
    with pytest.raises(remat.UsageError, match=f"2 to 1000 points, not {points}"):
        remat.sweep(chain(3), points=points)


def test_progress_reaches_the_caller_of_a_sweep() -> None:
    seen: list[str] = []
    remat.sweep(chain(12), points=3, planner="tw_remat", progress=lambda planner, *rest: seen.append(planner))
    assert set(seen) == {"tw_remat"}


def test_more_memory_is_never_slower_in_one_process() -> None:
    graph = chain(16)
    best = remat.plan(graph, "60%", time_limit=0.3)
    assert best.overhead is not None
    later = remat.plan(graph, "65%", planner="search", time_limit=0.0)
    assert later.overhead is not None
    assert later.overhead <= best.overhead


def test_a_work_limit_asks_for_the_same_plan_whatever_came_before() -> None:
    graph = chain(16)
    before = remat.plan(graph, "60%", time_limit=None, work_limit=30_000)
    remat.plan(graph, "60%", time_limit=0.2)
    after = remat.plan(graph, "60%", time_limit=None, work_limit=30_000)
    assert before.plan is not None
    assert after.plan is not None
    assert before.plan.steps == after.plan.steps
