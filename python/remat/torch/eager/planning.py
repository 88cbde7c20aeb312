"""A plan for a recorded step: the fastest within the budget of those that eager mode can carry out."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import remat

from ..base.units import exact_bytes
from ..plan.options import Options
from ..plan.report import EAGER_PLANNER, PlanReport
from ..plan.screen import BRIEF_WORK, Remembered
from ..run.copies import Copies, HostPool, lay_out
from .away import Route, Timing, Wish, wishes
from .fetching import Copying
from .leaving import levels
from .passing import passing
from .recorded import Around, Record, StepGraph
from .recorder import BACKWARD

# Budgets tried in turn if additional recomputations need more than planned.
_TRIES = 6
# Most copies back that are tried at another op.
_MOST_MOVED = 200
# With a host: plans with more overhead than this are compared with one without copies.
_LITTLE = 0.02
# Search for the least peak, for messages: rounds, work of each, and tolerance.
_HALVINGS, _WORK_FOR_EACH_OP, _NEAR = 7, 80, 0.005


@dataclass(frozen=True, eq=False)
class EagerPlan:
    """Recomputed ops, and values offloaded to a host. functions: the ops of the forward, in order; again:
    numbers of recomputed ops. levels: bytes in use after each op of the forward. made: bytes of new memory of
    each. record: of the step; op_of: by op of the record, the op of the report's graph, if any. copying:
    offloaded values, if any.
    """

    functions: Sequence[Any]
    again: frozenset[int]
    report: PlanReport
    levels: Sequence[int]
    made: Sequence[int]
    record: Record
    op_of: Mapping[int, int]
    copying: Copying | None = None

    @property
    def away(self) -> frozenset[int]:
        """Ops whose results are not all kept."""
        return self.again if self.copying is None else self.again | self.copying.leaving.keys()

    @cached_property
    def passing(self) -> Any:
        """Ops that need not be seen (passing.py)."""
        seen = self.again if self.copying is None else self.again | self.copying.seen()
        return passing(self.functions, seen | self.readings.keys())

    @property
    def products(self) -> bool:
        return self.record.products

    @property
    def readings(self) -> Mapping[int, Any]:
        return self.record.readings

    def backward(self) -> tuple[list[int], list[Any]]:
        """Numbers and functions of the ops of the record's backward."""
        ops = [op for op in self.record.ops if op.phase == BACKWARD]
        return [op.number for op in ops], [op.func for op in ops]

    def after_forward(self) -> int:
        """Bytes in use after the forward."""
        return self.levels[-1] if self.levels else 0


@dataclass(frozen=True)
class Missed:
    """No plan was found. budget, floor: bytes of the whole step. proved: True if there is none."""

    result: remat.PlanResult
    budget: int
    floor: int
    proved: bool

    def error(self, known: int) -> remat.NoPlanError:
        """known: a budget that works."""
        numbers = f"smallest budget known to work: {exact_bytes(known)}"
        if self.proved:
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
    record: Record,
    around: Around,
    options: Options,
    forbidden: Collection[int] = (),
    less: int = 0,
    pool: HostPool | None = None,
) -> EagerPlan | Missed:
    """Plans a recorded step.

    options: with all that is reserved in `reserve`. forbidden: ops that run once, and whose results stay.
    less: bytes to stay below the budget, since the step was measured to need as many more. pool: of the host,
    if there is one and the plan will run.
    """
    step = step_graph(record, around, options, forbidden)
    graph, reserve = step.graph, options.size("reserve")
    floor = graph.floor + reserve
    budget = remat.parse_bytes(options.budget, graph.keep_all_peak + reserve, floor=floor)
    found = within(step, budget - reserve - less, options, pool)
    if isinstance(found, Searched):
        return Missed(found.result, budget, floor, found.is_proved)
    # It may take several tries.
    briefly = replace(options, time_limit=None, work_limit=BRIEF_WORK // 4, gap=None)

    def overhead(more: int) -> float | None:
        other = within(step, more - reserve - less, briefly)
        return other.report.overhead if isinstance(other, EagerPlan) else None

    return replace(found, report=replace(found.report, budget=budget, within=Remembered(overhead)))


def kept_by_each(
    record: Record, around: Around, options: Options, forbidden: Collection[int], others: int
) -> int | None:
    """Bytes that each of several calls may keep for its backward, so that a plan within the budget less what
    others keep does not keep more. others: calls that wait for their backward beside one. None: none found.
    """
    briefly = replace(options, time_limit=None, work_limit=BRIEF_WORK // 4, gap=None)

    def kept(other: int) -> int | None:
        beside = around.beside(others * other)
        found = plan_record(record, beside, briefly, forbidden)
        if isinstance(found, Missed):
            return None
        return found.after_forward() - sum(beside.resident.values())

    best, low, high = None, 0, kept(0) or 0
    for _ in range(_HALVINGS):
        each = (low + high) // 2
        needs = kept(each)
        if needs is None:
            high = each
        elif needs > each:
            low = each
        else:
            best = high = each
    return best


def step_graph(
    record: Record, around: Around, options: Options, forbidden: Collection[int] = (), timed: bool = True
) -> StepGraph:
    """A `StepGraph` with values that may go to the options' host."""
    return StepGraph(record, around, forbidden, timed, options.host is not None)


def least_plan(
    record: Record,
    around: Around,
    options: Options,
    forbidden: Collection[int] = (),
    enough: int = 0,
    pool: HostPool | None = None,
) -> EagerPlan:
    """The plan of least peak that a short search finds. It ignores durations, so that it is the same for each
    record of the step. enough: bytes of the whole step at which the search may stop. pool: as for
    `plan_record`.
    """
    step = step_graph(record, around, options, forbidden, timed=False)
    work = _WORK_FOR_EACH_OP * step.graph.num_ops
    briefly = replace(options, time_limit=None, work_limit=work, gap=None)
    low, high = step.graph.floor, step.graph.keep_all_peak
    enough -= options.size("reserve")
    best = _Carried.of(step, remat.Plan(step.graph, list(range(step.graph.num_ops))), options)
    for _ in range(_HALVINGS):
        if high - low <= _NEAR * high or high <= enough:
            break
        target = max((low + high) // 2, enough)
        found = _within(step, target, briefly).carried
        if found is not None:
            best, high = found, found.plan.peak or 0
        else:
            low = target
    carried = best.on(step_graph(record, around, options, forbidden))
    return _eager_plan(carried, _report(carried, None, options), pool)


def within(
    step: StepGraph, limit: int, options: Options, pool: HostPool | None = None
) -> EagerPlan | Searched:
    """A plan for this many bytes beside the reserve, or the failure. pool: as for `plan_record`."""
    found = _within(step, limit, options)
    if found.carried is None:
        return found
    report = _report(found.carried, found.result, options)
    report = replace(report, asked=found.target + options.size("reserve"))
    return _eager_plan(found.carried, report, pool)


def _within(step: StepGraph, limit: int, options: Options) -> Searched:
    found = _searched(step, limit, options)
    if options.host is None or (found.carried is not None and found.carried.overhead <= _LITTLE):
        return found
    without = _searched(step, limit, replace(options, host=None)).carried
    if without is None or (found.carried is not None and found.carried.overhead <= without.overhead):
        return found
    return replace(found, carried=replace(without, host=options.settled_host))


def _searched(step: StepGraph, limit: int, options: Options) -> Searched:
    target = min(limit, step.graph.keep_all_peak)
    for number in range(_TRIES):
        result = _planned(step.charged, max(1, target), options)
        if result.plan is None:
            return Searched(result, target, number == 0 and result.status == "infeasible")
        carried = _Carried.of(step, result.plan, options, limit)
        peak = carried.plan.peak or 0
        if peak <= limit:
            break
        # Additional recomputations need more.
        target -= peak - limit
    return Searched(result, target, False, carried if peak <= limit else None)


@dataclass(frozen=True)
class Searched:
    """result: of the planner; its bounds hold for `target`, the last budget in bytes. is_proved: no plan is
    within the first budget. carried: a plan, if one was found.
    """

    result: remat.PlanResult
    target: int
    is_proved: bool
    carried: _Carried | None = None


@dataclass(frozen=True)
class _Carried:
    """A plan as eager mode carries it out. again: recomputed ops of the record; routes: of offloaded
    values."""

    step: StepGraph
    plan: remat.Plan
    again: frozenset[int]
    routes: Sequence[Route]
    host: remat.Host | None

    @classmethod
    def of(cls, step: StepGraph, found: remat.Plan, options: Options, limit: int = 0) -> _Carried:
        """found: plan of the step's graph, or of the planner's. Recomputed values are not offloaded. limit:
        bytes within which copies may come back somewhat earlier than planned, as they can only begin at some
        ops.
        """
        again, producers = step.closed(step.again(found.steps)), step.graph.producers
        wanted = {v: wish for v, wish in wishes(found).items() if again.isdisjoint(step.ops_of[producers[v]])}
        wanted = _with_room(wanted, step, options.settled_host)
        steps = step.plan_of(again)
        timing = Timing(step, steps, wanted)

        def carried(wanted: Mapping[int, Wish]) -> _Carried:
            copies, ways = timing.routes(wanted)
            host = options.settled_host
            plan = remat.Plan(step.graph, steps, copies=copies, host=host if copies else None)
            return cls(step, plan, frozenset(again), ways, host)

        best = carried(wanted)
        if not best.routes or (best.plan.peak or 0) > limit:
            return best
        for value in _moved(best.routes):
            earlier = {**wanted, **{v: replace(wanted[v], early=True) for v in value}}
            other = carried(earlier)
            if (other.plan.peak or 0) <= limit and (other.plan.duration or 0) <= (best.plan.duration or 0):
                best, wanted = other, earlier
                if len(value) > 1:
                    break
        return best

    @cached_property
    def duration(self) -> int:
        """ns, with what Python takes."""
        copied = len(self.routes)
        return (self.plan.duration or 0) + self.step.charge(self.step.again(self.plan.steps), copied)

    @property
    def overhead(self) -> float:
        return self.duration / max(1, self.step.graph.base_duration) - 1

    def on(self, step: StepGraph) -> _Carried:
        """The same with other durations."""
        plan = self.plan
        return replace(
            self, step=step, plan=remat.Plan(step.graph, list(plan.steps), copies=plan.copies, host=plan.host)
        )


def _with_room(wanted: Mapping[int, Wish], step: StepGraph, host: remat.Host | None) -> dict[int, Wish]:
    """As many of the values as the host has room for at once: none comes back before the backward."""
    left = math.inf if host is None or host.budget is None else host.budget
    found: dict[int, Wish] = {}
    for value, wish in wanted.items():
        if (size := int(step.graph.bytes[value])) <= left:
            found[value] = wish
            left -= size
    return found


def _moved(ways: Sequence[Route]) -> Iterator[list[int]]:
    """Sets of values whose copies back are tried somewhat earlier: all, then each alone."""
    back = [route.value for route in sorted(ways, key=lambda route: route.back)]
    yield back
    yield from ([value] for value in back[:_MOST_MOVED])


def _eager_plan(carried: _Carried, report: PlanReport, pool: HostPool | None) -> EagerPlan:
    memory = [each - report.reserve for each in report.memory]
    step, plan, copying = carried.step, carried.plan, None
    record = step.record
    if pool is not None and plan.copies:
        copies = Copies(plan.copies, lay_out(step.graph, plan.copies), pool, report.traffic)
        copying = Copying(copies, carried.routes, pool.channels.device)
    return EagerPlan(
        record.functions,
        carried.again,
        report,
        levels(step, memory),
        record.made,
        record,
        step.op_of,
        copying,
    )


def _planned(graph: remat.Graph, target: int, options: Options) -> remat.PlanResult:
    effort = options.effort()
    if options.time_limit is None and options.work_limit is None:
        effort["time_limit"] = seconds_for(graph.num_ops)
    if options.host is not None:
        return remat.plan(graph, target, host=options.settled_host, **effort)
    return remat.plan(graph, target, executor="partitioner", **effort)


def seconds_for(ops: int) -> float:
    """Time limit of a search. Plans after ten times as long were the same."""
    return min(10.0, 0.25 + min(ops, 1000) / 4000 + max(0, ops - 1000) / 20000)


def _report(carried: _Carried, result: remat.PlanResult | None, options: Options) -> PlanReport:
    """result: of the planner, whose bound and proof hold if its plan is used. Times include the overhead of
    recomputations.
    """
    step, plan = carried.step, carried.plan
    around, reserve = step.around, options.size("reserve")
    existing = sum(step.record.values[v].bytes for v in step.record.gradients) if around.adds else 0
    graph, steps = step.graph, list(plan.steps)
    simulated = remat.simulate(graph, steps, plan.copies, plan.host)
    memory = [int(each) + reserve for each in simulated.memory]
    peak = max(memory)
    found = None if result is None else result.plan
    same = found is not None and list(found.steps) == steps and found.copies == plan.copies
    least = 0 if result is None else result.duration_lower_bound - step.charges()
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
        overhead=carried.overhead,
        peak_lower_bound=graph.floor + reserve,
        duration_lower_bound=min(max(least, graph.base_duration), carried.duration),
        ops=graph.num_ops,
        recomputed_steps=len(steps) - graph.num_ops,
        fixed=reserve,
        rise=peak - reserve - int(graph.resident),
        existing_gradients=existing,
        memory=memory,
        host=carried.host,
        copied_out=simulated.bytes_out,
        copied_in=simulated.bytes_in,
        stalled=simulated.stalled / 1e9,
        host_peak=simulated.host_peak,
    )
