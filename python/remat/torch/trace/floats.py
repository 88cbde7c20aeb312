"""Python numbers that change from call to call: a weight of a loss, a temperature, the number of a step.

Dynamo passes such a float in a tensor, and reads it with `item()`; an int is an argument, with a symbol. A
step is traced with the numbers of one call. A second trace with other numbers differs in the arguments that
are these numbers, or are computed from them: only these are read in each call. If that cannot be shown (an op
whose formula depends on the value, a number such as 0, 1 or 2 for which formulas are simplified), the step
holds for these numbers alone.
"""

from __future__ import annotations

import itertools
import math
import operator
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..base.nodes import copied, is_number, output_node, tensors_of
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

# Ints below fit into all that reads them.
_LARGE = 1 << 31
# Between an int of the first trace and that of the second.
_STEPS = (1, -1, 2, -2, 4, -4, 8, -8, 16, -16)


class FloatsMatterError(Exception):
    """A step cannot serve all values of its numbers."""


class Numbers(threading.local):
    """The numbers of the call that this thread runs, forward or backward."""

    now: Sequence[float] = ()

    def are(self, numbers: Sequence[float]) -> None:
        """Of the call that begins."""
        self.now = numbers


class Changing:
    """An argument of a step that changes from call to call; as a number, its value when it was traced."""

    numbers: Numbers
    index: int

    @classmethod
    def of(cls, value: float, numbers: Numbers, index: int) -> Changing:
        made = _ChangingInt(value) if type(value) is int else _ChangingFloat(value)
        made.numbers, made.index = numbers, index
        return made

    def value(self) -> float:
        return self.numbers.now[self.index]

    def __deepcopy__(self, memo: Any) -> Changing:
        return self


class _ChangingFloat(Changing, float):
    def __repr__(self) -> str:
        return f"{float(self)!r}~{self.index}"


class _ChangingInt(Changing, int):
    def __repr__(self) -> str:
        return f"{int(self)!r}~{self.index}"


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
    """The numbers of a graph of Dynamo. positions: of the arguments that they come in; in_tensors: how many
    of these are tensors.

    may_change: make one step for all their values, if that proves to be right.
    """

    def __init__(self, gm: fx.GraphModule) -> None:
        placeholders = gm.graph.find_nodes(op="placeholder")
        floats = [i for i, node in enumerate(placeholders) if _is_float(node)]
        ints = [] if _has_symbolic_sizes(gm) else [i for i, node in enumerate(placeholders) if _is_int(node)]
        self.positions, self.in_tensors = floats + ints, len(floats)
        self._place = {user.name: i for i in floats for user in placeholders[i].users}
        self._place |= {placeholders[i].name: i for i in ints}
        self._numbers: list[fx.Node] = []
        for node in gm.graph.nodes:
            inputs = node.all_input_nodes
            made = node.op == "call_function" and inputs and all(n in self._numbers for n in inputs)
            if node.name in self._place or (made and _is_number(node)):
                self._numbers.append(node)
        output = output_node(gm)
        readers = {user for node in self._numbers for user in node.users} - {*self._numbers, output}
        self._read = [i for i, node in enumerate(self._numbers) if not readers.isdisjoint(node.users)]
        returned: Any = output.args[0]
        self._returned = {
            i: self._numbers.index(node) for i, node in enumerate(returned) if node in self._numbers
        }
        self.may_change = bool(self.positions) and all(_may_read(node) for node in readers)

    def matter(self) -> None:
        """One step for all values is wrong: each needs its own."""
        self.may_change = False

    def values(self, args: Sequence[Any]) -> tuple[float, ...]:
        """Of a call, by position."""
        return tuple(map(_value, (args[i] for i in self.positions)))

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

    def read(self, values: Sequence[float]) -> tuple[Any, ...]:
        """The numbers among these that ops on tensors read."""
        numbers = self.numbers(values)
        return tuple(numbers[i] for i in self._read)

    def returned(self, results: Any, values: Sequence[float]) -> Any:
        """The results of a call, with the numbers of this one among them."""
        if not self._returned:
            return results
        numbers = self.numbers(values)
        return type(results)(
            numbers[self._returned[i]] if i in self._returned else each for i, each in enumerate(results)
        )

    def change(self, values: Sequence[float]) -> bool:
        """True if a step for these values serves others too."""
        return self.may_change and self._others(values) is not None

    def key(self, values: Sequence[float], change: bool) -> tuple[Any, ...]:
        """Of the step for these values; with `change`, only of numbers for which formulas are simplified."""
        return tuple(None if change and _is_plain(number) else repr(number) for number in self.read(values))

    def put_into(self, gm: fx.GraphModule, values: Sequence[float]) -> fx.GraphModule:
        """The graph, or another one with the same node names, with these values as numbers; `returned` puts
        those that are results into them.
        """
        if not self.positions:
            return gm
        result = copied(gm)
        result.meta = dict(gm.meta)
        node_of = {node.name: node for node in result.graph.nodes}
        output = output_node(result)
        results: Any = output.args[0]
        output.args = (type(results)(0 if i in self._returned else each for i, each in enumerate(results)),)
        for node, number in reversed(list(zip(self._numbers, self.numbers(values), strict=True))):
            node_of[node.name].replace_all_uses_with(number)
            if node.op != "placeholder":
                result.graph.erase_node(node_of[node.name])
        return result

    def others(self, values: Sequence[float]) -> tuple[float, ...]:
        """Other values for the second trace. Raises FloatsMatterError."""
        others = self._others(values)
        if others is None:
            raise FloatsMatterError
        return others

    def _others(self, values: Sequence[float]) -> tuple[float, ...] | None:
        """Values for which all numbers differ, except those for which formulas are simplified."""
        mine = self.read(values)
        if not any(map(_is_plain, mine)):
            return None
        for others in _candidates(values):
            try:
                theirs = self.read(others)
            except (ArithmeticError, ValueError):
                continue
            if all(map(_may_stand_for, mine, theirs)):
                return others
        return None

    def marks(self, joint: fx.GraphModule, values: Sequence[float], other: fx.GraphModule | None) -> Marks:
        """The places of these numbers in a joint graph. other: the second trace.

        Raises FloatsMatterError if it depends on them in any other way.
        """
        if other is None:
            raise FloatsMatterError
        mine, theirs = self.numbers(values), self.numbers(self.others(values))
        index_of: dict[tuple[Any, Any], int] = {}
        for i in (i for i in self._read if mine[i] != theirs[i]):
            j = index_of.setdefault((mine[i], theirs[i]), i)
            if self._formula(self._numbers[i]) != self._formula(self._numbers[j]):
                raise FloatsMatterError  # they differ for still other values
        return _compared(joint, other, index_of, mine)

    def _formula(self, node: fx.Node) -> str:
        if node.name in self._place:
            return f"#{self._place[node.name]}"
        return f"{node.target}{fx.map_arg((node.args, node.kwargs), self._formula)}"  # type: ignore[arg-type]


def _is_number(node: fx.Node) -> bool:
    return isinstance(node.meta.get("example_value"), (torch.SymFloat, torch.SymInt))


def _is_int(node: fx.Node) -> bool:
    return isinstance(node.meta.get("example_value"), torch.SymInt)


def _has_symbolic_sizes(gm: fx.GraphModule) -> bool:
    """Only then can an int be a size."""
    described = (t for node in gm.graph.nodes for t in tensors_of(node.meta.get("example_value")))
    return any(
        is_number(size) for t in described if t.layout is torch.strided for size in (*t.shape, *t.stride())
    )


def _value(item: Any) -> float:
    if isinstance(item, torch.Tensor):
        return math.nan if isinstance(item, FakeTensor) else float(item.item())
    return int(item)


def _is_plain(number: Any) -> bool:
    if isinstance(number, int):
        return 2 < abs(number) < _LARGE
    return math.isfinite(number) and not float(2 * number).is_integer()


def _may_stand_for(number: Any, other: Any) -> bool:
    if not _is_plain(number):
        return repr(number) == repr(other)
    return type(number) is type(other) and _is_plain(other) and number != other


def _candidates(values: Sequence[float]) -> Iterator[tuple[float, ...]]:
    """Other values: of all ints, and of all floats or only of those for which no formula is simplified."""
    steps = _STEPS if any(isinstance(value, int) for value in values) else (0,)
    for step, only_plain in itertools.product(steps, (False, True)):
        yield tuple(_other(value, step * i, only_plain) for i, value in enumerate(values, 1))


def _other(value: float, step: int, only_plain: bool) -> float:
    if isinstance(value, int):
        return value + step
    return value if only_plain and not _is_plain(value) else value * 1.2345678901 + 0.0123456789


def _is_float(node: fx.Node) -> bool:
    """Is it the tensor in which Dynamo passes a float?"""
    value = node.meta.get("example_value")
    if not isinstance(value, torch.Tensor) or value.requires_grad or value.device.type != "cpu":
        return False
    read = [user.op == "call_method" and user.target == "item" and _is_number(user) for user in node.users]
    return value.dim() == 0 and value.dtype is torch.float64 and bool(read) and all(read)


def _may_read(node: fx.Node) -> bool:
    calls = node.op in ("call_function", "call_method") and node.target in _READERS
    return calls and not is_number(node.meta.get("example_value"))


def _compared(
    one: fx.GraphModule, other: fx.GraphModule, index_of: Mapping[tuple[Any, Any], int], mine: Sequence[Any]
) -> Marks:
    """The places where two joint graphs differ, if only in numbers. index_of: of pairs of numbers in both;
    mine: the numbers of the first.
    """
    found: dict[tuple[int, int], int] = {}
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
            index = index_of.get((left, right)) if type(left) is type(right) in (float, int) else None
            if index is not None and type(mine[index]) is type(left):
                found[position, i] = index
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
