"""A plan for a recorded step: the fastest within the budget of those that eager mode can carry out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import remat

from ..base.units import exact_bytes
from ..plan.options import Options
from ..plan.report import PlanReport
from .recorded import Around, Record, StepGraph

# Budgets that are asked for in turn where what has to run again besides takes more than was planned.
_TRIES = 6
_PLANNER = "eager"


@dataclass(frozen=True, eq=False)
class EagerPlan:
    """What runs again. functions: the ops of the forward, in their order; again: numbers of ops."""

    functions: Sequence[Any]
    again: frozenset[int]
    report: PlanReport


def plan_record(
    record: Record, around: Around, options: Options, forbidden: Collection[int] = (), less: int = 0
) -> EagerPlan:
    """Plans a recorded step.

    options: with all that is reserved in `reserve`. forbidden: ops that run once. less: bytes that the plan
    stays below the budget, because the step was measured to need so many more.

    Raises InfeasibleError where the budget is proved to be too small, NoPlanError where nothing was found.
    """
    step = StepGraph(record, around, forbidden)
    graph, reserve = step.graph, options.size("reserve")
    whole = graph.keep_all_peak + reserve
    budget = remat.parse_bytes(options.budget, whole, floor=graph.floor + reserve)
    limit = budget - reserve - less
    target = min(limit, graph.keep_all_peak)
    for _ in range(_TRIES):
        result = _planned(graph, max(1, target), options)
        if result.plan is None:
            break
        again = step.closed(step.again(result.plan.steps))
        steps = step.plan_of(again)
        plan = remat.Plan(graph, steps, budget=None)
        if (plan.peak or 0) <= limit:
            return EagerPlan(
                record.functions, frozenset(again), _report(step, plan, result, budget, reserve, around)
            )
        target -= (plan.peak or 0) - limit
    known = min(result.smallest_known_budget(), graph.keep_all_peak) + reserve + less
    raise _no_plan(result, budget, known, graph.floor + reserve)


def _planned(graph: remat.Graph, target: int, options: Options) -> remat.PlanResult:
    effort = options.effort()
    if options.time_limit is None and options.work_limit is None:
        effort["time_limit"] = min(10.0, 0.5 + graph.num_ops / 500)
    return remat.plan(graph, target, door="inductor", **effort)


def _no_plan(result: remat.PlanResult, budget: int, known: int, floor: int) -> remat.NoPlanError:
    numbers = f"smallest budget known to work: {exact_bytes(known)}"
    if result.status == "infeasible":
        return remat.InfeasibleError(
            f'the budget of {exact_bytes(budget)} is impossible for this step with executor="eager", where '
            f"each op runs again once at most: {numbers}",
            floor=floor,
            smallest_known=known,
        )
    return remat.NoPlanError(
        f"no plan within the budget of {exact_bytes(budget)} was found in {result.seconds:.1f} s (stopped by "
        f"{result.stopped_by}); {numbers}",
        floor=floor,
        smallest_known=known,
    )


def _report(
    step: StepGraph,
    plan: remat.Plan,
    result: remat.PlanResult,
    budget: int,
    reserve: int,
    around: Around,
) -> PlanReport:
    existing = sum(step.record.values[v].bytes for v in step.record.gradients) if around.adds else 0
    graph, steps = step.graph, list(plan.steps)
    memory = [int(each) + reserve for each in remat.simulate(graph, steps).memory]
    peak = max(memory)
    least = min(result.duration_lower_bound, plan.duration or 0)
    return PlanReport(
        name="step_0",
        graph=graph,
        plan=plan,
        status=result.status if list(result.plan.steps) == steps else "feasible",
        planner=_PLANNER,
        budget=budget,
        reserve=reserve,
        predicted_peak=peak,
        keep_all_peak=graph.keep_all_peak + reserve,
        overhead=plan.overhead or 0.0,
        peak_lower_bound=graph.floor + reserve,
        duration_lower_bound=least,
        ops=graph.num_ops,
        recomputed_steps=len(steps) - graph.num_ops,
        fixed=reserve,
        rise=peak - reserve - int(graph.resident),
        existing_gradients=existing,
        memory=memory,
    )
