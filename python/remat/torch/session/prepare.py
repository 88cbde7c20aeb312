"""The first calls of a fitted model: compile it for its sample inputs without a trace of having run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch.utils._pytree import tree_leaves, tree_map

import remat

from ..base.account import phase
from ..base.allocator import trace_allocations
from ..base.devices import runtime_of
from ..base.errors import UnsupportedModelError
from ..base.nodes import dense_bytes, storage_bytes
from ..base.private import is_view
from ..base.units import exact_bytes
from ..run.outputs import Gradient
from ..trace.tangents import Strides, strides_to_trace
from .fitted import call_with
from .pipeline import device_of
from .session import Session
from .untouched import Snapshot, untouched

Loss = Callable[[Any], torch.Tensor]

# Of planning, until what is in flight together is known.
_ROUNDS = 3


@dataclass(frozen=True)
class Preparation:
    """model: as it came; fitted: whose calls go through the session; loss: of its outputs, if outside."""

    session: Session
    model: torch.nn.Module
    fitted: torch.nn.Module
    sample_inputs: Any
    loss: Loss | None = None

    def capture(self, both: bool = False) -> None:
        """One call without a plan; both: of its trace also a step that adds to gradients."""
        with self.session.shared.preparing():
            self._look_at_loss()
            if both and len(self._kinds()) > 1:
                self.session.shared.pipeline.capture_both()
            self._keeping_if_it_must(self._capture)

    def _capture(self) -> None:
        captured = self.session.shared.pipeline.captured
        if captured:
            captured.clear()
        with self._untouched():
            self._forward()

    def _keeping_if_it_must(self, call: Callable[[], None]) -> None:
        """A call that keeps nothing for a backward; if need be another that does, for a model that calls
        `torch.autograd.grad` itself.
        """
        try:
            call()
        except RuntimeError:
            self.session.shared.is_keeping = True
            call()
        finally:
            self.session.shared.is_keeping = False

    def plan(self) -> None:
        """Call the model until its plans hold for all that is in flight together.

        Raises UnsupportedModelError where Dynamo compiled nothing of the model.
        """
        with self.session.shared.preparing():
            self._look_at_loss()
            try:
                self._plan()
            finally:
                self.session.say_breaks()

    def _device(self) -> torch.device:
        return device_of([*self.model.parameters(), *tree_leaves(self.sample_inputs)])

    def _plan(self) -> None:
        with self._untouched() as snapshot:
            self._plan_steps(snapshot)
            if not self.session.shared.report.parts:
                raise_nothing_planned(self.model, self.session.unplanned.where())
            if self.session.shared.options.executor == "inductor":
                return  # what its halves hand over is its own affair; the first step is measured whole
            if not self.session.is_whole([*self.model.parameters(), *tree_leaves(self.sample_inputs)]):
                self.session.count_unplanned(self._forward, self._device())
                snapshot.restore()
            self.session.agree()
            if self.session.shared.flight.stale:
                self._plan_steps(snapshot)

    def _plan_steps(self, snapshot: Snapshot) -> None:
        """Plan what training will meet: steps without gradients that exist, and steps that add to those.

        Where there are several graphs, all are known after one round, and planned together in the next.
        """
        flight = self.session.shared.flight
        for _ in range(_ROUNDS):
            missed: dict[bool, remat.NoPlanError] = {}
            for adds in self._kinds():
                try:
                    self._forward_of(adds)
                except remat.NoPlanError as error:
                    missed[adds] = error
                snapshot.restore()
            if missed:
                raise self._no_plans(missed)
            self.session.agree()
            if not flight.stale:
                break

    def _kinds(self) -> tuple[bool, ...]:
        """Of steps, by whether they add to existing gradients."""
        options = self.session.shared.options
        both = options.accumulate is None and options.plan is None and options.executor == "boxed"
        return (False, True) if both else (False,)

    def _forward_of(self, adds: bool) -> None:
        with self.session.shared.surroundings.accumulating() if adds else nullcontext():
            self._forward()

    def _no_plans(self, missed: Mapping[bool, remat.NoPlanError]) -> remat.NoPlanError:
        """What to say where the budget does not do for every kind of step."""
        if len(self._kinds()) == 1:
            return missed[False]
        named = {False: "a step that makes its gradients", True: "a step that adds to existing gradients"}
        least = {}
        for adds in self._kinds():
            if adds not in missed:
                least[adds] = max(p.least_known() for p in self.session.shared.report.parts)
            else:
                least[adds] = missed[adds].smallest_known
        worst = missed.get(False) or missed[True]
        which = named[False not in missed]
        amounts = "; ".join(f"{named[adds]}: {exact_bytes(size)}" for adds, size in least.items())
        return type(worst)(
            f"{worst} (this is {which}; smallest budgets known to work for {amounts}; accumulate=False or "
            "True plans for one of them alone)",
            floor=max(error.floor for error in missed.values()),
            smallest_known=max(least.values()),
        )

    def prove(self) -> None:
        """Compare a step with the same in eager mode. Raises VerificationError."""
        with phase("verify"), self._untouched():
            self._forward()

    @contextmanager
    def _untouched(self) -> Iterator[Snapshot]:
        """As it was before and after; from the first code that runs beside graphs on with all values."""
        unplanned, sharded = self.session.unplanned, self.session.sharding is not None
        roots = (self.fitted, self.sample_inputs, self.loss)
        with (
            untouched(*roots, only_buffers=sharded, runs=not unplanned.is_empty) as snapshot,
            unplanned.told(snapshot.keep_values),
        ):
            yield snapshot

    def _forward(self) -> Any:
        try:
            return call_with(self.fitted, self.sample_inputs)
        finally:
            if self.session.sharding is not None:
                self.session.sharding.end_unfinished_step()

    def _look_at_loss(self) -> None:
        """Tell the session which outputs the loss depends on, and how much memory it takes."""
        if self.loss is None:
            return
        device = self._device()
        if device.type != "meta":
            runtime_of(device).taken_by_libraries()  # after the model's first products nobody can tell
        with phase("loss"):
            self._keeping_if_it_must(self._probe)

    def _probe(self) -> None:
        assert self.loss is not None
        with self._untouched():
            with self.session.probing():
                outputs = call_with(self.fitted, self.sample_inputs)
            self.session.note_loss(*_measured_loss(self.loss, outputs, self.sample_inputs))


def _measured_loss(loss: Loss, outputs: Any, inputs: Any) -> tuple[int, int, dict[int, Gradient]]:
    """Bytes of the loss while it is computed and to the end, and what it gives to the outputs, by address.

    Its workspace is what it and its backward need at their peak, on top of the outputs and their gradients.
    """
    leaf_of: dict[int, Any] = {}

    def as_leaf(item: Any) -> Any:
        leaf_of[id(item)] = _as_leaf(item)
        return leaf_of[id(item)]

    leaves_only = tree_map(as_leaf, outputs)
    borrowed: list[torch.Tensor] = []
    opaque = [leaf for leaf in leaf_of.values() if not isinstance(leaf, torch.Tensor)]
    given = {id(tensor) for tensor in _tensors_within([inputs])}
    for tensor in _tensors_within(opaque):
        # The loss finds it where it is: for its time it is a leaf itself.
        made = id(tensor) not in given and (tensor.grad_fn is not None or not tensor.requires_grad)
        if made and _may_have_gradient(tensor) and not is_view(tensor):
            leaf_of[id(tensor)] = tensor.detach_().requires_grad_()
            borrowed.append(tensor)
    leaves = [t for t in leaf_of.values() if isinstance(t, torch.Tensor) and t.requires_grad]
    strides: dict[int, Strides | None] = {}
    for key, leaf in leaf_of.items():
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            # What autograd accumulates into a leaf has the strides of the leaf.
            leaf.register_hook(lambda gradient, key=key: strides.update({key: strides_to_trace(gradient)}))
    values: list[torch.Tensor] = []

    def run() -> None:
        value: Any = loss(leaves_only)
        value.backward()
        values.append(value.detach())

    top = _rise_of(run, [t.device for t in leaves])
    # The caller holds the loss (whose storage can be larger than it), and autograd its gradient.
    held = storage_bytes(values[0]) + dense_bytes(values[0])
    gradients = sum(storage_bytes(t.grad) for t in leaves if t.grad is not None)
    gradient_of = {
        key: Gradient(leaf.grad is not None, strides.get(key))
        for key, leaf in leaf_of.items()
        if isinstance(leaf, torch.Tensor)
    }
    for tensor in borrowed:
        tensor.requires_grad_(False).grad = None
    return max(0, top - gradients - held), held, gradient_of


def _rise_of(run: Callable[[], None], devices: list[torch.device]) -> int:
    """Bytes that a call needs at its peak on top of what was there."""
    for runtime in map(runtime_of, devices):
        if runtime.counts_memory:
            runtime.synchronize()
            allocated, requested = runtime.allocated(), runtime.requested()
            runtime.reset_highest()
            run()
            runtime.synchronize()
            return runtime.in_blocks(runtime.highest() - allocated, runtime.highest_requested() - requested)
    with trace_allocations() as trace:
        run()
    return trace.rise()[0]


def _as_leaf(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return item.detach().requires_grad_(_may_have_gradient(item))
    return item


def _may_have_gradient(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _tensors_within(items: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Tensors that objects hold which are no containers of PyTorch's: caches of keys and values."""
    seen: set[int] = set()
    stack = list(items)
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, (list, tuple, set)):
            stack += item
        elif isinstance(item, dict):
            stack += item.values()
        elif not isinstance(item, (type, torch.nn.Module)) and hasattr(item, "__dict__"):
            stack += vars(item).values()


def raise_nothing_planned(model: torch.nn.Module, where: str) -> NoReturn:
    """where: Dynamo gave up."""
    if any(p.requires_grad for p in model.parameters()):
        raise UnsupportedModelError(
            f"Dynamo compiled nothing of this model that needs a gradient ({where}); "
            "it would run without a plan"
        )
    raise UnsupportedModelError("nothing in this model requires a gradient, so there is nothing to plan")
