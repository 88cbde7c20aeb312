"""A plan for one graph that has the budget to itself."""

from __future__ import annotations

from typing import NoReturn

import remat

from ..base.progress import ProgressLine
from ..base.units import exact_bytes
from .problem import Found, Problem
from .search import search


def plan_alone(problem: Problem, progress: ProgressLine | None = None) -> Found:
    """Raises InfeasibleError where the budget is proved impossible, NoPlanError where nothing was found."""
    graph = problem.graph
    target = problem.target
    if problem.on_reserved is None:
        target = min(target, graph.keep_all_peak)
    result = search(graph, target, problem.options, progress, problem.on_reserved)
    if result.plan is None:
        _raise_no_plan(result, problem)
    return Found.of(result)


def _raise_no_plan(result: remat.PlanResult, problem: Problem) -> NoReturn:
    """In bytes of the whole step, reserve included: the numbers of the result are those of the graph
    alone.
    """
    floor = result.peak_lower_bound + problem.reserve
    try:
        result.raise_if_no_plan()
    except remat.NoPlanError as error:
        known = error.smallest_known + problem.beside
        if problem.on_reserved is None:
            known = min(known, problem.keep_all_peak + problem.reserve)
    reserved = f", {exact_bytes(problem.reserve)} of them reserved" if problem.reserve else ""
    numbers = (
        f"none goes below {problem.amount(floor)}{reserved}; "
        f"smallest budget known to work: {problem.amount(known)}"
    )
    # With a segment left for what was there before the step, it is proved only where the floor says so.
    if result.status == "infeasible" and (problem.on_reserved is None or floor > problem.budget):
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
