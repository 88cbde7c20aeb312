"""The backend for `torch.compile`: every graph is captured, profiled, planned and rewritten at its first call.

Dynamo hands over a graph; it is traced by AOTAutograd at the first call with real tensors, because only then it is
known which gradients exist already and which shapes come. Each combination of shapes is one *variant*.
"""
from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn
from weakref import WeakValueDictionary

import torch
from torch import fx
from torch._functorch import config as functorch_config
from torch._functorch.aot_autograd import aot_module_simplified
from torch.utils._python_dispatch import _disable_current_modes

import remat

from .capture import RNG_STATE_BYTES, StepGraph, capture_step, storage_bytes, tensors_of
from .options import Options
from .profile import Cost, profile_step
from .report import ModelReport, PlanReport
from .rewrite import boxed, rewrite

log = logging.getLogger("remat.torch")


class Session:
    """What the graphs of one compiled model share: options, measured costs, reports.

    outside: bytes that are resident during the step and belong to no graph (parameters the graphs do not read).
    captured: where steps go instead of being planned, if they are only to be captured.
    """

    def __init__(self, options: Options, captured: list[StepGraph] | None = None) -> None:
        self.options = options
        self.captured = captured
        self.given: Any = None
        self.costs: dict[str, Cost] = {}
        self.report = ModelReport()
        self.regions: list[Region] = []
        self.outside: Callable[[Sequence[torch.Tensor]], int] = lambda args: 0
        self.loss_workspace = options.size("loss_workspace")

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        region = Region(self, gm, len(self.regions))
        self.regions.append(region)
        return torch._dynamo.disable(region, reason="remat runs its own graphs")


_sessions: WeakValueDictionary[int, Session] = WeakValueDictionary()


def remat_backend(
    gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """Entry point of the backend named "remat"; `options` are those of `remat.torch.Options`."""
    if mode not in (None, "default"):
        raise ValueError(f"remat: mode={mode!r} is not supported, only options")
    session = _sessions.get(id(options)) if options is not None else None
    if session is None or session.given is not options:
        session = Session(Options.from_mapping(options))
        session.given = options
        _sessions[id(options)] = session
    return session(gm, example_inputs)


class _CapturedOnly(Exception):
    """Leaves AOTAutograd when a step is captured but not to be run."""


class Region:
    """One graph of Dynamo, with a variant for each combination of input shapes, gradient mode and existing gradients."""

    def __init__(self, session: Session, gm: fx.GraphModule, number: int) -> None:
        self.session = session
        self.gm = gm
        self.number = number
        self.variants: dict[Any, Callable[..., Any]] = {}
        self.__name__ = f"remat_region_{number}"

    def __call__(self, *args: Any) -> Any:
        key = self._key(args)
        variant = self.variants.get(key)
        if variant is None:
            variant = self._compile(args, key)
        return variant(*args)

    def _key(self, args: Sequence[Any]) -> Any:
        shapes = tuple(
            (arg.shape, arg.stride(), arg.requires_grad) if isinstance(arg, torch.Tensor) else arg
            for arg in args
            if not isinstance(arg, torch.nn.Parameter)
        )
        training = torch.is_grad_enabled()
        return shapes, training, self._existing_gradients(args) if training else 0

    def _existing_gradients(self, args: Sequence[Any]) -> int:
        """Bytes of the gradients that this step will add to."""
        leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad and a.is_leaf]
        accumulate = self.session.options.accumulate
        if accumulate is False:
            return 0
        if accumulate:
            return sum(storage_bytes(a) for a in leaves)
        return sum(storage_bytes(a.grad) for a in leaves if a.grad is not None)

    def _compile(self, args: Sequence[Any], key: Any) -> Callable[..., Any]:
        limit = self.session.options.max_shapes
        if len(self.variants) == limit:
            log.warning("graph %d has met %d combinations of input shapes; each further one is planned anew",
                        self.number, limit)
        existing = key[-1]
        start = time.perf_counter()

        def partition(joint: fx.GraphModule, joint_inputs: Any, *, num_fwd_outputs: int, **_: Any) -> Any:
            with _disable_current_modes():
                return self._partition(joint, num_fwd_outputs, existing, args, start)

        try:
            with functorch_config.patch(donated_buffer=False):
                variant = aot_module_simplified(
                    self.gm,
                    list(args),
                    fw_compiler=_compile_boxed,
                    bw_compiler=_compile_boxed,
                    inference_compiler=_compile_boxed,
                    partition_fn=partition,
                    keep_inference_input_mutations=True,
                )
        except _CapturedOnly:
            # Nothing to run backwards: go on without keeping anything.
            return torch.no_grad()(self.gm)
        self.variants[key] = variant
        return variant

    def _partition(
        self, joint: fx.GraphModule, num_forward_outputs: int, existing: int, args: Sequence[Any], start: float
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        session, options = self.session, self.session.options
        step = capture_step(joint, num_forward_outputs, name=f"step_{self.number}")
        step.ops[step.loss].workspace = session.loss_workspace
        step.add_resident("existing gradients", existing)
        step.add_resident("outside the graph", session.outside(args))
        captured = time.perf_counter()
        if session.captured is not None:
            session.captured.append(step)
            raise _CapturedOnly
        with _progress_line() as show:
            distinct = profile_step(step, cache=session.costs, progress=lambda i, n: show(f"profiling op {i}/{n}"))
            profiled = time.perf_counter()
            graph = remat.Graph.from_dict(step.to_dict())
            report, steps = make_plan(step, graph, options, lambda text: show(text))
        report.distinct_ops = distinct
        report.existing_gradients = existing
        halves = rewrite(step, steps)
        report.seconds = {
            "capture": captured - start,
            "profile": profiled - captured,
            "plan": time.perf_counter() - profiled,
        }
        session.report.parts.append(report)
        log.info(
            "%s: %d ops, peak %d -> %d bytes (budget %d), overhead %.1f %%, %d steps recomputed, %.1f s",
            report.name, report.ops, report.keep_all_peak, report.predicted_peak, report.budget,
            100 * report.overhead, report.recomputed_steps, sum(report.seconds.values()),
        )
        return halves.forward, halves.backward


def make_plan(
    step: StepGraph, graph: remat.Graph, options: Options, show: Callable[[str], None] = lambda text: None
) -> tuple[PlanReport, list[int]]:
    """Plan a graph within the budget, or check the plan that was given.

    Raises InfeasibleError when the budget is proved impossible, NoPlanError when nothing was found.
    """
    reserve = options.size("reserve")
    states = sum(_rng_bytes(op) for op in step.ops)
    fixed = reserve + states
    budget = remat.parse_bytes(options.budget, keep_all_peak=graph.keep_all_peak + fixed)
    if options.plan is not None:
        return _given_plan(step, graph, options, budget, reserve)
    show("planning")
    keep_all = graph.keep_all_peak + reserve
    # Saved generator states count only where something is recomputed.
    target = graph.keep_all_peak if keep_all <= budget else budget - fixed
    if target <= 0:
        raise remat.InfeasibleError(
            f"the budget of {budget} bytes leaves nothing after a reserve of {reserve} bytes",
            floor=graph.floor + reserve, smallest_known=keep_all,
        )
    result = remat.plan(
        graph, budget=target, planner=options.planner, order=options.order, time_limit=options.time_limit,
        work_limit=options.work_limit, seed=options.seed, threads=options.threads,
    )
    if result.plan is None:
        _raise_no_plan(result, graph, budget, reserve, fixed)
    steps = list(result.plan.steps)
    report = _report(step, graph, steps, budget, reserve, result.peak)
    report.plan, report.status, report.planner, report.overhead = result.plan, result.status, result.planner, result.overhead
    report.peak_lower_bound = result.peak_lower_bound + reserve
    report.duration_lower_bound = result.duration_lower_bound
    return report, steps


def _raise_no_plan(result: Any, graph: remat.Graph, budget: int, reserve: int, fixed: int) -> NoReturn:
    """In bytes of the whole step, reserve included: the numbers of the result are those of the graph alone."""
    floor = result.peak_lower_bound + reserve
    best = min(graph.keep_all_peak + reserve, result.best_peak + fixed if result.best_peak else graph.keep_all_peak + fixed)
    known = f"smallest budget known to work: {best}"
    if result.status == "infeasible":
        raise remat.InfeasibleError(
            f"the budget of {budget} bytes is impossible: no plan of this step goes below {floor} bytes; {known}",
            floor=floor, smallest_known=best,
        )
    raise remat.NoPlanError(
        f"no plan within the budget of {budget} bytes was found in {result.seconds:.1f} s (stopped by "
        f"{result.stopped_by}); none goes below {floor}; {known}",
        floor=floor, smallest_known=best,
    )


def _rng_bytes(op: Any) -> int:
    return RNG_STATE_BYTES[tensors_of(op.node.meta["val"])[0].device.type] if op.random else 0


def _report(
    step: StepGraph, graph: remat.Graph, steps: Sequence[int], budget: int, reserve: int, peak: int
) -> PlanReport:
    runs: dict[int, int] = {}
    for index in steps:
        runs[index] = runs.get(index, 0) + 1
    base = sum(op.duration for op in step.ops)
    cost = sum(step.ops[index].duration for index in steps)
    return PlanReport(
        name=step.name, graph=graph, plan=None, status="given", planner="given", budget=budget, reserve=reserve,
        predicted_peak=peak + reserve + sum(_rng_bytes(op) for i, op in enumerate(step.ops) if runs.get(i, 0) > 1),
        keep_all_peak=graph.keep_all_peak + reserve, overhead=(cost - base) / max(1, base),
        peak_lower_bound=graph.floor + reserve, duration_lower_bound=base, ops=len(step.ops),
        recomputed_steps=len(steps) - len(step.ops), distinct_ops=0, existing_gradients=0,
    )


def _given_plan(
    step: StepGraph, graph: remat.Graph, options: Options, budget: int, reserve: int
) -> tuple[PlanReport, list[int]]:
    plan = options.plan
    if not isinstance(plan, (list, tuple, remat.Plan)):
        plan = remat.load_plan(str(plan))
    # The plan was made for another measurement of this step: take its steps, and check and cost them anew.
    steps = list(plan.steps) if isinstance(plan, remat.Plan) else list(plan)
    plan = remat.Plan(graph, steps, plan.order if isinstance(plan, remat.Plan) else options.order)
    report = _report(step, graph, steps, budget, reserve, plan.peak)
    report.plan = plan
    if report.predicted_peak > budget:
        raise remat.PlanError(f"the given plan needs {report.predicted_peak} bytes, the budget is {budget}")
    return report, steps


def _compile_boxed(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
    return boxed(gm)


@contextmanager
def _progress_line() -> Any:
    """Shows one line on a terminal once more than a second has passed, and clears it."""
    start = time.perf_counter()
    width = 0

    def show(text: str) -> None:
        nonlocal width
        if time.perf_counter() - start > 1 and sys.stderr.isatty():
            line = f"remat: {text}"
            sys.stderr.write("\r" + line.ljust(width))
            sys.stderr.flush()
            width = len(line)

    try:
        yield show
    finally:
        if width:
            sys.stderr.write("\r" + " " * width + "\r")
            sys.stderr.flush()
