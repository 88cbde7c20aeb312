"""A plan for a recorded step: the fastest within the budget of those that eager mode can carry out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import remat

from ..base.units import exact_bytes
from ..plan.options import Options
from ..plan.report import PlanReport
from .recorded import Around, Record, StepGraph

# Budgets that are asked for in turn where what has to run again besides takes more than was planned.
_TRIES = 6
# Of a search for the least peak, for messages: rounds, work in each, and as near to it as is enough.
_HALVINGS, _WORK_FOR_EACH_OP, _NEAR = 7, 80, 0.005
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
    found = _within(step, budget - reserve - less, options)
    if isinstance(found, EagerPlan):
        return replace(found, report=replace(found.report, budget=budget))
    known = min(_least(step, options) + reserve + less, max(whole, budget + 1))
    raise _no_plan(found, budget, known, graph.floor + reserve)


def _within(step: StepGraph, limit: int, options: Options) -> EagerPlan | remat.PlanResult:
    """A plan that needs so many bytes beside the reserve, or what was found in its place."""
    graph = step.graph
    target = min(limit, graph.keep_all_peak)
    for _ in range(_TRIES):
        result = _planned(graph, max(1, target), options)
        if result.plan is None:
            break
        again = step.closed(step.again(result.plan.steps))
        plan = remat.Plan(graph, step.plan_of(again))
        if (plan.peak or 0) <= limit:
            return EagerPlan(step.record.functions, frozenset(again), _report(step, plan, result, options))
        # What has to run again besides takes more.
        target -= (plan.peak or 0) - limit
    return result


def _least(step: StepGraph, options: Options) -> int:
    """The least peak of a plan that a short search finds, and a little more: steps are measured, too."""
    work = _WORK_FOR_EACH_OP * step.graph.num_ops
    briefly = replace(options, time_limit=None, work_limit=work, gap=None)
    low, high = step.graph.floor, step.graph.keep_all_peak
    for _ in range(_HALVINGS):
        if high - low <= _NEAR * high:
            break
        found = _within(step, (low + high) // 2, briefly)
        if isinstance(found, EagerPlan):
            high = found.report.predicted_peak - found.report.reserve
        else:
            low = (low + high) // 2
    return int(high * (1 + _NEAR))


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


def _report(step: StepGraph, plan: remat.Plan, result: remat.PlanResult, options: Options) -> PlanReport:
    around, reserve = step.around, options.size("reserve")
    existing = sum(step.record.values[v].bytes for v in step.record.gradients) if around.adds else 0
    graph, steps = step.graph, list(plan.steps)
    memory = [int(each) + reserve for each in remat.simulate(graph, steps).memory]
    peak = max(memory)
    least = min(result.duration_lower_bound, plan.duration or 0)
    return PlanReport(
        name="step_0",
        graph=graph,
        plan=plan,
        status=result.status if result.plan is not None and list(result.plan.steps) == steps else "feasible",
        planner=_PLANNER,
        budget=peak,
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
