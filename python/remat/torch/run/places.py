"""Places in one allocation: the nodes of both halves that write there, and a check of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from ..base.nodes import tensors_of
from ..base.step import Op
from ..plan.arena import Arena, Placeable
from ..trace.tangents import same_strides
from .placed import Form

# Metadata keys of nodes: an op whose results lie in the pool; a saved tensor in it; the token that tells the
# backward whether its forward used the pool.
PLACE, SAVED, TOKEN = "remat_place", "remat_saved_in_pool", "remat_pool_token"


@dataclass(frozen=True)
class Place:
    """form: writes there. offsets: of its results in the pool, in bytes."""

    form: Form
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class Spot:
    """A tensor in the pool."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, offset: int, like: torch.Tensor) -> Spot:
        return cls(offset, tuple(like.shape), tuple(like.stride()), like.dtype)

    def tensor(self, storage: torch.UntypedStorage) -> torch.Tensor:
        empty = torch.empty(0, dtype=self.dtype)
        return empty.set_(storage, self.offset // self.dtype.itemsize, self.shape, self.strides)


def no_token() -> torch.Tensor:
    """The token of a call that does not use the pool."""
    return torch.empty(0, dtype=torch.uint8)


class Checked:
    """Checks an op at its first run. If real strides differ from the traced ones (batch norm of a transposed
    tensor), it allocates its results, as its form is not tested for them.

    others: collects such nodes.
    """

    def __init__(self, node: fx.Node, plain: Callable[..., Any], others: set[fx.Node]) -> None:
        self.node, self.plain, self.others = node, plain, others
        self.form: Form = node.meta[PLACE].form
        self.traced = [n.meta["val"] for n in tree_leaves((node.args, node.kwargs)) if _is_tensor(n)]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        own = {key: value for key, value in kwargs.items() if key not in self.form.names}
        real = [leaf for leaf in tree_leaves((args, own)) if isinstance(leaf, torch.Tensor)]
        if all(map(_are_alike, real, self.traced)) and len(real) == len(self.traced):
            return self.form.callee(*args, **kwargs)
        self.others.add(self.node)
        return self.plain(*args, **own)


def _is_tensor(item: Any) -> bool:
    return isinstance(item, fx.Node) and isinstance(item.meta.get("val"), torch.Tensor)


def _are_alike(real: torch.Tensor, traced: torch.Tensor) -> bool:
    return (
        real.shape == traced.shape
        and real.dtype is traced.dtype
        and same_strides(traced.shape, real.stride(), traced.stride())
    )


class Places:
    """The places of a plan.

    forms: by op, the form that writes to given memory.
    """

    def __init__(self, arena: Arena, forms: Mapping[int, Form]) -> None:
        self.arena, self.forms = arena, forms

    @classmethod
    def of(cls, arena: Arena | None, placeable: Placeable | None) -> Places | None:
        """None if no result has a place."""
        return cls(arena, placeable.forms) if arena is not None and placeable is not None else None

    def mark(self, node: fx.Node, op: Op, index: int, position: int) -> None:
        """Marks the node of a half that runs an op at a step of the plan, if its results have places."""
        offsets = [self.arena.places.get((position, value)) for value in op.outputs]
        found = tuple(offset for offset in offsets if offset is not None)
        if found and len(found) == len(offsets) and index in self.forms:
            node.meta[PLACE] = Place(self.forms[index], found)


def mark_saved(node: fx.Node, holder: fx.Node) -> None:
    """Marks a saved tensor of the forward half that has the memory of another node."""
    if PLACE in _maker(holder)[0].meta:
        node.meta[SAVED] = True


def _maker(holder: fx.Node) -> tuple[fx.Node, int]:
    """The op that made a node's value, and the index of the result."""
    if holder.op == "call_function" and holder.target is operator.getitem:
        source, number = holder.args
        assert isinstance(source, fx.Node)
        assert isinstance(number, int)
        return source, number
    return holder, 0


@dataclass
class _Span:
    """Memory of one result: offset, node, and number of the last node that needs it."""

    begin: int
    end: int
    node: str
    last: int


def check_places(
    forward: tuple[fx.Graph, Callable[[fx.Node], fx.Node]],
    backward: tuple[fx.Graph, Callable[[fx.Node], fx.Node]],
    saved: Mapping[fx.Node, fx.Node],
) -> None:
    """Checks that no place is overwritten while its result is still needed.

    Each half comes with the map from a node to the owner of its memory. saved: nodes of the forward half,
    with their placeholders in the backward half.
    """
    known = _check_half(*forward, {})
    given = {theirs: known[_maker(forward[1](mine))] for mine, theirs in saved.items() if SAVED in mine.meta}
    _check_half(*backward, given)


def _check_half(
    graph: fx.Graph, holder: Callable[[fx.Node], fx.Node], given: Mapping[fx.Node, _Span]
) -> dict[tuple[fx.Node, int], _Span]:
    """Returns the results that have places. given: existing ones."""
    spans = {(node, 0): _Span(span.begin, span.end, node.name, 0) for node, span in given.items()}
    nodes = list(graph.nodes)
    for node in nodes:
        if node.op == "call_function" and PLACE in node.meta:
            place: Place = node.meta[PLACE]
            for number, (offset, tensor) in enumerate(
                zip(place.offsets, tensors_of(node.meta["val"]), strict=True)
            ):
                size = tensor.numel() * tensor.element_size()
                spans[node, number] = _Span(offset, offset + size, node.name, 0)
    for at, node in enumerate(nodes):
        for read in node.all_input_nodes:
            span = spans.get(_maker(holder(read)))
            if span is not None:
                span.last = at
    alive = [spans[node, 0] for node in given]
    for at, node in enumerate(nodes):
        alive = [span for span in alive if span.last >= at]
        made = _results(spans, node)
        for span in made:
            for other in alive:
                if span.begin < other.end and other.begin < span.end:
                    raise AssertionError(
                        f"{span.node} is written to where {other.node} is, which is read later"
                    )
            alive.append(span)
    return spans


def _results(spans: Mapping[tuple[fx.Node, int], _Span], node: fx.Node) -> Sequence[_Span]:
    if node.op != "call_function" or PLACE not in node.meta:
        return ()
    return [spans[node, number] for number in range(len(node.meta[PLACE].offsets))]
