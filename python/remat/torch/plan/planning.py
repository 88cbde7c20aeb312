"""Plans for captured steps: given, stored, or found; alone, or with others in flight together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import remat

from ..base.progress import ProgressLine
from ..base.units import exact_bytes
from .alone import plan_alone
from .cache import PlanCache
from .problem import Found, Problem
from .ranks import of_all_ranks, of_first_rank
from .report import PlanReport
from .screen import Remembered, overhead_within
from .search import first_plan, seconds_for
from .together import plan_together


def plan_step(problem: Problem, cache: PlanCache, progress: ProgressLine | None = None) -> PlanReport:
    """Plan a step within the budget, or check the given plan.

    cache: earlier plans; new ones are added.

    Raises InfeasibleError if the budget is proved impossible, NoPlanError if no plan was found, PlanError if
    the given plan breaks a rule or the budget, and errors of `Problem.check`.
    """
    options = problem.options
    problem.check()
    if options.plan is not None:
        return _given_plan(problem)
    # If only one rank found a plan in its folder, another would wait forever.
    store = cache.store if options.group is None else None
    described = problem.describe() if store is not None else {}
    if store is not None and (found := store.load_plan(described)) is not None:
        try:
            return _confirmed(problem, found)
        except (remat.RematError, TypeError, ValueError) as error:
            store.ignore_plan(described, error)
    if progress is not None:
        progress.planning(options.time_limit or seconds_for(problem.graph))

    tightest = problem if options.group is None else _of_tightest_rank(problem)

    def make() -> Found:
        return _find(tightest, cache, progress)

    made = make() if options.group is None else of_first_rank(options.group, make)
    if store is not None:
        store.add_plan(described, asdict(made))
    return _reported(problem, made)


def _of_tightest_rank(problem: Problem) -> Problem:
    """The problem with the budget of the tightest rank: budgets may differ, and so may resident memory, such
    as buffers that only some ranks have.
    """
    room = problem.budget - problem.reserve - problem.graph.resident
    least = min(of_all_ranks(problem.options.group, room))
    if least == room:
        return problem
    budget = max(1, problem.budget - (room - least))
    return replace(problem, options=replace(problem.options, budget=budget))


def survey_step(problem: Problem) -> PlanReport:
    """Any plan, for a call that only explores the model: a quick one within the budget, or keep-all."""
    graph, options = problem.graph, replace(problem.options, host=None)
    first = first_plan(graph, min(problem.target, problem.keep_all_peak), options)
    steps = range(graph.num_ops) if first is None or first.plan is None else first.plan.steps
    return _report_of(problem, remat.Plan(graph, list(steps), options.order))


def _find(problem: Problem, cache: PlanCache, progress: ProgressLine | None) -> Found:
    if problem.is_alone:
        return plan_alone(problem, progress)
    limit = problem.budget - problem.reserve
    return Found.of(*plan_together(problem.parts, problem.options, limit, cache, progress))


def _confirmed(problem: Problem, stored: Mapping[str, Any]) -> PlanReport:
    """A plan from the store. Raises PlanError if its steps break a rule or the budget."""
    report = _reported(problem, Found(**stored))
    needed = problem.needed(report.predicted_peak, report.reserved_peak)
    if needed > problem.budget:
        raise remat.PlanError(f"it needs {exact_bytes(needed)}, the budget is {exact_bytes(problem.budget)}")
    return replace(report, stored=True)


def _reported(problem: Problem, found: Found) -> PlanReport:
    """The simulated steps. Raises PlanError if they break a rule."""
    order, host = problem.options.order, problem.host if found.copies else None
    copies = [(int(value), str(way), int(issue), int(wait)) for value, way, issue, wait in found.copies]

    def made(budget: int | None = None) -> remat.Plan:
        return remat.Plan(
            problem.graph,
            found.steps,
            order,
            copies=copies,
            host=host,
            budget=budget,
            planner=found.planner,
        )

    plan = made()
    # Of the graph alone, for reports of the plan.
    budget = problem.budget - problem.reserve - found.beside
    if (plan.peak or 0) <= budget:
        plan = made(budget)
    report = _report_of(problem, plan, found.beside)
    report = replace(
        report,
        status=found.status,
        planner=found.planner,
        peak_lower_bound=problem.proved(min(found.peak_lower_bound, plan.peak or 0) + report.reserve),
        duration_lower_bound=found.duration_lower_bound,
    )
    options = problem.options
    if not problem.is_alone or problem.held is not None or options.group is not None or options.arena:
        return report  # planned for other bytes than the budget, or sharing them
    if problem.host is not None or problem.on_reserved is not None:
        return replace(report, asked=problem.budget)
    graph, reserve, order = problem.graph, problem.reserve, options.order

    def within(budget: int) -> float | None:
        return overhead_within(graph, order, budget - reserve)

    return replace(report, asked=problem.budget, within=Remembered(within))


def _given_plan(problem: Problem) -> PlanReport:
    """A plan made for another measurement of this step, checked and simulated again."""
    given: Any = problem.options.plan
    if not isinstance(given, (list, tuple, remat.Plan)):
        given = remat.load_plan(str(given))
    order = given.order if isinstance(given, remat.Plan) else problem.options.order
    steps = given.steps if isinstance(given, remat.Plan) else given
    copies = given.copies if isinstance(given, remat.Plan) else []
    if copies and problem.host is None:
        raise remat.PlanError(
            'the given plan copies values to a host: host= says to which ("25GB/s", "auto")'
        )
    host = problem.host if copies else None
    report = _report_of(problem, remat.Plan(problem.graph, steps, order, copies=copies, host=host))
    needed = problem.needed(report.predicted_peak, report.reserved_peak)
    if needed > problem.budget:
        raise remat.PlanError(_why_too_large(problem, needed))
    return report


def _why_too_large(problem: Problem, peak: int) -> str:
    """Why a given plan exceeds the budget."""
    text = (
        f"the given plan needs {problem.amount(peak)} for this step, the budget is "
        f"{problem.amount(problem.budget)}"
    )
    existing = problem.existing_gradients
    if not existing:
        return text
    return (
        f"{text}; {exact_bytes(existing)} of it are gradients that exist already when the step starts: set "
        "them to None first (zero_grad does), or take a plan for a step that adds to them (accumulate=True)"
    )


def _report_of(problem: Problem, plan: remat.Plan, beside: int = 0) -> PlanReport:
    """The numbers of a plan; status, planner and bounds as if it were given.

    beside: bytes reserved for other calls in flight, which they hold at its peak.
    """
    graph, steps, reserve = problem.graph, list(plan.steps), problem.reserve + beside
    simulated = remat.simulate(graph, steps, plan.copies, plan.host)
    arena = problem.arranged(plan)
    needs = simulated.memory if arena is None else arena.memory
    memory = [int(m) + reserve for m in needs]
    peak = max(memory)
    return PlanReport(
        name=problem.step.name,
        graph=graph,
        plan=plan,
        status="given",
        planner="given",
        budget=problem.budget,
        reserve=reserve,
        predicted_peak=peak,
        keep_all_peak=problem.keep_all_peak + reserve,
        overhead=plan.overhead or 0.0,
        peak_lower_bound=problem.proved(graph.floor + reserve),
        duration_lower_bound=graph.base_duration,
        ops=len(problem.step.ops),
        recomputed_steps=len(steps) - len(problem.step.ops),
        fixed=problem.reserve,
        rise=peak - problem.reserve - graph.resident,
        memory=memory,
        host=problem.host,
        copied_out=simulated.bytes_out,
        copied_in=simulated.bytes_in,
        stalled=simulated.stalled / 1e9,
        host_peak=simulated.host_peak,
        reserved_peak=problem.reserved_by(plan),
        arena=arena,
        costs=str(problem.options.costs),
    )
