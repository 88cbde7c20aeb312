"""The two halves of a joint graph, each in execution order."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence

from torch import fx

from ..base.errors import UnsupportedModelError
from ..base.nodes import (
    ancestors,
    arguments,
    is_mutable,
    is_number,
    is_random,
    is_write_to_input,
    may_run_twice,
    outputs_of,
    storages_of,
    tensors_of,
)
from ..base.private import is_primal, is_tangent


def placeholders(gm: fx.GraphModule) -> tuple[list[fx.Node], list[fx.Node]]:
    """Inputs of the forward, and gradients that the backward gets.

    Raises UnsupportedModelError for other inputs, and for sizes that are symbols.
    """
    primals, tangents = [], []
    for node in gm.graph.find_nodes(op="placeholder"):
        if is_tangent(node):
            tangents.append(node)
        elif is_primal(node):
            primals.append(node)
        else:
            raise UnsupportedModelError(
                f"the step takes an input of a kind that is not supported: {node.name}"
            )
        if is_number(node.meta.get("val")):
            raise UnsupportedModelError(f"input {node.name} is a symbolic size; plans need static shapes")
    return primals, tangents


def schedule(gm: fx.GraphModule, num_forward_outputs: int) -> tuple[list[fx.Node], list[fx.Node]]:
    """The nodes of the forward and of the backward half, each in the order of the graph itself.

    The joint graph lists nodes that depend on no tangent early even if only the backward reads them; here
    they come right before their first reader, or nothing would be left to save at the loss. Raises
    UnsupportedModelError if an output of the forward depends on a gradient.
    """
    nodes, outputs = list(gm.graph.nodes), outputs_of(gm)
    tainted = tainted_by_tangents(nodes)
    roots = [n for n in outputs[:num_forward_outputs] if isinstance(n, fx.Node)]
    roots += [n for n in nodes if n not in tainted and _runs_where_it_stands(n)]
    in_forward = ancestors(roots)
    if in_forward & tainted:
        raise UnsupportedModelError("an output of the forward depends on a gradient")
    forward = _with_early_writes([n for n in nodes if n in in_forward and n.op == "call_function"])
    wanted = {n for n in outputs[num_forward_outputs:] if isinstance(n, fx.Node)}
    wanted |= {n for n in tainted if n.op == "call_function" and is_mutable(n)}
    needed = ancestors(wanted)
    starts = [n for n in nodes if n in needed and (n in tainted or n in wanted)]
    return forward, _with_what_they_read(starts, forward, nodes)


def _with_early_writes(nodes: Sequence[fx.Node]) -> list[fx.Node]:
    """These ops in order, with each write to an input as soon as its value is ready and the old one has no
    more readers: tracing puts all writes at the end, so each new value would be held until then.
    """
    made = {n: i for i, n in enumerate(nodes)}
    read: dict[int, int] = {}  # the position of the last op that reads a storage
    for i, node in enumerate(nodes):
        if not is_write_to_input(node):
            read.update((s, i) for source in node.all_input_nodes for s in storages_of(source))

    def place(node: fx.Node) -> int:
        if not is_write_to_input(node):
            return made[node]
        buffer = arguments(node)[0]
        earliest = [made.get(n, -1) for n in node.all_input_nodes] + [
            read.get(s, -1) for s in storages_of(buffer)
        ]
        return min(made[node], max(earliest))

    return sorted(nodes, key=lambda node: (place(node), made[node]))


def tainted_by_tangents(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """Nodes that depend on a gradient."""
    tainted: set[fx.Node] = set()
    for node in nodes:
        if is_tangent(node) or any(n in tainted for n in node.all_input_nodes):
            tainted.add(node)
    return tainted


def _runs_where_it_stands(node: fx.Node) -> bool:
    """True if the op has side effects, so that it belongs to the forward whichever half reads it."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    if is_random(node) or is_mutable(node):
        return True
    return not may_run_twice(node) and tensors_of(node.meta.get("val")) == []


def _with_what_they_read(
    starts: Iterable[fx.Node], done: Collection[fx.Node], nodes: Sequence[fx.Node]
) -> list[fx.Node]:
    """These ops in order, each after its unfinished inputs."""
    seen, order = set(done), []
    position = {n: i for i, n in enumerate(nodes)}
    for start in starts:
        stack = [(start, False)]
        while stack:
            top, expanded = stack.pop()
            if top in seen or top.op != "call_function":
                continue
            if expanded:
                seen.add(top)
                order.append(top)
                continue
            stack.append((top, True))
            reads = sorted((n for n in top.all_input_nodes if n not in seen), key=position.__getitem__)
            stack.extend((n, False) for n in reversed(reads))
    return order
