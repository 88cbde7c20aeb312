"""A solver for PyTorch's own partitioner: saved tensors within a budget in bytes, random ops that run
once."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

import remat
from remat import _core

from ..base.nodes import decides, is_random
from ..base.private import CustomKnapsackSolver, budget_of_partitioner, saved_by_min_cut, size_of_node
from ..base.step import Op, StepGraph
from ..base.units import exact_bytes
from ..plan.options import Options

# The budget share passed to PyTorch: at 1 it calls no solver, at 0 it recomputes everything.
_SHARE = 1e-9
_ROUNDS = 8
_CHOICE_S = 2.0


def memory_budget_solver(budget: int | str, *, costs: str = "measured") -> MemoryBudgetSolver:
    """A solver for `torch._functorch.config.activation_memory_budget_solver`: the tensors saved for the
    backward of a compiled graph are within a budget in bytes, and random ops run once.

    ``with memory_budget_solver("200MB").config(): compiled(batch)`` compiles with it, for any backend that
    uses PyTorch's partitioner (Inductor).

    Args:
        budget: bytes that one graph saves for its backward, parameters and inputs not counted.
        costs: of ops, as for :func:`fit`: "measured" or the path of a file.

    The solver raises NoPlanError if it finds nothing within the budget; PyTorch re-raises it as an error of
    its backend.
    """
    return MemoryBudgetSolver(remat.parse_bytes(budget), costs)


class MemoryBudgetSolver(CustomKnapsackSolver):  # type: ignore[misc]
    """Returned by :func:`memory_budget_solver`.

    Attributes:
        saved: bytes that each graph compiled with it saves, by the partitioner's own minimum cut.
    """

    def __init__(self, budget: int, costs: str) -> None:
        self.budget, self.saved = budget, list[int]()
        self._costs = costs

    def config(self) -> AbstractContextManager[Any]:
        """PyTorch's settings, patched for graphs that are compiled inside."""
        return budget_of_partitioner(_SHARE, self)

    def uuid(self) -> str:
        """For PyTorch's caches of compiled graphs."""
        return hashlib.sha256(f"{remat.__version__} {self.budget} {self._costs}".encode()).hexdigest()

    def __call__(
        self,
        memory: list[float],
        joint_graph: fx.Graph,
        max_memory: float,
        node_info: Any,
        all_recomputable_banned_nodes: list[fx.Node],
    ) -> tuple[list[int], list[int]]:
        nodes = all_recomputable_banned_nodes
        _pin_what_runs_once(joint_graph)
        durations = self._durations(nodes)
        capacity = self.budget
        least: int | None = None
        for _ in range(_ROUNDS):
            chosen = _chosen(nodes, durations, max(0, capacity))
            again = [i for i in range(len(nodes)) if i not in chosen]
            saved = saved_by_min_cut(joint_graph, node_info, [nodes[i] for i in again])
            size = sum(size_of_node(node) for node in saved)
            least = size if least is None else min(size, least)
            if size <= self.budget:
                self.saved.append(size)
                return sorted(chosen), again
            if capacity <= 0:
                break
            capacity -= max(1, size - self.budget)
        raise remat.NoPlanError(
            f"memory_budget_solver: no choice within the budget of {exact_bytes(self.budget)} was found for "
            f"a graph; the least that it saves is {exact_bytes(least or 0)}",
            smallest_known=least or 0,
        )

    def _durations(self, nodes: Sequence[fx.Node]) -> list[int]:
        step = StepGraph(fx.GraphModule(torch.nn.Module(), fx.Graph()), 0)
        for node in nodes:
            step.add_op(Op(node.name, node, str(node.target), "forward", [], []))
        Options(self.budget, costs=self._costs).cost_source(None, runs=False).fill(step)
        return [op.duration for op in step.ops]


def _runs_once(node: fx.Node) -> bool:
    """True if a second run draws other numbers, or may decide otherwise."""
    made_by = node.all_input_nodes[0] if node.target is operator.getitem else node
    return made_by.op == "call_function" and (is_random(made_by) or decides(made_by.target))


def _pin_what_runs_once(graph: fx.Graph) -> None:
    for node in graph.nodes:
        if node.op == "call_function" and _runs_once(node):
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def _chosen(nodes: Sequence[fx.Node], durations: Sequence[int], capacity: int) -> set[int]:
    """The nodes to save: random ones, and those of the others that save most time."""
    pinned = {i for i, node in enumerate(nodes) if _runs_once(node)}
    room = capacity - sum(size_of_node(nodes[i]) for i in pinned)
    others = [i for i in range(len(nodes)) if i not in pinned]
    asked: list[tuple[int, list[tuple[int, int, int]], list[int], list[int]]] = [
        (max(1, durations[i]), [(0, 1, size_of_node(nodes[i]))], [], []) for i in others
    ]
    chosen, _, _, _ = _core.select_within([room], asked, _CHOICE_S)
    return pinned | {others[i] for i in chosen}
