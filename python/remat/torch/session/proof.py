"""Compares the first step of each plan with the same step in eager mode, bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from ..base.allocator import trace_allocations
from ..base.devices import runtime_of
from ..base.errors import VerificationError, log
from ..base.generators import GeneratorStates, generator_states, set_generator_states
from ..base.modes import Casts, casting, casts_apart
from ..base.storages import same_bits
from ..base.units import exact_bytes
from ..run.record import EagerResults, recorded_plans
from .watch import Window, recorded_steps

Results = Mapping[str, torch.Tensor]
Named = Sequence[tuple[str, torch.Tensor]]


def differences(expected: Results, found: Results) -> tuple[str, ...]:
    """Names of tensors that differ in any bit; a missing one differs."""
    names = [*expected, *(name for name in found if name not in expected)]
    return tuple(
        name
        for name in names
        if name not in expected or name not in found or not same_bits(expected[name], found[name])
    )


@dataclass(frozen=True)
class Step:
    """A step in several implementations, with arguments of the same structure.

    traced: by PyTorch alone, without a plan; made when needed. parameters: those whose gradients are
    computed, beside those of arguments. buffers: tensors other than arguments that a step may overwrite.
    restore: restores everything before the step except arguments and generators. casts: of autocast in the
    backward.
    """

    name: str
    eager: Callable[[Any], Any]
    planned: Callable[[Any], Any]
    traced: Callable[[], Callable[[Any], Any]]
    arguments: Any
    parameters: Named
    buffers: Callable[[], Named] = tuple
    restore: Callable[[], object] = tuple
    casts: Casts = ()

    def prove(self, states: GeneratorStates) -> None:
        """Raises VerificationError if the bits of the planned step differ from eager mode, or if it exceeds
        its budget.

        states: of the generators when the step begins, and afterwards.
        """
        try:
            self._prove(states)
        finally:
            self.restore()
            set_generator_states(states)

    def _prove(self, states: GeneratorStates) -> None:
        with recorded_steps() as windows, trace_allocations() as trace:
            found, chosen = self._run(self.planned, states, None)
        # Outputs and their gradients, which a training loop may have dropped by then.
        own = sum(each.nbytes for name, each in found.items() if name.startswith("output "))
        own += sum(found[f"output {i}"].nbytes for i in chosen)
        # Inputs with which an output with a late gradient would run again.
        own += len(windows) * runtime_of(torch.device("cpu")).generator_state().nbytes
        # Gradients that the step itself would add to existing ones are returned here.
        own += sum(p.nbytes for _, p in self.parameters if p.grad is not None)
        expected, _ = self._run(self.eager, states, chosen)
        wrong = differences(expected, found)
        if wrong:
            raise VerificationError(
                f"verify: {self.name}: {len(wrong)} of {len(expected)} tensors differ from eager mode "
                f"({_some(wrong)}); {self._cause(states, chosen, expected, wrong)}"
            )
        for window in windows:
            _check_peak(window, trace.rise({}, window.start_ns, window.end_ns)[0], own)
        log.info("verify: %s: %d tensors equal to eager mode, bit for bit", self.name, len(expected))

    def _cause(
        self, states: GeneratorStates, chosen: list[int], expected: Results, wrong: tuple[str, ...]
    ) -> str:
        eager = EagerResults()
        with eager:
            self._run(self.eager, states, chosen)
        with recorded_plans() as planned:
            self._run(self.planned, states, chosen)
        first = planned.first_other_than(eager)
        text = f"the first op whose result differs is {first}" if first else "no op of the plan differs"
        traced = differences(expected, self._run(self.traced(), states, chosen)[0])
        if not traced:
            return f"{text}; PyTorch's own tracing (aot_eager) is equal to eager mode"
        which = "the same ones" if traced == wrong else f"{len(traced)} of them"
        return f"{text}; PyTorch's own tracing (aot_eager) differs in {which} too"

    def _run(
        self, call: Callable[[Any], Any], states: GeneratorStates, chosen: list[int] | None
    ) -> tuple[dict[str, torch.Tensor], list[int]]:
        """Outputs, gradients, buffers and the generator of a step, and which outputs got a gradient.

        chosen: outputs that get a gradient; by default all that can.
        """
        with casts_apart():
            return self._results(call, states, chosen)

    def _results(
        self, call: Callable[[Any], Any], states: GeneratorStates, chosen: list[int] | None
    ) -> tuple[dict[str, torch.Tensor], list[int]]:
        self.restore()
        set_generator_states(states)
        arguments = copies(self.arguments)
        outputs = tensors_in(call(arguments))
        if chosen is None:
            chosen = [i for i, output in enumerate(outputs) if takes_gradient(output)]
        inputs = [(f"input {i}", a) for i, a in enumerate(tensors_in(arguments)) if a.requires_grad]
        sources = [*self.parameters, *inputs]
        graded = [outputs[i] for i in chosen]
        gradients: Iterable[Any] = ()
        if graded and sources:
            with casting(self.casts):
                gradients = torch.autograd.grad(
                    graded, [source for _, source in sources], tangents_of(graded), allow_unused=True
                )
        results = {f"output {i}": output.detach().clone() for i, output in enumerate(outputs)}
        # In the sequence of the backward, so that the first difference is nearest to the cause.
        for (name, _), gradient in reversed(list(zip(sources, gradients, strict=False))):
            if gradient is not None:
                results[f"gradient of {name}"] = gradient
        results.update((f"input {i}", a.detach().clone()) for i, a in enumerate(tensors_in(arguments)))
        results.update((f"parameter {name}", p.detach().clone()) for name, p in self.parameters)
        results.update((f"buffer {name}", buffer.clone()) for name, buffer in self.buffers())
        results.update(generator_states().named())
        return results, chosen


def copies(arguments: Any) -> Any:
    """A deep copy of the tensors in a structure, with shared memory preserved."""
    memo: dict[int, Any] = {}

    def own(item: Any) -> Any:
        if not isinstance(item, torch.Tensor) or isinstance(item, torch.nn.Parameter):
            return item
        if item.is_nested:  # a deep copy gets its own ragged dimension, which matches no other tensor
            return item.detach().clone().requires_grad_(item.requires_grad)
        return copy.deepcopy(item.detach(), memo).requires_grad_(item.requires_grad)

    return tree_map(own, arguments)


def tensors_in(items: Any) -> list[torch.Tensor]:
    return [item for item in tree_leaves(items) if isinstance(item, torch.Tensor)]


def takes_gradient(output: torch.Tensor) -> bool:
    # An output that never had a gradient would run the graph again for it.
    return output.requires_grad and type(output.grad_fn).__name__ != "_LateGradientBackward"


def tangents_of(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Gradients of the outputs, the same at each call: 1 for a loss, random numbers for all others."""
    generator = torch.Generator().manual_seed(0)
    return [
        torch.ones_like(output).as_subclass(torch.Tensor)  # as `backward` makes them
        if output.numel() == 1
        else torch.randn(output.shape, generator=generator, dtype=output.dtype).to(output.device)
        for output in outputs
    ]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _check_peak(window: Window, rise: int, own: int) -> None:
    """rise: bytes of the step. own: part that perhaps only the comparison holds."""
    report = max(window.reports, key=lambda each: each.rise)
    peak = report.predicted_peak - report.rise + rise
    if peak - own > report.budget:
        raise VerificationError(
            f"verify: {report.name}: the measured peak of {exact_bytes(peak)} is above the budget of "
            f"{exact_bytes(report.budget)}"
        )


def traced_alone(call: Callable[..., Any]) -> Callable[[Any], Any]:
    """PyTorch's own trace, run op by op."""
    compiler: Any = torch.compile
    compiled: Any = compiler(call, backend="aot_eager", dynamic=False)
    return lambda arguments: compiled(*arguments)
