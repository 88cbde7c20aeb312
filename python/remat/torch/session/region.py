"""One graph of Dynamo: captured, profiled, planned and rewritten at its first call.

Dynamo hands over a graph; AOTAutograd traces it at the first call with real tensors, because only then it is
known which gradients exist already and which shapes come. Each combination of these is one *variant*.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import torch
from torch import fx
from torch._functorch import config as functorch_config
from torch._functorch.aot_autograd import aot_module_simplified
from torch.utils._python_dispatch import _disable_current_modes

import remat

from ..base.nodes import SMALL, outputs_of, storage_bytes
from ..base.progress import ProgressLine
from ..base.step import OutputUse
from ..base.storages import tensor_storages
from ..cost.profile import run_alone
from ..plan.parts import held_bytes, part_of
from ..plan.planning import count_saved, plan_step
from ..plan.report import PlanReport
from ..run.codegen import boxed
from ..run.inductor import FirstStep, Partition, compile_with_inductor
from ..run.outputs import Replay, Usage, Watch, cut_off, differentiable_outputs, watch_tangents
from ..run.rewrite import rewrite
from ..trace.choices import apply_choices
from ..trace.contract import contract
from ..trace.fake import without_keeping
from ..trace.inplace import mark_last_readers
from ..trace.kernels import correct_sizes, eager_kernels
from ..trace.origins import name_inputs
from ..trace.tidy import tidy

if TYPE_CHECKING:
    from .session import Session

log = logging.getLogger("remat.torch")

# Planning anew is worth it for this share of the peak.
_WORTH_PLANNING = 0.001


class _CapturedOnly(Exception):
    """Leaves AOTAutograd when a step is captured but not to be run."""


@dataclass
class Variant:
    """A compiled graph, and what it takes for granted.

    held: bytes that a call leaves in memory. random: does it draw random numbers?
    """

    use: OutputUse
    run: Callable[..., Any] | None = None
    held: int = 0
    random: bool = False
    output_bytes: dict[int, int] = field(default_factory=dict)
    tangent_bytes: int = 0
    report: PlanReport | None = None


class Region:
    """One graph of Dynamo, with a variant for each combination of shapes, gradient mode and existing
    gradients.
    """

    def __init__(self, session: Session, gm: fx.GraphModule, number: int) -> None:
        self.session = session
        self.gm = gm
        self.number = number
        # The piece of code that it was compiled from; for other shapes Dynamo makes other regions of it.
        self.frame = -1
        self.variants: dict[Any, Variant] = {}
        # Bytes that calls left in memory since it was set to zero.
        self.held = 0
        self.__name__ = f"remat_region_{number}"
        # Regions whose saved tensors are in memory together with those of this one.
        self.mates: set[int] = set()
        # Those of them that hold tensors already when this one starts.
        self.before: set[int] = set()
        self.differentiable = differentiable_outputs(gm)
        self.outputs = len(outputs_of(gm))
        self.usage = Usage.stated(session.options.outputs, self.outputs)
        # Inputs that a call overwrites, once known.
        self.overwritten: set[int] | None = None
        # What the last call returned, while the session looks for what the loss depends on.
        self.returned: list[Any] = []
        self._contexts: WeakSet[Any] = WeakSet()

    def inherit(self, others: Iterable[Region]) -> None:
        """Take over what was seen of the outputs of the same code: Dynamo compiles it again for other shapes,
        and where the model's attributes change.
        """
        for other in others:
            if (other.outputs, other.differentiable) == (self.outputs, self.differentiable):
                self.usage = replace(other.usage)
                return

    def __call__(self, *args: Any) -> Any:
        training = torch.is_grad_enabled()
        self.session.graph_calls += 1
        if self.session.probing:
            self.returned = self._run(lambda *args: without_keeping(self.gm, args), args)
            return self.returned
        if training:
            self.session.start_call(self)
        key = self._key(args, training)
        self.session.shapes.use(self.frame, key[0], self.session.forget_shapes)
        variant = self.variants.get(key)
        if variant is None:
            variant = self._compile(args, key)
        if not training:
            return self._run(variant.run, args)
        if variant.report is not None:
            self.session.watch.forward(variant.report, _device_of(args))
        replay = None
        if variant.use.cut and self.overwritten is not None:
            replay = Replay(self.gm, args, self.overwritten, variant.random, self._note_late_gradient)
        first = self._first_step(variant, _device_of(args))
        if first is None:
            results = self._run(variant.run, args)
        else:
            results = first.forward(lambda: self._run(variant.run, args))
        self.held += variant.held
        node = self._note_call(results, variant)
        if node is not None and self.session.options.executor == "inductor":
            self._follow_backward(node, variant, first, _device_of(args))
        return results if replay is None else replay.wrap(results, variant.use.cut)

    def _run(self, run: Any, args: Sequence[Any]) -> Any:
        if self.overwritten is not None:
            return run(*args)
        versions = [a._version if isinstance(a, torch.Tensor) else 0 for a in args]
        results = run(*args)
        after = [a._version if isinstance(a, torch.Tensor) else 0 for a in args]
        self.overwritten = {i for i, version in enumerate(versions) if after[i] != version}
        return results

    def in_flight(self) -> int:
        """Calls whose saved tensors are still held, for a backward to come."""
        return sum(_holds_tensors(context) for context in self._contexts)

    def forget_plans(self) -> None:
        self.variants = {key: variant for key, variant in self.variants.items() if not key[1]}

    def forget_shapes(self, shapes: Hashable) -> None:
        for key in [key for key in self.variants if key[0] == shapes]:
            report = self.variants.pop(key).report
            if report is not None and report in self.session.report.parts:
                self.session.report.parts.remove(report)

    def _first_step(self, variant: Variant, device: torch.device) -> FirstStep | None:
        """Measures this call, if it is the first training step of a plan whose order is not kept."""
        session, report = self.session, variant.report
        if session.options.executor != "inductor" or session.preparing or report is None:
            return None
        if report.measured_peak is not None or not session.watch.is_first(report):
            return None
        return FirstStep(report, device, variant.tangent_bytes)

    def _follow_backward(
        self, node: Any, variant: Variant, first: FirstStep | None, device: torch.device
    ) -> None:
        """See the end of a backward that Inductor compiled; whether its gradients are held stays unknown."""

        def done(*_: Any) -> None:
            if first is not None:
                first.done()
            self._note_tangents(variant.use.tangents_held, variant)
            if variant.report is not None:
                self.session.watch.backward_done(variant.report, device)

        if first is not None:
            node.register_prehook(first.start_backward)
        node.register_hook(done)

    def _note_call(self, results: Any, variant: Variant) -> Any:
        """Watch the node of the autograd graph that this call made; returns it, or None."""
        for item in results if isinstance(results, (tuple, list)) else (results,):
            node = item.grad_fn if isinstance(item, torch.Tensor) else None
            if node is not None and not hasattr(node, "saved_tensors"):  # a view of what the graph returned
                node = next((n for n, _ in node.next_functions if hasattr(n, "saved_tensors")), None)
            if node is not None:
                self._contexts.add(node)
                Watch(node, results, lambda graded, held: self._note_use(graded, held, variant))
                return node
        return None

    def note_loss(self, leaf_of: dict[int, torch.Tensor]) -> None:
        """Learn which outputs got a gradient from the loss: leaf_of maps the address of an output to a leaf
        that took its place.
        """
        leaves = [leaf_of.get(id(item)) for item in self.returned]
        self.usage.graded = {i for i, leaf in enumerate(leaves) if leaf is None or leaf.grad is not None}
        self.returned = []

    def _note_use(self, graded: set[int], held: set[int], variant: Variant) -> None:
        """A backward starts."""
        _, surprises = self.usage.note(graded, held)
        if any(variant.output_bytes.get(i, 0) > SMALL for i in surprises & variant.use.dropped):
            self._surprise(f"outputs {sorted(surprises)} of graph {self.number} are held during the backward")

    def _note_late_gradient(self, index: int) -> None:
        self.usage.note({index}, set())
        self._surprise(f"output {index} of graph {self.number} gets a gradient; the graph ran again for it")

    def _note_tangents(self, held: bool, variant: Variant) -> None:
        """A backward ends: plan anew if this one took for granted more than is needed."""
        usage, options = self.usage, self.session.options
        if held and not variant.use.tangents_held:
            self._surprise(f"gradients of the outputs of graph {self.number} are held during the backward")
        usage.tangents_held = held or bool(usage.tangents_held)
        unused = usage.without_gradient(self.differentiable) - variant.use.cut
        spare = sum(variant.output_bytes.get(i, 0) for i in unused)
        spare += sum(
            variant.output_bytes.get(i, 0) for i in usage.dropped(self.outputs) - variant.use.dropped
        )
        spare += variant.tangent_bytes * (variant.use.tangents_held and not usage.tangents_held)
        if (
            options.plan is None
            and variant.report
            and spare > _WORTH_PLANNING * variant.report.predicted_peak
        ):
            self.session.stale = True

    def _surprise(self, what: str) -> None:
        log.warning("%s, for the first time; the budget is kept for that from the next step on", what)
        self.session.stale = True

    def _key(self, args: Sequence[Any], training: bool) -> Any:
        shapes = tuple(
            (arg.shape, arg.stride(), arg.requires_grad) if isinstance(arg, torch.Tensor) else arg
            for arg in args
            if not isinstance(arg, torch.nn.Parameter)
        )
        return shapes, training, self._existing_gradients(args) if training else 0

    def _existing_gradients(self, args: Sequence[Any]) -> int:
        """Bytes of the gradients that this step will add to."""
        leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad and a.is_leaf]
        if (sharding := self.session.sharding) is not None:
            # Gradients of the others are added to shards, which are counted.
            leaves = [leaf for leaf in leaves if not sharding.manages(leaf)]
        accumulate = self.session.options.accumulate
        if accumulate is None:
            return sum(storage_bytes(a.grad) for a in leaves if a.grad is not None)
        return sum(storage_bytes(a) for a in leaves) if accumulate else 0

    def _compile(self, args: Sequence[Any], key: Any) -> Variant:
        start = time.perf_counter()
        usage = self.usage
        cut = usage.without_gradient(self.differentiable) if key[1] else frozenset()
        variant = Variant(OutputUse(cut, usage.dropped(self.outputs), usage.tangents_held is not False))

        def partition(joint: fx.GraphModule, num_forward_outputs: int) -> Any:
            with _disable_current_modes():
                return self._partition(joint, num_forward_outputs, key, args, start, variant)

        gm = cut_off(self.gm, variant.use.cut)
        try:
            with functorch_config.patch(donated_buffer=False), eager_kernels():
                if self.session.options.executor == "inductor":
                    variant.run = compile_with_inductor(gm, args, partition)
                else:
                    variant.run = self._compile_in_order(gm, args, partition, variant)
        except _CapturedOnly:
            return Variant(variant.use, lambda *args: without_keeping(self.gm, args))
        self.variants[key] = variant
        return variant

    def _compile_in_order(
        self, gm: fx.GraphModule, args: Sequence[Any], partition: Partition, variant: Variant
    ) -> Callable[..., Any]:
        run: Callable[..., Any] = aot_module_simplified(
            gm,
            list(args),
            fw_compiler=_compile_boxed,
            bw_compiler=self._backward_compiler(variant, _device_of(args)),
            inference_compiler=_compile_boxed,
            partition_fn=lambda joint, _, *, num_fwd_outputs, **__: partition(joint, num_fwd_outputs),
            keep_inference_input_mutations=True,
        )
        return run

    def _backward_compiler(self, variant: Variant, device: torch.device) -> Callable[..., Any]:
        """Compiles the backward half so that its end is seen."""

        def done(held: bool) -> None:
            self._note_tangents(held, variant)
            if variant.report is not None:
                self.session.watch.backward_done(variant.report, device)

        def compile_backward(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
            return watch_tangents(boxed(gm), gm, done)

        return compile_backward

    def _partition(
        self,
        joint: fx.GraphModule,
        num_forward_outputs: int,
        key: Any,
        args: Sequence[Any],
        start: float,
        variant: Variant,
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        session, existing = self.session, key[-1]
        for_compiler = session.options.executor == "inductor"
        if not for_compiler:
            tidy(joint)
        correct_sizes(joint, run_alone)
        step = contract(joint, num_forward_outputs, f"step_{self.number}", variant.use)
        step.set_loss(session.loss_workspace, session.loss_bytes)
        name_inputs(step, self.gm, args)
        options = session.options
        if not for_compiler:
            mark_last_readers(step)
        apply_choices(step, options.patterns("never_recompute"), options.patterns("always_keep"))
        step.add_resident("existing gradients", existing)
        step.add_resident("outside the graph", session.outside(args))
        captured = time.perf_counter()
        if session.captured is not None:
            session.captured.append(step)
            raise _CapturedOnly
        options = session.settle(args, _device_of(args))
        with ProgressLine() as progress:
            distinct = session.costs.fill(step, progress.profiling)
            profiled = time.perf_counter()
            graph = remat.Graph.from_dict(step.to_dict())
            counted = existing > 0 or session.sharding is not None
            part = part_of(step, graph, counted, session.calls, self.number, self.before)
            known = session.parts.get(self.number)
            if self.mates and (known is None or known.key != part.key):
                session.stale = True  # the others were planned beside something else
            session.parts[self.number] = part
            others = [session.parts[number] for number in sorted(self.mates) if number in session.parts]
            report, steps = plan_step(step, part, options, others, progress, session.store, session.memo)
        report.distinct_ops = distinct
        report.existing_gradients = existing
        # What eager code leaves counts as resident in the plan, but comes while the step runs.
        report.rise += session.unplanned
        if session.sharding is not None:
            inside = tensor_storages([a for a in args if isinstance(a, torch.Tensor)])
            report.rise += session.sharding.rise(inside)
        variant.report = report
        halves = rewrite(step, steps, for_compiler)
        count_saved(report, step, graph, steps, halves.saved)
        variant.tangent_bytes = step.tangent_bytes
        held = held_bytes(session.parts[self.number], steps)
        variant.held = held - variant.tangent_bytes + halves.rng_state_bytes
        variant.random = step.is_random
        variant.output_bytes = step.output_bytes()
        report.seconds = {
            "capture": captured - start,
            "profile": profiled - captured,
            "plan": time.perf_counter() - profiled,
        }
        session.report.parts.append(report)
        log.info(
            "%s: %d ops, peak %d -> %d bytes (budget %d), overhead %.1f %%, %d steps recomputed, %.1f s%s",
            report.name,
            report.ops,
            report.keep_all_peak,
            report.predicted_peak,
            report.budget,
            100 * report.overhead,
            report.recomputed_steps,
            sum(report.seconds.values()),
            ", stored plan" if report.stored else "",
        )
        return halves.forward, halves.backward


def _holds_tensors(context: Any) -> bool:
    try:
        return len(context.saved_tensors) > 0
    except RuntimeError:  # freed by the backward
        return False


def _compile_boxed(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
    return boxed(gm)


def _device_of(args: Sequence[Any]) -> torch.device:
    """The device of a graph's parameters, or of any of its tensors."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    tensors.sort(key=lambda t: not isinstance(t, torch.nn.Parameter))
    return tensors[0].device if tensors else torch.device("cpu")
