"""A planned step as one fx graph of ATen ops, in the form of the original graph."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..base.nodes import output_node, outputs_of
from ..base.private import use_code_generator_of
from ..trace.inplace import WritesOver, write_over
from ..trace.plain import ORIGIN, Plain

aten = torch.ops.aten


def in_form_of(gm: fx.GraphModule, plain: Plain, planned: fx.GraphModule) -> fx.GraphModule:
    """The nodes of a planned step, with the inputs, the structure of results and the metadata of `gm`.

    plain: the capture of `gm`. planned: the forward half of that step, written for compilers. Nodes have the
    names of the originals, with "_again" for copies.
    """
    return _Form(gm, plain, planned).run()


class _Form:
    """State: the graph so far, the new node of each planned node, and the number of copies of each
    original."""

    def __init__(self, gm: fx.GraphModule, plain: Plain, planned: fx.GraphModule) -> None:
        self.gm, self.plain, self.planned = gm, plain, planned
        self.graph = fx.Graph()
        self.made: dict[fx.Node, fx.Node] = {}
        self.times: Counter[fx.Node] = Counter()

    def run(self) -> fx.GraphModule:
        placeholders = self.planned.graph.find_nodes(op="placeholder")
        for node, origin in zip(placeholders, self.gm.graph.find_nodes(op="placeholder"), strict=True):
            # All inputs come first, so that no op takes their names.
            self.made[node] = self.graph.node_copy(origin)
            self.made[node].meta = self._meta(node)
        for node in self.planned.graph.nodes:
            if node.op not in ("placeholder", "output"):
                self.made[node] = self._add(node)
        self._add_output()
        use_code_generator_of(self.graph, self.gm.graph)
        self.graph.lint()
        made = fx.GraphModule(self.planned, self.graph, type(self.gm).__name__)
        made.meta.update(self.gm.meta)
        return made

    def _add(self, node: fx.Node) -> fx.Node:
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.made.__getitem__)
        if isinstance(node.target, WritesOver):
            new = write_over(self.graph, node.target, args, self._name(node))
        else:
            new = self.graph.create_node(node.op, node.target, args, kwargs, self._name(node))
        if not new.meta:  # overwritten nodes keep their own
            new.meta = self._meta(node)
        return new

    def _name(self, node: fx.Node) -> str:
        origin = node.meta[ORIGIN]
        self.times[origin] += 1
        return str(origin.name) if self.times[origin] == 1 else f"{origin.name}_again"

    def _meta(self, node: fx.Node) -> dict[str, Any]:
        """Metadata of the original, with the fake tensors for which the step was planned."""
        meta: dict[str, Any] = dict(node.meta[ORIGIN].meta)
        for key in ("val", "remat_position"):
            if key in node.meta:
                meta[key] = node.meta[key]
        if getattr(meta.get("tensor_meta"), "shape", None) != getattr(meta.get("val"), "shape", None):
            meta.pop("tensor_meta", None)
        return meta

    def _add_output(self) -> None:
        origin = output_node(self.gm)
        flat, structure = tree_flatten(origin.args[0])
        made = [fx.map_arg(each, self.made.__getitem__) for each in outputs_of(self.planned)]
        results, contents = made[: len(flat)], made[len(flat) :]
        inputs, written = self.graph.find_nodes(op="placeholder"), dict[int, fx.Node]()
        for index, content in zip(self.plain.late, contents, strict=True):
            written[index] = self.graph.call_function(aten.copy_.default, (inputs[index], content))
            written[index].meta = dict(inputs[index].meta)
        for position, index in self.plain.returned.items():
            results[position] = written[index]
        self.graph.output(tree_unflatten(results, structure)).meta = dict(origin.meta)
