"""The pipeline of a step: capture, cost, plan, rewrite, report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

import remat

from ..base.account import phase
from ..base.devices import runtime_of
from ..base.errors import UnsupportedModelError, log
from ..base.nodes import copied
from ..base.private import is_traceable_wrapper_subclass
from ..base.progress import ProgressLine, progress_line
from ..base.step import OutputUse, StepGraph
from ..base.storages import shown_bytes
from ..cost.layouts import Layouts
from ..cost.profile import run_alone
from ..cost.values import RealValues
from ..plan.aiming import Aimed, aim
from ..plan.arena import Placeable
from ..plan.budget import amount_of, is_amount
from ..plan.cache import PlanCache
from ..plan.options import Options
from ..plan.part import Part
from ..plan.planning import plan_step, survey_step
from ..plan.problem import Problem
from ..plan.report import PlanReport
from ..plan.store import Store
from ..run.bandwidth import measured_host
from ..run.channels import Channels, channels_of
from ..run.copies import Copies, HostPool, lay_out
from ..run.placed import placeable
from ..run.places import Places
from ..run.pool import Pool, PoolUser
from ..run.rewrite import Halves, rewrite
from ..run.schedule import Schedule, Workspaces, scheduled
from ..trace.away import copyable_values
from ..trace.capture import Circumstances, capture_step
from ..trace.schedule import placeholders
from .flight import InFlight
from .surroundings import Existing, Surroundings


@dataclass(frozen=True)
class Call:
    """A call of a graph of Dynamo, the first of its kind.

    number: of the graph in the model. use: assumptions about its outputs. existing: gradients that the step
    will add to. floats: number of Python floats passed as tensors. varies: True if sizes are traced as
    symbols. told: called before planning with bytes of gradients that have their own storage, by argument.
    loss_measured_for: as of `StepGraph.set_loss`.
    """

    number: int
    gm: fx.GraphModule
    args: Sequence[Any]
    use: OutputUse
    existing: Existing
    floats: int = 0
    varies: bool = False
    told: Callable[[Mapping[int, int]], object] | None = None
    loss_measured_for: int = 0

    @property
    def device(self) -> torch.device:
        """The device of the parameters, or of any tensor."""
        return device_of(self.args)


def device_of(args: Sequence[Any]) -> torch.device:
    """The device of the parameters, or of any tensor. Raises UnsupportedModelError if they are on several
    accelerators.
    """
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    accelerators = sorted({str(t.device) for t in tensors if t.device.type not in ("cpu", "meta")})
    if len(accelerators) > 1:
        raise UnsupportedModelError(
            f"a step on {', '.join(accelerators)}: a budget is for one device; give each part of a model "
            "that is spread over several a call of its own (remat.torch.fit of each part)"
        )
    tensors.sort(key=lambda t: not isinstance(t, torch.nn.Parameter))
    return tensors[0].device if tensors else torch.device("cpu")


@dataclass(frozen=True)
class Captured:
    """A step that was captured at a call."""

    step: StepGraph
    call: Call


@dataclass(frozen=True)
class Costed:
    """The graph of a step with the costs of its ops, and the number of newly measured ones.

    unmeasured: number of ops that cannot be measured.
    """

    graph: remat.Graph
    measured: int
    unmeasured: int


@dataclass(frozen=True)
class Planned:
    """Properties of a planned and rewritten step. Sizes are bytes.

    held: bytes that a call holds for its backward; tangents: bytes of gradients of outputs. outputs: by index
    among those of the captured function. pool_user: of the pool, if any.
    """

    report: PlanReport
    held: int
    tangents: int
    outputs: Mapping[int, int]
    is_random: bool
    pool_user: PoolUser | None = None


class CapturedOnlyError(Exception):
    """Raised to leave AOTAutograd when a step is captured only."""


class Pipeline:
    """From joint graphs to halves that run within the budget, for all graphs of one model.

    captured: collects steps that are only to be captured. captures_both: each with one that adds to existing
    gradients, of the same trace. is_broken: True if the model has code beside a graph, or several graphs.
    planned_for: the largest budget in bytes of planned steps; 0: none yet.
    """

    def __init__(
        self, options: Options, surroundings: Surroundings, flight: InFlight, only_capture: bool
    ) -> None:
        self.options, self.surroundings, self.flight = options, surroundings, flight
        self.captured: list[Captured] | None = [] if only_capture else None
        self.captures_both = self._surveys = False
        self.is_broken: Callable[[], bool] = lambda: False
        self.planned_for: Callable[[], int] = lambda: 0
        store = Store(options.cache_dir) if options.cache_dir is not None else None
        self.costs = options.cost_source(store, runs=not only_capture)
        self.layouts = Layouts()
        self.cache = PlanCache(store)
        self.for_compiler = options.executor == "inductor"
        # The last plan, by number of the graph and whether it adds to gradients.
        self._parts: dict[tuple[int, bool], Part] = {}
        self.pool = Pool()
        self._host_pool: HostPool | None = None
        self._workspaces = Workspaces()

    @contextmanager
    def surveying(self) -> Iterator[None]:
        """Inside the block, graphs of a model in pieces get any plan, until all graphs are known."""
        plain = self.options.plan is None and self.options.group is None and not self.for_compiler
        self._surveys = plain and self.surroundings.sharding is None
        try:
            yield
        finally:
            self._surveys = False

    def ask_what_is_planned_for(self, planned_for: Callable[[], int]) -> None:
        self.planned_for = planned_for

    def ask_whether_broken(self, is_broken: Callable[[], bool]) -> None:
        """Sets the function that tells whether the model is broken."""
        self.is_broken = is_broken

    def capture_both(self) -> None:
        """Capture both kinds of steps from now on."""
        self.captures_both = True

    def __call__(
        self, joint: fx.GraphModule, num_forward_outputs: int, call: Call, adding: Existing | None = None
    ) -> tuple[Planned, Halves]:
        """Runs the whole pipeline. Raises CapturedOnlyError if steps are only to be captured, and
        TracedOtherwiseError if a trace with the layouts known now would differ.

        adding: gradients that another step of this trace adds to, if it is captured too.
        """
        calls = [call] if adding is None else [call, replace(call, existing=adding)]
        traces = [joint, *(copied(joint) for _ in calls[1:])]
        steps = [self.capture(t, num_forward_outputs, c) for t, c in zip(traces, calls, strict=True)]
        if self.captured is not None:
            with progress_line() as progress:
                for step in steps:
                    self.cost(step, progress)
            self.captured += steps
            raise CapturedOnlyError
        return self.plan(steps[0])

    def capture(self, joint: fx.GraphModule, num_forward_outputs: int, call: Call) -> Captured:
        around, options = self.surroundings, self.options
        if options.arena and call.device.type != "cpu":
            raise remat.UsageError(
                f"arena=True is for the CPU, not for {call.device}: PyTorch's allocator keeps memory there, "
                "and no pool is made of it (torch.cuda.MemPool)"
            )
        circumstances = Circumstances(
            name=f"step_{call.number}",
            use=call.use,
            loss_workspace=around.loss_workspace,
            loss_bytes=around.loss_bytes,
            loss_measured_for=call.loss_measured_for,
            existing_gradients=call.existing.bytes,
            ends=around.ends(call.args, call.existing),
            outside=around.outside(call.args, call.device)
            + around.floats_to_come(call.floats, call.device)
            + self._untraced(joint, call),
            routing=options.routing,
            never_recompute=options.patterns("never_recompute"),
            always_keep=options.patterns("always_keep"),
            for_compiler=self.for_compiler,
        )
        step = capture_step(joint, num_forward_outputs, (call.gm, call.args), circumstances, run_alone)
        if options.host is not None:
            step.allow_copies(copyable_values(step, call.device))
        return Captured(step, call)

    def _untraced(self, joint: fx.GraphModule, call: Call) -> int:
        """Bytes of a call's inputs that its trace, made for inputs of these shapes, does not show: those may
        have been no views of larger storages.
        """
        if self.surroundings.sharding is not None or any(map(is_traceable_wrapper_subclass, call.args)):
            return 0
        traced = shown_bytes([node.meta.get("val") for node in placeholders(joint)[0]], call.device.type)
        return max(0, shown_bytes(call.args, call.device.type) - traced)

    def cost(self, captured: Captured, progress: ProgressLine) -> Costed:
        with phase("profile"):
            step, call = captured.step, captured.call
            values = RealValues.of(step.gm, call.args, amount_of(self.options.budget))
            room = self._room_to_measure(step, call)
            measured = self.costs.fill(step, progress.profiling, call.varies, values, room)
            if not self.for_compiler:
                self.layouts.compare(step, self.costs.known or {})
            unmeasured = len(self.costs.unmeasured(step))
            return Costed(remat.Graph.from_dict(step.to_dict()), measured, unmeasured)

    def _room_to_measure(self, step: StepGraph, call: Call) -> int | None:
        """Bytes that the budget leaves beside what is there before a step; None: a share of what is not known
        yet."""
        limit = self.planned_for() or amount_of(self.options.budget)
        if limit is None:
            return None
        there = sum(step.values[value].bytes for value in step.inputs)
        return max(0, limit - self.surroundings.settle(call.args, call.device).size("reserve") - there)

    def plan(self, captured: Captured) -> tuple[Planned, Halves]:
        """The pipeline after costs. Raises as `plan_step`."""
        step, call = captured.step, captured.call
        with progress_line() as progress:
            costed = self.cost(captured, progress)
            if call.told is not None:
                call.told(step.gradient_bytes())
            with phase("plan"):
                # Memory that libraries allocate at their first use exists by now ("auto").
                options = self._settled(call)
                part, others = self._parts_together(captured, costed.graph)
                allocator = runtime_of(call.device).caching_allocator()
                may_place = self._placeable(captured, part.copies == 1 and not others)
                in_pieces = bool(others) or part.copies > 1 or self.is_broken()
                held = self.surroundings.held_throughout(call.args) if in_pieces else None
                problem = Problem(step, part, options, others, allocator, may_place, held)
                surveys = self._surveys and self.is_broken()
                if surveys:
                    self.flight.plan_anew()

                def plan_for(budget: int | None = None) -> PlanReport:
                    if surveys:
                        return survey_step(problem)
                    asked = problem if budget is None else problem.at(budget)
                    try:
                        return plan_step(asked, self.cache, progress)
                    except remat.NoPlanError:
                        # A share of a smaller step's peak may be too little for it.
                        others_have = 0 if in_pieces or is_amount(options.budget) else self.planned_for()
                        if budget is not None or not problem.may_aim or others_have <= problem.budget:
                            raise
                        return plan_step(problem.at(others_have), self.cache, progress)

                if self.for_compiler and problem.may_aim:
                    report, halves = self._aimed(problem, captured, plan_for)
                else:
                    report, halves = plan_for(), None
            report = replace(
                report,
                rise=report.rise + self.surroundings.rise(call.args, bool(call.existing.stepped)),
                distinct_ops=costed.measured,
                unmeasured_ops=costed.unmeasured,
                existing_gradients=call.existing.bytes,
            )
            if halves is None:
                with phase("code"):
                    halves = self._halves(step, report, may_place, call.device)
            progress.set_result(report.outcome())
        plan = report.plan
        held = part.held_bytes(plan.steps, plan.copies) - step.tangent_bytes
        pool_user = self._pool_user(report)
        planned = Planned(report, held, step.tangent_bytes, step.output_bytes(), step.is_random, pool_user)
        return planned, halves

    def _aimed(
        self, problem: Problem, captured: Captured, planned: Callable[[int | None], PlanReport]
    ) -> tuple[PlanReport, Halves]:
        """A plan within the budget by Inductor's schedule, with that schedule's peak.

        planned: makes the plan for a number of bytes.
        """
        call = captured.call

        def make(budget: int) -> Aimed[tuple[PlanReport, Halves]]:
            report = planned(budget)
            halves = self._halves(captured.step, report, None, call.device)
            report = replace(report, budget=problem.budget, asked=None, within=None)
            schedule = self._scheduled(halves, captured)
            if schedule is not None:
                report = report.as_scheduled(schedule.rise)
            return Aimed((report, halves), report.predicted_peak, report.overhead)

        if problem.options.plan is not None:
            return make(problem.budget).made
        return aim(make, problem.budget, problem.reserve + int(problem.graph.resident)).made

    def _scheduled(self, halves: Halves, captured: Captured) -> Schedule | None:
        """Inductor's schedule, or None if unknown: then the peak is the plan's."""
        step, call = captured.step, captured.call
        try:
            return scheduled(
                halves,
                step.num_forward_outputs,
                call.use.dropped,
                self._workspaces,
                (step.ops[step.loss].workspace, self.surroundings.loss_bytes),
            )
        except Exception as error:
            log.debug("Inductor's schedule is not known before it runs: %s", error, exc_info=True)
            return None

    def _halves(
        self, step: StepGraph, report: PlanReport, may_place: Placeable | None, device: torch.device
    ) -> Halves:
        plan = report.plan
        simulated = remat.simulate(report.graph, plan.steps, plan.copies)
        overwrites = {position for position, _, _ in simulated.overwrites}
        copies, places = self._copies(report, device), Places.of(report.arena, may_place)
        return rewrite(step, plan.steps, overwrites, self.for_compiler, copies, places)

    def _placeable(self, captured: Captured, is_alone: bool) -> Placeable | None:
        """Results eligible for the pool of a step, if it has one."""
        if not self.options.arena:
            return None
        if not is_alone:
            log.warning(
                "arena=True: graph %d is in flight together with others, or with calls of its own; its "
                "results are allocated one by one",
                captured.call.number,
            )
            return None
        return placeable(captured.step)

    def _pool_user(self, report: PlanReport) -> PoolUser | None:
        arena = report.arena
        if arena is None or not arena.places:
            return None
        return PoolUser(self.pool, arena.pool, report.budget - report.reserve - arena.beside)

    def _settled(self, call: Call) -> Options:
        """The options of a call, with the measured host in place of "auto"."""
        options = self.surroundings.settle(call.args, call.device)
        if options.host == "auto":
            options = replace(options, host=measured_host(self._channels(call.device), call.device))
        return options

    def _channels(self, device: torch.device) -> Channels:
        return channels_of(device, self.options.host_dir)

    def _pool_on_host(self, device: torch.device, host: remat.Host) -> HostPool:
        if self._host_pool is None:
            self._host_pool = HostPool(self._channels(device), host.budget)
        return self._host_pool

    def _copies(self, report: PlanReport, device: torch.device) -> Copies | None:
        """The object that carries out the copies of a plan, if any."""
        plan = report.plan
        if not plan.copies or report.host is None:
            return None
        places = lay_out(report.graph, plan.copies)
        return Copies(plan.copies, places, self._pool_on_host(device, report.host), report.traffic)

    def bytes_between(self, numbers: set[int]) -> int:
        """Bytes that these graphs pass to one another and to the caller, which no plan recomputes."""
        parts = {number: part for (number, _), part in self._parts.items() if number in numbers}.values()
        return sum(part.copies * part.made_bytes(part.graph.op_inputs(part.loss)) for part in parts)

    def _parts_together(self, captured: Captured, graph: remat.Graph) -> tuple[Part, tuple[Part, ...]]:
        """The step as a part, and the other parts in flight."""
        number, mates = captured.call.number, self.flight.mates(captured.call.number)
        adds = captured.call.existing.bytes > 0
        counted = adds or self.surroundings.sharding is not None
        part = Part.of(
            captured.step, graph, counted, self.flight.calls(number), number, self.flight.before(number)
        )
        known = self._parts.get((number, adds))
        if mates and (known is None or known.key != part.key):
            self.flight.plan_anew()  # the others were planned with other parts
        self._parts[number, adds] = part
        others = (self._parts.get((other, adds)) for other in sorted(mates))
        return part, tuple(other for other in others if other is not None)
