"""Compares planned steps with the same steps in eager mode, bit for bit."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

import remat

from .api import fit
from .base.devices import runtime_of
from .base.errors import VerificationError, errors_stand_alone, log
from .base.fitted_module import report_of
from .base.generators import generator_states, generators_kept
from .base.given import check_step
from .base.private import tensor_hooks
from .base.units import format_bytes
from .plan.model_report import ModelReport
from .plan.options import FitOptions, Options
from .session.fitted import call_with, loss_in
from .session.loss import Loss, value_of
from .session.measure import measure_peak
from .session.pipeline import device_of
from .session.proof import copies, differences, tensors_in

if TYPE_CHECKING:
    from typing_extensions import Unpack


# Most repetitions of a step until no plan is remade in it.
_MEASUREMENTS = 3


@dataclass(frozen=True)
class Verification:
    """The result of :func:`verify`. Amounts are bytes.

    Attributes:
        steps: training steps that were compared, each adding to the gradients of the one before.
        compared: tensors, over all steps: losses, gradients of parameters and inputs, parameters, buffers,
            inputs, states of generators.
        differences: those that differ in any bit, in the sequence in which they arise.
        tracing_differences: those that differ in PyTorch's own tracing too (`torch.compile` with the backend
            "aot_eager"), which only runs if something differs.
        eager_peak, measured_peak, predicted_peak, budget: of a step that makes its gradients.
        eager_seconds, planned_seconds: of the fastest of these steps, loss and backward included.
        cause: if something differs, the first op whose result does, and whether PyTorch's tracing is the
            cause.
    """

    steps: int
    compared: int
    differences: tuple[str, ...]
    tracing_differences: tuple[str, ...]
    eager_peak: int
    measured_peak: int
    predicted_peak: int
    budget: int
    eager_seconds: float = 0.0
    planned_seconds: float = 0.0
    cause: str = ""

    @property
    def equal(self) -> bool:
        return not self.differences

    @property
    def within(self) -> bool:
        """True if the measured peak is within the budget."""
        return self.measured_peak <= self.budget

    def __str__(self) -> str:
        lines = [
            f"results         {self._results()}",
            *([f"cause           {self.cause}"] if self.cause else []),
            f"eager peak      {format_bytes(self.eager_peak)}",
            f"measured peak   {format_bytes(self.measured_peak)}",
            f"predicted peak  {format_bytes(self.predicted_peak)}",
            f"budget          {format_bytes(self.budget)}, {'kept' if self.within else 'EXCEEDED'}",
            f"fastest step    {1e3 * self.eager_seconds:.4g} ms in eager mode, "
            f"{1e3 * self.planned_seconds:.4g} ms planned",
        ]
        return "\n".join(lines)

    def _results(self) -> str:
        if self.equal:
            return f"{self.compared} tensors of {self.steps} steps equal bit for bit"
        named = ", ".join(self.differences[:3]) + (", ..." if len(self.differences) > 3 else "")
        text = f"{len(self.differences)} of {self.compared} tensors DIFFER ({named})"
        if self.tracing_differences == self.differences:
            return f"{text}; they differ in PyTorch's own tracing (aot_eager) too"
        return f"{text}; {len(self.tracing_differences)} differ in PyTorch's own tracing (aot_eager)"


@errors_stand_alone
def verify(
    model: torch.nn.Module,
    sample_inputs: Any,
    budget: int | str = "100%",
    *,
    loss: Loss | None = None,
    steps: int = 2,
    **options: Unpack[FitOptions],
) -> Verification:
    """Train copies of the model for a few steps, in eager mode and within the budget, and compare them bit
    for bit: losses, gradients of parameters and inputs, parameters, buffers, inputs that are written to, and
    the generators of PyTorch, Python and numpy; and the measured peak with the predicted one.

    Args:
        model: the model to verify; it is not changed.
        sample_inputs: as for :func:`fit`.
        budget: as for :func:`fit`.
        loss: computes the loss from the model's outputs. Without it the model returns the loss: a tensor of
            one element, or an object or mapping that has it as `loss`.
        steps: how many, from 1 on. Each adds to the gradients of the one before.
        options: as for :func:`fit`.

    Raises:
        InfeasibleError, NoPlanError, UnsupportedModelError: as by :func:`fit`.
        UsageError: the outputs hold no loss, or the number of steps is below 1.
    """
    check_step(model, sample_inputs, loss)
    Options.from_mapping({"budget": budget, **options})
    asked: FitOptions = {**options, "verify": True}
    if options.get("step") is not None:
        raise remat.UsageError(
            "verify: the optimizer does not know the copies that are trained: leave out step="
        )
    if not isinstance(steps, int) or steps < 1:
        raise remat.UsageError(f"verify: steps must be a number, at least 1, not {steps!r}")

    def run(called: torch.nn.Module) -> tuple[dict[str, torch.Tensor], int, float]:
        inputs = copies(sample_inputs)

        def loss_of() -> torch.Tensor:
            outputs = call_with(called, inputs)
            return value_of(loss, outputs) if loss is not None else loss_in(outputs, "verify")

        results: dict[str, torch.Tensor] = {}
        seconds: list[float] = []
        device = device_of([*called.parameters(), *tensors_in(inputs)])
        with generators_kept():
            for number in range(1, steps + 1):
                with _timed(device, seconds):
                    value = loss_of()
                    value.backward()
                results.update(_results(called, inputs, value, f"step {number}: "))
            del value
            return results, _peak(lambda: loss_of().backward(), called, inputs), min(seconds)

    if any(tensor_hooks(parameter) for parameter in model.parameters()):
        log.warning("verify: it trains copies of the model, which have no hooks of its parameters")
    expected, eager_peak, eager_seconds = run(copy.deepcopy(model))
    fitted = fit(copy.deepcopy(model), sample_inputs, budget, loss=loss, **options)
    found, measured, planned_seconds = run(fitted)
    differing = differences(expected, found)
    traced: tuple[str, ...] = ()
    cause = ""
    if differing:
        compiled = copy.deepcopy(model)
        compiled.compile(backend="aot_eager")
        try:
            traced = differences(expected, run(compiled)[0])
        except Exception as error:
            traced = (f"{type(error).__name__} in a step",)
        cause = _cause(lambda: fit(copy.deepcopy(model), sample_inputs, budget, loss=loss, **asked))
    report = fitted.remat
    peaks = (eager_peak, measured, report.predicted_peak, report.budget)
    return Verification(
        steps, len(expected), differing, traced, *peaks, eager_seconds, planned_seconds, cause
    )


@contextmanager
def _timed(device: torch.device, seconds: list[float]) -> Iterator[None]:
    runtime = runtime_of(device)
    runtime.synchronize()
    start = time.perf_counter()
    yield
    runtime.synchronize()
    seconds.append(time.perf_counter() - start)


def _peak(step: Callable[[], None], model: torch.nn.Module, inputs: Any) -> int:
    """The peak of a step that makes its gradients, without a plan."""
    planned: ModelReport | None = report_of(model)
    for _ in range(_MEASUREMENTS):
        model.zero_grad()
        for tensor in tensors_in(inputs):
            tensor.grad = None
        before = None if planned is None else list(map(id, planned.parts))
        peak = measure_peak(step, resident=[model, inputs])
        if planned is None or list(map(id, planned.parts)) == before:
            break
    return peak


def _cause(fit_and_prove: Callable[[], object]) -> str:
    """The message of option `verify` about a step that differs."""
    try:
        fit_and_prove()
    except VerificationError as error:
        return str(error).partition("; ")[2]
    return ""


def _results(
    model: torch.nn.Module, inputs: Any, loss: torch.Tensor, step: str
) -> Iterator[tuple[str, torch.Tensor]]:
    yield f"{step}loss", loss.detach().clone()
    # In the sequence of the backward, so that the first difference is nearest to the cause.
    for name, parameter in reversed(list(model.named_parameters())):
        if parameter.grad is not None:
            yield f"{step}gradient of {name}", parameter.grad.clone()
    for name, parameter in model.named_parameters():
        yield f"{step}parameter {name}", parameter.detach().clone()
    for name, buffer in model.named_buffers():
        yield f"{step}buffer {name}", buffer.clone()
    for i, tensor in enumerate(tensors_in(inputs)):
        yield f"{step}input {i}", tensor.detach().clone()
        if tensor.grad is not None:
            yield f"{step}gradient of input {i}", tensor.grad.clone()
    for name, state in generator_states().named():
        yield f"{step}{name}", state
