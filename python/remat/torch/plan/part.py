"""A graph of the model, with the data for planning it alone or together with others."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import remat

from ..base.step import StepGraph
from .store import digest

# Value, "out" or "in", step of issue, step of wait.
CopyStep = tuple[int, str, int, int]


@dataclass(frozen=True)
class Part:
    """Sizes of a part, in bytes.

    new_gradients: bytes of gradients that its backward makes and does not add to existing ones.
    copies: how many calls of it are in flight at once.
    number, before: which graph it is, and which ones hold tensors already when it starts.
    """

    graph: remat.Graph
    loss: int
    new_gradients: int
    copies: int = 1
    number: int = 0
    before: frozenset[int] = frozenset()

    @classmethod
    def of(
        cls,
        step: StepGraph,
        graph: remat.Graph,
        gradients_counted: bool = False,
        copies: int = 1,
        number: int = 0,
        before: frozenset[int] = frozenset(),
    ) -> Part:
        """gradients_counted: memory of the gradients exists already, or counts as resident."""
        loss = step.ops[step.loss]
        gradients = sum(step.values[v].bytes for v in step.kept if v not in {*loss.inputs, *loss.outputs})
        new_gradients = 0 if gradients_counted else gradients
        return cls(graph, step.loss, new_gradients, copies, number, before)

    @cached_property
    def key(self) -> str:
        """Equal for parts of the same ops, sizes and times."""
        return digest([without_names(self.graph), self.loss])

    @property
    def identity(self) -> tuple[Hashable, ...]:
        """All that planning it together with others depends on."""
        before = tuple(sorted(self.before))
        return self.number, self.key, self.new_gradients, self.copies, before

    @property
    def keep_all_held(self) -> int:
        """`held_bytes` of keeping everything."""
        return self.held_bytes(range(self.graph.num_ops))

    def held_bytes(self, steps: Sequence[int], copies: Sequence[CopyStep] = ()) -> int:
        """Non-resident bytes alive at the loss boundary, which a call in flight holds."""
        memory = remat.simulate(self.graph, steps, copies).memory
        position = list(steps).index(self.loss)
        return int(memory[position]) - self.graph.resident - int(self.graph.workspaces[self.loss])

    def made_bytes(self, values: Sequence[int]) -> int:
        """Bytes of these values, without inputs of the graph."""
        given = set(self.graph.inputs)
        return sum(int(self.graph.bytes[value]) for value in set(values) - given)


def without_names(graph: remat.Graph) -> dict[str, Any]:
    """The graph as an object without names: tracing the same step again may name things differently."""
    described = graph.to_dict()
    for named in (described, *described["ops"], *described["values"]):
        if isinstance(named, dict):
            named.pop("name", None)
            named.pop("module", None)
            named.pop("source", None)
    return described
