"""Adjusts the planned bytes for executors that need other memory than planned, so that they are within a
budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import remat

from ..base.units import exact_bytes, format_bytes

T = TypeVar("T")

# Unused share of the budget that is not worth another try.
_NEAR = 0.01


@dataclass(frozen=True)
class Aimed(Generic[T]):
    """The result of planning for some budget. peak: bytes that the executor needs."""

    made: T
    peak: int
    overhead: float


def aim(make: Callable[[int], Aimed[T]], budget: int, floor: int, tries: int = 4) -> Aimed[T]:
    """The plan of least overhead, of a few, whose peak is within the budget. The target changes by the peak's
    error, or bisects if that would leave the known range.

    make: the plan for a number of bytes; may raise NoPlanError. floor: bytes that any executor needs. Raises
    NoPlanError if no try is within the budget, and InfeasibleError of `make` only if the budget is below the
    floor, since proofs about our plans do not hold for this executor.
    """
    best: Aimed[T] | None = None
    refused: remat.NoPlanError | None = None
    asked, within, above = budget, 0, 0  # 0: not known yet
    least = 0
    for _ in range(tries):
        try:
            found = make(asked)
        except remat.NoPlanError as error:
            refused = error
            if budget < floor:
                raise
            if within or error.smallest_known <= asked or error.smallest_known == above:
                break
            # Even the least target may be within the budget when it runs.
            asked = error.smallest_known
            continue
        off = budget - found.peak
        least = min(least or found.peak, found.peak)
        if off < 0:
            above = min(above or asked, asked)
            if refused is not None:
                break
            following = asked + off
            if within and following <= within:
                following = (within + asked) // 2
        else:
            if best is None or found.overhead < best.overhead:
                best = found
            within = max(within, asked)
            if found.overhead == 0 or off <= _NEAR * budget:
                break
            following = asked + off
            if above and following >= above:
                following = (asked + above) // 2
        if following <= 0 or (within and above and above - within <= _NEAR * budget):
            break
        asked = following
    if best is None:
        known = least or (0 if refused is None else refused.smallest_known)
        raise remat.NoPlanError(
            f'executor="inductor": no plan was found that Inductor carries out within the budget of '
            f"{format_bytes(budget)}; smallest budget known to work: {exact_bytes(known)}",
            floor=floor,
            smallest_known=known,
        ) from refused
    return best
