"""A plan for one graph with the whole budget."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import remat

from ..base.progress import ProgressLine
from ..base.units import exact_bytes
from .options import Options
from .problem import Found, Problem
from .search import least_plan, search, seconds_for

# If a pool and the memory beside it exceed the budget: shares of the excess by which the target is lowered.
_LESS = (0.25, 0.5, 1.0)
# Extra overhead accepted for a larger pool.
_WORTH = 0.01


def plan_alone(problem: Problem, progress: ProgressLine | None = None) -> Found:
    """Raises InfeasibleError if the budget is proved impossible, NoPlanError if no plan was found."""
    if problem.placeable is not None:
        return Found.of(_plan_in_arena(problem, progress))
    graph = problem.graph
    target = problem.target
    if problem.on_reserved is None:
        target = min(target, graph.keep_all_peak)
    result = search(graph, target, problem.options, progress, problem.on_reserved)
    if result.plan is None:
        _raise_no_plan(result, problem)
    return Found.of(result)


def _plan_in_arena(problem: Problem, progress: ProgressLine | None) -> remat.PlanResult:
    """A plan within the budget with a large pool. Live bytes may be fewer than the budget allows, to enlarge
    the pool, if that costs almost nothing.
    """
    target = min(problem.target, problem.graph.keep_all_peak)
    first = best = search(problem.graph, target, _share(problem.options, problem.graph, 2), progress)
    if first.plan is None:
        _raise_no_plan(first, problem)
    whole, arena = problem.arranged(first.plan, within=False), problem.arranged(first.plan)
    assert whole is not None
    assert arena is not None
    most, excess = arena.written, whole.peak - problem.target
    for less in _LESS if excess > 0 else ():
        options = _share(problem.options, problem.graph, 2 * len(_LESS))
        result = search(problem.graph, target - int(less * excess), options, progress)
        if result.plan is None or (result.plan.overhead or 0.0) > (first.plan.overhead or 0.0) + _WORTH:
            break
        arena = problem.arranged(result.plan)
        assert arena is not None
        if arena.written > most:
            best, most = result, arena.written
    return best


def _share(options: Options, graph: remat.Graph, parts: int) -> Options:
    """The options with one of `parts` parts of the limits."""
    seconds, work = options.time_limit, options.work_limit
    if seconds is None and work is None:
        return replace(options, time_limit=seconds_for(graph) / parts, gap=options.settled_gap)
    return replace(
        options,
        time_limit=None if seconds is None else seconds / parts,
        work_limit=None if work is None else max(1, work // parts),
    )


def _raise_no_plan(result: remat.PlanResult, problem: Problem) -> NoReturn:
    """Raises the error, in bytes of the whole step, reserve included; the result has those of the graph
    alone.
    """
    floor = problem.proved(result.peak_lower_bound + problem.reserve)
    known = _smallest_known(result, problem)
    reserved = f", {exact_bytes(problem.reserve)} of them reserved" if problem.reserve else ""
    below = f"none goes below {problem.amount(floor)}{reserved}; " if problem.held is None else ""
    numbers = f"{below}smallest budget known to work: {problem.amount(known)}"
    # With a segment reserved for existing memory, infeasibility is proved only by the floor.
    is_proved = floor > problem.budget or (problem.on_reserved is None and problem.held is None)
    if result.status == "infeasible" and is_proved:
        raise remat.InfeasibleError(
            f"the budget of {problem.amount(problem.budget)} is impossible for this step: {numbers}",
            floor=floor,
            smallest_known=known,
        )
    raise remat.NoPlanError(
        f"no plan within the budget of {problem.amount(problem.budget)} was found in {result.seconds:.1f} s "
        f"(stopped by {result.stopped_by}); {numbers}",
        floor=floor,
        smallest_known=known,
    )


def _smallest_known(result: remat.PlanResult, problem: Problem) -> int:
    """By a work limit, so that other processes name the same budget and find a plan there (`search`)."""
    if problem.on_reserved is not None or problem.host is not None:
        known = int(result.smallest_known_budget()) + problem.beside
        return (
            known if problem.on_reserved is not None else min(known, problem.keep_all_peak + problem.reserve)
        )
    least = least_plan(problem.graph, problem.options)
    return min(least.peak or problem.keep_all_peak, problem.keep_all_peak) + problem.reserve
