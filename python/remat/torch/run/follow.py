"""Observers of a running plan, notified before every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..plan.report import PlanReport


@dataclass
class Place:
    """A position in a plan that is known only after the step, if at all. position: as in `Mark`."""

    position: int | None = None
    is_known: bool = False

    def settle(self, position: int | None) -> None:
        self.position, self.is_known = position, True


# Called with the position in the plan before each step, and with None after the last step of a half.
Mark = Callable[["int | Place | None"], None]

_marks: Callable[[PlanReport], Mark] | None = None


@contextmanager
def followed(marks: Callable[[PlanReport], Mark]) -> Iterator[None]:
    """Inside the block, halves of plans call the observer that `marks` returns for their plan."""
    global _marks
    before, _marks = _marks, marks
    try:
        yield
    finally:
        _marks = before


def mark_of(plan: Callable[[], PlanReport | None]) -> Mark | None:
    """The observer of a plan, if any."""
    if _marks is None:
        return None
    known = plan()
    return None if known is None else _marks(known)
