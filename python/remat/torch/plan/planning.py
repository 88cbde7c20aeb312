"""Plans for captured steps: one alone, or several that are in flight together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import torch

import remat

from ..base.progress import ProgressLine
from ..base.step import StepGraph
from .options import Options
from .parts import Memo, Part, plan_parts, search, seconds_for, without_names
from .report import PlanReport
from .store import Store, digest


def plan_step(
    step: StepGraph,
    part: Part,
    options: Options,
    others: Sequence[Part] = (),
    progress: ProgressLine | None = None,
    store: Store | None = None,
    memo: Memo | None = None,
) -> tuple[PlanReport, list[int]]:
    """Plan a step within the budget, or check the plan that was given.

    part: the step itself, `part_of` it. others: what else is in flight at the same time; then all are planned
    together, and the report's peaks count the saved tensors of all.
    store: where plans are kept between processes.
    memo: plans that were made before in this one, for graphs that are in flight together.

    Raises InfeasibleError when the budget is proved impossible, NoPlanError when nothing was found.
    """
    reserve = options.size("reserve")
    graph = part.graph
    # Saved generator states count only where something is recomputed; they are no part of the graph.
    fixed = reserve + part.generator_states
    keep_all_peak = keep_all_peak_of(step, graph)
    budget = remat.parse_bytes(options.budget, keep_all_peak=keep_all_peak + fixed)
    if options.plan is not None:
        return _given_plan(step, graph, options, budget, reserve)
    if options.group is not None:
        store = None  # what one rank finds and another does not would leave one of them waiting
    parts = [part, *others]
    problem = _problem(parts, options, budget, reserve) if store is not None else {}
    if store is not None:
        found = store.load_plan(problem)
        if found is not None:
            try:
                return _planned(step, graph, options, budget, reserve, Found(**found), stored=True)
            except (remat.RematError, TypeError, ValueError) as error:
                store.ignore_plan(problem, error)
    if progress is not None:
        progress.planning(options.time_limit or seconds_for(graph))

    def make() -> Found:
        if others or part.copies > 1:
            return Found.of(*plan_parts(parts, options, budget - reserve, progress, memo))
        return _plan_alone(graph, keep_all_peak, options, budget, reserve, fixed, progress)

    made = make() if options.group is None else _of_first_rank(options.group, make)
    if store is not None:
        store.add_plan(problem, asdict(made))
    return _planned(step, graph, options, budget, reserve, made)


@dataclass
class Found:
    """What planning a step came to.

    beside: bytes that other calls in flight hold at this one's peak.
    """

    steps: list[int]
    status: str
    planner: str
    peak_lower_bound: int
    duration_lower_bound: int
    beside: int = 0

    @classmethod
    def of(cls, result: remat.PlanResult, beside: int = 0) -> Found:
        steps = list(result.plan.steps) if result.plan is not None else []
        return cls(
            steps, result.status, result.planner, result.peak_lower_bound, result.duration_lower_bound, beside
        )


def _of_first_rank(group: Any, make: Callable[[], Found]) -> Found:
    """What rank 0 of a process group makes, or the error that it meets, on every rank."""
    distributed: Any = torch.distributed
    sent: list[Any] = [None]
    if distributed.get_rank(group) == 0:
        try:
            sent = [make()]
        except remat.NoPlanError as error:
            sent = [(type(error).__name__, str(error), error.floor, error.smallest_known)]
    distributed.broadcast_object_list(sent, group=group, group_src=0)
    if isinstance(sent[0], Found):
        return sent[0]
    name, text, floor, smallest_known = sent[0]
    kind = remat.InfeasibleError if name == "InfeasibleError" else remat.NoPlanError
    raise kind(text, floor=floor, smallest_known=smallest_known)


def _problem(parts: Sequence[Part], options: Options, budget: int, reserve: int) -> dict[str, Any]:
    """All that a plan depends on, as a JSON value."""
    effort = ("planner", "order", "time_limit", "work_limit", "seed", "threads")
    return {
        "remat": remat.__version__,
        "graphs": [digest(without_names(part.graph)) for part in parts],
        "parts": [[p.loss, p.new_gradients, p.generator_states, p.copies] for p in parts],
        "before": [[i for i, other in enumerate(parts) if other.number in p.before] for p in parts],
        "budget": budget,
        "reserve": reserve,
        **{name: getattr(options, name) for name in effort},
    }


def _planned(
    step: StepGraph,
    graph: remat.Graph,
    options: Options,
    budget: int,
    reserve: int,
    found: Found,
    stored: bool = False,
) -> tuple[PlanReport, list[int]]:
    """The steps, simulated anew. Raises PlanError where they break a rule or, stored, the budget."""
    plan = remat.Plan(graph, found.steps, options.order)
    report = report_of(step, graph, plan, budget, reserve + found.beside)
    if stored and report.predicted_peak > budget:
        raise remat.PlanError(f"it needs {report.predicted_peak} bytes, the budget is {budget}")
    report.status, report.planner, report.stored = found.status, found.planner, stored
    report.peak_lower_bound = min(found.peak_lower_bound, plan.peak or 0) + report.reserve
    report.duration_lower_bound = found.duration_lower_bound
    report.rise = report.predicted_peak - reserve - graph.resident
    return report, found.steps


def keep_all_peak_of(step: StepGraph, graph: remat.Graph) -> int:
    """What keeping everything needs, where results take the place of arguments that nobody reads again."""
    return _peak_with_states(step, graph, range(graph.num_ops), step.written_over)


def _plan_alone(
    graph: remat.Graph,
    keep_all_peak: int,
    options: Options,
    budget: int,
    reserve: int,
    fixed: int,
    progress: ProgressLine | None,
) -> Found:
    keep_all = keep_all_peak + reserve <= budget
    target = graph.keep_all_peak if keep_all else budget - fixed
    if target <= 0:
        floor, known = graph.floor + reserve, keep_all_peak + reserve
        raise remat.InfeasibleError(
            f"the budget of {budget} bytes is impossible for this step: none goes below {floor} bytes, "
            f"{reserve} of them reserved; smallest budget known to work: {known}",
            floor=floor,
            smallest_known=known,
        )
    result = search(graph, target, options, progress)
    if result.plan is None:
        _raise_no_plan(result, graph, budget, reserve, fixed)
    return Found.of(result)


def _raise_no_plan(
    result: remat.PlanResult, graph: remat.Graph, budget: int, reserve: int, fixed: int
) -> NoReturn:
    """In bytes of the whole step, reserve included: the numbers of the result are those of the graph
    alone.
    """
    floor = result.peak_lower_bound + reserve
    try:
        result.raise_if_no_plan()
    except remat.NoPlanError as error:
        known = min(graph.keep_all_peak + reserve, error.smallest_known + fixed)
    numbers = f"none goes below {floor} bytes; smallest budget known to work: {known}"
    if result.status == "infeasible":
        raise remat.InfeasibleError(
            f"the budget of {budget} bytes is impossible for this step: {numbers}",
            floor=floor,
            smallest_known=known,
        )
    raise remat.NoPlanError(
        f"no plan within the budget of {budget} bytes was found in {result.seconds:.1f} s (stopped by "
        f"{result.stopped_by}); {numbers}",
        floor=floor,
        smallest_known=known,
    )


def _peak_with_states(
    step: StepGraph, graph: remat.Graph, steps: Sequence[int], saved: Mapping[int, int] | None = None
) -> int:
    """Peak of a plan, with the generator states of the random ops that run again: each is held from the first
    run to the last, and every further run holds the state of the moment besides.

    saved: by position, bytes that a step needs less than the simulator says.
    """
    memory = [int(m) for m in remat.simulate(graph, steps).memory]
    for position, size in (saved or {}).items():
        memory[position] -= size
    runs: dict[int, list[int]] = {}
    for position, index in enumerate(steps):
        if step.ops[index].random:
            runs.setdefault(index, []).append(position)
    for index, positions in runs.items():
        size = step.ops[index].state_bytes
        for again in positions[1:]:
            memory[again] += size
        for position in range(positions[0], positions[-1] + 1) if len(positions) > 1 else ():
            memory[position] += size
    return max(memory)


def count_saved(
    report: PlanReport, step: StepGraph, graph: remat.Graph, steps: Sequence[int], saved: Mapping[int, int]
) -> None:
    """Lower the predictions of a plan by what its steps need less because they write over what they read.

    saved: bytes by position in the plan.
    """
    less = _peak_with_states(step, graph, steps) - _peak_with_states(step, graph, steps, saved)
    report.written_over = dict(saved)
    report.predicted_peak -= less
    report.rise -= less
    report.peak_lower_bound = min(report.peak_lower_bound, report.predicted_peak)


def report_of(step: StepGraph, graph: remat.Graph, plan: remat.Plan, budget: int, reserve: int) -> PlanReport:
    """The numbers of a plan; status, planner and bounds as if it were given."""
    steps = list(plan.steps)
    return PlanReport(
        name=step.name,
        graph=graph,
        plan=plan,
        status="given",
        planner="given",
        budget=budget,
        reserve=reserve,
        predicted_peak=_peak_with_states(step, graph, steps) + reserve,
        keep_all_peak=keep_all_peak_of(step, graph) + reserve,
        overhead=plan.overhead or 0.0,
        peak_lower_bound=graph.floor + reserve,
        duration_lower_bound=graph.base_duration,
        ops=len(step.ops),
        recomputed_steps=len(steps) - len(step.ops),
        distinct_ops=0,
        existing_gradients=0,
    )


def _given_plan(
    step: StepGraph, graph: remat.Graph, options: Options, budget: int, reserve: int
) -> tuple[PlanReport, list[int]]:
    """The steps of a plan that was made for another measurement of this step, checked and costed anew."""
    given: Any = options.plan
    if not isinstance(given, (list, tuple, remat.Plan)):
        given = remat.load_plan(str(given))
    order = given.order if isinstance(given, remat.Plan) else options.order
    plan = remat.Plan(graph, given.steps if isinstance(given, remat.Plan) else given, order)
    steps = list(plan.steps)
    report = report_of(step, graph, plan, budget, reserve)
    report.rise = report.predicted_peak - reserve - graph.resident
    if report.predicted_peak > budget:
        raise remat.PlanError(
            f"the given plan needs {report.predicted_peak} bytes for this step, the budget is {budget}"
        )
    return report, steps
