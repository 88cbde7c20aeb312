"""Planners of a user's own, written in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from remat import _core
from remat._core import Plan, PlannerProblem
from remat.signatures import signed

#: A planner: the op that each step runs, a plan, or None where it found none.
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
    """Adds a planner, or replaces the one that was registered under this name in this process.

    All calls then take it by name (:func:`plan`, :func:`compare`, :func:`sweep`, :func:`largest`), and
    :func:`planners` lists it. ``auto`` does not call it. Every plan is checked by the validator, its cost is
    that of the reference simulator, and its bounds are those of all planners.

    Args:
        name: letters, digits, ``_``, ``-`` and ``.``; none of Remat's own.
        function: called with a :class:`PlannerProblem`, on a thread of its own that holds the GIL. Returns
            the op of each step, in order, or a :class:`Plan`; None where it found nothing. A plan over the
            budget is shown and never run. It should call ``problem.spend()`` after each piece of work and
            return when that is True: nothing else ends it.
        description: one line, for :func:`planners`, as the next two.
        guarantee: what it promises.
        source: the paper.
        supports: returns why a problem is not supported, or None.

    What the function raises comes out of :func:`plan`; :func:`compare` has it in the planner's row.

    Raises:
        UsageError: a name that it cannot have.
    """
    _register(name, description, guarantee, source)
    _registered[name] = _Registered(function, supports)


def is_registered(name: str) -> bool:
    """Whether the planner is a user's own."""
    return name in _registered


def registered() -> dict[str, object]:
    """All of them, by name: another object where one was replaced."""
    return dict(_registered)


def ask(name: str, problem: PlannerProblem) -> Plan | Sequence[int] | None:
    """What the planner answers; called by the core."""
    return _registered[name].function(problem)


def why_not(name: str, problem: PlannerProblem) -> str | None:
    """Why the planner does not support a problem; called by the core."""
    supports = _registered[name].supports
    return None if supports is None else supports(problem)
