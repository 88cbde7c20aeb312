"""Users' planners, written in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from remat import _core
from remat._core import Plan, PlannerProblem
from remat.signatures import signed

#: A planner: returns the op of each step, a plan, or None if it found none.
Planner = Callable[[PlannerProblem], "Plan | Sequence[int] | None"]


@dataclass(frozen=True)
class _Registered:
    function: Planner
    supports: Callable[[PlannerProblem], str | None] | None


_registered: dict[str, _Registered] = {}
_register = signed(_core.register_planner, __name__)


def register_planner(
    name: str,
    function: Planner,
    *,
    description: str = "a planner in Python",
    guarantee: str = "none; may miss its budget",
    source: str = "",
    supports: Callable[[PlannerProblem], str | None] | None = None,
) -> None:
    """Add a planner, or replace the one registered under this name in this process.

    All calls then take it by name (:func:`plan`, :func:`compare`, :func:`sweep`, :func:`largest`), and
    :func:`planners` lists it. ``auto`` does not call it. Every plan is checked by the validator, its cost is
    that of the reference simulator, and its bounds are those of all planners.

    Args:
        name: letters, digits, ``_``, ``-`` and ``.``; none of Remat's own.
        function: called with a :class:`PlannerProblem`, on a separate thread that holds the GIL. Returns the
            op of each step, in order, or a :class:`Plan`; None if it found nothing. A plan over the budget is
            for display only. It should call ``problem.spend()`` after each piece of work and return when that
            is True: nothing else stops it.
        description: one line, for :func:`planners`, as the next two.
        guarantee: what it promises.
        source: the paper.
        supports: returns why a problem is not supported, or None.

    Exceptions of the function are raised by :func:`plan`; :func:`compare` puts them into the planner's row.

    Raises:
        UsageError: an invalid name, or one of Remat's planners.
    """
    _register(name, description, guarantee, source)
    _registered[name] = _Registered(function, supports)


def is_registered(name: str) -> bool:
    """True if a user registered the planner."""
    return name in _registered


def registered() -> dict[str, object]:
    """All registered planners by name; a replaced one is a new object."""
    return dict(_registered)


def ask(name: str, problem: PlannerProblem) -> Plan | Sequence[int] | None:
    """Run a registered planner; called by the core."""
    return _registered[name].function(problem)


def why_not(name: str, problem: PlannerProblem) -> str | None:
    """Why the planner does not support a problem; called by the core."""
    supports = _registered[name].supports
    return None if supports is None else supports(problem)
