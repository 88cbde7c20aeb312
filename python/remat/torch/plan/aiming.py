"""What to plan for where an executor needs other memory than planned, so that it keeps a budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import remat

from ..base.units import exact_bytes, format_bytes

T = TypeVar("T")

# As near to the budget as is worth another try, as a share of it.
_NEAR = 0.01


@dataclass(frozen=True)
class Aimed(Generic[T]):
    """What planning for some budget came to. peak: bytes that the executor needs for it."""

    made: T
    peak: int
    overhead: float


def aim(make: Callable[[int], Aimed[T]], budget: int, floor: int, tries: int = 4) -> Aimed[T]:
    """The plan of least overhead, of a few, whose peak is within the budget. What is planned for goes up or
    down by what the peak was off, and halfway between what is known where that would leave it.

    make: the plan for so many bytes; may raise NoPlanError. floor: bytes that any executor needs.
    Raises NoPlanError where no try is within the budget; an InfeasibleError that `make` raises only where
    the budget is below the floor, as plans of another executor prove nothing about this one.
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
            # The least that can be planned for may still be within the budget as it runs.
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
