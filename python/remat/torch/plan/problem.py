"""What planning a step is asked, and what it came to."""

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

# One segment of the allocator's small pool: what is there beside a step and was there before it fills another
# one at times.
_SEGMENT = 2 << 20


@dataclass(frozen=True)
class Problem:
    """A step, and how it is to be planned. All sizes are bytes.

    part: the step itself, `Part.of` it. others: what else is in flight at the same time; then all are planned
    together, and the report's peaks count the saved tensors of all.
    options: with a budget in bytes or as a share, and all that is reserved in `reserve`.
    allocator: of the device, if it keeps what is freed (`remat.CachingAllocator`).
    placeable: what may lie in one allocation, if there is to be one.
    held: bytes that the step cannot do without, where it is not all that the model does: what others hand to
        it and take from it may be gone sooner than the graph says, and its floor is none. None: it is all.
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
        """What a budget in percent is a share of: all that is in flight together, keeping everything."""
        if self.is_alone:
            return self.keep_all_peak + self.reserve
        return max(Beside(self.parts).keep_all_peaks()) + self.reserve

    @property
    def floor(self) -> int:
        """Bytes below which it is proved that nothing goes, the reserve included."""
        return self.proved(int(self.graph.floor) + self.reserve)

    def proved(self, floor: int) -> int:
        """A floor, where it is one."""
        return floor if self.held is None else min(floor, self.held + self.reserve)

    @cached_property
    def budget(self) -> int:
        return remat.parse_bytes(self.options.budget, self.whole, floor=self.floor)

    def at(self, budget: int) -> Problem:
        """The same with another budget, in bytes."""
        return replace(self, options=replace(self.options, budget=budget))

    @property
    def may_aim(self) -> bool:
        """May it be planned for other budgets to keep this one? Not where ranks plan together, or graphs do,
        or the budget is on what an allocator takes.
        """
        return self.is_alone and self.options.group is None and self.on_reserved is None

    @cached_property
    def existing_gradients(self) -> int:
        """Of the gradients that are there when the step starts."""
        graph = self.graph
        return sum(
            int(graph.bytes[value])
            for value in graph.inputs
            if category_of_input(graph.value_name(value))[0] == EXISTING_GRADIENTS
        )

    @property
    def on_reserved(self) -> str | None:
        """The allocator, if the budget is on what it takes from the device."""
        return self.allocator if self.options.budget_on == "reserved" else None

    def check(self) -> None:
        """Raises BudgetError where a budget is on what an allocator takes and the device's keeps nothing,
        UsageError where several calls would share it.
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
        """Bytes that the graph may take, of what the budget is on."""
        return max(1, self.budget - self.beside)

    def reserved_by(self, plan: remat.Plan) -> int | None:
        """Bytes that the device's allocator takes for a plan and the reserve, if it keeps what is freed."""
        if self.allocator is None or plan.copies:
            return None
        try:
            peaks = remat.simulate_allocator(self.graph, plan, self.allocator)
        except remat.UsageError:
            if self.options.budget_on == "reserved":
                raise
            return None  # settings that nobody knows here
        return int(peaks.reserved) + self.reserve + _SEGMENT

    def arranged(self, plan: remat.Plan, within: bool = True) -> Arena | None:
        """Places for the results of a plan, if they are to lie in one allocation.

        within: only as many as the budget allows.
        """
        if self.placeable is None:
            return None
        return arrange(self.graph, plan, self.placeable, self.target if within else None)

    def needed(self, predicted_peak: int, reserved_peak: int | None) -> int:
        """What is to be within the budget."""
        if self.on_reserved is None or reserved_peak is None:
            return predicted_peak
        return reserved_peak

    def amount(self, size: int) -> str:
        """For messages; where the budget is a share, as a share too, rounded up so that it can be passed."""
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
    """What planning a step came to.

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
