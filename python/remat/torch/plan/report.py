"""The numbers of a model's plans."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import remat
from remat import _core
from remat.planning import Effort

from ..base.units import format_bytes
from .arena import Arena

# `planner` of what runs in eager mode.
EAGER_PLANNER = "eager"
# Work of the search for the least budget, for messages.
_LEAST_WORK = 10_000_000


@dataclass
class Traffic:
    """The copies of a plan so far, over all calls.

    Attributes:
        out: bytes copied to the host.
        back: bytes copied back to the device.
        stalled: seconds that ops waited for copies (0 on CUDA, where it is not measured).
        calls: number of calls begun.
    """

    out: int = 0
    back: int = 0
    stalled: float = 0.0
    calls: int = 0

    def clear(self) -> None:
        """Reset the counts."""
        self.out = self.back = self.calls = 0
        self.stalled = 0.0

    def count_call(self) -> None:
        self.calls += 1

    def count_out(self, size: int) -> None:
        self.out += size

    def count_back(self, size: int) -> None:
        self.back += size

    def count_stall(self, seconds: float) -> None:
        self.stalled += seconds


@dataclass
class PlanReport:
    """One planned graph. Amounts are bytes; seconds are wall clock.

    Attributes:
        predicted_peak: of the whole step, resident tensors and `reserve` included; comparable with `budget`.
        keep_all_peak: the same without recomputation.
        overhead: extra time by the measured durations of ops, as a fraction of those of the traced step
            (without the effects of tracing itself), or of eager mode's ops with executor="eager". `verify`
            times both steps as a whole.
        unmeasured_ops: number of ops that could not be measured; their durations are estimates, and their
            workspaces are not counted.
        fixed: the part of the reserve that is not for other calls in flight.
        rise: the part of the predicted peak above what is in memory when the step begins.
        exceeded: bytes by which a measured peak was above the predicted one, if any.
        reserved_peak: memory that the device's allocator reserves for the step once steps repeat, by
            simulation; None if freed memory is returned at once.
        arena: the one allocation for results, where there is one (`arena=True`): `pool` bytes that stay in
            memory between steps, `places` of the results that lie in it, how many are `outside`, and the
            most bytes `beside` it.
        followed: False if calls run without the plan, since their ops depend on random numbers: they stay
            within the budget, and what runs again is chosen as they run.
        stored: whether the plan came from `cache_dir`.
        measured_peak: of the first training step, for an executor that does not keep to the plan's order, or
            of the step that `fit` ran in eager mode to measure it.
        host: the host that the plan was made for, if any.
        copied_out: bytes that a step copies to the host.
        copied_in: bytes that it copies back.
        stalled: seconds of the step in which ops wait for copies, as predicted.
        host_peak: bytes on the host at most.
        traffic: the real copies, over all calls so far.
        memory: predicted bytes by position in the plan; the maximum is `predicted_peak`.
        seconds: of its making: "capture" (tracing included), "profile", "plan", "code".
        costs: source of the ops' durations: "measured", "roofline", or the name of a file.
        asked: the budget for which `duration_lower_bound` holds, comparable with `budget`; None if nothing is
            proved about the executor's plans.
        within: function that returns the overhead of a plan within another budget, by a short search, or None
            if it finds none. Itself None if the executor's plans need more than planning.
    """

    name: str
    graph: remat.Graph
    plan: remat.Plan
    status: str
    planner: str
    budget: int
    reserve: int
    predicted_peak: int
    keep_all_peak: int
    overhead: float
    peak_lower_bound: int
    duration_lower_bound: int
    ops: int
    recomputed_steps: int
    distinct_ops: int = 0
    unmeasured_ops: int = 0
    existing_gradients: int = 0
    fixed: int = 0
    rise: int = 0
    exceeded: int = 0
    reserved_peak: int | None = None
    arena: Arena | None = None
    followed: bool = True
    stored: bool = False
    measured_peak: int | None = None
    host: remat.Host | None = None
    copied_out: int = 0
    copied_in: int = 0
    stalled: float = 0.0
    host_peak: int = 0
    traffic: Traffic = field(default_factory=Traffic, compare=False)
    memory: list[int] = field(default_factory=list, repr=False, compare=False)
    seconds: dict[str, float] = field(default_factory=dict)
    costs: str = "measured"
    asked: int | None = None
    within: Callable[[int], float | None] | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        # A copy cannot plan.
        return {**self.__dict__, "within": None}

    @property
    def is_eager(self) -> bool:
        """True if it is carried out in eager mode."""
        return self.planner == EAGER_PLANNER

    @property
    def compared_with(self) -> str:
        """The step whose time is the base of the overhead."""
        return "eager mode's ops" if self.is_eager else "the traced step's ops"

    @property
    def gap(self) -> float:
        """Upper bound on the step's distance to `duration_lower_bound`, as a fraction of that."""
        bound, duration = self.duration_lower_bound, self.plan.duration or 0
        if self.is_eager:  # with Python's overhead
            duration = max(bound, round((1 + self.overhead) * self.graph.base_duration))
        return (duration - bound) / bound if bound else 0.0

    def save(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write :func:`remat.report` of the graph and its plan: a page for the browser, unless `format` says
        otherwise. options: those of `remat.report`. Its amounts are without `reserve`, which the plan's title
        says; its times are those of kernels, and the title has the overhead including Python in eager mode.
        """
        title = f"{self.name}, planned"
        if self.reserve:
            title += f" (without the reserve of {format_bytes(self.reserve)})"
        if self.planner == EAGER_PLANNER and self.recomputed_steps:
            title += f" ({100 * self.overhead:.1f} % more time with what Python takes for it)"
        remat.report(self.graph, {title: self.plan}, **options).save(path)

    def _repr_html_(self) -> str:
        return _core.plan_html(self.graph, self.plan)

    def _reserved_lines(self) -> list[str]:
        if self.reserved_peak is None:
            return []
        return [f"reserved_peak = {format_bytes(self.reserved_peak)}"]

    def _copy_lines(self) -> list[str]:
        if self.host is None:
            return []
        lines = [
            f"copied_out = {format_bytes(self.copied_out)}",
            f"copied_in = {format_bytes(self.copied_in)}",
            f"stalled = {self.stalled:.4g} s",
            f"host_peak = {format_bytes(self.host_peak)}",
        ]
        calls = self.traffic.calls
        if calls:
            lines.append(f"stalled_measured = {self.traffic.stalled / calls:.4g} s a call of {calls}")
        return lines

    def as_scheduled(self, rise: int) -> PlanReport:
        """The same report for an executor with its own schedule, which needs this many bytes above the memory
        at the begin of the step. Only that initial memory is a proved bound then.
        """
        there = self.predicted_peak - self.rise
        return replace(
            self,
            predicted_peak=there + rise,
            rise=rise,
            peak_lower_bound=min(there, self.peak_lower_bound),
            asked=None,
        )

    def set_seconds(self, seconds: Mapping[str, float]) -> None:
        """Sets the seconds of its making, by phase."""
        self.seconds = dict(seconds)

    def exceed(self, excess: int) -> None:
        """Notes a measured step that needs this many bytes more than predicted."""
        self.exceeded = excess

    def measure(self, peak: int) -> None:
        """Notes a measured step."""
        self.measured_peak = peak

    def leave(self) -> None:
        """Notes that calls run without the plan."""
        self.followed = False

    def least_known(self) -> int:
        """The least budget that works for this graph alone, by a search of limited work."""
        effort: Effort = {"time_limit": None, "work_limit": _LEAST_WORK}
        found = remat.plan(self.graph, objective="peak", **effort).plan
        if found is None or found.peak is None:
            return self.predicted_peak
        return min(self.predicted_peak, self.fixed + found.peak)

    def summary(self) -> str:
        """One line."""
        return (
            f"{self.name}: {self.ops} ops, peak {format_bytes(self.keep_all_peak)} -> "
            f"{format_bytes(self.predicted_peak)} (budget {format_bytes(self.budget)}), "
            f"overhead {100 * self.overhead:.1f} % of {self.compared_with}, "
            f"{self.recomputed_steps} steps recomputed, {self._reserved()}{self._copied()}"
            f"{sum(self.seconds.values()):.1f} s{', stored plan' if self.stored else ''}"
        )

    def _reserved(self) -> str:
        """Part of the summary; empty if freed memory is returned at once."""
        return "" if self.reserved_peak is None else f"{format_bytes(self.reserved_peak)} reserved, "

    def _copied(self) -> str:
        """Part of the summary; empty without a host."""
        if self.host is None:
            return ""
        return (
            f"{format_bytes(self.copied_out)} copied out, {format_bytes(self.copied_in)} back, "
            f"{1e3 * self.stalled:.1f} ms stalled, "
        )

    def copied_so_far(self) -> str:
        """One line about the real copies of all calls."""
        traffic = self.traffic
        return (
            f"{self.name}: {traffic.calls} calls copied {format_bytes(traffic.out)} out and "
            f"{format_bytes(traffic.back)} back, ops waited {1e3 * traffic.stalled:.1f} ms for it"
        )

    def outcome(self) -> str:
        """Peak and overhead, for the last line of a progress bar."""
        return (
            f"peak {format_bytes(self.predicted_peak)} of {format_bytes(self.keep_all_peak)}, "
            f"{100 * self.overhead:.1f} % more time"
        )

    def __str__(self) -> str:
        lines = [
            f"graph = {self.name}",
            f"ops = {self.ops}",
            f"status = {self.status}",
            f"planner = {self.planner}",
            f"budget = {format_bytes(self.budget)}",
            f"reserve = {format_bytes(self.reserve)}",
            f"predicted_peak = {format_bytes(self.predicted_peak)}",
            f"keep_all_peak = {format_bytes(self.keep_all_peak)}",
            *self._reserved_lines(),
            *([] if self.arena is None else [f"arena = {self.arena}"]),
            f"overhead = {self.overhead:.2%} of {self.compared_with}",
            f"recomputed_steps = {self.recomputed_steps}",
            *([f"unmeasured_ops = {self.unmeasured_ops}"] if self.unmeasured_ops else []),
            *self._copy_lines(),
            f"peak_lower_bound = {format_bytes(self.peak_lower_bound)}",
            f"duration_lower_bound = {self.duration_lower_bound / 1e9:.4g} s",
        ]
        lines += [f"{name}_seconds = {value:.2f}" for name, value in self.seconds.items()]
        return "\n".join(lines)
