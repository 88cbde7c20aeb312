"""The hierarchical planner ``hiremate`` with parts written by users.

A *partitioner* cuts a training step into groups of layers (a layer is a forward op and its paired backward
ops); a *level solver* finds ways to run one group (its options) at several budgets. The core checks what both
return, and confirms the resulting plan by the simulator like all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Union

from remat import _core
from remat._core import Graph, PlanResult
from remat.planning import Effort, asked

if TYPE_CHECKING:
    from typing_extensions import Unpack

Nested = Union[int, "Sequence[Nested]"]


@dataclass(frozen=True)
class TrainingGraph:
    """A training step as layers, named by their forward op: 0, 1, ... in the graph's order.

    graph: the graph.
    before: for each layer its predecessors, soft dependencies included.
    backward: for each layer its backward ops.
    """

    graph: Graph
    before: list[list[int]]
    backward: list[list[int]]


@dataclass(frozen=True)
class Option:
    """One way to run a group: the steps of its forward pass (only forward ops, each at least once) and,
    later, of its backward pass (each backward op, and recomputed forward ops).

    `refresh`: forward ops to recompute between the two passes, when the outside first needs the outputs of
    the group; they make all of these, and the backward pass finds their values."""

    forward: Sequence[int]
    backward: Sequence[int]
    refresh: Sequence[int] = ()


@dataclass(frozen=True)
class Member:
    """A layer or a solved group: its ops, in an order in which they can run, and the options found for it."""

    forward: list[int]
    backward: list[int]
    options: list[Option]


@dataclass(frozen=True)
class Level:
    """A group to be solved, between what comes before it and what lies around it."""

    graph: Graph
    is_root: bool
    forward: list[int]
    backward: list[int]
    members: list[Member]


@dataclass(frozen=True)
class LevelBudget:
    """`peak`: bytes at every step; `saved`, if set: bytes between the two passes. At the root, `peak` is the
    whole budget; below, it bounds the values that the group makes."""

    peak: int
    saved: int | None


class Partitioner(Protocol):
    """Interface of partitioners."""

    def partition(self, training: TrainingGraph) -> Nested:
        """Nested lists of layers: ``[[0, 1, [2, 3]], 4]``. Every layer once; groups must be convex."""


class LevelSolver(Protocol):
    """Interface of level solvers. Called from the planner's threads, one at a time."""

    def applicable(self, level: Level) -> bool:
        """True if the solver supports this group."""

    def options(self, level: Level, budgets: list[LevelBudget]) -> Iterable[Option]:
        """Options for some or all of the budgets."""


def plan(
    graph: Graph,
    budget: int | str | None = None,
    *,
    partitioner: Partitioner | None = None,
    lower: Sequence[str | LevelSolver] | None = None,
    top: Sequence[str | LevelSolver] | None = None,
    **effort: Unpack[Effort],
) -> PlanResult:
    """:func:`remat.plan` with the planner ``hiremate`` and the user's parts.

    Args:
        partitioner: replaces the one named by `options`.
        lower: solvers of the groups below the root: ``"h_ilp"``, ``"rk_rotor"``, the name of a planner, or a
            :class:`LevelSolver`. All applicable ones run on every group, and their options are pooled.
        top: solvers of the root; the best plan of all of them counts.

    The other arguments are those of :func:`remat.plan`; exceptions of a part are re-raised.

    Raises:
        BudgetError, UsageError: as in :func:`remat.plan`; also for a graph without a backward pass, groups
            that are not convex, and invalid options of a solver, which is named.
    """
    question, limits, progress = asked("plan", graph, budget, effort)
    parts = (
        None if partitioner is None else (_name(partitioner), _partition_call(graph, partitioner)),
        None if lower is None else [_solver(graph, one) for one in lower],
        None if top is None else [_solver(graph, one) for one in top],
    )
    return _core.hiremate_plan(question, limits, progress, parts)


def partition(graph: Graph, options: Mapping[str, Any] | None = None) -> list[Any]:
    """The groups that the planner would use, as nested lists of forward ops.

    Raises UsageError if the graph has no backward pass."""
    return _core.hiremate_partition(graph, _core.Effort(None, None, None, 0, 1, dict(options or {})))


def _name(part: object) -> str:
    return str(getattr(part, "name", None) or type(part).__name__)


def _partition_call(
    graph: Graph, partitioner: Partitioner
) -> Callable[[list[list[int]], list[list[int]]], Nested]:
    return lambda before, backward: partitioner.partition(TrainingGraph(graph, before, backward))


def _level(graph: Graph, plain: tuple[bool, list[int], list[int], list[Any]]) -> Level:
    is_root, forward, backward, members = plain
    return Level(
        graph,
        is_root,
        forward,
        backward,
        [Member(f, b, [Option(*option) for option in options]) for f, b, options in members],
    )


def _solver(graph: Graph, solver: str | LevelSolver) -> Any:
    if isinstance(solver, str):
        return solver

    def options(plain: Any, budgets: list[tuple[int, int | None]]) -> list[tuple[list[int], ...]]:
        found = solver.options(_level(graph, plain), [LevelBudget(*budget) for budget in budgets])
        return [(list(option.forward), list(option.backward), list(option.refresh)) for option in found]

    return (_name(solver), lambda plain: solver.applicable(_level(graph, plain)), options)
