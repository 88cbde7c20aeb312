"""The calls that plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from remat import _core
from remat._core import Graph, PlanResult, SweepResult

if TYPE_CHECKING:
    from typing_extensions import Unpack

Progress = Callable[[str, float, "int | None", "int | None", bool], object]


class Effort(TypedDict, total=False):
    """Keywords of all calls that plan: in which order of ops, how long, with what; see :func:`plan`."""

    order: Literal["fixed", "free"]
    time_limit: float | None
    work_limit: int | None
    seed: int
    threads: int
    options: Mapping[str, Any] | None
    progress: Progress | None


class _Settled(TypedDict):
    """`Effort` as the core takes it: nothing left out."""

    order: str
    time_limit: float | None
    work_limit: int | None
    seed: int
    threads: int
    options: dict[str, Any]
    progress: Progress | None


def settled(call: str, given: Effort) -> _Settled:
    """Keywords with defaults for those that are not given. Raises TypeError for one that does not exist."""
    unknown = [name for name in given if name not in Effort.__annotations__]
    if unknown:
        raise TypeError(f"{call}() got an unexpected keyword argument {unknown[0]!r}")
    return {
        "order": given.get("order", "fixed"),
        "time_limit": given.get("time_limit", 10.0),
        "work_limit": given.get("work_limit"),
        "seed": given.get("seed", 0),
        "threads": given.get("threads", 1),
        "options": dict(given.get("options") or {}),
        "progress": given.get("progress"),
    }


def plan(
    graph: Graph,
    budget: int | str | None = None,
    planner: str = "auto",
    *,
    objective: Literal["time", "peak"] = "time",
    check: bool = False,
    **effort: Unpack[Effort],
) -> PlanResult:
    """Looks for the fastest plan whose peak is within the budget.

    Args:
        graph: what to plan.
        budget: bytes, ``"6GiB"``, ``"800MB"`` or ``"75%"`` of ``graph.keep_all_peak``; it covers everything,
            graph inputs included. None: no budget.
        planner: name of one of :func:`remat.planners`.
        objective: ``"time"``: least duration within the budget; ``"peak"``: least peak, then least duration,
            which has to be within the budget if there is one.
        check: raise an error if no plan within the budget was found, instead of returning such a result.

    Keyword Args:
        order: ``"fixed"`` (the default): first runs follow the graph's order; ``"free"``: any valid sequence.
        time_limit: seconds of wall clock, 10.0 by default, or None.
        work_limit: deterministic units of work, None by default. With a work limit, no time limit and a seed
            the same plan comes out on every machine.
        seed: of the planner's random numbers, 0 by default.
        threads: how many the planner may use, 1 by default.
        options: of the planner itself, by name.
        progress: called on the calling thread for each better plan, as ``progress(planner, seconds, peak,
            duration, within_budget)``; what it raises stops the planner and is raised here.

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
    result = _core.plan(graph, budget, planner, objective=objective, **settled("plan", effort))
    if check:
        result.raise_if_no_plan()
    return result


def sweep(graph: Graph, points: int = 20, planner: str = "auto", **effort: Unpack[Effort]) -> SweepResult:
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
    return _core.sweep(graph, points, planner, **settled("sweep", effort))
