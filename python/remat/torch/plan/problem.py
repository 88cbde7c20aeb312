"""The planning problem of a step, and its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import remat

from ..base.origins import EXISTING_GRADIENTS, category_of_input
from ..base.step import StepGraph
from ..base.units import exact_bytes
from .arena import Arena, Placeable, arrange
from .beside import Beside
from .options import Options
from .part import CopyStep, Part, without_names
from .store import digest

# One segment of the allocator's small pool: existing memory sometimes fills another one.
_SEGMENT = 2 << 20


@dataclass(frozen=True)
class Problem:
    """A step to plan, with options. All sizes are bytes.

    part: the step, by `Part.of`. others: other parts in flight at the same time; then all are planned
    together, and the report's peaks count the saved tensors of all.
    options: with a budget in bytes or as a share, and all that is reserved in `reserve`.
    allocator: of the device, if it caches freed memory (`remat.CachingAllocator`).
    placeable: results eligible for one allocation, if requested.
    held: a lower bound on the bytes of a step that is only a part of the model: values passed to and from
        other parts may be freed sooner than in the graph, so its floor is no bound. None: it is the whole
        model.
    """

    step: StepGraph
    part: Part
    options: Options
    others: tuple[Part, ...] = ()
    allocator: str | None = None
    placeable: Placeable | None = None
    held: int | None = None

    @property
    def graph(self) -> remat.Graph:
        return self.part.graph

    @property
    def parts(self) -> list[Part]:
        return [self.part, *self.others]

    @property
    def host(self) -> remat.Host | None:
        return self.options.settled_host

    @property
    def is_alone(self) -> bool:
        return not self.others and self.part.copies == 1

    @cached_property
    def reserve(self) -> int:
        return self.options.size("reserve")

    @property
    def keep_all_peak(self) -> int:
        """Without the reserve."""
        return int(self.graph.keep_all_peak)

    @property
    def whole(self) -> int:
        """The base of budgets in percent: all parts in flight together, keeping everything."""
        if self.is_alone:
            return self.keep_all_peak + self.reserve
        return max(Beside(self.parts).keep_all_peaks()) + self.reserve

    @property
    def floor(self) -> int:
        """A proved lower bound on the peak, reserve included."""
        return self.proved(int(self.graph.floor) + self.reserve)

    def proved(self, floor: int) -> int:
        """The floor, if it is a bound."""
        return floor if self.held is None else min(floor, self.held + self.reserve)

    @cached_property
    def budget(self) -> int:
        return remat.parse_bytes(self.options.budget, self.whole, floor=self.floor)

    def at(self, budget: int) -> Problem:
        """The same problem with another budget, in bytes."""
        return replace(self, options=replace(self.options, budget=budget))

    @property
    def may_aim(self) -> bool:
        """True if other targets may be planned to keep this budget. Not if ranks or graphs are planned
        together, or if the budget bounds reserved memory.
        """
        return self.is_alone and self.options.group is None and self.on_reserved is None

    @cached_property
    def existing_gradients(self) -> int:
        """Bytes of the gradients that exist when the step starts."""
        graph = self.graph
        return sum(
            int(graph.bytes[value])
            for value in graph.inputs
            if category_of_input(graph.value_name(value))[0] == EXISTING_GRADIENTS
        )

    @property
    def on_reserved(self) -> str | None:
        """The allocator, if the budget bounds its reserved memory."""
        return self.allocator if self.options.budget_on == "reserved" else None

    def check(self) -> None:
        """Raises BudgetError if the budget bounds reserved memory and the device's allocator caches nothing,
        UsageError if several calls would share it.
        """
        if self.options.budget_on != "reserved":
            return
        if self.allocator is None:
            raise remat.BudgetError(
                'budget_on="reserved" is for devices whose allocator keeps what is freed, such as CUDA; '
                'here it is the same as budget_on="peak"'
            )
        if not self.is_alone:
            raise remat.UsageError(
                'budget_on="reserved" is for one graph and one call in flight: here several hold memory'
            )

    @property
    def beside(self) -> int:
        """Bytes of the budget that are not the graph's."""
        return self.reserve if self.on_reserved is None else self.reserve + _SEGMENT

    @property
    def target(self) -> int:
        """Bytes available to the graph, by the budget's measure."""
        return max(1, self.budget - self.beside)

    def reserved_by(self, plan: remat.Plan) -> int | None:
        """Bytes that the device's allocator reserves for a plan and the reserve, if it caches freed
        memory."""
        if self.allocator is None or plan.copies:
            return None
        try:
            peaks = remat.simulate_allocator(self.graph, plan, self.allocator)
        except remat.UsageError:
            if self.options.budget_on == "reserved":
                raise
            return None  # unknown settings
        return int(peaks.reserved) + self.reserve + _SEGMENT

    def arranged(self, plan: remat.Plan, within: bool = True) -> Arena | None:
        """The arena of a plan's results, if requested.

        within: only as many as the budget allows.
        """
        if self.placeable is None:
            return None
        return arrange(self.graph, plan, self.placeable, self.target if within else None)

    def needed(self, predicted_peak: int, reserved_peak: int | None) -> int:
        """The bytes that must be within the budget."""
        if self.on_reserved is None or reserved_peak is None:
            return predicted_peak
        return reserved_peak

    def amount(self, size: int) -> str:
        """An amount for messages; if the budget is a share, also as a share, rounded up so that it can be
        used as a budget."""
        budget = self.options.budget
        if not isinstance(budget, str) or not budget.strip().endswith("%"):
            return exact_bytes(size)
        share = budget if size == self.budget else f"{-(-size * 1000 // self.whole) / 10:g}%"
        return exact_bytes(size, share)

    def describe(self) -> dict[str, Any]:
        """All that a plan depends on, as a JSON value."""
        return {
            "remat": remat.__version__,
            "graphs": [digest(without_names(part.graph)) for part in self.parts],
            "parts": [[p.loss, p.new_gradients, p.copies] for p in self.parts],
            "before": [
                [i for i, other in enumerate(self.parts) if other.number in p.before] for p in self.parts
            ],
            "budget": self.budget,
            "reserve": self.reserve,
            **({} if self.on_reserved is None else {"budget_on": self.on_reserved}),
            **{name: getattr(self.options, name) for name in ("planner", *self.options.effort())},
            **({} if self.placeable is None else {"arena": self.placeable.describe()}),
            **({} if self.host is None else {"host": repr(self.host)}),
        }


@dataclass(frozen=True)
class Found:
    """The result of planning a step.

    beside: bytes that other calls in flight hold at this one's peak.
    copies: to a host and back, as in `remat.Plan`.
    """

    steps: list[int]
    status: str
    planner: str
    peak_lower_bound: int
    duration_lower_bound: int
    beside: int = 0
    copies: Sequence[CopyStep] = ()

    @classmethod
    def of(cls, result: remat.PlanResult, beside: int = 0) -> Found:
        plan = result.plan
        return cls(
            list(plan.steps) if plan is not None else [],
            result.status,
            result.planner,
            result.peak_lower_bound,
            result.duration_lower_bound,
            beside,
            list(plan.copies) if plan is not None else [],
        )
