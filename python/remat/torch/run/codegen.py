"""Straight-line Python for an fx graph: one local variable per result, freed at its last read.

PyTorch's generated code takes two attribute lookups and two Python calls per op, and the argument parser of
its operator objects is slower than that of its functions; a step has thousands of ops and views.
"""

from __future__ import annotations

import itertools
import linecache
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ..base.nodes import output_node, tensors_of
from ..base.private import OpOverload, TensorBase, _VariableFunctions, builtin, takes_a_list
from ..plan.report import PlanReport
from ..trace.floats import Changing
from .follow import Mark, mark_of
from .places import PLACE, SAVED, TOKEN, Checked, Place, Spot
from .pool import PoolUser

aten = torch.ops.aten
_functions: Any = _VariableFunctions
_methods: Any = TensorBase

# Functions with the positional arguments of the operator that they call. A view of a tensor whose strides are
# not the traced ones (batch norm of a transposed tensor) may need a copy, as in eager mode.
_BINDINGS: dict[Any, Callable[..., Any]] = {
    aten.view.default: _methods.reshape,
    aten._unsafe_view.default: _methods.view,
    aten.expand.default: _methods.expand,
    aten.t.default: _functions.t,
    aten.transpose.int: _functions.transpose,
    aten.permute.default: _functions.permute,
    aten.select.int: _functions.select,
    aten.unsqueeze.default: _functions.unsqueeze,
    aten.squeeze.dim: _functions.squeeze,
    aten.detach.default: _functions.detach,
    aten.split.Tensor: _methods.split,
    aten.mm.default: _functions.mm,
    aten.bmm.default: _functions.bmm,
    aten.addmm.default: _functions.addmm,
    aten.add.Tensor: _functions.add,
    aten.sub.Tensor: _functions.sub,
    aten.mul.Tensor: _functions.mul,
    aten.add_.Tensor: _methods.add_,
    aten.mul_.Tensor: _methods.mul_,
    aten.sum.dim_IntList: _functions.sum,
    aten.clone.default: _functions.clone,
    aten.cat.default: _functions.cat,
    aten.tanh.default: _functions.tanh,
    aten.relu.default: _functions.relu,
    aten.native_layer_norm.default: _functions.native_layer_norm,
}
_numbers = itertools.count()


def callee_of(target: Any) -> Callable[..., Any]:
    """The function to call for a node with this target."""
    bound = _BINDINGS.get(target)
    if bound is not None:
        return bound
    return builtin(target) if type(target) is OpOverload else target  # type: ignore[no-any-return]


def boxed(
    gm: fx.GraphModule,
    plan: Callable[[], PlanReport | None] = lambda: None,
    pool_user: Callable[[], PoolUser | None] = lambda: None,
) -> Callable[[list[Any]], Any]:
    """A callable that takes its arguments in a list, empties it, and frees every tensor at its last read.

    plan: called at each run; its observers are notified of the steps. pool_user: called at each run; results
    with places in its pool are written there if the pool is free.
    """
    text = _Source(gm).text()
    run = text.function()

    def run_or_tell(args: list[Any]) -> Any:
        mark = mark_of(plan)
        return run(args) if mark is None else text.function(mark)(args)

    if not any(TOKEN in node.meta for node in gm.graph.nodes):
        return takes_a_list(run_or_tell)
    in_pool = _InPool(gm)

    def run_in_pool(args: list[Any]) -> Any:
        user = pool_user()
        held = None if user is None else in_pool.enter(user, args)
        if user is None or held is None:
            return run_or_tell(args)
        return in_pool.run(user, mark_of(plan), args)

    return takes_a_list(run_in_pool)


class _InPool:
    """A half of a plan whose results lie in a pool."""

    def __init__(self, gm: fx.GraphModule) -> None:
        self.gm = gm
        tokens = [i for i, n in enumerate(gm.graph.find_nodes(op="placeholder")) if TOKEN in n.meta]
        self.token = tokens[0] if tokens else None
        # Ops with inputs of strides other than traced, for which the results are not tested.
        self.others: set[fx.Node] = set()
        self.text: _Text | None = None

    def enter(self, pool_user: PoolUser, args: Sequence[Any]) -> Any:
        """The object that holds the pool while the half runs, or None."""
        return pool_user.enter() if self.token is None else pool_user.enter_again(args[self.token])

    def run(self, pool_user: PoolUser, mark: Mark | None, args: list[Any]) -> Any:
        """Run the half, while the pool is held."""
        if self.text is None:
            first = _Source(self.gm, lambda node: Checked(node, callee_of(node.target), self.others)).text()
            results = first.function(mark, pool_user.tensors(id(self), first.spots))(args)
            self.text = _Source(self.gm, self._callee).text()
            return results
        text = self.text
        tensors = pool_user.tensors(id(self), text.spots)
        if mark is not None:
            return text.function(mark, tensors)(args)
        return pool_user.function(id(self), lambda: text.function(None, tensors))(args)

    def _callee(self, node: fx.Node) -> Any:
        place: Place = node.meta[PLACE]
        return None if node in self.others else place.form.callee


@dataclass(frozen=True)
class _Text:
    """Lines of a function, their steps of the plan, if any, and the names used.

    spots: by name, tensors in a pool.
    """

    lines: list[str]
    positions: list[int | None]
    names: dict[str, Any]
    spots: dict[str, Spot]

    def function(self, mark: Mark | None = None, named: Mapping[str, Any] | None = None) -> Any:
        """mark: called before each step, and at the end. named: further names used by the lines."""
        name = f"<remat graph {next(_numbers)}>"
        lines = self.lines if mark is None else list(self._marked())
        text = "def run(args):\n" + "".join(f"    {line}\n" for line in lines)
        names = {**self.names, **(named or {}), "mark": mark}
        exec(compile(text, name, "exec"), names)
        if mark is None:
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        return names["run"]

    def _marked(self) -> Iterator[str]:
        last = None
        for line, position in zip(self.lines, self.positions, strict=True):
            if position is not None and position != last:
                yield f"mark({position})"
                last = position
            if line.startswith("return "):
                yield "mark(None)"
            yield line


class _Source:
    """Writes the text of a function.

    Names: `a` and a number for arguments, `v` for results, `k` for what is called, `c` for constants, `s` for
    tensors in a pool.
    placed: for a node whose results have places, the form that writes there, or None; without it there is no
    pool.
    """

    def __init__(self, gm: fx.GraphModule, placed: Callable[[fx.Node], Any] | None = None) -> None:
        self.gm, self.placed = gm, placed
        self.spots: dict[str, Spot] = {}
        self.number = {node: i for i, node in enumerate(gm.graph.nodes)}
        self.names: dict[fx.Node, str] = {}
        self.globals: dict[str, Any] = {}
        self.known: dict[Any, str] = {}
        self.lines: list[str] = []
        self.positions: list[int | None] = []

    def text(self) -> _Text:
        nodes = list(self.gm.graph.nodes)
        placeholders = [n for n in nodes if n.op == "placeholder"]
        for i, node in enumerate(placeholders):
            self.names[node] = f"a{i}"
        names = [self.names[n] for n in placeholders]
        if names:
            self._add(f"{', '.join(names)}, = args; args.clear()")
        for node, dead in _with_dead(nodes):
            line = self._line(node)
            released = [self.names[n] for n in dead if n in self.names and n is not node]
            released += [self.names[node]] if node in dead and node in self.names else []
            release = "; " + " = ".join(released) + " = None" if released else ""
            if line or released:
                self._add((line + release).removeprefix("; "), node.meta.get("remat_position"))
        returned: Any = output_node(self.gm).args[0]
        items = "".join(self._returned(item) + ", " for item in returned)
        self._add(f"return [{items}]" if isinstance(returned, list) else f"return ({items})")
        return _Text(self.lines, self.positions, self.globals, self.spots)

    def _returned(self, item: Any) -> str:
        """Returns saved tensors as new tensors of this call, which autograd keeps, so that they show that the
        pool is in use."""
        text = self._text(item)
        in_pool = self.placed is not None and isinstance(item, fx.Node) and SAVED in item.meta
        return f"{self._callee(aten.detach.default)}({text})" if in_pool else text

    def _add(self, line: str, position: int | None = None) -> None:
        self.lines.append(line)
        self.positions.append(position)

    def _line(self, node: fx.Node) -> str:
        if node.op == "get_attr":
            self.names[node] = self._constant(operator.attrgetter(str(node.target))(self.gm))
            return ""
        if node.op != "call_function":
            return ""
        self.names[node] = name = f"v{len(self.names)}"
        if node.target is operator.getitem:
            return f"{name} = {self._text(node.args[0])}[{self._text(node.args[1])}]"
        arguments = [self._text(a) for a in node.args]
        arguments += [f"{key}={self._text(value)}" for key, value in node.kwargs.items()]
        callee = self.placed(node) if self.placed is not None and PLACE in node.meta else None
        if callee is not None:
            arguments += self._spots(node)
        elif self.placed is not None and TOKEN in node.meta:
            return f"{name} = token()"
        known = self._callee(node.target) if callee is None else self._called(callee)
        return f"{name} = {known}({', '.join(arguments)})"

    def _spots(self, node: fx.Node) -> list[str]:
        """Keyword arguments with the places of a node's results."""
        place: Place = node.meta[PLACE]
        found: list[str] = []
        tensors = tensors_of(node.meta["val"])
        for key, offset, tensor in zip(place.form.names, place.offsets, tensors, strict=True):
            name = f"s{self.number[node]}_{len(found)}"
            self.spots[name] = Spot.of(offset, tensor)
            found.append(f"{key}={name}")
        return found

    def _callee(self, target: Any) -> str:
        if target not in self.known:
            self.known[target] = f"k{len(self.known)}"
            self.globals[self.known[target]] = callee_of(target)
        return self.known[target]

    def _called(self, function: Any) -> str:
        """The same for calls that are emitted unchanged."""
        key = "called", function
        if key not in self.known:
            self.known[key] = f"k{len(self.known)}"
            self.globals[self.known[key]] = function
        return self.known[key]

    def _text(self, item: Any) -> str:
        if isinstance(item, fx.Node):
            return self.names[item]
        if isinstance(item, Changing):
            return f"{self._constant(item.numbers)}.now[{item.index}]"
        if item is None or type(item) in (bool, int, str) or (type(item) is float and math.isfinite(item)):
            return repr(item)
        if isinstance(item, tuple):
            return f"({''.join(self._text(each) + ', ' for each in item)})"
        if isinstance(item, list):
            return f"[{', '.join(self._text(each) for each in item)}]"
        if isinstance(item, dict):
            return "{" + ", ".join(f"{k!r}: {self._text(v)}" for k, v in item.items()) + "}"
        return self._constant(item)

    def _constant(self, item: Any) -> str:
        name = f"c{len(self.globals)}"
        self.globals[name] = item
        return name


def _with_dead(nodes: list[fx.Node]) -> Iterator[tuple[fx.Node, list[fx.Node]]]:
    """Every node except the output, with the nodes that are dead after it, possibly itself."""
    last: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        last.setdefault(node, node)
        for read in node.all_input_nodes:
            last[read] = node
    dying: dict[fx.Node, list[fx.Node]] = {}
    for node, reader in last.items():
        if node.op != "get_attr":
            dying.setdefault(reader, []).append(node)
    # Unread arguments are freed first.
    for node in nodes:
        if node.op != "output":
            yield node, dying.get(node, [])
