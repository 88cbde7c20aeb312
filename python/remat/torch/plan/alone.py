"""A plan for one graph that has the budget to itself."""

from __future__ import annotations

from typing import NoReturn

import remat

from ..base.progress import ProgressLine
from .problem import Found, Problem
from .search import search


def plan_alone(problem: Problem, progress: ProgressLine | None = None) -> Found:
    """Raises InfeasibleError where the budget is proved impossible, NoPlanError where nothing was found."""
    graph, budget, reserve = problem.graph, problem.budget, problem.reserve
    keeps_all = problem.keep_all_peak + reserve <= budget
    target = graph.keep_all_peak if keeps_all else budget - problem.fixed
    if target <= 0:
        floor, known = graph.floor + reserve, problem.keep_all_peak + reserve
        raise remat.InfeasibleError(
            f"the budget of {budget} bytes is impossible for this step: none goes below {floor} bytes, "
            f"{reserve} of them reserved; smallest budget known to work: {known}",
            floor=floor,
            smallest_known=known,
        )
    result = search(graph, target, problem.options, progress)
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
        known = min(problem.graph.keep_all_peak + problem.reserve, error.smallest_known + problem.fixed)
    numbers = f"none goes below {floor} bytes; smallest budget known to work: {known}"
    if result.status == "infeasible":
        raise remat.InfeasibleError(
            f"the budget of {problem.budget} bytes is impossible for this step: {numbers}",
            floor=floor,
            smallest_known=known,
        )
    raise remat.NoPlanError(
        f"no plan within the budget of {problem.budget} bytes was found in {result.seconds:.1f} s "
        f"(stopped by {result.stopped_by}); {numbers}",
        floor=floor,
        smallest_known=known,
    )
