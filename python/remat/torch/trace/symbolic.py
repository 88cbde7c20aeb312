"""One trace for varying shapes: made with symbols for sizes, and evaluated for given ones.

Dynamo uses a symbol for a size that it has seen vary, and notes its assumptions about it (guards).
AOTAutograd traces such a graph with symbols too, and adds guards. For sizes that satisfy all guards, the
trace should equal one made for these sizes alone. This is verified once: for the sizes of a trace made
without symbols, it must be that trace, op for op and stride for stride.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map

from ..base.errors import UnsupportedModelError
from ..base.nodes import geometry, is_number, module_of, tensors_of
from ..base.private import (
    FakeTensorMode,
    JointTrace,
    apart,
    detect_fake_mode,
    expression_of,
    fake_like,
    holds_at,
    storage_id,
)

aten = torch.ops.aten


def is_symbolic(inputs: Iterable[Any]) -> bool:
    """Of what Dynamo says of the inputs of a graph."""
    return any(
        isinstance(size, torch.SymInt)
        for item in inputs
        for size in (item.shape if isinstance(item, torch.Tensor) else (item,))
    )


@dataclass
class Sizes:
    """Values of symbols, and of expressions in them."""

    values: dict[Any, int]
    _known: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, described: Sequence[Any], args: Sequence[Any]) -> Sizes | None:
        """The values of a call. described: its arguments in symbols. None if the arguments do not match."""
        pairs = list(_numbers(described, args))
        symbols = [(expression_of(a, as_made=True), b) for a, b in pairs if is_number(a)]
        values = {symbol: b for symbol, b in symbols if getattr(symbol, "is_symbol", False)}
        sizes = cls(values)
        try:
            return sizes if all(sizes.at(a) == b for a, b in pairs) else None
        except UnsupportedModelError:
            return None

    def at(self, number: Any) -> Any:
        """A number, or the value of a symbolic one."""
        if not is_number(number):
            return number
        expression = expression_of(number)
        if expression not in self._known:
            kind = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(number)]
            unknown: set[Any] = getattr(expression, "free_symbols", set()) - self.values.keys()
            if unknown:
                # Of a storage that an argument shows a part of, for one.
                raise UnsupportedModelError(f"{expression} depends on {unknown}, which no argument shows")
            self._known[expression] = (
                kind(expression.xreplace(self.values))
                if hasattr(expression, "xreplace")
                else kind(expression)
            )
        return self._known[expression]

    def all_at(self, numbers: Sequence[Any]) -> tuple[int, ...]:
        return tuple(self.at(number) for number in numbers)


def _numbers(described: Sequence[Any], args: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Sizes and strides, in symbols and as they are; a difference of kind is one of numbers."""
    for a, b in zip(described, args, strict=True):
        if isinstance(a, torch.Tensor):
            if not isinstance(b, torch.Tensor) or a.dim() != b.dim() or a.dtype != b.dtype:
                yield 0, 1
            elif not isinstance(a, torch.nn.Parameter):
                yield from zip((*a.shape, *a.stride()), (*b.shape, *b.stride()), strict=True)
        elif is_number(a) or isinstance(a, int):
            yield a, b


class _Concrete:
    """Makes tensors of given sizes of tensors with symbols; those of one storage show one storage."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.mode: Any = FakeTensorMode()
        self._storages: dict[int, torch.Tensor] = {}
        self._shared: dict[int, int] = {}
        self._made: dict[int, tuple[Any, torch.Tensor]] = {}

    def value(self, val: Any) -> Any:
        if type(val) in (tuple, list):
            return type(val)(map(self.value, val))
        return tree_map(self._item, val) if isinstance(val, (tuple, dict)) else self._item(val)

    def share(self, val: torch.Tensor, source: torch.Tensor) -> None:
        """Makes them share one storage."""
        self._shared[storage_id(val)] = self._shared.get(storage_id(source), storage_id(source))

    def _item(self, item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return self.sizes.at(item)
        if id(item) not in self._made:
            self._made[id(item)] = item, fake_like(self.mode, self._tensor(item), item.device)
        return self._made[id(item)][1]

    def _tensor(self, item: torch.Tensor) -> torch.Tensor:
        at, storage = self.sizes, self._shared.get(storage_id(item), storage_id(item))
        shape, strides = at.all_at(item.shape), at.all_at(item.stride())
        base = self._storages.get(storage)
        if base is None:
            count = at.at(item.untyped_storage().nbytes())
            base = torch.empty(count, dtype=torch.uint8, device="meta")
            self._storages[storage] = base
        made = torch.empty(0, dtype=item.dtype, device="meta")
        return made.set_(base.untyped_storage(), at.at(item.storage_offset()), shape, strides)


def _told(
    gm: fx.GraphModule, value: Callable[[Any], Any], key: str, sizes: Sizes
) -> tuple[fx.GraphModule, dict[fx.Node, Any]]:
    """A graph with values for symbolic numbers. value: metadata key."""
    graph, known = fx.Graph(), dict[fx.Node, Any]()
    for node in gm.graph.nodes:
        val = node.meta.get(key)
        number = is_number(val) or (isinstance(val, (int, float)) and node.op == "placeholder")
        if number and node.op not in ("placeholder", "output"):
            known[node] = sizes.at(val) if isinstance(val, torch.SymInt) else _calculated(node, known)
            continue
        new = graph.node_copy(node, known.__getitem__)
        new.meta.pop("tensor_meta", None)
        if key in node.meta:
            new.meta[key] = value(val)
        known[node] = new.meta[key] if number else new
        if number:
            known[node] = sizes.at(val)
    result = module_of(gm, graph)
    result.meta = dict(gm.meta)
    return result, known


def _calculated(node: fx.Node, known: dict[fx.Node, Any]) -> Any:
    """A number that is no size, computed as in Python, to the last bit."""
    args, kwargs = fx.map_arg((node.args, node.kwargs), known.__getitem__)  # type: ignore[arg-type, misc]
    if node.op != "call_function" or any(isinstance(a, fx.Node) for a in tree_leaves((args, kwargs))):
        raise UnsupportedModelError(
            f"{node.name} ({node.target}) is a number that depends on more than sizes"
        )
    return node.target(*args, **kwargs)  # type: ignore[operator]


def at_sizes(gm: fx.GraphModule, sizes: Sizes) -> fx.GraphModule:
    """A graph of Dynamo for given sizes: as made without symbols, except for the arguments."""
    return _told(gm, _Concrete(sizes).value, "example_value", sizes)[0]


@dataclass(frozen=True)
class SymbolicTrace:
    """A trace with symbols. described: the arguments, in these symbols."""

    trace: JointTrace
    described: Sequence[Any]

    def at(self, args: Sequence[Any]) -> JointTrace | None:
        """The trace for a call; None if it does not hold for its sizes."""
        sizes = Sizes.of(self.described, args)
        try:
            return None if sizes is None else self.at_sizes(sizes)
        except UnsupportedModelError:
            return None

    def at_sizes(self, sizes: Sizes) -> JointTrace | None:
        mode: Any = detect_fake_mode(self.described)
        if mode is None or not holds_at(mode, sizes.values):
            return None
        concrete = _Concrete(sizes)
        joint, inputs, *others = self.trace.traced
        whole = [node for node in joint.graph.nodes if _is_whole(node, sizes)]
        for node in whole:
            concrete.share(node.meta["val"], node.args[0].meta["val"])
        told, node_of = _told(joint, concrete.value, "val", sizes)
        for node in whole:
            node_of[node].target, node_of[node].args = aten.alias.default, node_of[node].args[:1]
        metadata = [
            apart(each, traced_tangents=concrete.value(each.traced_tangents), dynamic_outputs=False)
            for each in (self.trace.collected, self.trace.at_the_end)
        ]
        return JointTrace(metadata[0], metadata[1], (told, concrete.value(inputs), *others))


def _is_whole(node: fx.Node, sizes: Sizes) -> bool:
    """True for the gradient of a slice of everything. With numbers for sizes, indexing makes no such slice;
    with symbols it cannot tell.
    """
    if node.op != "call_function" or node.target is not aten.slice_backward.default:
        return False
    gradient: Any = node.args[0]
    mine, theirs = (_layout(each.meta["val"], sizes) for each in (node, gradient))
    return mine == theirs


def _layout(val: torch.Tensor, sizes: Sizes) -> tuple[Any, ...]:
    storage = val.untyped_storage()
    return (*map(sizes.at, (*val.shape, *val.stride(), val.storage_offset(), storage.nbytes())), val.dtype)


def differ(one: fx.GraphModule, other: fx.GraphModule) -> str | None:
    """A difference between two joint graphs; numeric arguments do not count."""
    mine, theirs = _described(one), _described(other)
    for a, b in zip(mine, theirs, strict=False):
        if a != b:
            return f"{a} is {b}"
    return None if len(mine) == len(theirs) else f"{len(mine)} ops are {len(theirs)}"


def _described(gm: fx.GraphModule) -> list[Any]:
    """Ops, their arguments and what their results are, with nodes and storages by number."""
    number: dict[fx.Node, int] = {}
    storages: dict[int, int] = {}
    lines: list[Any] = []
    numbers = itertools.count()
    for node in gm.graph.nodes:
        val = node.meta.get("val")
        if node.op == "placeholder" and not isinstance(val, torch.Tensor):
            continue
        if node.op == "get_attr":
            number[node] = next(numbers)
            continue
        given = fx.map_arg((node.args, node.kwargs), lambda n: f"%{number.get(n)}")  # type: ignore[arg-type, return-value]
        if node.op == "output":  # numeric arguments have no gradients
            lines.append(("output", [given for given in map(str, tree_leaves(given[0])) if given != "None"]))
            continue
        results = [
            (
                str(t.dtype),
                tuple(t.shape),
                t.stride(),
                t.storage_offset(),
                t.untyped_storage().nbytes(),
                storages.setdefault(storage_id(t), len(storages)),
            )
            for t in tensors_of(val)
        ]
        first = tensors_of(node.all_input_nodes[0].meta.get("val")) if node.all_input_nodes else []
        if node.op == "call_function" and len(results) == 1 and len(first) == 1 and _same_view(val, first[0]):
            # Without symbols a slice of everything is an alias.
            number[node] = number[node.all_input_nodes[0]]
            continue
        number[node] = next(numbers)
        lines.append((node.op, str(node.target) if node.op == "call_function" else "", str(given), results))
    return lines


def _same_view(a: Any, b: torch.Tensor) -> bool:
    """True if they show the same elements of one storage with equal strides."""
    return isinstance(a, torch.Tensor) and storage_id(a) == storage_id(b) and geometry(a) == geometry(b)
