"""A plan for a recorded step: the fastest within the budget of those that eager mode can carry out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import remat

from ..base.units import exact_bytes
from ..plan.options import Options
from ..plan.report import EAGER_PLANNER, PlanReport
from ..plan.screen import BRIEF_WORK, Remembered
from .leaving import levels
from .passing import passing
from .recorded import Around, Record, StepGraph
from .recorder import BACKWARD

# Budgets that are asked for in turn where what has to run again besides takes more than was planned.
_TRIES = 6
# Of a search for the least peak, for messages: rounds, work in each, and as near to it as is enough.
_HALVINGS, _WORK_FOR_EACH_OP, _NEAR = 7, 80, 0.005


@dataclass(frozen=True, eq=False)
class EagerPlan:
    """What runs again. functions: the ops of the forward, in their order; again: numbers of ops. levels: the
    bytes that are in use after each op of the forward. made: bytes of new memory that each makes. record: of
    the step; op_of: by op of it, that of the report's graph, if it is one.
    """

    functions: Sequence[Any]
    again: frozenset[int]
    report: PlanReport
    levels: Sequence[int]
    made: Sequence[int]
    record: Record
    op_of: Mapping[int, int]

    @cached_property
    def passing(self) -> Any:
        """Ops that need not be seen (passing.py)."""
        return passing(self.functions, self.again)

    def backward(self) -> tuple[list[int], list[Any]]:
        """Numbers and functions of the ops of the record's backward."""
        ops = [op for op in self.record.ops if op.phase == BACKWARD]
        return [op.number for op in ops], [op.func for op in ops]

    def after_forward(self) -> int:
        """Bytes that are in use then."""
        return self.levels[-1] if self.levels else 0


@dataclass(frozen=True)
class Missed:
    """No plan was found. budget, floor: bytes of the whole step."""

    result: remat.PlanResult
    budget: int
    floor: int

    def error(self, known: int) -> remat.NoPlanError:
        """known: a budget that works."""
        numbers = f"smallest budget known to work: {exact_bytes(known)}"
        if self.result.status == "infeasible":
            return remat.InfeasibleError(
                f"the budget of {exact_bytes(self.budget)} is impossible for this step with "
                f'executor="eager", where each op runs again once at most: {numbers}',
                floor=self.floor,
                smallest_known=known,
            )
        return remat.NoPlanError(
            f"no plan within the budget of {exact_bytes(self.budget)} was found in "
            f"{self.result.seconds:.1f} s (stopped by {self.result.stopped_by}); {numbers}",
            floor=self.floor,
            smallest_known=known,
        )


def plan_record(
    record: Record, around: Around, options: Options, forbidden: Collection[int] = (), less: int = 0
) -> EagerPlan | Missed:
    """Plans a recorded step.

    options: with all that is reserved in `reserve`. forbidden: ops that run once. less: bytes that the plan
    stays below the budget, because the step was measured to need so many more.
    """
    step = StepGraph(record, around, forbidden)
    graph, reserve = step.graph, options.size("reserve")
    floor = graph.floor + reserve
    budget = remat.parse_bytes(options.budget, graph.keep_all_peak + reserve, floor=floor)
    found = within(step, budget - reserve - less, options)
    if isinstance(found, remat.PlanResult):
        return Missed(found, budget, floor)
    # It may take several tries.
    briefly = replace(options, time_limit=None, work_limit=BRIEF_WORK // 4, gap=None)

    def overhead(more: int) -> float | None:
        other = within(step, more - reserve - less, briefly)
        return other.report.overhead if isinstance(other, EagerPlan) else None

    return replace(found, report=replace(found.report, budget=budget, within=Remembered(overhead)))


def least_plan(
    record: Record, around: Around, options: Options, forbidden: Collection[int] = (), enough: int = 0
) -> EagerPlan:
    """The plan of least peak that a short search finds. It looks at no durations, so that it is the same for
    each record of the step. enough: bytes of the whole step; a plan within them is not searched below.
    """
    step = StepGraph(record, around, forbidden, timed=False)
    work = _WORK_FOR_EACH_OP * step.graph.num_ops
    briefly = replace(options, time_limit=None, work_limit=work, gap=None)
    low, high = step.graph.floor, step.graph.keep_all_peak
    enough -= options.size("reserve")
    again: frozenset[int] = frozenset()
    for _ in range(_HALVINGS):
        if high - low <= _NEAR * high or high <= enough:
            break
        target = max((low + high) // 2, enough)
        found = within(step, target, briefly)
        if isinstance(found, EagerPlan):
            again, high = found.again, found.report.predicted_peak - found.report.reserve
        else:
            low = target
    timed = StepGraph(record, around, forbidden)
    plan = remat.Plan(timed.graph, timed.plan_of(set(again)))
    return _eager_plan(timed, again, _report(timed, plan, None, options))


def within(step: StepGraph, limit: int, options: Options) -> EagerPlan | remat.PlanResult:
    """A plan that needs so many bytes beside the reserve, or what was found in its place."""
    graph = step.graph
    target = min(limit, graph.keep_all_peak)
    for _ in range(_TRIES):
        result = _planned(step.charged, max(1, target), options)
        if result.plan is None:
            break
        again = step.closed(step.again(result.plan.steps))
        plan = remat.Plan(graph, step.plan_of(again))
        if (plan.peak or 0) <= limit:
            report = replace(_report(step, plan, result, options), asked=target + options.size("reserve"))
            return _eager_plan(step, frozenset(again), report)
        # What has to run again besides takes more.
        target -= (plan.peak or 0) - limit
    return result


def _eager_plan(step: StepGraph, again: frozenset[int], report: PlanReport) -> EagerPlan:
    memory = [each - report.reserve for each in report.memory]
    record = step.record
    made = [sum(record.values[v].bytes for v in op.made) for op in record.ops[: len(record.functions)]]
    return EagerPlan(record.functions, again, report, levels(step, memory), made, record, step.op_of)


def _planned(graph: remat.Graph, target: int, options: Options) -> remat.PlanResult:
    effort = options.effort()
    if options.time_limit is None and options.work_limit is None:
        effort["time_limit"] = _seconds_for(graph.num_ops)
    return remat.plan(graph, target, door="inductor", **effort)


def _seconds_for(ops: int) -> float:
    """Of a search. Plans after ten times as long were the same."""
    return min(10.0, 0.25 + min(ops, 1000) / 4000 + max(0, ops - 1000) / 20000)


def _report(
    step: StepGraph, plan: remat.Plan, result: remat.PlanResult | None, options: Options
) -> PlanReport:
    """result: of the planner, whose bound and proof hold for the plan if it is that one. Times are with what
    second runs cost besides.
    """
    around, reserve = step.around, options.size("reserve")
    existing = sum(step.record.values[v].bytes for v in step.record.gradients) if around.adds else 0
    graph, steps = step.graph, list(plan.steps)
    memory = [int(each) + reserve for each in remat.simulate(graph, steps).memory]
    peak = max(memory)
    same = result is not None and result.plan is not None and list(result.plan.steps) == steps
    least = 0 if result is None else result.duration_lower_bound - step.charges()
    duration = (plan.duration or 0) + step.charge(step.again(steps))
    return PlanReport(
        name="step_0",
        graph=graph,
        plan=plan,
        status=result.status if result is not None and same else "feasible",
        planner=EAGER_PLANNER,
        budget=peak,
        reserve=reserve,
        predicted_peak=peak,
        keep_all_peak=graph.keep_all_peak + reserve,
        overhead=duration / max(1, graph.base_duration) - 1,
        peak_lower_bound=graph.floor + reserve,
        duration_lower_bound=min(max(least, graph.base_duration), duration),
        ops=graph.num_ops,
        recomputed_steps=len(steps) - graph.num_ops,
        fixed=reserve,
        rise=peak - reserve - int(graph.resident),
        existing_gradients=existing,
        memory=memory,
    )
