"""The errors of remat. All derive from :class:`RematError`; messages are one line and name the place."""

from __future__ import annotations


class RematError(Exception):
    """Base of all errors of remat; itself raised if a file cannot be written."""


class GraphError(RematError, ValueError):
    """A graph, or the file that should hold one, breaks a rule of the format or of the model."""


class PlanError(RematError, ValueError):
    """A plan breaks a rule, or its file has numbers that its steps contradict."""

    rule: str
    """Name of the broken rule (``"input_ready"``, ...), or ``""`` if no rule of the model is broken."""
    step: int | None
    """The step that breaks it, or None if the whole plan does."""

    def __init__(self, message: str, *, rule: str = "", step: int | None = None) -> None:
        super().__init__(message)
        self.rule = rule
        self.step = step


class UsageError(RematError, ValueError):
    """A planner or option that does not exist, or a value that it cannot take."""


class BudgetError(UsageError):
    """A budget that is not a positive amount of bytes."""


class NoPlanError(RematError):
    """No plan within the budget was found. Nothing is proved unless it is an :class:`InfeasibleError`."""

    floor: int
    """Lower bound on the peak of every plan, in bytes."""
    smallest_known: int
    """The smallest budget known to work, in bytes."""

    def __init__(self, message: str, *, floor: int = 0, smallest_known: int = 0) -> None:
        super().__init__(message)
        self.floor = floor
        self.smallest_known = smallest_known


class InfeasibleError(NoPlanError):
    """Proved: no plan of the requested order is within the budget."""
