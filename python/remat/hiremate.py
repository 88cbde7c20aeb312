"""The hierarchical planner ``hiremate`` with parts of a user's own.

A *partitioner* cuts a training step into groups of layers (a layer is a forward op and the backward ops
that are paired with it); a *level solver* finds ways to run one group (its options) at several budgets. What
either returns is checked by the core; the plan that comes out is confirmed by the simulator as every
other one.
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
    before: for each layer those that must come before it, soft dependencies included.
    backward: for each layer its backward ops.
    """

    graph: Graph
    before: list[list[int]]
    backward: list[list[int]]


@dataclass(frozen=True)
class Option:
    """One way to run a group: op steps of its forward pass (forward ops only, each at least once) and, later,
    of its backward pass (each backward op; forward ops again).

    With `refresh` the option is a refreshed one: those forward ops run between the two parts, as soon as
    anything outside wants the outputs of the group, which they all make again; the backward part finds what
    they made."""

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
    """Bytes at every step, and where it is set between the two passes. At the root `peak` is the whole
    budget; below it counts what the group makes."""

    peak: int
    saved: int | None


class Partitioner(Protocol):
    """Anything with this method."""

    def partition(self, training: TrainingGraph) -> Nested:
        """Nested lists of layers: ``[[0, 1, [2, 3]], 4]``. Every layer once; groups must be convex."""


class LevelSolver(Protocol):
    """Anything with these methods. They are called from the planner's threads, one at a time."""

    def applicable(self, level: Level) -> bool:
        """Is it suited for this group?"""

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
    """:func:`remat.plan` with the planner ``hiremate`` and other parts.

    Args:
        partitioner: in place of the one that `options` name.
        lower: solvers of the groups below the root: ``"h_ilp"``, ``"rk_rotor"``, the name of a planner, or a
            :class:`LevelSolver`. All that are applicable run on every group and their options are pooled.
        top: solvers of the root; the best plan of all of them counts.

    The other arguments are those of :func:`remat.plan`; an exception that a part raises comes out of here.

    Raises:
        BudgetError, UsageError: as in :func:`remat.plan`; also a graph without a backward pass, groups that
            are not convex, and options that are no valid run of their group, naming the solver.
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

    Raises UsageError where the graph has no backward pass."""
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
