"""The report of all plans of a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import remat

from ..base.errors import log
from ..base.units import format_bytes
from .arena import Arena
from .report import PlanReport
from .screen import answers, phases, without_plan


@dataclass
class ModelReport:
    """All that was planned for a model: one part per graph (more than one after a graph break or for several
    shapes).

    Attributes:
        seconds: wall clock of `fit` by phase, all of it (docs/torch_reference.md says what is in which).
        eager_peak: if nothing was planned and the model runs as in eager mode, the measured bytes of its
            step; eager_budget: the budget then.
    """

    parts: list[PlanReport] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    eager_peak: int = 0
    eager_budget: int = 0

    def nothing_planned(self, peak: int, budget: int) -> None:
        """The model runs as in eager mode, with this measured peak."""
        self.eager_peak, self.eager_budget = peak, budget

    def outcome(self) -> str:
        """Peak and overhead, for the last line of a progress bar."""
        return self.largest().outcome() if self.parts else f"peak {format_bytes(self.eager_peak)}, no plan"

    def set_seconds(self, seconds: Mapping[str, float]) -> None:
        """Sets the seconds of `fit`, by phase."""
        self.seconds = dict(seconds)

    def add(self, part: PlanReport) -> None:
        self.parts.append(part)

    def forget(self, part: PlanReport) -> None:
        """Drops the plan, if it is still there."""
        self.parts[:] = [each for each in self.parts if each is not part]

    def forget_all(self) -> None:
        self.parts.clear()

    def largest(self) -> PlanReport:
        """The part with the highest predicted peak, among those that make their gradients if there are any.
        Raises RuntimeError if nothing was planned yet.
        """
        if not self.parts:
            raise RuntimeError("nothing was planned yet: run a training step first")
        return self.largest_of_each()[0]

    def largest_of_each(self) -> list[PlanReport]:
        """The part with the highest predicted peak of those that make their gradients, and of those that add
        to existing ones.
        """
        kinds = [[p for p in self.parts if bool(p.existing_gradients) == adds] for adds in (False, True)]
        return [max(parts, key=lambda part: part.predicted_peak) for parts in kinds if parts]

    def _number(self, name: str, of_eager_mode: int) -> int:
        """A number of the largest part, or of eager mode if nothing was planned."""
        if self.eager_peak and not self.parts:
            return of_eager_mode
        return int(getattr(self.largest(), name))

    @property
    def predicted_peak(self) -> int:
        """Predicted peak of the largest part, in bytes."""
        return self._number("predicted_peak", self.eager_peak)

    @property
    def keep_all_peak(self) -> int:
        """Its peak without recomputation, in bytes."""
        return self._number("keep_all_peak", self.eager_peak)

    @property
    def arena(self) -> Arena | None:
        """The one allocation for its results, if it has one."""
        return self.largest().arena

    @property
    def overhead(self) -> float:
        """Its extra time as a fraction of the time named by `parts[i].compared_with`."""
        return self.largest().overhead

    @property
    def peak_lower_bound(self) -> int:
        """Lower bound on the peak of its plans, in bytes."""
        return self.largest().peak_lower_bound

    @property
    def budget(self) -> int:
        """In bytes."""
        return self._number("budget", self.eager_budget)

    @property
    def plan(self) -> remat.Plan:
        """The plan of the largest part."""
        return self.largest().plan

    @property
    def graph(self) -> remat.Graph:
        """The graph of the largest part."""
        return self.largest().graph

    def save(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write a page that shows the largest part; see `PlanReport.save`."""
        self.largest().save(path, **options)

    def _repr_html_(self) -> str:
        return "".join(part._repr_html_() for part in self.parts) or "nothing planned yet"

    def __str__(self) -> str:
        """One screen: does it fit, what does it cost, how reliable is that, what would 10 % more memory gain.
        Each of `parts` has all its numbers.
        """
        if not self.parts:
            lines = without_plan(self.eager_peak, self.eager_budget)
        else:
            first, *adding = self.largest_of_each()
            lines = answers(first, adding, len(self.parts))
        return "\n".join([*lines, *phases(self.seconds)])

    # PyTorch does not copy the compiled call of a module: the copy has no plan, and must not show one.
    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        _without_plan()

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _without_plan, ()


def _without_plan() -> None:
    log.warning(
        "a copy of a fitted model runs without a plan, and its .remat is None; "
        "give it to remat.torch.fit again"
    )
