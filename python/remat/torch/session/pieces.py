"""Splits a graph of Dynamo into pieces: nodes that cannot be traced run in eager mode between them.

Dynamo breaks a graph where it sees that a shape depends on data. Some ops show that only when they are traced
with their backward, at the first call: there the graph is broken here.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map

from ..base.nodes import module_of, output_node, outputs_of
from ..base.private import (
    BREAKING_ERRORS,
    ENTER_AUTOCAST,
    EXIT_AUTOCAST,
    SET_GRAD,
    FakeTensorMode,
)

_Run = Callable[..., Any]


@dataclass(frozen=True)
class Piece:
    """Nodes of a graph in sequence, as a graph of their own.

    reads, makes: names of its inputs and results. returned: by index of a result, the output of the whole
    graph that it is.
    awkward: cannot be traced.
    """

    gm: fx.GraphModule
    reads: Sequence[str]
    makes: Sequence[str]
    returned: dict[int, int]
    awkward: bool


@dataclass(frozen=True)
class Pieces:
    """Runs the whole graph by its pieces. runs: a function for each piece."""

    gm: fx.GraphModule
    pieces: Sequence[Piece]
    runs: Sequence[_Run]

    def __call__(self, *args: Any) -> Any:
        placeholders = self.gm.graph.find_nodes(op="placeholder")
        known = {node.name: arg for node, arg in zip(placeholders, args, strict=True)}
        last = {name: i for i, piece in enumerate(self.pieces) for name in piece.reads}
        returned: Any = output_node(self.gm).args[0]
        kept = {item.name for item in returned if isinstance(item, fx.Node)}
        for i, (piece, run) in enumerate(zip(self.pieces, self.runs, strict=True)):
            given = [known[name] for name in piece.reads]
            for name in piece.reads:
                if last[name] == i and name not in kept:
                    del known[name]
            known.update(zip(piece.makes, run(*given), strict=True))
            del given
        return type(returned)(known[item.name] if isinstance(item, fx.Node) else item for item in returned)


def awkward_nodes(gm: fx.GraphModule) -> dict[fx.Node, Exception]:
    """Nodes of a graph of Dynamo that cannot be traced together with their backward, and why."""
    found: dict[fx.Node, Exception] = {}
    for node in gm.graph.nodes:
        if node.op in ("call_function", "call_method"):
            try:
                _trace(node)
            except BREAKING_ERRORS as error:
                found[node] = error
            except Exception:
                continue  # tracing fails not with the op but with its synthetic inputs
    return found


def _trace(node: fx.Node) -> None:
    """Run a node forward and backward on fake tensors."""
    mode: Any = FakeTensorMode()
    made: list[torch.Tensor] = []

    def fake(item: Any) -> Any:
        return tree_map(_like, item.meta["example_value"]) if isinstance(item, fx.Node) else item

    def _like(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        leaf = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        leaf.requires_grad_(value.requires_grad)
        made.append(leaf)
        return leaf.clone()  # may be written to

    with mode, torch.enable_grad():
        args, kwargs = fx.map_arg((node.args, node.kwargs), fake)  # type: ignore[arg-type, misc]
        if node.op == "call_method":
            results = getattr(args[0], str(node.target))(*args[1:], **kwargs)
        else:
            results = node.target(*args, **kwargs)  # type: ignore[operator]
        ends = [t for t in tree_leaves((results, args)) if isinstance(t, torch.Tensor) and t.requires_grad]
        leaves = [leaf for leaf in made if leaf.requires_grad]
        if ends and leaves:
            torch.autograd.grad(ends, leaves, [torch.empty_like(t) for t in ends], allow_unused=True)


def split(gm: fx.GraphModule, awkward: Iterable[fx.Node]) -> list[Piece] | None:
    """The graph in pieces that end and begin at these nodes; None if anything but tensors passes between two
    of them.
    """
    number = _numbered(gm, set(awkward))
    returned = {node: i for i, node in enumerate(outputs_of(gm)) if isinstance(node, fx.Node)}
    nodes = sorted(number, key=number.__getitem__)
    modes, pieces = _Modes(torch.is_grad_enabled()), []
    for count, group in itertools.groupby(nodes, number.__getitem__):
        inside = list(group)
        reads = dict.fromkeys(read for node in inside for read in node.all_input_nodes)
        given = [n for n in reads if n not in inside and n.op != "get_attr" and not _is_mode(n)]
        makes = [n for n in inside if n in returned or any(number.get(u) != count for u in n.users)]
        makes = [n for n in makes if not _is_mode(n)]
        if not all(isinstance(n.meta.get("example_value"), torch.Tensor) for n in makes):
            return None
        made = module_of(gm, _graph_of(inside, given, makes, modes))
        outputs = {i: returned[n] for i, n in enumerate(makes) if n in returned}
        pieces.append(Piece(made, [n.name for n in given], [n.name for n in makes], outputs, count % 2 == 1))
    return pieces


def _numbered(gm: fx.GraphModule, awkward: set[fx.Node]) -> dict[fx.Node, int]:
    """The piece of each node that is called: odd ones are awkward. Elements go with their tuple."""
    number: dict[fx.Node, int] = {}
    current = 0
    for node in gm.graph.nodes:
        if not node.op.startswith("call_"):
            continue
        source = node.args[0] if node.target is operator.getitem else None
        if isinstance(source, fx.Node) and isinstance(source.meta.get("example_value"), (tuple, list)):
            number[node] = number[source]
            continue
        if (node in awkward) != (current % 2 == 1):
            current += 1
        number[node] = current
    return number


def _is_mode(node: fx.Node) -> bool:
    """True if it changes the modes of later nodes."""
    return node.target in (ENTER_AUTOCAST, EXIT_AUTOCAST, SET_GRAD)


@dataclass
class _Modes:
    """The modes at the begin of the next piece. outside: True if gradients are enabled around the graph."""

    outside: bool
    autocasts: list[fx.Node] = field(default_factory=list)
    grad: bool | None = None

    def note(self, node: fx.Node) -> None:
        if node.target is SET_GRAD:
            self.grad = bool(node.args[0])
        elif node.target is ENTER_AUTOCAST:
            self.autocasts.append(node)
        elif node.target is EXIT_AUTOCAST:
            self.autocasts.remove(node.args[0])  # type: ignore[arg-type]


def _graph_of(
    group: Sequence[fx.Node], reads: Sequence[fx.Node], makes: Sequence[fx.Node], modes: _Modes
) -> fx.Graph:
    """These nodes as a graph, which enters the modes of its place and leaves them at the end."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in reads:
        known = node.op == "placeholder"
        copies[node] = graph.node_copy(node) if known else graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)

    def copied(node: fx.Node) -> fx.Node:
        if node not in copies:  # an attribute
            copies[node] = graph.node_copy(node)
        return copies[node]

    if modes.grad is not None:
        graph.call_function(SET_GRAD, (modes.grad,))
    for node in [*modes.autocasts, *group]:
        copies[node] = graph.node_copy(node, copied)
    for node in group:
        modes.note(node)
    for node in reversed(modes.autocasts):
        graph.call_function(EXIT_AUTOCAST, (copies[node],))
    if modes.grad is not None:
        graph.call_function(SET_GRAD, (modes.outside,))
    graph.output(tuple(copies[n] for n in makes))
    return graph
