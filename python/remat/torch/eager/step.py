"""A training step that is recorded, or run by a plan, and leaves nothing behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves

from ..base.allocator import AllocatorTrace, trace_allocations
from ..base.devices import generators_kept, runtime_of
from ..base.storages import tensor_storages
from .ledger import Ledger
from .recorded import Record
from .recorder import BACKWARD, LOSS, Recorder

# Of the block that marks where an op begins among the allocator's events; no tensor has such a size.
_MARK_BYTES = 61


@dataclass(frozen=True)
class TrainingStep:
    """A step of a model, as the user trains it.

    forward: calls the model; loss: from its outputs to what is differentiated.
    parameters: those that get gradients. resident: what is there all the time, with its bytes by address.
    """

    forward: Callable[[], Any]
    loss: Callable[[Any], Sequence[torch.Tensor]]
    parameters: Sequence[torch.Tensor]
    resident: Any
    device: torch.device

    def run(self) -> None:
        """In eager mode."""
        self._backward(self.loss(self.forward()))

    def run_planned(self, ledger: Ledger) -> None:
        with ledger, saved_tensors_hooks(ledger.pack, ledger.unpack):
            outputs = self.forward()
        ledger.end()
        self._backward(self.loss(outputs))

    def record(self, traced: bool) -> Record:
        """traced: with the workspaces of ops, which takes longer; durations otherwise."""
        marks: list[int] = []

        def mark() -> None:
            marks.append(torch.empty(_MARK_BYTES, dtype=torch.uint8, device="cpu").data_ptr())

        if traced and self.device.type == "cpu":
            recorder = Recorder(before_op=mark)
            with trace_allocations() as trace:
                self._recorded(recorder)
            _set_workspaces(recorder, trace, marks)
        else:
            recorder = Recorder(clock=_clock(self.device))
            self._recorded(recorder)
        record = Record(
            recorder.ops,
            recorder.values,
            _state_bytes(self.device),
            recorder.external,
            recorder.gradients,
        )
        recorder.end()
        return record

    def _recorded(self, recorder: Recorder) -> None:
        with (
            torch.autograd.set_multithreading_enabled(False),
            recorder,
            saved_tensors_hooks(recorder.pack, recorder.unpack),
        ):
            outputs = self.forward()
            recorder.phase = LOSS
            losses = self.loss(outputs)
            recorder.phase = BACKWARD
            self._backward(losses)
            recorder.note_gradients(self.parameters)

    def _backward(self, losses: Sequence[torch.Tensor]) -> None:
        torch.autograd.backward(losses, [torch.ones_like(each) for each in losses])

    @contextmanager
    def without_traces(self, restore: Callable[[], object]) -> Iterator[None]:
        """Gradients, hooks that are called with them, and generators are afterwards what they were."""
        before = [(p, p.grad, p._post_accumulate_grad_hooks) for p in self.parameters]
        for parameter, _, _ in before:
            parameter.grad = None
            parameter._post_accumulate_grad_hooks = None
        with generators_kept():
            try:
                yield
            finally:
                for parameter, gradient, hooks in before:
                    parameter.grad = gradient
                    parameter._post_accumulate_grad_hooks = hooks
                restore()

    def inputs(self) -> list[torch.Tensor]:
        return [t for t in tree_leaves(self.resident) if isinstance(t, torch.Tensor)]

    def resident_bytes(self) -> dict[int, int]:
        return tensor_storages(self.resident, self.device.type)


def _clock(device: torch.device) -> Callable[[], int]:
    """Of one thread the time that it had, so that other work of the machine does not count."""
    if device.type == "cpu":
        return time.thread_time_ns if torch.get_num_threads() == 1 else time.perf_counter_ns
    runtime = runtime_of(device)

    def clock() -> int:
        runtime.synchronize()
        return time.perf_counter_ns()

    return clock


def _state_bytes(device: torch.device) -> int:
    return runtime_of(device).generator_state().nbytes


def _set_workspaces(recorder: Recorder, trace: AllocatorTrace, marks: Sequence[int]) -> None:
    """From the allocator's events between one mark and the next, what each op took beside its results."""
    level = top = start = 0
    number = -1
    alive: dict[int, int] = {}

    def close() -> None:
        if 0 <= number < len(recorder.ops):
            op = recorder.ops[number]
            made = sum(recorder.values[value].bytes for value in op.made)
            op.workspace = max(0, top - start - made)

    for address, size in trace.events:
        if number + 1 < len(marks) and (address, size) == (marks[number + 1], _MARK_BYTES):
            close()
            number += 1
            start = top = level
        elif size > 0:
            if size != _MARK_BYTES:
                alive[address] = size
                level += size
                top = max(top, level)
        else:
            level -= alive.pop(address, 0)
    close()
