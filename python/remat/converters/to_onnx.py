"""Writes a plan as an ONNX model: nodes in the plan's order, recomputations as copies of nodes.

Copies make tensors of new names; each node reads the newest instance of a tensor. Views come before the nodes
that read them, once for each instance of the viewed tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from remat.converters.from_onnx import bodies_of, captured_by, is_view


def planned_model(model: Any, node_of: Sequence[int], steps: Sequence[int]) -> Any:
    """A copy of the model that runs these steps.

    node_of: the node of each op, as `from_onnx.read` returns it. steps: ops, each after the ops it reads
    from.
    """
    return _Writer(model, [node_of[step] for step in steps]).run()


class _Writer:
    """State: the nodes so far, and by tensor its newest instance.

    maker: by tensor, the node that makes it. left: how often each node is still to run.
    early: nodes that ran before their step, because a view reads their shape.
    shown: by view, the instances that it reads, and its name.
    """

    def __init__(self, model: Any, order: Sequence[int]) -> None:
        self.model, self.order = model, order
        self.nodes = list(model.graph.node)
        self.maker = {name: i for i, node in enumerate(self.nodes) for name in node.output if name}
        self.returned = {output.name for output in model.graph.output}
        self.left, self.early = Counter(order), set[int]()
        self.made: list[Any] = []
        self.newest: dict[str, str] = {}
        self.shown: dict[int, tuple[list[str], str]] = {}
        self.tensors, self.labels = set(_tensors_in(model.graph)), {node.name for node in self.nodes}

    def run(self) -> Any:
        for index in self.order:
            if index in self.early:
                self.early.remove(index)
            else:
                self._add(index)
        for name in self.returned & self.maker.keys():
            if is_view(self.nodes[self.maker[name]]):
                self._add(self.maker[name], last=True)
            else:
                self._read(name)
        planned = type(self.model)()
        planned.CopyFrom(self.model)
        del planned.graph.node[:]
        planned.graph.node.extend(self.made)
        return planned

    def _add(self, index: int, last: bool = False) -> None:
        """Add a node, after views and constants that it reads.

        last: the node runs for the last time.
        """
        node = self.nodes[index]
        instance = {name: self._read(name) for name in [*node.input, *captured_by(node)] if name}
        self.left[index] -= 1
        last = last or (self.left[index] <= 0 and not is_view(node))
        copy = type(node)()
        copy.CopyFrom(node)
        _rename(copy, instance)
        for position, name in enumerate(node.output):
            if name:
                # Results of the model are last instances: those have its names.
                keeps = last if name in self.returned else name not in self.newest
                self.newest[name] = copy.output[position] = name if keeps else _new(name, self.tensors)
        if node.name and any(self.newest[name] != name for name in node.output if name):
            copy.name = _new(node.name, self.labels)
        self.made.append(copy)

    def _read(self, name: str) -> str:
        """The newest instance of a tensor; inputs and weights have one."""
        index = self.maker.get(name)
        if index is None:
            return name
        node = self.nodes[index]
        if is_view(node):
            now = [self._read(each) for each in node.input if each]
            if index not in self.shown or self.shown[index][0] != now:
                self._add(index)
                self.shown[index] = now, self.newest[name]
            return self.shown[index][1]
        if name not in self.newest:
            # A constant, or a shape read only by a view.
            self._add(index)
            if self.left[index] >= 0:
                self.early.add(index)
        return self.newest[name]


def _new(name: str, taken: set[str]) -> str:
    while name in taken:
        name = f"{name}_again"
    taken.add(name)
    return name


def _tensors_in(graph: Any) -> Iterator[str]:
    """Names of tensors, those in bodies too."""
    for node in graph.node:
        yield from (*node.input, *node.output)
        for body in bodies_of(node):
            yield from _tensors_in(body)
    yield from (value.name for value in [*graph.input, *graph.output, *graph.initializer])


def _rename(node: Any, instance: Mapping[str, str]) -> None:
    """Rename the tensors that a node and its bodies read."""
    for position, name in enumerate(node.input):
        node.input[position] = instance.get(name, name)
    for body in bodies_of(node):
        own = {v.name for v in [*body.input, *body.initializer]} | {n for m in body.node for n in m.output}
        outer = {name: new for name, new in instance.items() if name not in own}
        for inner in body.node:
            _rename(inner, outer)
        for output in body.output:
            output.name = outer.get(output.name, output.name)
