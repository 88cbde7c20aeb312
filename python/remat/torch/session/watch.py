"""Compares real peaks of steps with predictions, where they are available at no cost.

On an accelerator the allocator tracks its peak anyway: steps that set a new one are compared. On the CPU,
steps inside `measure_peak` are.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from ..base.allocator import AllocatorTrace
from ..base.devices import runtime_of
from ..base.errors import log
from ..base.units import format_bytes
from ..plan.report import PlanReport

# A measured peak above the prediction by more than this fraction is reported.
TOLERANCE = 0.02


@dataclass
class Window:
    """From the start of a forward, with nothing else in flight, to the end of its backward.

    reports: of the graphs that ran forward, the first one first.
    Times are those of `time.time_ns`; the levels are bytes on the accelerator, at the start.
    """

    reports: list[PlanReport]
    start_ns: int
    end_ns: int = 0
    level: int = 0
    highest: int = 0

    @classmethod
    def start(cls, report: PlanReport, device: torch.device) -> Window:
        runtime = runtime_of(device)
        if not runtime.counts_memory:
            return cls([report], time.time_ns())
        return cls([report], time.time_ns(), level=runtime.requested(), highest=runtime.highest_requested())

    def end(self) -> None:
        self.end_ns = time.time_ns()


_recorded: list[Window] | None = None


class StepWatch:
    """The steps of one session."""

    def __init__(self) -> None:
        self.open: Window | None = None

    def is_first(self, report: PlanReport) -> bool:
        """True if the current step consists of this graph alone, so far."""
        return self.open is not None and self.open.reports == [report]

    def forward(self, report: PlanReport, device: torch.device) -> None:
        """A graph runs forward: the first of a step, or a further one."""
        if self.open is not None:
            self.open.reports.append(report)
            return
        self.open = Window.start(report, device)

    def give_up(self) -> None:
        """Nothing is in flight: a step that is open has no backward."""
        self.open = None

    def backward_done(self, report: PlanReport, device: torch.device) -> None:
        """The backward of a graph is over; the step is, if it began with that graph."""
        window = self.open
        if window is None or window.reports[0] is not report:
            return
        self.open = None
        window.end()
        if _recorded is not None:
            _recorded.append(window)
        runtime = runtime_of(device)
        if runtime.counts_memory:
            highest = runtime.highest_requested()
            if highest > window.highest:
                compare(window.reports, highest - window.level)


def note_eager_step(report: PlanReport) -> None:
    """A planned step in eager mode began; the end of its backward is unknown."""
    if _recorded is not None:
        _recorded.append(Window([report], time.time_ns()))


def compare(reports: list[PlanReport], rise: int) -> None:
    """Warn, once for each plan, if a step of these graphs rose higher than predicted.

    rise: bytes above what was in memory when the step began.
    """
    report = max(reports, key=lambda each: each.rise)
    excess = rise - report.rise
    if excess <= TOLERANCE * report.predicted_peak or report.exceeded:
        return
    report.exceed(excess)
    log.warning(
        "%s: the measured peak is %s, %.1f %% above the predicted %s (a loss outside the model is "
        "counted if it is given: loss= or loss_workspace=)",
        report.name,
        format_bytes(report.predicted_peak + excess),
        100 * excess / report.predicted_peak,
        format_bytes(report.predicted_peak),
    )


@contextmanager
def recorded_steps() -> Iterator[list[Window]]:
    """The planned steps that run inside the block, from forward to backward."""
    global _recorded
    before = _recorded
    windows: list[Window] = []
    _recorded = windows
    try:
        yield windows
    finally:
        _recorded = before


def compare_all(windows: list[Window], trace: AllocatorTrace, known: dict[int, int]) -> None:
    """Compare the steps that ran while the CPU allocator was traced; `known` as in `AllocatorTrace.rise`."""
    for window in (each for each in windows if each.end_ns):
        compare(window.reports, trace.rise(known, window.start_ns, window.end_ns)[0])
