"""One graph of Dynamo: captured, profiled, planned and rewritten at its first call.

Dynamo passes a graph; AOTAutograd traces it at the first call with real tensors, since only then existing
gradients and shapes are known. Each combination of these is one *variant*.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakSet

import torch
from torch import fx

import remat

from ..base.account import account, phase, since
from ..base.errors import UnplannableError, UnsupportedModelError, log
from ..base.garbage import collected_later
from ..base.generators import generator_states
from ..base.modes import Casts, TraceSettings, casts_now, modes_kept
from ..base.nodes import SMALL, outputs_of
from ..base.private import (
    BackwardCFunction,
    JointTrace,
    KernelSettings,
    _disable_current_modes,
    holds_saved_tensors,
    in_data_parallel,
    keeps_graph,
    nothing_donated,
    packs_saved_tensors,
    write_count,
)
from ..base.progress import progress_line
from ..base.reasons import in_a_line
from ..base.step import OutputUse
from ..base.storages import has_data, shown_bytes
from ..base.turns import one_at_a_time
from ..cost.layouts import TracedOtherwiseError
from ..plan.report import PlanReport
from ..run.backward import Tangents, Watch
from ..run.compile import compile_in_order, joint_alone
from ..run.inductor import FirstStep, compile_with_inductor
from ..run.outputs import Gradient, MadeOf, Skipped, Usage, cut_off, unfilled
from ..run.pool import PoolUser
from ..run.replay import PreparedGradients, Replay
from ..trace.checkpoints import has_reentrant_checkpoint, without_checkpoints
from ..trace.fake import forget_gradients, without_keeping
from ..trace.floats import Floats, FloatsMatterError, Marks, Numbers
from ..trace.kernels import eager_kernels
from ..trace.masks import Masks
from ..trace.origins import describe_input
from ..trace.strides import EagerStrides
from ..trace.symbolic import is_symbolic
from ..trace.tangents import Strides, TangentStrides, summed_otherwise
from .accumulation import Ends
from .pipeline import Call, CapturedOnlyError, Planned, device_of
from .proof import Step, traced_alone
from .shared import Shared
from .surroundings import Existing
from .unplanned import KEPT, SKIPPED, larger_inputs
from .untouched import WritesNoted
from .varying import Form, Plain, SymbolsDifferError, Varying, described_inputs

# Phases of making a plan, in sequence.
PHASES = ("capture", "profile", "plan", "code")

# Share of the peak for which replanning is worth it.
_WORTH_PLANNING = 0.001


class UntraceableError(Exception):
    """A graph of Dynamo that cannot be traced or planned. gm: for these inputs; cause: the error."""

    def __init__(self, gm: fx.GraphModule, cause: Exception) -> None:
        super().__init__(in_a_line(cause))
        self.gm, self.cause = gm, cause


class Key(NamedTuple):
    """The key of a variant. left_out: masks that eager mode leaves out at this call."""

    shapes: Hashable
    training: bool
    existing: Existing
    left_out: frozenset[int]


class TracedFor(NamedTuple):
    """The key of a trace. cut: outputs without gradients; strides: of the gradients of the others; casts: of
    autocast during the backward.
    """

    shapes: Hashable
    left_out: frozenset[int]
    cut: frozenset[int]
    strides: frozenset[tuple[str, Strides]]
    casts: Casts


@dataclass
class Variant:
    """A compiled graph, and its assumptions about outputs; planned if it needs gradients.

    inputs: bytes of the storages of its inputs, which may be views of larger ones.
    existing: gradients that it adds to, and the use of those that it makes. numbers: values that its step
    reads in each call. casts: of autocast during its backward.
    """

    gm: fx.GraphModule
    use: OutputUse
    existing: Existing = field(default_factory=Existing)
    run: Callable[..., Any] | None = None
    planned: Planned | None = None
    prepared: PreparedGradients = field(default_factory=PreparedGradients)
    made_of: MadeOf = field(default_factory=MadeOf)
    numbers: Numbers | None = None
    casts: Casts = ()
    inputs: int = 0

    def count_inputs(self, inputs: int) -> None:
        self.inputs = inputs

    def has_room_for(self, inputs: int) -> bool:
        more = inputs - self.inputs
        if more <= 0 or self.planned is None:
            return True
        return self.planned.report.predicted_peak + more <= self.planned.report.budget

    def accept(self, planned: Planned) -> None:
        self.planned = planned

    def compiled(self, run: Callable[..., Any]) -> Variant:
        self.run = run
        return self


class Region:
    """One graph of Dynamo, with a variant for each combination of shapes, gradient mode and existing
    gradients.

    number: of the graph in the model. frame: the code that it was compiled from; for other shapes Dynamo
    makes other regions of it, and for other settings of kernels the session does. unpacked: the graph without
    the model's own checkpoints, which is what is traced. held: bytes that calls left
    in memory since the last query.
    """

    def __init__(
        self, shared: Shared, gm: fx.GraphModule, number: int, frame: int, settings: TraceSettings
    ) -> None:
        self.shared, self.gm, self.number, self.frame = shared, gm, number, frame
        self.settings = settings
        self.is_reentrant = has_reentrant_checkpoint(gm)
        self.variants: dict[Key, Variant] = {}
        # The last trace without symbols, by form.
        self._plain: dict[Form, Plain] = {}
        # Shared by variants that differ in existing gradients or in the use of outputs.
        self._traces: dict[TracedFor, JointTrace] = {}
        self.usage = Usage.of(gm, shared.options.outputs)
        one_plan = shared.options.group is not None
        self._floats = Floats(gm)
        self._marks: dict[TracedFor, Marks] = {}
        self.unpacked = without_checkpoints(gm)
        self._masks = Masks(self.unpacked, one_plan)
        described = list(described_inputs(gm).values())
        sizes = [each for i, each in enumerate(described) if i not in self._floats.positions]
        self._varying = Varying(self.unpacked, one_plan) if is_symbolic(sizes) else None
        # The same code, compiled without symbols.
        self._kin: Region | None = None
        # Inputs that a call overwrites, once known.
        self._overwritten: set[int] | None = None
        # Results of the last call, while the outputs used by the loss are determined.
        self._returned: list[Any] = []
        self._held = 0
        self._contexts: WeakSet[Any] = WeakSet()
        # By argument, once known: whether it gets a gradient; whether autograd must add to an existing one.
        self._graded: frozenset[int] | None = None
        # By argument, bytes of the gradient that steps make.
        self._gradient_bytes: dict[int, int] = {}
        self._left: frozenset[int] = frozenset()
        # Positions of arguments that are no parameters, and the type of the step's device; once known.
        self._inputs: tuple[list[int], str] | None = None

    def inherit(self, others: Sequence[Region]) -> None:
        """Take over observations about outputs of the same code, which Dynamo compiles again for other shapes
        and changed attributes.
        """
        for other in others:
            if other.usage.is_like(self.usage):
                self.usage = replace(other.usage, strides=dict(other.usage.strides))
                self._left = other._left
                break
        kin = (other for other in others if other._varying is None and other.settings == self.settings)
        self._kin = next(kin, None)

    def key(self, args: Sequence[Any], training: bool) -> Key:
        """The key of a call. Raises UntraceableError if the bytes of an argument depend on data, or if it
        cannot be saved for the backward."""
        layouts = {arg.layout for arg in args if isinstance(arg, torch.Tensor)}
        for layout in layouts - {torch.strided}:
            kind = str(layout).removeprefix("torch.")
            error = UnplannableError(f"it reads a {kind} tensor, whose bytes depend on data")
            raise UntraceableError(self.gm, error)
        if training and any(isinstance(arg, torch.Tensor) and arg.is_inference() for arg in args):
            error = UnplannableError("it reads an inference tensor, which cannot be saved for the backward")
            raise UntraceableError(self.gm, error)
        shapes = tuple(
            (arg.shape, arg.stride(), arg.requires_grad) if isinstance(arg, torch.Tensor) else arg
            for i, arg in enumerate(args)
            if not isinstance(arg, torch.nn.Parameter) and i not in self._floats.positions
        )
        if training and self._floats.positions:
            values = self._floats.values(args)
            shapes = *shapes, *self._floats.key(values, self._may_change(values))
        left_out = self._masks_of(shapes, args).left_out(args)
        return Key(shapes, training, self._existing(args, training), left_out)

    def _may_change(self, values: Sequence[float]) -> bool:
        """True if one step serves these numbers and others."""
        return self.shared.options.executor == "boxed" and self._floats.change(values)

    def _masks_of(self, shapes: Hashable, args: Sequence[Any]) -> Masks:
        return self._masks if self._varying is None else self._varying.masks(shapes, args)

    def _existing(self, args: Sequence[Any], training: bool) -> Existing:
        if not training:
            return Existing()
        return self.shared.surroundings.existing_gradients(args, self._graded, self._gradient_bytes).without(
            self._left
        )

    def _adding(self, args: Sequence[Any]) -> Existing:
        """The existing gradients of a step that adds to them."""
        with self.shared.surroundings.accumulating():
            return self._existing(args, training=True)

    def knows(self, key: Key) -> bool:
        return key in self.variants

    def nodes(self) -> Iterable[Any]:
        """Live autograd nodes of its calls."""
        return list(self._contexts)

    def __call__(self, args: Sequence[Any], key: Key, runs: bool = True) -> Any:
        """runs: False: a planned call only returns uninitialized results, whose values are not used."""
        variant = self.variants.get(key)
        if variant is None:
            with one_at_a_time():
                # Another thread may have made it meanwhile.
                variant = self.variants.get(key) or self._made(args, key)
        elif variant.planned is not None and not variant.has_room_for(inputs := self._input_bytes(args)):
            variant = self._made_larger(args, key, variant, inputs)
        results = None if runs or variant.planned is None else unfilled(variant.gm)
        if results is not None:
            return results
        return self._train(variant, args) if key.training else self._run(variant.run, args)

    def _made(self, args: Sequence[Any], key: Key) -> Variant:
        with account() as spent, phase("capture"):
            before = spent.seconds()
            variant = self._compiled(args, key)
            if variant.planned is not None:
                self._announce(variant.planned.report, since(before, spent.seconds()))
        # A known model is verified as a whole.
        if self.shared.options.verify and self.shared.surroundings.model is None:
            with phase("verify"):
                self._prove(variant, args)
        return variant

    def _input_bytes(self, args: Sequence[Any]) -> int:
        if self._inputs is None:
            given = [i for i, arg in enumerate(args) if not isinstance(arg, torch.nn.Parameter)]
            self._inputs = given, device_of(args).type
        positions, device_type = self._inputs
        return shown_bytes((args[i] for i in positions), device_type)

    def _made_larger(self, args: Sequence[Any], key: Key, variant: Variant, inputs: int) -> Variant:
        """The variant for inputs that are views of larger storages; if none is found, the old one goes on."""
        with one_at_a_time():
            known = self.variants.get(key)
            if known is not None and known.has_room_for(inputs):
                return known
            planned, made = variant.planned, None
            assert planned is not None  # others have room
            if self.shared.options.group is None:  # whose ranks plan together
                with suppress(remat.NoPlanError):
                    made = self._made(args, key)
            if made is not None:
                self.shared.report.forget(planned.report)
                return made
            said = larger_inputs(inputs, variant.inputs, planned.report)
            if self.shared.options.strict:
                raise remat.UsageError(f"strict=True: {said}")
            self.shared.warn_once(said, about="inputs")
            variant.count_inputs(inputs)
            return variant

    def probe(self, args: Sequence[Any]) -> Any:
        """A call without a plan and without gradients, before `note_loss`."""
        self._returned = self._run(self._run_unplanned, args)
        return self._returned

    def _run_unplanned(self, *args: Any) -> Any:
        return without_keeping(self.gm, args, self.shared.is_keeping)

    def note_loss(self, gradient_of: Mapping[int, Gradient]) -> None:
        """Notes the loss's gradients of the last call's outputs, by address."""
        self.usage.note_loss(gradient_of.get(id(item)) for item in self._returned)
        self._returned = []

    def in_flight(self) -> int:
        """Calls whose saved tensors are held for a later backward."""
        return sum(holds_saved_tensors(context) for context in self._contexts)

    def take_held(self) -> int:
        """Bytes left in memory by the plans of calls since the last query."""
        held, self._held = self._held, 0
        return held

    def forget_plans(self) -> None:
        self.variants = {key: variant for key, variant in self.variants.items() if not key.training}

    def forget_shapes(self, shapes: Hashable) -> None:
        if self._varying is not None:
            self._varying.forget(shapes)
        for trace in [trace for trace in self._traces if trace.shapes == shapes]:
            del self._traces[trace]
        for key in [key for key in self.variants if key.shapes == shapes]:
            planned = self.variants.pop(key).planned
            if planned is not None:
                self.shared.report.forget(planned.report)

    def _run(self, run: Any, args: Sequence[Any], planned: bool = False) -> Any:
        """planned: writes to arguments are steps of a plan, which counts them."""
        note = self.shared.before_write
        noted = nullcontext() if note is None else WritesNoted(note)
        if self._overwritten is not None:
            with noted:
                return run(*args)
        versions = [write_count(a) if isinstance(a, torch.Tensor) else 0 for a in args]
        # Batch norm updates its statistics without counting a write.
        looked_at = set() if planned else {i for i in _may_be_overwritten(args) if has_data(args[i])}
        values = {i: args[i].detach().clone() for i in looked_at}
        with noted:
            results = run(*args)
        after = [write_count(a) if isinstance(a, torch.Tensor) else 0 for a in args]
        self._overwritten = {
            i
            for i, version in enumerate(versions)
            if after[i] != version or (i in values and not torch.equal(values[i], args[i]))
        }
        return results

    def _train(self, variant: Variant, args: Sequence[Any]) -> Any:
        """A call with gradients; without a plan if its results need none."""
        planned, device, replay = variant.planned, device_of(args), None
        if variant.numbers is not None:
            numbers = self._floats.numbers(self._floats.values(args))
            variant.numbers.are(numbers)
        if variant.existing.stepped and in_data_parallel():
            raise UnsupportedModelError(
                'step="backward": DistributedDataParallel averages gradients after the backward of the '
                "model, when its parameters would have stepped already"
            )
        if planned is not None:
            self.shared.watch.forward(planned.report, device)
            self._held += planned.held
        if variant.use.cut and not self.shared.is_preparing:
            # Nothing is known of a graph whose results had no gradient.
            random = planned is None or planned.is_random
            overwritten = self._overwritten if self._overwritten is not None else _may_be_overwritten(args)
            replay = Replay(variant.gm, args, overwritten, random, self._note_late_gradient)
        first = self._first_step(planned, device)
        counted = planned is not None and self.shared.options.executor == "boxed"
        if first is None:
            results = self._run(variant.run, args, counted)
        else:
            results = first.forward(lambda: self._run(variant.run, args, counted))
        if self._floats.positions:
            results = self._floats.returned(results, self._floats.values(args))
        node = self._note_call(results, variant, args)
        if node is not None and variant.numbers is not None:
            node.register_prehook(lambda _: setattr(variant.numbers, "now", numbers))
        ended = variant.existing.ended
        if node is not None and ended:
            step_of = self.shared.surroundings.stepping.step_of
            Ends(node, [args[i] for i in ended], step_of, lambda left: self._note_left(left, ended))
        if node is not None and self.shared.options.executor == "inductor":
            self._follow_backward(node, variant, first, device)
        return results if replay is None else replay.wrap(results, variant.use.cut, node, variant.prepared)

    def _prove(self, variant: Variant, args: Sequence[Any]) -> None:
        """Compare a step with the same in eager mode. Raises VerificationError."""
        if variant.planned is None:
            return
        placeholders = self.gm.graph.find_nodes(op="placeholder")
        parameters = [
            (describe_input(str(node.target), arg), arg)
            for node, arg in zip(placeholders, args, strict=True)
            if isinstance(arg, torch.nn.Parameter) and arg.requires_grad
        ]
        step = Step(
            name=variant.planned.report.name,
            eager=lambda own: variant.gm(*own),
            planned=lambda own: self._train(variant, own),
            traced=lambda: traced_alone(variant.gm),
            arguments=list(args),
            parameters=parameters,
            casts=self.shared.casts,
        )
        with self.shared.proving():
            step.prove(generator_states())

    def _first_step(self, planned: Planned | None, device: torch.device) -> FirstStep | None:
        """Measures this call, if it is the first training step of a plan for an executor with its own
        order."""
        shared = self.shared
        if planned is None or shared.options.executor != "inductor" or shared.is_preparing:
            return None
        if planned.report.measured_peak is not None or not shared.watch.is_first(planned.report):
            return None
        return FirstStep(planned.report, device, planned.tangents)

    def _follow_backward(
        self, node: Any, variant: Variant, first: FirstStep | None, device: torch.device
    ) -> None:
        """Watches for the end of a backward compiled by Inductor; whether its gradients are held stays
        unknown."""

        def done(*_: Any) -> None:
            if first is not None:
                first.done()
            self._note_backward(variant.use.tangents_held, variant, device)

        if first is not None:
            node.register_prehook(first.start_backward)
        node.register_hook(done)

    def _note_call(self, results: Any, variant: Variant, args: Sequence[Any]) -> Any:
        """Watches the autograd node that this call made; returns it, or None."""
        for item in results if isinstance(results, (tuple, list)) else (results,):
            node = item.grad_fn if isinstance(item, torch.Tensor) else None
            if node is not None and not isinstance(node, BackwardCFunction):  # a view of what it returned
                node = next((n for n, _ in node.next_functions if isinstance(n, BackwardCFunction)), None)
            if node is not None:
                # Tensors packed by hooks are held by the hooks, if at all.
                if not packs_saved_tensors():
                    with self.shared.bookkeeping:
                        self._contexts.add(node)
                skipped = Skipped(node, args, variant.prepared) if variant.made_of.differ else None
                Watch(node, results, partial(self._note_use, variant, skipped))
                return node
        return None

    def _note_use(self, variant: Variant, skipped: Skipped | None, graded: set[int], held: set[int]) -> None:
        """A backward starts."""
        if skipped is not None:
            inputs = variant.made_of.without(graded)
            skipped.inputs(inputs)
            if variant.existing.stepped & inputs:
                self.shared.warn_once(SKIPPED)
        if self.shared.is_proving:
            return
        self.shared.backward_starts()
        if variant.planned is not None and keeps_graph() and not self.shared.is_preparing:
            self.shared.warn_once(KEPT)
        self._note_casts(variant.casts)
        self._check_kernels(variant)
        surprises = self.usage.note(graded, held)
        outputs = variant.planned.outputs if variant.planned is not None else {}
        if any(outputs.get(i, 0) > SMALL for i in surprises & variant.use.dropped):
            self._surprise(f"outputs {sorted(surprises)} of graph {self.number} are held during the backward")

    def _note_left(self, positions: set[int], ended: Sequence[int]) -> None:
        """Notes that gradients planned to end in the step leave it, since autograd uses them otherwise."""
        left = {ended[position] for position in positions} - self._left
        if self.shared.is_proving or self.shared.is_measuring or not left:
            return
        self._left |= left
        self._surprise(
            f"{len(left)} gradients of graph {self.number} that were to end in its backward leave it "
            "(torch.autograd.grad, or parameters that are used elsewhere too)"
        )

    def _note_late_gradient(self, index: int) -> None:
        self.usage.note({index}, set())
        self._surprise(f"output {index} of graph {self.number} gets a gradient; the graph ran again for it")

    def _note_strides(self, seen: dict[str, Strides]) -> None:
        """Notes that gradients of outputs have other strides than traced."""
        if self.shared.is_proving or not self.usage.note_strides(seen):
            return
        log.warning(
            "gradients of %s of graph %d come with other strides than were taken for granted: in this step "
            "the last bits of gradients can differ from eager mode, from the next step on they do not "
            "(`fit` knows it before the first step if it is given the loss)",
            ", ".join(sorted(seen)),
            self.number,
        )
        self.shared.flight.plan_anew()

    def _note_casts(self, traced: Casts) -> None:
        """A backward starts. traced: the autocast state with which it was traced."""
        now, shared = casts_now(), self.shared
        if now == traced or shared.is_preparing or shared.is_proving or shared.is_measuring:
            return
        later = shared.note_casts(now)
        if later is None:
            return
        log.warning(
            "a backward runs %s autocast, and was traced otherwise: in this step the last bits of gradients "
            "can differ from eager mode, %s",
            "inside" if now else "outside of",
            later,
        )
        if shared.casts == now:
            shared.flight.plan_anew()

    def _check_kernels(self, variant: Variant) -> None:
        """A backward starts. Raises UsageError if ops would run again by other kernels than before."""
        again = 0 if variant.planned is None else variant.planned.report.recomputed_steps
        if again and KernelSettings.now() != self.settings.kernels:
            raise remat.UsageError(
                "remat: the settings of kernels (torch.backends.mkldnn, cudnn, deterministic algorithms) are "
                f"not those of the forward, of which {again} ops run again: call the backward inside the "
                'same context as the model (executor="eager" does not need that)'
            )

    def _note_backward(self, held: bool, variant: Variant, device: torch.device) -> None:
        """A backward ends: replans if the plan's assumptions were too cautious.

        held: True if gradients of the outputs are held.
        """
        if self.shared.is_proving:
            if variant.planned is not None:
                self.shared.watch.backward_done(variant.planned.report, device)
            return
        if held and not variant.use.tangents_held:
            self._surprise(f"gradients of the outputs of graph {self.number} are held during the backward")
        self.usage.note_tangents(held)
        planned = variant.planned
        if planned is None:
            return
        spare = self.usage.spare_bytes(variant.use, planned.outputs, planned.tangents)
        worth = spare > _WORTH_PLANNING * planned.report.predicted_peak
        if worth and self.shared.options.plan is None:
            self.shared.flight.plan_anew()
        self.shared.watch.backward_done(planned.report, device)
        if planned.report.host is not None:
            log.debug("%s", planned.report.copied_so_far())

    def _surprise(self, what: str) -> None:
        log.warning("%s, for the first time; the budget is kept for that from the next step on", what)
        self.shared.flight.plan_anew()

    def _compiled(self, args: Sequence[Any], key: Key) -> Variant:
        """As `_compile`. Raises UntraceableError for errors other than ours and the device's."""
        gm = self._masks_of(key.shapes, args).graph(key.left_out)
        try:
            with warnings.catch_warnings(), modes_kept():
                # PyTorch's message about an error that is not raised.
                warnings.filterwarnings("ignore", message="Error detected in", category=UserWarning)
                return self._compile(args, key, gm)
        except (SymbolsDifferError, torch.OutOfMemoryError, MemoryError):
            raise
        except FloatsMatterError:
            self._floats.matter()
            raise
        except UnplannableError as error:
            raise UntraceableError(gm, error) from error
        except remat.RematError:
            raise
        except Exception as error:
            log.debug("graph %d cannot be traced: %s", self.number, error, exc_info=True)
            raise UntraceableError(gm, error) from error

    def _compile(self, args: Sequence[Any], key: Key, plain: fx.GraphModule) -> Variant:
        """The variant for a key, stored unless steps are only captured. It is traced again whenever an op
        turns out to make results other than traced, once per op.
        """
        told = True
        while True:
            try:
                return self._compile_once(args, key, plain, told)
            except TracedOtherwiseError:
                told = False
                for trace in [trace for trace in self._traces if trace.shapes == key.shapes]:
                    del self._traces[trace]

    def _compile_once(self, args: Sequence[Any], key: Key, plain: fx.GraphModule, told: bool) -> Variant:
        """told: whether a trace with symbols may be used."""
        use = self.usage.granted()
        use = use if key.training else replace(use, cut=frozenset())
        casts = self.shared.casts
        variant = Variant(plain, use, key.existing, casts=casts, inputs=self._input_bytes(args))
        floats = self._floats
        if floats.positions and not key.training:
            self.variants[key] = variant.compiled(plain)
            return variant
        made = None if key.existing.bytes else self._gradient_bytes.update
        calls = [Call(self.number, variant.gm, args, use, key.existing, floats.in_tensors, told=made)]
        around, measured = self.shared.surroundings, self.usage.measured_for
        if measured is not None and measured[1] == use.cut:
            calls[0] = replace(calls[0], loss_measured_for=measured[0])
        device, num_args = calls[0].device, len(args)

        # PyTorch up to 2.12 keeps this function, so it must not hold arguments: it runs once, and takes them.
        def partition(joint: fx.GraphModule, num_forward_outputs: int) -> Any:
            self._note_gradients(joint, outputs_of(joint)[num_forward_outputs:], num_args, variant)
            if variant.numbers is not None:
                if others:
                    self._marks[traced_for] = floats.marks(joint, values, others.pop())
                self._marks[traced_for].put(joint, variant.numbers)
            with _disable_current_modes():
                call = replace(calls.pop(), varies=varies)
                adding = self._adding(call.args) if self.shared.pipeline.captures_both else None
                planned, halves = self.shared.pipeline(joint, num_forward_outputs, call, adding)
            variant.accept(planned)
            if around.loss_is_measured:
                self.usage.note_loss_measured(planned.tangents - around.loss_bytes, use.cut)
            return halves.forward, halves.backward

        def plan() -> PlanReport | None:
            return None if variant.planned is None else variant.planned.report

        def pool_user() -> PoolUser | None:
            return None if variant.planned is None else variant.planned.pool_user

        def done(held: bool) -> None:  # outlives the call, and must not hold its arguments
            self._note_backward(held, variant, device)

        cut, in_order = cut_off(plain, use.cut), self.shared.options.executor == "boxed"
        values = floats.values(args)
        gm = floats.put_into(cut, values)
        seen = frozenset(self.usage.strides.items())
        traced_for = TracedFor(key.shapes, key.left_out, use.cut, seen, casts)
        known = self._traces.get(traced_for) if key.training else None
        varies, is_fresh = False, known is None
        others: list[fx.GraphModule | None] = []
        if floats.positions and self._may_change(values):
            variant.numbers = Numbers()
            if known is None or traced_for not in self._marks:
                others.append(self._traced_for_others(cut, args, values))
        if told and known is None and key.training and in_order:
            known = self._told(args, traced_for)
            varies = known is not None
        try:
            with (
                progress_line() as progress,
                nothing_donated(),
                eager_kernels(device, in_order, casts),
                EagerStrides(),
                self.shared.pipeline.layouts.applied(),
                collected_later() if varies else nullcontext(),
            ):
                progress.tracing()
                if in_order:
                    strides = TangentStrides(gm, self.usage.strides)
                    tangents = Tangents(self._note_strides, done)
                    verify = self.shared.options.verify
                    run, trace = compile_in_order(
                        gm,
                        args,
                        partition,
                        strides,
                        tangents,
                        variant.prepared,
                        plan,
                        pool_user,
                        verify,
                        known,
                        keep=not varies,
                        traced=self._note_trace,
                    )
                    if trace is not None:
                        self._traces[traced_for] = trace
                    told_by = trace or known
                    if variant.planned is not None and told_by is not None:
                        self._overwritten = told_by.overwritten(num_args)
                    if trace is not None and is_fresh and not floats.positions:
                        form = Form(*traced_for[1:])
                        self._plain[form] = Plain(described_inputs(variant.gm), trace)
                else:
                    with phase("code"):
                        run = compile_with_inductor(gm, args, partition)
                variant.compiled(run)
        except CapturedOnlyError:
            return variant.compiled(self._run_unplanned)
        for each in {self.gm, self.unpacked, plain, cut, gm}:
            forget_gradients(each)
        self.variants[key] = variant
        return variant

    def _note_trace(self, trace: JointTrace) -> None:
        """Checks, from knowledge of the caller's outputs, whether gradients are summed as in eager mode."""
        outputs = [] if self.usage.graded is None else summed_otherwise(trace)
        if outputs:
            names = ", ".join(map(str, outputs))
            self.shared.doubts(
                f"outputs {names} of graph {self.number} share memory: a trace adds up their gradients in "
                "another order"
            )

    def _traced_for_others(
        self, cut: fx.GraphModule, args: Sequence[Any], values: Sequence[float]
    ) -> fx.GraphModule | None:
        """The joint graph for other numbers than these."""
        gm = self._floats.put_into(cut, self._floats.others(values))
        bits = self.shared.options.executor == "boxed"
        with nothing_donated(), eager_kernels(device_of(args), bits, self.shared.casts), EagerStrides():
            return joint_alone(gm, args, TangentStrides(gm, self.usage.strides))

    def _told(self, args: Sequence[Any], wanted: TracedFor) -> JointTrace | None:
        """The trace derived from one with symbols, if there is one."""
        if self._varying is None or self._floats.positions:
            return None
        form = Form(*wanted[1:])
        known = [region._plain.get(form) for region in (self, self._kin) if region is not None]
        plain = [each for each in known if each is not None]
        try:
            return self._varying.trace(wanted.shapes, args, form, plain)
        except SymbolsDifferError as error:
            if self.shared.surroundings.model is not None:
                raise  # `fit` compiles the model again, without symbols
            log.info("each shape is traced for itself: %s", error)
            return None

    def _note_gradients(
        self, joint: fx.GraphModule, gradients: Sequence[Any], num_args: int, variant: Variant
    ) -> None:
        if len(gradients) == num_args:
            self._graded = frozenset(i for i, gradient in enumerate(gradients) if gradient is not None)
            variant.made_of = MadeOf.in_trace(joint, gradients, self.usage.shared)

    def _announce(self, report: PlanReport, seconds: dict[str, float]) -> None:
        report.set_seconds({name: seconds.get(name, 0.0) for name in PHASES})
        self.shared.note_plan(report)
        log.info("%s", report.summary())


def _may_be_overwritten(args: Sequence[Any]) -> set[int]:
    """Before the first call: all that needs no gradient."""
    return {
        i
        for i, a in enumerate(args)
        if isinstance(a, torch.Tensor) and not a.requires_grad and a.layout is torch.strided
    }
