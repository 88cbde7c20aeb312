"""The attention of eager mode where transformers inspects a mask's values, which it cannot do while traced.

In eager mode transformers inspects the inputs of a mask (padding masks, position ids): if the mask hides only
the future, or nothing, it passes no mask to `scaled_dot_product_attention`, which then uses another kernel
and repeats no keys for the heads of a group. While traced it always passes the mask. Here the same test is
made on the same tensors at each call, and the graph has a form for each result.

Only masks as transformers' `masking_utils` builds them (seen in 5.23) are understood: conjunctions of
`kv <= q` (causal), `ids[b, q] == ids[b, kv]` (packed sequences), `mask[b, kv]` (padding) and windows that are
wider than the sequence. All others stay.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ..base.nodes import ancestors, module_of, output_node
from ..base.private import FakeTensor, _disable_current_modes

_ATTENTION: Any = torch.nn.functional.scaled_dot_product_attention
_EVERYTHING = slice(None, None, None)
# The index of a mask whose range is at this dimension.
_NAMES = ("b", "h", "q", "kv")
# Dynamo's words for `==` of tensors: the second one up to PyTorch 2.12.
_EQUAL = (operator.eq, "__eq__")
# Ops that may compute the inspected tensors.
_ALLOWED = {
    *_EQUAL,
    *(torch.arange, torch.diff, torch.full, torch.ones, torch.ones_like, torch.zeros, torch.zeros_like),
    *(operator.getitem, operator.add, operator.sub, operator.mul, operator.mod, operator.floordiv),
    *(
        operator.ne,
        operator.ge,
        operator.gt,
        operator.le,
        operator.lt,
        operator.and_,
        operator.or_,
    ),
    *(
        "bool",
        "clone",
        "contiguous",
        "cumsum",
        "expand",
        "int",
        "long",
        "repeat",
        "reshape",
        "to",
        "unsqueeze",
    ),
    *("new_ones", "new_zeros", "view"),
}
_IN_PLACE = (operator.setitem, operator.iadd, operator.isub, operator.imul, operator.iand, operator.ior)


@dataclass(frozen=True)
class Mask:
    """A mask that eager mode may leave out.

    attentions: its readers. causal: True if it hides the future.
    same, rising, true: nodes whose values must be equal along each row, rise by one along each row, and be
        true, for the mask to hide nothing else.
    """

    attentions: tuple[fx.Node, ...]
    causal: bool
    same: tuple[fx.Node, ...]
    rising: tuple[fx.Node, ...]
    true: tuple[fx.Node, ...]

    @property
    def read(self) -> list[fx.Node]:
        return [
            node for node in (a.kwargs["attn_mask"] for a in self.attentions) if isinstance(node, fx.Node)
        ]

    @property
    def sources(self) -> tuple[fx.Node, ...]:
        return (*self.same, *self.rising, *self.true)

    def hides_nothing_else(self, values: dict[fx.Node, torch.Tensor]) -> bool:
        return (
            all(bool((values[n] == values[n][:, :1]).all()) for n in self.same)
            and all(bool((values[n].diff(dim=1) == 1).all()) for n in self.rising)
            and all(bool(values[n].all()) for n in self.true)
        )


class Masks:
    """The masks of a graph of Dynamo that eager mode may leave out.

    one_plan: several processes run one plan. Each has other data, so masks that depend on data stay.
    """

    def __init__(self, gm: fx.GraphModule, one_plan: bool) -> None:
        self._gm = gm
        understood = [mask for mask in _masks(gm) if not one_plan or not _inputs(mask.sources)]
        self._masks = understood
        self._sources = [source for mask in understood for source in mask.sources]
        self._read = _inputs(self._sources)
        self._look = _only(gm, self._sources) if understood else None
        self._always: frozenset[int] | None = None
        self._forms = {frozenset[int](): gm}

    def left_out(self, args: Sequence[Any]) -> frozenset[int]:
        """Numbers of the masks that eager mode leaves out at a call."""
        if self._look is None:
            return frozenset()
        if self._always is not None:
            return self._always
        placeholders = self._gm.graph.find_nodes(op="placeholder")
        given = [a if p in self._read else None for p, a in zip(placeholders, args, strict=True)]
        if any(isinstance(arg, FakeTensor) for arg in given):
            return frozenset()  # nothing to look at
        with torch.no_grad(), _disable_current_modes():
            values = dict(zip(self._sources, self._look(*given), strict=True))
            found = frozenset(i for i, mask in enumerate(self._masks) if mask.hides_nothing_else(values))
        if not self._read:
            self._always = found
        return found

    def graph(self, left_out: frozenset[int]) -> fx.GraphModule:
        """The graph without these masks."""
        if left_out not in self._forms:
            self._forms[left_out] = _without(self._gm, [self._masks[i] for i in sorted(left_out)])
        return self._forms[left_out]

    def graph_like(self, gm: fx.GraphModule, left_out: frozenset[int]) -> fx.GraphModule:
        """Another graph with the same node names, without these masks."""
        return _without(gm, [self._masks[i] for i in sorted(left_out)]) if left_out else gm


def _masks(gm: fx.GraphModule) -> list[Mask]:
    readers: dict[fx.Node, list[fx.Node]] = {}
    for node in gm.graph.find_nodes(op="call_function", target=_ATTENTION):
        mask = node.kwargs.get("attn_mask")
        if isinstance(mask, fx.Node) and len(node.args) == 3 and node.kwargs.get("is_causal") is False:
            readers.setdefault(mask, []).append(node)
    found = (_understood(mask, attentions) for mask, attentions in readers.items())
    return [mask for mask in found if mask is not None]


def _understood(node: fx.Node, attentions: list[fx.Node]) -> Mask | None:
    shape = tuple(_value(node).shape)
    if len(shape) != 4 or not all(type(size) is int for size in shape):
        return None
    square = shape[2] == shape[3]
    causal = False
    same: list[fx.Node] = []
    rising: list[fx.Node] = []
    true: list[fx.Node] = []
    for part in _conjunction(node):
        read = [_read_at(argument, shape) for argument in part.args]
        if part.target == "new_ones" or (part.target is operator.ge and read[0] == (None, "q")):
            pass  # all true: indices are not below 0
        elif (ids := _in_wide_window(part, shape)) is not None:
            rising += ids
        elif part.target is operator.le and square and _at(read, "kv", "q"):
            causal = True
            rising += [ids for ids, _ in read[:1] if ids is not None]
        elif part.target in _EQUAL and square and _at(read, "q", "kv") and read[0][0] is not None:
            same.append(read[0][0])
        elif _read_at(part, shape)[0] is not None and _read_at(part, shape)[1] == "kv":
            true += [mask for mask, _ in [_read_at(part, shape)] if mask is not None]
        else:
            return None
        if not _is_from(part, "masking_utils.py"):
            return None
    sources = (*same, *rising, *true)
    if any(tuple(_value(n).shape) != (shape[0], shape[3]) or not _is_plain(n) for n in sources):
        return None
    return Mask(tuple(attentions), causal, tuple(same), tuple(rising), tuple(true))


def _value(node: fx.Node) -> Any:
    return node.meta.get("example_value", torch.empty(0))


def _is_from(node: fx.Node, file: str) -> bool:
    """True if the node was made in this file of transformers."""
    files = [line for line in str(node.meta.get("stack_trace")).splitlines() if line.startswith('  File "')]
    return bool(files) and "transformers" in files[-1] and f'{file}"' in files[-1]


def _conjunction(node: fx.Node) -> list[fx.Node]:
    """The conditions whose conjunction is the mask."""
    first = node.args[0] if node.args else None
    if not isinstance(first, fx.Node) or _value(first).dtype is not torch.bool:
        return [node]
    if node.target in ("expand", "to"):
        return _conjunction(first)
    if node.target is operator.and_ and isinstance(node.args[1], fx.Node):
        return [*_conjunction(first), *_conjunction(node.args[1])]
    return [node]


def _read_at(item: Any, shape: Sequence[int]) -> tuple[fx.Node | None, str]:
    """(ids, "q") of ids[b, q], (None, "q") of the index q itself, (None, "") of anything else."""
    if not isinstance(item, fx.Node) or item.target is not operator.getitem:
        return None, ""
    of, where = item.args
    if isinstance(of, fx.Node) and isinstance(where, tuple) and len(where) == 2:
        (b_of, b), (q_of, q) = (_read_at(index, shape) for index in where)
        return (of, q) if b_of is q_of is None and b == "b" and q in ("q", "kv") else (None, "")
    if not isinstance(where, tuple) or len(where) != 4 or list(where).count(None) != 3:
        return None, ""
    dimension = next(i for i, w in enumerate(where) if w is not None)
    while isinstance(of, fx.Node) and of.target is operator.add and of.args[1] == 0:
        of = of.args[0]
    is_range = isinstance(of, fx.Node) and of.target is torch.arange and of.args == (shape[dimension],)
    return None, _NAMES[dimension] if is_range and where[dimension] == _EVERYTHING else ""


def _at(read: Sequence[tuple[fx.Node | None, str]], first: str, second: str) -> bool:
    """True if these are the same ids, or both no ids, at these indices."""
    return [index for _, index in read] == [first, second] and read[0][0] is read[1][0]


def _in_wide_window(node: fx.Node, shape: Sequence[int]) -> list[fx.Node] | None:
    """The ids of `ids[b, kv] > ids[b, q] - window` or `abs(q - kv) <= window` where the window is wider than
    the mask; None for anything else. (One as wide as the mask hides nothing, but eager mode passes the mask.)
    """
    if node.target is operator.gt:
        kept, less = node.args
        if not isinstance(less, fx.Node) or less.target is not operator.sub:
            return None
        other, window = less.args
        read = [_read_at(kept, shape), _read_at(other, shape)]
        fits = _at(read, "kv", "q")
    elif node.target is operator.le and isinstance(node.args[0], fx.Node) and node.args[0].target is abs:
        distance, window = node.args
        read = [_read_at(index, shape) for index in getattr(distance.args[0], "args", ())]
        fits = distance.args[0].target is operator.sub and _at(read, "q", "kv")
    else:
        return None
    if not fits or type(window) is not int or window <= shape[3]:
        return None
    return [ids for ids, _ in read[:1] if ids is not None]


def _inputs(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    return {node for node in ancestors(nodes) if node.op == "placeholder"}


def _is_plain(node: fx.Node) -> bool:
    """True if it is made of integers that nothing writes to, by repeatable ops."""
    above = ancestors([node])
    users = {user for n in above for user in n.users}
    written = any(
        u.target in _IN_PLACE or (u.op == "call_method" and str(u.target).endswith("_")) for u in users
    )
    return not written and all(
        not _value(n).is_floating_point() and (n.op == "placeholder" or n.target in _ALLOWED) for n in above
    )


def _only(gm: fx.GraphModule, nodes: Sequence[fx.Node]) -> fx.GraphModule:
    """The part of a graph that makes these nodes."""
    above, copies = ancestors(nodes), dict[fx.Node, fx.Node]()
    graph = fx.Graph()
    for node in gm.graph.nodes:
        if node.op == "placeholder" or node in above:
            copies[node] = graph.node_copy(node, lambda n: copies[n])
    graph.output(tuple(copies[n] for n in nodes))
    return module_of(gm, graph)


def _without(gm: fx.GraphModule, masks: Sequence[Mask]) -> fx.GraphModule:
    """masks: of this graph, or of one whose nodes have the same names."""
    graph, copy_of = fx.Graph(), dict[fx.Node, fx.Node]()
    returned = graph.graph_copy(gm.graph, copy_of)
    graph.output(returned).meta = dict(output_node(gm).meta)
    copies = {node.name: copied for node, copied in copy_of.items()}
    for mask in masks:
        for attention in mask.attentions:
            node = copies[attention.name]
            node.update_kwarg("attn_mask", None)
            node.update_kwarg("is_causal", mask.causal and _value(attention.args[0]).shape[-2] > 1)
            for i, whole in enumerate(_groups(attention), start=1):
                node.update_arg(i, copies[whole.name])
                node.update_kwarg("enable_gqa", True)
    # Only ancestors of the masks: unread nodes elsewhere may write to tensors that others read.
    unread = {copies[n.name] for n in ancestors(n for mask in masks for n in mask.read)}
    for node in reversed(list(graph.nodes)):
        if node in unread and not node.users and node.op != "placeholder":
            graph.erase_node(node)
    result = module_of(gm, graph)
    result.meta = dict(gm.meta)
    return result


def _groups(attention: fx.Node) -> list[fx.Node]:
    """Keys and values before they were repeated for the heads of each group, if eager mode repeats none."""
    module = sys.modules.get("transformers.integrations.sdpa_attention")
    decides = getattr(module, "use_gqa_in_sdpa", None)
    whole = [_before_repeat(node) for node in attention.args[1:3]]
    if decides is None or None in whole or not _is_from(attention, "sdpa_attention.py"):
        return []
    key, value = (n for n in whole if n is not None)
    return [key, value] if decides(None, _value(key), _value(value)) else []


def _before_repeat(node: Any) -> fx.Node | None:
    """x of `x[:, :, None].expand(b, h, n, s, d).reshape(b, h * n, s, d)`."""
    chain = []
    for target in ("reshape", "expand", operator.getitem):
        if not isinstance(node, fx.Node) or node.target != target:
            return None
        chain.append(tuple(_value(node).shape))
        index = node.args[1]
        node = node.args[0]
    if index != (_EVERYTHING, _EVERYTHING, None, _EVERYTHING, _EVERYTHING):
        return None
    batch, heads, length, width = _value(node).shape
    repeats = chain[1][2]
    alike = [(batch, heads * repeats, length, width), (batch, heads, repeats, length, width)]
    return node if chain[:2] == alike else None
