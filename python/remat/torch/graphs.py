"""Plans graphs of ATen ops that the user traced, and returns the planned graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

import remat

from .base.account import account, phase
from .base.devices import runtime_of
from .base.errors import UnsupportedModelError, errors_stand_alone, log
from .base.nodes import is_random, outputs_of
from .base.private import WRITING_BATCH_NORMS
from .base.progress import ProgressLine, progress_line
from .base.step import OutputUse, StepGraph
from .base.storages import has_data
from .base.turns import one_at_a_time
from .cost.layouts import Layouts, TracedOtherwiseError
from .cost.profile import run_alone
from .cost.source import Costs
from .cost.values import RealValues
from .plan.cache import PlanCache
from .plan.options import GraphOptions, Options
from .plan.part import Part
from .plan.planning import plan_step
from .plan.problem import Problem
from .plan.report import PlanReport
from .plan.store import Store
from .run.plain import in_form_of
from .run.rewrite import rewrite
from .session.pipeline import device_of
from .trace.capture import Circumstances, capture_step
from .trace.kernels import AS_TRACED, kernel_of
from .trace.plain import Plain, as_plain, flat_inputs

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class PlannedGraph:
    """Returned by :func:`plan_graph`.

    Attributes:
        gm: the graph in the plan's order, called like the original.
        report: budget, predicted peak, bounds, overhead, the plan. Its last op, "loss", is the caller.
    """

    gm: fx.GraphModule = field(repr=False)
    report: PlanReport

    def __str__(self) -> str:
        return str(self.report)


@errors_stand_alone
def plan_graph(
    gm: fx.GraphModule, example_inputs: Sequence[Any], budget: int | str, **options: Unpack[GraphOptions]
) -> PlannedGraph:
    """Plan a graph of ATen ops, such as `make_fx` traces: its order and recomputations keep it within a byte
    budget. For steps that AOTAutograd cannot take, such as the gradients of a loss on forces.

    The result computes the same bits, and is an `fx.GraphModule` of ATen ops too: recomputations are copies
    of nodes ("_again" in the name), results are freed at their last use, metadata is that of the original.
    Ops that draw random numbers run once, in their order. Writes in place become `copy_` into inputs at the
    end, or ops that write over values without later readers.

    Args:
        gm: the graph to plan; it is not changed. Its shapes are those of the example inputs.
        example_inputs: the tuple of arguments of `gm`. Tensors without data (`FakeTensorMode`) suffice.
        budget: bytes for the call, including the arguments, the graph's own tensors and the results: a
            number, "6GiB", or "60%" of the peak without recomputation.

    Keyword Args:
        budget_on: as in :func:`fit`, like all of them.
        reserve: bytes of the budget for other uses of the device.
        planner: as in :func:`remat.plan`, like the next five.
        order: "fixed" or "free".
        time_limit: seconds for planning.
        work_limit: the same by counted work.
        gap: stop within this gap of the fastest plan.
        seed: of the planner.
        threads: of the planner.
        plan: use this plan instead.
        never_recompute: patterns of modules, or kinds of ops, that run once.
        always_keep: patterns of modules, or kinds of ops, whose results are kept.
        routing: whether ops that decide what runs (topk, sort, argmax, ...) run "once" or "recompute".
        costs: "measured", "roofline" or a file.
        device: of the roofline.
        cache_dir: a folder that keeps costs and plans for later processes.

    The prediction is for a call without autograd (`torch.no_grad()`): the results have no gradients, and
    nothing is kept for a backward.

    Raises:
        InfeasibleError: it is proved that no plan fits; with the floor and the smallest budget known to work.
        NoPlanError: no plan was found, nothing is proved.
        UnsupportedModelError: a node is no ATen op, or shapes depend on data.
        UsageError: the example inputs do not match the graph, or an option does not exist.
    """
    asked = _asked(budget, options)
    if not isinstance(gm, fx.GraphModule):
        raise remat.UsageError(
            f"plan_graph: an fx.GraphModule, not {type(gm).__name__}; make_fx traces one, fit takes models"
        )
    inputs = flat_inputs(gm, example_inputs)
    with account() as spent, one_at_a_time(), progress_line() as progress:
        progress.tracing()
        planner = _Planner(gm, inputs, asked)
        report, planned = planner.run(progress)
        progress.set_result(report.outcome())
        report.set_seconds(spent.seconds())
    log.info("%s", report.summary())
    return PlannedGraph(planned, report)


def _asked(budget: int | str, options: GraphOptions) -> Options:
    unknown = [name for name in options if name not in GraphOptions.__annotations__]
    if unknown:
        known = ", ".join(GraphOptions.__annotations__)
        raise remat.UsageError(f"plan_graph: no option {unknown[0]!r}; there are {known}")
    if budget == "auto":
        raise remat.BudgetError('plan_graph: budget "auto" is for fit; give bytes or a share')
    return Options.from_mapping({"budget": budget, **options})


class _Planner:
    """One graph and one budget.

    layouts: real layouts of results that the first trace had wrong. measured: number of distinct ops so far.
    """

    def __init__(self, gm: fx.GraphModule, inputs: Sequence[Any], options: Options) -> None:
        self.gm, self.inputs, self.options = gm, inputs, options
        store = None if options.cache_dir is None else Store(options.cache_dir)
        self.cache, self.layouts = PlanCache(store), Layouts()
        self.costs: Costs = options.cost_source(store, runs=True)
        self.measured = 0

    def run(self, progress: ProgressLine) -> tuple[PlanReport, fx.GraphModule]:
        plain, problem = self._captured(progress)
        try:
            report = self._planned(problem, progress)
            _check_reads(problem.step, report.plan.steps)
        except (remat.NoPlanError, remat.PlanError) as error:
            if not any(op.overwrites for op in problem.step.ops):
                raise
            plain, problem = self._with_late_writes(problem, error, progress)
            try:
                report = self._planned(problem, progress)
            except remat.PlanError:  # a given plan, which is for neither
                raise error from None
        with phase("code"):
            steps = report.plan.steps
            overwrites = {at for at, _, _ in remat.simulate(report.graph, steps).overwrites}
            halves = rewrite(problem.step, steps, overwrites, for_compiler=True)
            return report, in_form_of(self.gm, plain, halves.forward)

    def _with_late_writes(
        self, problem: Problem, error: remat.RematError, progress: ProgressLine
    ) -> tuple[Plain, Problem]:
        """Moves writes to inputs to the end if the plan would read an input after its write. Bounds of the
        unchanged graph hold for the result.
        """
        floor = getattr(error, "floor", None) or problem.floor
        plain, late = self._captured(progress, late=True)
        return plain, replace(late.at(problem.budget), held=floor - problem.reserve)

    def _planned(self, problem: Problem, progress: ProgressLine) -> PlanReport:
        with phase("plan"):
            report = plan_step(problem, self.cache, progress)
        unmeasured = len(self.costs.unmeasured(problem.step))
        return replace(report, distinct_ops=self.measured, unmeasured_ops=unmeasured)

    def _captured(self, progress: ProgressLine, late: bool = False) -> tuple[Plain, Problem]:
        """late: inputs are overwritten at the end."""
        while True:
            plain, step = self._step(late)
            self.measured += self._cost(step, plain, progress)
            try:
                self.layouts.compare(step, self.costs.known or {})
                break
            except TracedOtherwiseError:
                continue
        device = device_of([*self.inputs, *self.gm.parameters(), *self.gm.buffers()])
        part = Part.of(step, remat.Graph.from_dict(step.to_dict()))
        allocator = runtime_of(device).caching_allocator()
        return plain, Problem(step, part, self.options, allocator=allocator)

    def _step(self, late: bool) -> tuple[Plain, StepGraph]:
        with phase("capture"), self.layouts.applied():
            plain = as_plain(self.gm, self.inputs, late)
            results = len(outputs_of(plain.gm))
            circumstances = Circumstances(
                name=type(self.gm).__name__,
                use=OutputUse(at_end=True),
                routing=self.options.routing,
                never_recompute=self.options.patterns("never_recompute"),
                always_keep=self.options.patterns("always_keep"),
            )
            step = capture_step(plain.gm, results, (self.gm, self.inputs), circumstances, run_alone)
        for op in step.ops:
            if op.node is not None and (is_random(op.node) or op.node.target in WRITING_BATCH_NORMS):
                step.run_once(op)
            if op.node is not None and kernel_of(op.node.target) is not op.node.target:
                op.node.meta[AS_TRACED] = True
        if all(op.node is None for op in step.ops):
            raise UnsupportedModelError("the graph has no ops")
        return plain, step

    def _cost(self, step: StepGraph, plain: Plain, progress: ProgressLine) -> int:
        """Fills in costs; returns how many distinct ops were measured."""
        placeholders = plain.gm.graph.find_nodes(op="placeholder")
        known = {
            node: given.detach() if isinstance(given, torch.Tensor) else given
            for node, given in zip(placeholders, self.inputs, strict=True)
            if not isinstance(given, torch.Tensor) or has_data(given)
        }
        room = self.options.budget if isinstance(self.options.budget, int) else None
        with phase("profile"):
            return self.costs.fill(step, progress.profiling, values=RealValues(step.gm, known, room))


def _check_reads(step: StepGraph, steps: Sequence[int]) -> None:
    """Raises PlanError if a plan reads an input after overwriting it."""
    written: dict[int, fx.Node] = {}
    for position, op in enumerate(step.ops[index] for index in steps):
        read = next((written[value] for value in op.inputs if value in written), None)
        if read is not None and op.node is not None:
            raise remat.PlanError(
                f"step {position} of the plan ({op.name}) reads input {read.name} after it is overwritten"
            )
        if op.overwrites is not None:
            written[step.value_of[op.overwrites]] = op.overwrites
