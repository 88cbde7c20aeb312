"""Memory at the moments between steps of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..base.allocator import AllocatorTrace, trace_allocations
from ..base.devices import DeviceRuntime
from ..plan.report import PlanReport
from ..run.follow import Mark, Place, followed

# Size of a marker block allocated at each moment, to find it among the allocator's events, whose times are
# too coarse. No tensor has this size.
_BYTES = 61


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
    passed: list[tuple[PlanReport, int | Place | None, int]] = []

    def mark_of(plan: PlanReport) -> Mark:
        def mark(position: int | Place | None) -> None:
            block = torch.empty(_BYTES, dtype=torch.uint8, device="cpu")
            passed.append((plan, position, block.data_ptr()))

        return mark

    with trace_allocations() as trace, followed(mark_of):
        step()
    return list(_settled(_among_events(trace, passed, known)))


def _among_events(
    trace: AllocatorTrace,
    passed: Sequence[tuple[PlanReport, int | Place | None, int]],
    known: dict[int, int],
) -> Iterator[_Passed]:
    alive = dict(known)
    level = highest = sum(known.values())
    number = 0
    for address, size in trace.events:
        if number < len(passed) and (address, size) == (passed[number][2], _BYTES):
            plan, position, _ = passed[number]
            yield _Passed(plan, position, level, highest)
            number += 1
            highest = level
        elif size > 0:
            alive[address] = size
            level += size
            highest = max(highest, level)
        else:
            level -= alive.pop(address, 0)


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
