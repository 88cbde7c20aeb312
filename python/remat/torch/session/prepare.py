"""The first calls of a fitted model: compile it for its sample inputs without a trace of having run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch.utils._pytree import tree_map

from ..base.allocator import trace_allocations
from ..base.errors import UnsupportedModelError
from ..base.nodes import storage_bytes
from .fitted import call_with
from .measure import measure_peak
from .session import Session
from .untouched import Snapshot, untouched

Loss = Callable[[Any], torch.Tensor]


@dataclass(frozen=True)
class Preparation:
    """model: as it came; fitted: whose calls go through the session; loss: of its outputs, if outside."""

    session: Session
    model: torch.nn.Module
    fitted: torch.nn.Module
    sample_inputs: Any
    loss: Loss | None = None

    def capture(self) -> None:
        """One call without a plan."""
        with self.session.shared.preparing():
            self._look_at_loss()
            with self._untouched():
                self._forward()

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

    def _plan(self) -> None:
        with self._untouched() as snapshot:
            self._forward()
            snapshot.restore()
            # There are several graphs: now that all are known, plan them together.
            self._forward_if_stale()
            snapshot.restore()
            if not self.session.shared.report.parts:
                raise_nothing_planned(self.model, self.session.unplanned.where())
            if self.session.shared.options.executor == "inductor":
                return  # what its halves hand over is its own affair; the first step is measured whole
            self.session.count_unplanned(self._forward, next(self.model.parameters()).device)
            snapshot.restore()
            self._forward_if_stale()

    def prove(self) -> None:
        """Compare a step with the same in eager mode. Raises VerificationError."""
        with self._untouched():
            self._forward()

    def _untouched(self) -> AbstractContextManager[Snapshot]:
        return untouched(self.fitted, only_buffers=self.session.sharding is not None)

    def _forward_if_stale(self) -> None:
        self.session.agree()
        if self.session.shared.flight.stale:
            self._forward()

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
        with self._untouched():
            with self.session.probing():
                outputs = call_with(self.fitted, self.sample_inputs)
            self.session.note_loss(*_measured_loss(self.loss, outputs))


def _measured_loss(loss: Loss, outputs: Any) -> tuple[int, int, dict[int, torch.Tensor]]:
    """Bytes of the loss while it is computed and to the end, and leaves in place of the outputs, by address.

    Its workspace is what it and its backward need at their peak, on top of the outputs and their gradients.
    """
    leaf_of: dict[int, Any] = {}

    def as_leaf(item: Any) -> Any:
        leaf_of[id(item)] = _as_leaf(item)
        return leaf_of[id(item)]

    leaves_only = tree_map(as_leaf, outputs)
    leaves = [t for t in leaf_of.values() if isinstance(t, torch.Tensor) and t.requires_grad]
    values: list[torch.Tensor] = []

    def run() -> None:
        value: Any = loss(leaves_only)
        value.backward()
        values.append(value.detach())

    top = _rise_of(run, [t.device for t in leaves])
    # The caller holds the loss (whose storage can be larger than it), and autograd its gradient.
    held = storage_bytes(values[0]) + values[0].nbytes
    gradients = sum(storage_bytes(t.grad) for t in leaves if t.grad is not None)
    tensors = {key: leaf for key, leaf in leaf_of.items() if isinstance(leaf, torch.Tensor)}
    return max(0, top - gradients - held), held, tensors


def _rise_of(run: Callable[[], None], devices: list[torch.device]) -> int:
    """Bytes that a call needs at its peak on top of what was there."""
    if any(device.type != "cpu" for device in devices):
        before = torch.cuda.memory_allocated(devices[0])
        return measure_peak(run, device=devices[0]) - before
    with trace_allocations() as trace:
        run()
    return trace.rise()[0]


def _as_leaf(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return item.detach().requires_grad_(item.is_floating_point() or item.is_complex())
    return item


def raise_nothing_planned(model: torch.nn.Module, where: str) -> NoReturn:
    """where: Dynamo gave up."""
    if any(p.requires_grad for p in model.parameters()):
        raise UnsupportedModelError(
            f"Dynamo compiled nothing of this model that needs a gradient ({where}); "
            "it would run without a plan"
        )
    raise UnsupportedModelError("nothing in this model requires a gradient, so there is nothing to plan")
