"""Python floats that change from call to call: a weight of a loss, a temperature.

Dynamo passes such a number in a tensor, and reads it with `item()`. A step is traced with the numbers of one
call. A second trace with other numbers differs in the arguments that are these numbers, or are computed from
them: only these are read in each call. If that cannot be shown (an op whose formula depends on the value, a
number such as 0, 1 or 2 for which formulas are simplified), the step holds for these numbers alone.
"""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..base.nodes import copied
from ..base.private import FakeTensor

# Ops that may read such a number: they and their gradients depend on its value only by arithmetic.
_ARITHMETIC = ("add", "sub", "mul", "div", "true_divide", "where", "masked_fill")
_COMPARISONS = ("lt", "le", "gt", "ge")
_OPERATORS = ("add", "sub", "mul", "truediv", "iadd", "isub", "imul", "itruediv", *_COMPARISONS)
_READERS: set[Any] = {
    *(getattr(operator, name) for name in _OPERATORS),
    *(getattr(torch, name) for name in (*_ARITHMETIC, *_COMPARISONS)),
    *(name + end for name in (*_ARITHMETIC, *_COMPARISONS) for end in ("", "_")),
}


class FloatsMatterError(Exception):
    """A step cannot serve all values of its numbers."""


class Numbers(threading.local):
    """The numbers of the call that this thread runs, forward or backward."""

    now: Sequence[float] = ()

    def are(self, numbers: Sequence[float]) -> None:
        """Of the call that begins."""
        self.now = numbers


class Changing(float):
    """An argument of a step that changes from call to call; as a float, its value when it was traced."""

    numbers: Numbers
    index: int

    @classmethod
    def of(cls, value: float, numbers: Numbers, index: int) -> Changing:
        made = cls(value)
        made.numbers, made.index = numbers, index
        return made

    def value(self) -> float:
        return self.numbers.now[self.index]

    def __repr__(self) -> str:
        return f"{float(self)!r}~{self.index}"

    def __deepcopy__(self, memo: Any) -> Changing:
        return self


@dataclass(frozen=True)
class Marks:
    """By positions of node and argument in a joint graph: the number there."""

    index_of: dict[tuple[int, int], int]

    def put(self, joint: fx.GraphModule, numbers: Numbers) -> None:
        """Let these arguments be read in each call."""
        nodes = list(joint.graph.nodes)
        for position in {position for position, _ in self.index_of}:
            leaves, spec = tree_flatten((nodes[position].args, nodes[position].kwargs))
            for i, leaf in enumerate(leaves):
                index = self.index_of.get((position, i))
                if index is not None:
                    leaves[i] = Changing.of(leaf, numbers, index)
            node = nodes[position]
            node.args, node.kwargs = tree_unflatten(leaves, spec)


class Floats:
    """The numbers of a graph of Dynamo. positions: of the arguments that they come in.

    may_change: make one step for all their values, if that proves to be right.
    """

    def __init__(self, gm: fx.GraphModule) -> None:
        placeholders = gm.graph.find_nodes(op="placeholder")
        self.positions = [i for i, node in enumerate(placeholders) if _is_float(node)]
        self._place = {user.name: i for i in self.positions for user in placeholders[i].users}
        self._numbers: list[fx.Node] = []
        for node in gm.graph.nodes:
            inputs = node.all_input_nodes
            made = node.op == "call_function" and inputs and all(n in self._numbers for n in inputs)
            if node.name in self._place or (made and _is_number(node)):
                self._numbers.append(node)
        readers = {user for node in self._numbers for user in node.users} - set(self._numbers)
        self.may_change = bool(self.positions) and all(_may_read(node) for node in readers)

    def matter(self) -> None:
        """One step for all values is wrong: each needs its own."""
        self.may_change = False

    def values(self, args: Sequence[Any]) -> tuple[float, ...]:
        """Of a call, by position."""
        tensors = [args[i] for i in self.positions]
        return tuple(math.nan if isinstance(t, FakeTensor) else float(t.item()) for t in tensors)

    def numbers(self, values: Sequence[float]) -> tuple[Any, ...]:
        """These numbers, and those computed from them."""
        value_of = dict(zip(self.positions, values, strict=True))
        known: dict[fx.Node, Any] = {}
        for node in self._numbers:
            if node.name in self._place:
                known[node] = value_of[self._place[node.name]]
            else:
                args, kwargs = fx.map_arg((node.args, node.kwargs), known.__getitem__)  # type: ignore[arg-type, misc]
                known[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        return tuple(known.values())

    def are_plain(self, values: Sequence[float]) -> bool:
        """True if formulas are not simplified for any of the numbers."""
        return all(math.isfinite(n) and not float(2 * n).is_integer() for n in self.numbers(values))

    def put_into(self, gm: fx.GraphModule, values: Sequence[float]) -> fx.GraphModule:
        """The graph, or another one with the same node names, with these values as numbers."""
        if not self.positions:
            return gm
        result = copied(gm)
        result.meta = dict(gm.meta)
        node_of = {node.name: node for node in result.graph.nodes}
        for node, number in reversed(list(zip(self._numbers, self.numbers(values), strict=True))):
            node_of[node.name].replace_all_uses_with(number)
            result.graph.erase_node(node_of[node.name])
        return result

    def others(self, values: Sequence[float]) -> tuple[float, ...]:
        """Other values for the second trace. Raises FloatsMatterError."""
        others = tuple(value * 1.2345678901 + 0.0123456789 for value in values)
        if not self.are_plain(others):
            raise FloatsMatterError
        return others

    def marks(self, joint: fx.GraphModule, values: Sequence[float], other: fx.GraphModule | None) -> Marks:
        """The places of these numbers in a joint graph. other: the second trace.

        Raises FloatsMatterError if it depends on them in any other way.
        """
        if other is None:
            raise FloatsMatterError
        return _compared(joint, other, self.numbers(values), self.numbers(self.others(values)))


def _is_number(node: fx.Node) -> bool:
    return isinstance(node.meta.get("example_value"), torch.SymFloat)


def _is_float(node: fx.Node) -> bool:
    """Is it the tensor in which Dynamo passes a float?"""
    value = node.meta.get("example_value")
    if not isinstance(value, torch.Tensor) or value.requires_grad or value.device.type != "cpu":
        return False
    read = [user.op == "call_method" and user.target == "item" and _is_number(user) for user in node.users]
    return value.dim() == 0 and value.dtype is torch.float64 and bool(read) and all(read)


def _may_read(node: fx.Node) -> bool:
    return node.op in ("call_function", "call_method") and node.target in _READERS


def _compared(
    one: fx.GraphModule, other: fx.GraphModule, mine: Sequence[Any], theirs: Sequence[Any]
) -> Marks:
    """The places where two joint graphs with these numbers differ, if only in them."""
    found: dict[tuple[int, int], int] = {}
    index_of = {pair: i for i, pair in enumerate(zip(mine, theirs, strict=True))}
    nodes, twins = list(one.graph.nodes), list(other.graph.nodes)
    name_of = {twin: node.name for node, twin in zip(nodes, twins, strict=False)}
    if len(nodes) != len(twins):
        raise FloatsMatterError
    for position, (node, twin) in enumerate(zip(nodes, twins, strict=True)):
        a, spec = tree_flatten((node.args, node.kwargs))
        b, same = tree_flatten((twin.args, twin.kwargs))
        if (node.op, spec) != (twin.op, same) or not _is_same_target(one, other, node, twin):
            raise FloatsMatterError
        for i, (left, right) in enumerate(zip(a, b, strict=True)):
            if isinstance(left, fx.Node) and isinstance(right, fx.Node) and name_of[right] == left.name:
                continue
            if type(left) is type(right) is float and (left, right) in index_of:
                found[position, i] = index_of[left, right]
            elif type(left) is not type(right) or isinstance(left, fx.Node) or left != right:
                raise FloatsMatterError
    return Marks(found)


def _is_same_target(one: fx.GraphModule, other: fx.GraphModule, node: fx.Node, twin: fx.Node) -> bool:
    if node.op != "get_attr":
        return node.op in ("placeholder", "output") or node.target == twin.target
    mine, theirs = (operator.attrgetter(str(n.target))(gm) for n, gm in ((node, one), (twin, other)))
    if isinstance(mine, torch.Tensor):
        return isinstance(theirs, torch.Tensor) and mine.dtype == theirs.dtype and torch.equal(mine, theirs)
    return mine is theirs
