"""The caller's use of a graph's outputs, as far as memory depends on it.

Before the first backward it is unknown which outputs the loss depends on and which the caller still holds
when the backward starts, so a plan counts a gradient for each, and each as held to the end. From the second
step on, plans use what the first backward showed: an output without a gradient is cut off from the graph, an
output that is not held is freed after the loss. If a later step differs, its gradients are still right
(replay.py), and later plans allow for it permanently.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from ..base.edges import positions_of, takers_of
from ..base.nodes import is_number, module_of, output_node, outputs_of
from ..base.private import BACKWARD_HOLDS_ARGUMENTS, is_tangent, storage_id
from ..base.step import OutputUse
from ..trace.tangents import UNKNOWN, Strides, index_of_output, name_of_output
from .replay import PreparedGradients


@dataclass
class Usage:
    """Observations about the outputs of a graph, by index.

    count: how many there are; differentiable: those that require a gradient.
    graded, held: outputs that got a gradient, and that were alive when a backward started; None before the
        first backward. tangents_held: was a gradient of an output alive after the backward?
    strides: of gradients of outputs, by name (trace/tangents.py), where they are not as traced.
    assumed: outputs of `graded` of which that is not known.
    shared: for outputs that share memory, all of these: what the caller writes to one of them belongs to the
        graph of the others, so that none is cut off alone.
    measured_for: bytes of gradients of outputs in the first step, for which the loss was measured, if it was;
        and the outputs without gradients there.
    """

    count: int
    differentiable: frozenset[int]
    graded: frozenset[int] | None = None
    held: frozenset[int] | None = None
    tangents_held: bool | None = None
    strides: dict[str, Strides] = field(default_factory=dict)
    assumed: frozenset[int] = frozenset()
    shared: Mapping[int, frozenset[int]] = field(default_factory=dict)
    measured_for: tuple[int, frozenset[int]] | None = None

    @classmethod
    def of(cls, gm: fx.GraphModule, stated: str | None) -> Usage:
        """Of a graph of Dynamo. stated: what the option `outputs` says."""
        outputs = outputs_of(gm)
        vals = [n.meta.get("example_value") if isinstance(n, fx.Node) else None for n in outputs]
        graded = {i for i, val in enumerate(vals) if isinstance(val, torch.Tensor) and val.requires_grad}
        usage = cls(len(outputs), frozenset(graded), shared=_shared(vals))
        if stated is None:
            return usage
        held = frozenset(range(len(outputs)) if stated == "held" else ())
        return replace(usage, held=held, tangents_held=stated == "held" or BACKWARD_HOLDS_ARGUMENTS)

    def take(self, whole: Usage, index_of: Mapping[int, int]) -> None:
        """Takes over observations about the outputs of a graph of which this is a piece.

        index_of: by index of an output of the piece, that of the same output of the graph.
        """
        self.tangents_held = whole.tangents_held
        named = {i: whole.strides.get(name_of_output(j)) for i, j in index_of.items()}
        self.strides |= {name_of_output(i): each for i, each in named.items() if each is not None}
        if whole.graded is not None:
            known = {i for i, j in index_of.items() if j not in whole.graded}
            self.graded = self.differentiable - known
            # The use of outputs read by other pieces is unknown.
            self.assumed = frozenset(i for i in self.graded if index_of.get(i) in {None, *whole.assumed})

    def is_like(self, other: Usage) -> bool:
        """True if the outputs look like those of the same code."""
        return (self.count, self.differentiable) == (other.count, other.differentiable)

    def granted(self) -> OutputUse:
        """The assumptions that a plan may make."""
        dropped = frozenset() if self.held is None else frozenset(range(self.count)) - self.held
        return OutputUse(self.without_gradient(), dropped, self.tangents_held is not False)

    def without_gradient(self) -> frozenset[int]:
        if self.graded is None:
            return frozenset()
        return frozenset(
            i for i in self.differentiable - self.graded if self.graded.isdisjoint(self.shared.get(i, ()))
        )

    def note_loss(self, gradients: Iterable[Gradient | None]) -> None:
        """Notes the loss's gradients of outputs, before any step; None: it gives gradients to more than
        outputs."""
        given = dict(enumerate(gradients))
        self.graded = frozenset(i for i, gradient in given.items() if gradient is None or gradient.exists)
        self.assumed = frozenset(i for i, gradient in given.items() if gradient is None)
        strides = {i: gradient.strides for i, gradient in given.items() if gradient is not None}
        self.strides |= {name_of_output(i): each for i, each in strides.items() if each is not None}

    def note_loss_measured(self, measured_for: int, cut: frozenset[int]) -> None:
        """Notes the step for which the loss was measured, which is the first one."""
        if self.measured_for is None:
            self.measured_for = measured_for, cut

    def note_strides(self, seen: Mapping[str, Strides]) -> bool:
        """Notes strides of gradients that differ from the traced ones; True if some are new."""
        new = {name: strides for name, strides in seen.items() if name not in self.strides}
        self.strides |= new
        return bool(new)

    def note(self, graded: set[int], held: set[int]) -> frozenset[int]:
        """Adds the observations of a backward; returns the outputs held for the first time (all, at
        first)."""
        new = frozenset(held) - (self.held or frozenset())
        self.graded = (self.graded or frozenset()) - self.assumed | graded
        self.assumed = frozenset()
        self.held = (self.held or frozenset()) | held
        return new

    def note_tangents(self, held: bool) -> None:
        """Notes whether gradients of outputs were held after a backward."""
        self.tangents_held = held or bool(self.tangents_held)

    def spare_bytes(self, use: OutputUse, output_bytes: Mapping[int, int], tangent_bytes: int) -> int:
        """Bytes that a plan with the assumptions `use` counts in vain."""
        now = self.granted()
        spare = sum(output_bytes.get(i, 0) for i in now.cut - use.cut)
        spare += sum(output_bytes.get(i, 0) for i in now.dropped - use.dropped)
        return spare + tangent_bytes * (use.tangents_held and not now.tangents_held)


def _shared(values: Iterable[Any]) -> dict[int, frozenset[int]]:
    groups: dict[int, set[int]] = {}
    for i, value in enumerate(values):
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            groups.setdefault(storage_id(value), set()).add(i)
    return {i: frozenset(group) for group in groups.values() if len(group) > 1 for i in group}


@dataclass(frozen=True)
class Gradient:
    """The gradient that the caller's loss gives to an output. strides: None if they do not matter."""

    exists: bool
    strides: Strides | None


def unfilled(gm: fx.GraphModule) -> Any:
    """Uninitialized tensors like the results of a graph of Dynamo; None if sizes are symbolic or a result is
    no tensor.
    """
    returned: Any = output_node(gm).args[0]
    values = [item.meta.get("example_value") if isinstance(item, fx.Node) else item for item in returned]
    found: list[Any] = []
    for value in values:
        if not isinstance(value, torch.Tensor):
            found.append(value)
            continue
        if value.layout is not torch.strided or not all(
            type(n) is int for n in (*value.shape, *value.stride())
        ):
            return None
        found.append(
            torch.empty_strided(tuple(value.shape), value.stride(), dtype=value.dtype, device=value.device)
        )
    if any(map(is_number, found)):
        return None
    return type(returned)(found)


class MadeOf:
    """By argument of a graph, the outputs of whose gradients its gradient is made in a trace; None where that
    is not known, or where it is made of none.
    """

    def __init__(self, outputs: Sequence[frozenset[int] | None] = ()) -> None:
        self._outputs = outputs
        known = [each for each in outputs if each is not None]
        self.differ = any(each != known[0] for each in known)

    @classmethod
    def in_trace(
        cls, joint: fx.GraphModule, gradients: Sequence[Any], shared: Mapping[int, frozenset[int]]
    ) -> MadeOf:
        """gradients: results of the joint graph, one for each argument. shared: outputs that share memory."""
        of: dict[fx.Node, frozenset[int]] = {}
        for node in joint.graph.nodes:
            of[node] = frozenset().union(*(of[each] for each in node.all_input_nodes))
            if is_tangent(node):
                index = index_of_output(node)
                of[node] = frozenset([index]) | shared.get(index, frozenset())
        made = [of[each] if isinstance(each, fx.Node) else frozenset[int]() for each in gradients]
        return cls([each if each and UNKNOWN not in each else None for each in made])

    def without(self, graded: Set[int]) -> frozenset[int]:
        """The arguments that have no gradient in eager mode, if only these outputs have one."""
        return frozenset(i for i, each in enumerate(self._outputs) if each and each.isdisjoint(graded))


class Skipped:
    """For one call: what is made of gradients of outputs that have none is None, as in eager mode. A trace
    takes zeros for them, and makes zeros, which an optimizer with weight decay or momentum steps by.
    """

    def __init__(self, node: Any, args: Sequence[Any], prepared: PreparedGradients) -> None:
        """node: of the autograd graph that the call made. prepared: what it may return, where eager mode has
        run."""
        self._prepared = prepared
        self._node, self._takers = weakref.ref(node), takers_of(args)
        self._none: set[int] = set()
        node.register_hook(self._without)

    def inputs(self, skipped: Collection[int]) -> None:
        """The gradients of these arguments are None."""
        node = self._node()
        positions = positions_of(node, self._takers) if skipped and node is not None else {}
        self._none = {positions[i] for i in skipped if i in positions}

    def _without(self, gradients: Sequence[Any], _: Any) -> tuple[Any, ...] | None:
        if not self._none or self._prepared.taken:
            return None
        return tuple(None if i in self._none else each for i, each in enumerate(gradients))


def cut_off(gm: fx.GraphModule, outputs: frozenset[int]) -> fx.GraphModule:
    """The graph with these outputs detached, so that its backward has no gradient for them."""
    if not outputs:
        return gm
    graph = fx.Graph()
    node = output_node(gm)
    copies: dict[fx.Node, fx.Node] = {}
    graph.graph_copy(gm.graph, copies)
    returned: Any = node.args[0]
    values: list[Any] = []
    for i, item in enumerate(returned):
        value = copies[item] if isinstance(item, fx.Node) else item
        if i in outputs:
            value = graph.call_method("detach", (value,))
            with torch.no_grad():
                value.meta = {**item.meta, "example_value": item.meta["example_value"].detach()}
        values.append(value)
    graph.output(type(returned)(values)).meta = dict(node.meta)
    result = module_of(gm, graph)
    result.meta = dict(gm.meta)
    return result
