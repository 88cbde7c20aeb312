"""What can go wrong between a PyTorch model and a plan."""
from __future__ import annotations

import remat


class UnsupportedModelError(remat.RematError):
    """The step contains something that cannot be planned; the message names the operation."""


class PlanNotFoundError(remat.RematError):
    """No plan within the budget was found in the time allowed, and nothing was proved.

    best_peak: the smallest peak in bytes of any plan that was found, or None.
    """

    def __init__(self, message: str, best_peak: int | None) -> None:
        super().__init__(message)
        self.best_peak = best_peak
