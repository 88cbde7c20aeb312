"""Where a plan is while it runs: who follows it hears of every step before it begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..plan.report import PlanReport


@dataclass
class Place:
    """A position in a plan that is known when the step is over, if ever. position: as `Mark` has it."""

    position: int | None = None
    is_known: bool = False

    def settle(self, position: int | None) -> None:
        self.position, self.is_known = position, True


# Called with the position of a step in the plan before the step runs, and with None behind the last one of a
# half.
Mark = Callable[["int | Place | None"], None]

_marks: Callable[[PlanReport], Mark] | None = None


@contextmanager
def followed(marks: Callable[[PlanReport], Mark]) -> Iterator[None]:
    """Halves of plans that run while the block does call what `marks` gives for their plan."""
    global _marks
    before, _marks = _marks, marks
    try:
        yield
    finally:
        _marks = before


def mark_of(plan: Callable[[], PlanReport | None]) -> Mark | None:
    """What a half of a plan has to call, if anybody follows it."""
    if _marks is None:
        return None
    known = plan()
    return None if known is None else _marks(known)
