"""The calls that plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from remat import _core
from remat._core import Graph, PlanResult, SweepResult

Progress = Callable[[str, float, "int | None", "int | None", bool], object]


def plan(
    graph: Graph,
    budget: int | str | None = None,
    planner: str = "auto",
    order: Literal["fixed", "free"] = "fixed",
    objective: Literal["time", "peak"] = "time",
    time_limit: float | None = 10.0,
    work_limit: int | None = None,
    seed: int = 0,
    threads: int = 1,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    check: bool = False,
) -> PlanResult:
    """Looks for the fastest plan whose peak is within the budget.

    Args:
        graph: what to plan.
        budget: bytes, ``"6GiB"``, ``"800MB"`` or ``"75%"`` of ``graph.keep_all_peak``; it covers everything,
            graph inputs included. None: no budget.
        planner: name of one of :func:`remat.planners`.
        order: ``"fixed"``: first runs follow the graph's order; ``"free"``: any valid sequence.
        objective: ``"time"``: least duration within the budget; ``"peak"``: least peak, then least duration,
            which takes no budget.
        time_limit: seconds of wall clock, or None.
        work_limit: deterministic units of work, or None. With a work limit, no time limit and a seed the same
            plan comes out on every machine.
        seed: of the planner's random numbers, 0 or more.
        threads: how many the planner may use.
        options: of the planner itself, by name.
        progress: called on the calling thread for each better plan, as ``progress(planner, seconds, peak,
            duration, within_budget)``; what it raises stops the planner and is raised here.
        check: raise an error if no plan within the budget was found, instead of returning such a result.

    Within one process more memory never gives a slower plan: "auto" and "search" start from the plans that
    earlier calls found for the same graph and order, unless there is a work limit.

    The planner runs without the GIL. Ctrl-C stops it and returns the best plan so far, with
    ``stopped_by == "interrupted"``; a second Ctrl-C before it has stopped raises KeyboardInterrupt.

    Raises:
        BudgetError: a budget that is not a positive amount of bytes.
        UsageError: an unknown planner or option, or a value that it cannot take.
        InfeasibleError: only with `check`: proved that no plan fits.
        NoPlanError: only with `check`: nothing found within the limits.
    """
    result = _core.plan(
        graph,
        budget,
        planner,
        order,
        objective,
        time_limit,
        work_limit,
        seed,
        threads,
        dict(options or {}),
        progress,
    )
    if check:
        result.raise_if_no_plan()
    return result


def sweep(
    graph: Graph,
    points: int = 20,
    planner: str = "auto",
    order: Literal["fixed", "free"] = "fixed",
    time_limit: float | None = 10.0,
    work_limit: int | None = None,
    seed: int = 0,
    threads: int = 1,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> SweepResult:
    """Overhead against memory, from the keep-all peak down to the smallest peak found, in one run.

    Plans are shared between the budgets: overhead never falls as the budget falls. The limits hold for the
    whole sweep; once they are reached the points known so far come back.

    Args:
        graph: what to plan.
        points: how many budgets, 2 to 1000, evenly spaced.

    The others are those of :func:`plan`.

    Raises:
        UsageError: an unknown planner or option, or a number of points outside [2, 1000].
    """
    return _core.sweep(
        graph, points, planner, order, time_limit, work_limit, seed, threads, dict(options or {}), progress
    )
