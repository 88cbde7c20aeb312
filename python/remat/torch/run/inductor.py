"""Executor "inductor": forward and backward compiled by Inductor, with planned saved values and
recomputations.

Inductor calls a partitioner to choose the saved results; here the plan decides. Fusion and the order within a
half are Inductor's: `schedule` predicts their memory, and the first training step is measured.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import fx

from ..base.allocator import AllocatorTrace, trace_allocations
from ..base.devices import runtime_of
from ..base.errors import UnsupportedModelError, log
from ..base.private import CustomPartitionerFn, inductor
from ..base.units import exact_bytes, format_bytes
from ..plan.report import PlanReport

Partition = Callable[[fx.GraphModule, int], tuple[fx.GraphModule, fx.GraphModule]]


class _PlanPartitioner(CustomPartitionerFn):
    """Partitions a joint graph by a plan."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def __call__(
        self, gm: fx.GraphModule, joint_inputs: Sequence[object], **kwargs: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        return self._partition(gm, kwargs["num_fwd_outputs"])

    def uuid(self) -> Any | None:
        return None  # Inductor's cache may hold the graph of another plan

    def __deepcopy__(self, memo: dict[int, Any]) -> _PlanPartitioner:
        return self  # Inductor copies its settings


def compile_with_inductor(
    gm: fx.GraphModule, args: Sequence[Any], partition: Partition
) -> Callable[..., Any]:
    """A graph of Dynamo, compiled for these inputs.

    partition: from the joint graph and the number of its forward outputs to the two halves. Raises
    UnsupportedModelError if Inductor itself fails.
    """
    settings = {
        "custom_partitioner_fn": _PlanPartitioner(partition),
        # Eager mode's generators: only their draws can be repeated.
        "fallback_random": True,
    }
    own = fx.GraphModule(gm, copy.deepcopy(gm.graph))
    own.meta = dict(gm.meta)
    compiler, error_of_its_own = inductor()
    try:
        run: Callable[..., Any] = compiler(own, list(args), config_patches=settings)
    except error_of_its_own as error:
        raise UnsupportedModelError(
            f'executor="inductor": Inductor cannot compile this step ({error}); executor="boxed" may run it'
        ) from error
    return run


class FirstStep:
    """Measures the first training step of a plan and warns if it exceeds the budget.

    Forward and backward are traced separately, as a trace must end in the thread and scope where it began.
    The caller's work in between counts by the gradients that the backward gets.
    """

    def __init__(self, report: PlanReport, device: torch.device, tangent_bytes: int) -> None:
        self.report, self.device, self.tangent_bytes = report, device, tangent_bytes
        self._top = self._level = self._highest = 0
        self._held: dict[int, int] = {}
        self._backward: Any = None
        self._trace: AllocatorTrace | None = None

    def forward(self, run: Callable[[], Any]) -> Any:
        """Run the forward."""
        runtime = runtime_of(self.device)
        if runtime.counts_memory:
            self._level, self._highest = runtime.requested(), runtime.highest_requested()
            return run()
        with _traced_or_not() as trace:
            result = run()
        if trace is not None:
            self._trace = trace
            self._top, self._level = trace.rise()
            self._held = trace.left()
        return result

    def start_backward(self, _: Any) -> None:
        if self._trace is not None:
            self._backward = _traced_or_not()
            self._trace = self._backward.__enter__()

    def done(self) -> None:
        """The backward is over."""
        runtime = runtime_of(self.device)
        if runtime.counts_memory:
            highest = runtime.highest_requested()
            if highest > self._highest:
                self._compare(highest - self._level)
        elif self._backward is not None:
            self._backward.__exit__(None, None, None)
            if self._trace is not None:
                rise = self._trace.rise(self._held)[0]
                self._compare(max(self._top, self._level + self.tangent_bytes + rise))

    def _compare(self, rise: int) -> None:
        report = self.report
        peak = report.predicted_peak - report.rise + rise
        report.measure(peak)
        if peak <= report.budget:
            log.info("%s: Inductor's first step peaks at %s", report.name, format_bytes(peak))
            return
        report.exceed(peak - report.predicted_peak)
        log.warning(
            "%s: Inductor's first step peaks at %s, %s above the budget of %s, as it orders ops by "
            'itself: take a budget lower by as much, or executor="boxed"',
            report.name,
            format_bytes(peak),
            exact_bytes(peak - report.budget),
            format_bytes(report.budget),
        )


@contextmanager
def _traced_or_not() -> Iterator[AllocatorTrace | None]:
    """A trace, or None if another profiler is active (`measure_peak` compares itself)."""
    with ExitStack() as stack:
        trace: AllocatorTrace | None = None
        try:
            trace = stack.enter_context(trace_allocations())
        except RuntimeError:
            trace = None
        yield trace
