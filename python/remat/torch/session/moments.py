"""Memory at the moments between steps of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..base.allocator import mark_moment, trace_allocations
from ..base.devices import DeviceRuntime
from ..plan.report import PlanReport
from ..run.follow import Mark, Place, followed


@dataclass(frozen=True)
class Moment:
    """A step begins or, if `position` is None, the last one of a half is over.

    level: bytes in memory. highest: peak since the last moment.
    """

    plan: PlanReport
    position: int | None
    level: int
    highest: int


@dataclass(frozen=True)
class _Passed:
    """The same, with positions that may be unknown yet."""

    plan: PlanReport
    position: int | Place | None
    level: int
    highest: int


def _settled(passed: Iterable[_Passed]) -> Iterator[Moment]:
    """Resolves positions after the call. Between two moments with known positions there may be others."""
    highest = 0
    for each in passed:
        highest = max(highest, each.highest)
        position = each.position
        if isinstance(position, Place):
            if not position.is_known:
                continue
            position = position.position
        yield Moment(each.plan, position, each.level, highest)
        highest = 0


def moments_traced(step: Callable[[], Any], known: dict[int, int]) -> list[Moment]:
    """The moments of a call, by the allocator's own events. known: as in `AllocatorTrace.rise`, all
    counted."""
    passed: list[tuple[PlanReport, int | Place | None]] = []
    marks: list[int] = []

    def mark_of(plan: PlanReport) -> Mark:
        def note(position: int | Place | None) -> None:
            marks.append(mark_moment())
            passed.append((plan, position))

        return note

    with trace_allocations() as trace, followed(mark_of):
        step()
    levels = zip(passed, trace.levels_at(marks, known), strict=False)  # without the one at the end
    return list(_settled(_Passed(*moment, *level) for moment, level in levels))


def moments_counted(step: Callable[[], Any], runtime: DeviceRuntime, beside: int) -> list[Moment]:
    """The moments of a call, by the allocator's counters, whose peak is reset.

    beside: existing bytes that are not counted.
    """
    found: list[_Passed] = []

    def mark_of(plan: PlanReport) -> Mark:
        def mark(position: int | Place | None) -> None:
            found.append(_Passed(plan, position, runtime.allocated() - beside, runtime.highest() - beside))
            runtime.reset_highest()

        return mark

    runtime.reset_highest()
    with followed(mark_of):
        step()
    runtime.synchronize()
    return list(_settled(found))
