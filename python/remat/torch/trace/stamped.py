"""The trace of many layers of the same kind, told from that of four of them.

AOTAutograd traces every layer for itself, forward and backward. Where a layer reads tensors of its own, the
results of the one before and what all layers read alike, the trace of a model with many layers is that of
one with four, the two in the middle repeated: each node of a layer is a function of nodes of the same layer,
of its neighbours, and of what is common. So a graph without most of its layers is traced, its two inner
layers have to be the same node for node, forward and backward, and what is between is made from them.
Wherever anything is not as said here, nothing is told, and the whole is traced.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.utils._pytree import tree_map

from ..base.nodes import is_number, module_of, output_node, tensors_of
from ..base.private import JointTrace, apart, expression_of, fake_like, storage_id, storage_number
from .repeated import LAYER, moved

log = logging.getLogger("remat.torch")

# Of layers in a row: with fewer there is little to gain.
LEAST = 6


class _DiffersError(Exception):
    """The graph is not what can be told."""


class _Place(NamedTuple):
    """kind: "forward", "backward" or "argument"; layer and number of the node in it."""

    kind: str
    layer: int
    number: int

    def at(self, layer: int) -> _Place:
        return self._replace(layer=layer)


@dataclass
class _Layers:
    """A row of layers in a graph: of each what its nodes are, by place.

    names: what the layers are called in metadata, in their sequence.
    """

    names: list[Any]
    place: dict[fx.Node, _Place] = field(default_factory=dict)
    node: dict[_Place, fx.Node] = field(default_factory=dict)

    def put(self, node: fx.Node, place: _Place) -> None:
        self.place[node], self.node[place] = place, node

    def seen_from(self, argument: fx.Node, layer: int) -> Hashable:
        """A node as one of a layer reads it."""
        place = self.place.get(argument)
        if place is None:
            return argument
        if abs(place.layer - layer) > 1:
            raise _DiffersError(f"{argument} is read by layer {layer}")
        return place.at(place.layer - layer)

    def described(self, node: fx.Node) -> Hashable:
        """The same for nodes that are the same in their layers."""
        layer = self.place[node].layer
        given = tree_map(
            lambda a: self.seen_from(a, layer) if isinstance(a, fx.Node) else (type(a), a),
            (_plain(node.args), _plain(node.kwargs)),
        )
        target = str(node.target) if node.op != "placeholder" else ""
        return node.op, target, str(given)


def _plain(arguments: Any) -> Any:
    """Lists and dicts of fx as those of Python."""
    if isinstance(arguments, (tuple, list)):
        return tuple(map(_plain, arguments))
    if isinstance(arguments, Mapping):
        return tuple((key, _plain(each)) for key, each in arguments.items())
    return (arguments.start, arguments.stop, arguments.step) if isinstance(arguments, slice) else arguments


def _layout(val: Any) -> Any:
    return [
        (t.dtype, t.device, *map(_text_of, (t.shape, t.stride(), (t.storage_offset(),))))
        for t in tensors_of(val)
    ]


def _text_of(sizes: Iterable[Any]) -> tuple[Any, ...]:
    """Symbols as they are written: to compare symbolic numbers takes their values for granted."""
    return tuple(str(expression_of(size)) if is_number(size) else size for size in sizes)


def _name(node: fx.Node) -> Any:
    return (node.meta.get("custom") or {}).get(LAYER)


def _rows(gm: fx.GraphModule) -> _Layers:
    """The longest row of layers of which each is the one before, moved on. Raises _DiffersError if it is
    short.
    """
    groups: dict[Any, list[fx.Node]] = {}
    for node in gm.graph.nodes:
        if _name(node) is not None:
            groups.setdefault(_name(node), []).append(node)
    layers = _Layers(list(groups))
    for layer, nodes in enumerate(groups.values()):
        for number, node in enumerate(nodes):
            layers.put(node, _Place("forward", layer, number))
    for layer, nodes in enumerate(groups.values()):
        own: dict[fx.Node, None] = {}
        for node in nodes:
            for each in node.all_input_nodes:
                if each.op == "placeholder" and all(_is_at(layers, user, layer) for user in each.users):
                    own[each] = None
        for number, each in enumerate(own):
            layers.put(each, _Place("argument", layer, number))

    def text(layer: int) -> Hashable:
        try:
            nodes = groups[layers.names[layer]]
            arguments = [a for n in nodes for a in n.all_input_nodes if a.op == "placeholder"]
            return (
                [(layers.described(node), _layout(node.meta.get("example_value"))) for node in nodes],
                [_layout(a.meta.get("example_value")) for a in arguments],
            )
        except _DiffersError:
            return object()

    texts = [text(layer) for layer in range(len(layers.names))]
    best = range(0)
    start = 0
    for layer in range(1, len(texts) + 1):
        if layer == len(texts) or texts[layer] != texts[start]:
            best = max(best, range(start, layer), key=len)
            start = layer
    if len(best) < LEAST:
        raise _DiffersError("there are few layers of a kind")
    row = _Layers([layers.names[layer] for layer in best])
    for node, place in layers.place.items():
        if place.layer in best:
            row.put(node, place.at(place.layer - best.start))
    last = len(best) - 1
    for node, place in row.place.items():
        for user in node.users:
            if place.layer < last and not (
                user in row.place and row.place[user].layer - place.layer in (0, 1)
            ):
                raise _DiffersError(f"{node} is read outside of the layers")
    return row


def _is_at(layers: _Layers, node: fx.Node, layer: int) -> bool:
    return node in layers.place and layers.place[node].layer == layer


@dataclass(frozen=True)
class Shortened:
    """A graph without its inner layers but two, its arguments, and what was left out of which."""

    gm: fx.GraphModule
    args: Sequence[Any]
    whole: fx.GraphModule
    row: _Layers
    kept: Sequence[int]

    def told(self, trace: JointTrace) -> JointTrace | None:
        """The trace of the whole; None where it cannot be told."""
        try:
            return _Told(self, trace).trace()
        except Exception as error:  # whatever is not as it was taken for granted
            log.debug("each layer is traced for itself: %s", error)
            return None


def shortened(gm: fx.GraphModule, args: Sequence[Any]) -> Shortened | None:
    """None where the graph has no long row of layers of the same kind."""
    try:
        row = _rows(gm)
    except _DiffersError:
        return None
    count = len(row.names)
    dropped = range(2, count - 2)
    graph, new = fx.Graph(), dict[fx.Node, fx.Node]()
    kept = []
    storages: dict[int, int] = {}
    placeholders = gm.graph.find_nodes(op="placeholder")
    for arg in args:
        if isinstance(arg, torch.Tensor):
            storages[storage_id(arg)] = storages.get(storage_id(arg), 0) + 1
    for index, node in enumerate(placeholders):
        place = row.place.get(node)
        if place is not None:
            like = args[placeholders.index(row.node[place.at(1)])]
            if not _alike(args[index], like) or storages[storage_id(args[index])] > 1:
                return None
        if place is None or place.layer not in dropped:
            kept.append(index)
    for node in gm.graph.nodes:
        place = row.place.get(node)
        if place is None or place.layer not in dropped:
            new[node] = graph.node_copy(node, lambda each: new[_stand_in(row, each, dropped)])
    return Shortened(module_of(gm, graph), [args[i] for i in kept], gm, row, kept)


def _stand_in(row: _Layers, node: fx.Node, dropped: range) -> fx.Node:
    place = row.place.get(node)
    return node if place is None or place.layer not in dropped else row.node[place.at(1)]


def _alike(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    mine, theirs = (
        (type(t), _layout(t), t.requires_grad, t.is_leaf, t.is_contiguous(), t.is_conj(), t.is_neg())
        for t in (one, other)
    )
    return mine == theirs


class _Told:
    """Makes the trace of the whole of that of a shortened graph."""

    def __init__(self, short: Shortened, trace: JointTrace) -> None:
        self.short, self.known = short, trace
        self.count = len(short.row.names)
        self.joint: fx.GraphModule = trace.traced[0]
        self.layers = self._found()
        self._check()
        self.graph = fx.Graph()
        self.new: dict[Any, fx.Node] = {}
        self._homes: dict[int, tuple[fx.Node, int]] = {}
        self._storages: dict[tuple[Hashable, int], Any] = {}
        # By what autograd numbers forward and backward with, the first node of a layer that has it.
        self._forwards: dict[Any, fx.Node] = {}
        for place in sorted(self.layers.node):
            if place.kind == "forward":
                self._forwards.setdefault(self.layers.node[place].meta.get("seq_nr"), self.layers.node[place])
        self._forwards.pop(None, None)

    def _found(self) -> _Layers:
        """The places of the four layers in the joint graph."""
        row = self.short.row
        ends = [0, 1, self.count - 2, self.count - 1]
        names = [row.names[layer] for layer in ends]
        layers = _Layers(names)
        nodes = [node for node in self.joint.graph.nodes if node.op not in ("placeholder", "output")]
        named = [_name(node) for node in nodes]
        starts, position, ended = [], 0, 0
        for layer, name in enumerate(names):
            if name not in named[position:]:
                raise _DiffersError(f"nothing is said to be of layer {name}")
            position = start = named.index(name, position)
            while position < len(named) and named[position] == name:
                layers.put(nodes[position], _Place("forward", layer, position - start))
                position += 1
            starts.append(start)
            if layer and starts[layer] != ended:
                raise _DiffersError("there is something between the layers")
            ended = position
        back = []
        for name in reversed(names):
            if name not in named[position:]:
                raise _DiffersError(f"no backward is said to be of layer {name}")
            position = named.index(name, position)
            back.append(position)
        period = back[1] - back[0]
        if [b - a for a, b in pairwise(back)] != [period] * 3:
            raise _DiffersError("backwards differ")
        for layer, start in zip((3, 2, 1, 0), back, strict=True):
            for number, node in enumerate(nodes[start : start + period]):
                layers.put(node, _Place("backward", layer, number))
        placeholders = self.short.whole.graph.find_nodes(op="placeholder")
        inputs = self.joint.graph.find_nodes(op="placeholder")[: len(self.short.args)]
        if len(inputs) != len(self.short.args):
            raise _DiffersError("there are other arguments")
        for index, node in zip(self.short.kept, inputs, strict=True):
            place = row.place.get(placeholders[index])
            if place is not None:
                layers.put(node, place.at(ends.index(place.layer)))
        return layers

    def _check(self) -> None:
        layers, metadata, homes = self.layers, self.known.at_the_end, self._first_shown()
        last = output_node(self.joint)
        for node, place in layers.place.items():
            twin = layers.node.get(place.at(2))
            if place.layer == 1:
                if twin is None or layers.described(node) != layers.described(twin):
                    raise _DiffersError(f"{node} is not {twin}")
                if _layout(node.meta.get("val")) != _layout(twin.meta.get("val")):
                    raise _DiffersError(f"{node} makes something else than {twin}")
                if self._memory(node, homes) != self._memory(twin, homes):
                    raise _DiffersError(f"{node} shows other memory than {twin}")
            elif place.layer == 2 and place.at(1) not in layers.node:
                raise _DiffersError(f"{node} is of one layer alone")
            elif place.kind != "argument":
                layers.described(node)
            inner = place.layer in (1, 2)
            if inner and any(user not in layers.place and user is not last for user in node.users):
                raise _DiffersError(f"{node} is read outside of the layers")
        if self.known.traced[3] is not None or any(
            each.mutates_data or each.mutates_metadata for each in metadata.input_info
        ):
            raise _DiffersError("arguments are written to")
        if any(each.base_idx is not None for each in metadata.output_info):
            raise _DiffersError("outputs show the memory of something else")

    def _first_shown(self) -> dict[int, tuple[fx.Node, int]]:
        """By storage, which result of which node shows it first."""
        homes: dict[int, tuple[fx.Node, int]] = {}
        for node in self.joint.graph.nodes:
            for j, tensor in enumerate(tensors_of(node.meta.get("val"))):
                homes.setdefault(storage_id(tensor), (node, j))
        return homes

    def _memory(self, node: fx.Node, homes: Mapping[int, tuple[fx.Node, int]]) -> list[Any]:
        """Where the storages of its results come from, as seen from its layer, and their bytes."""
        layer = self.layers.place[node].layer
        shown = [
            (homes[storage_id(t)], t.untyped_storage().nbytes()) for t in tensors_of(node.meta.get("val"))
        ]
        return [(self.layers.seen_from(home, layer), j, size) for (home, j), size in shown]

    def trace(self) -> JointTrace:
        joint, (primals, _), (_, tangent_notes), _ = self.known.traced
        nodes = list(joint.graph.nodes)
        inputs = [node for node in nodes if node.op == "placeholder"]
        template = self._templates(inputs)
        notes = []
        for index, (node, layer) in enumerate(template):
            made = self._copy(node, layer)
            made.meta["desc"] = self._numbered(node.meta.get("desc"), index)
            notes.append(made.meta["desc"])
        for node in inputs[len(primals) :]:
            self._copy(node, None)
        first = {
            layer: min(i for i, n in enumerate(nodes) if self.layers.place.get(n, _NOWHERE)[:2] == layer)
            for layer in (("forward", 2), ("backward", 1))
        }
        for position, node in enumerate(nodes):
            if position == first["forward", 2]:
                self._repeat("forward", range(2, self.count - 2))
            if position == first["backward", 1]:
                self._repeat("backward", range(self.count - 3, 1, -1))
            if node.op not in ("placeholder", "output"):
                place = self.layers.place.get(node)
                self._copy(node, None if place is None else self._index(place.layer))
        self._end(nodes[-1], template, len(primals))
        told = module_of(joint, self.graph)
        told.meta = dict(joint.meta)
        number = len(template)
        values = dict(zip(inputs, primals, strict=False))
        own = [
            made.meta.get("val", values.get(node))  # of a size nothing but the value is known
            for made, node in zip(
                self.graph.find_nodes(op="placeholder"),
                [node for node, _ in template] + inputs[len(primals) :],
                strict=True,
            )
        ]
        metadata = [self._extended(each, template, inputs) for each in self.known[:2]]
        return JointTrace(
            metadata[0],
            metadata[1],
            (told, (own[:number], own[number:]), (notes, tangent_notes), None),
        )

    def _index(self, layer: int) -> int:
        return layer if layer < 2 else self.count - 4 + layer

    def _templates(self, inputs: Sequence[fx.Node]) -> list[tuple[fx.Node, int | None]]:
        """Of each argument of the whole, the one that it is made from, and its layer."""
        number = dict(zip(self.short.kept, inputs, strict=False))
        found: list[tuple[fx.Node, int | None]] = []
        for index, node in enumerate(self.short.whole.graph.find_nodes(op="placeholder")):
            place = self.short.row.place.get(node)
            if index in number:
                found.append((number[index], None if place is None else place.layer))
            else:
                assert place is not None
                found.append((self.layers.node[place.at(1)], place.layer))
        return found

    def _numbered(self, note: Any, index: int) -> Any:
        if not hasattr(note, "idx"):
            raise _DiffersError("arguments are not described by number")
        return replace(note, idx=index)

    def _repeat(self, kind: str, layers: Iterable[int]) -> None:
        numbers = sorted(p.number for p in self.layers.node if p.kind == kind and p.layer == 1)
        for layer in layers:
            for number in numbers:
                self._copy(self.layers.node[_Place(kind, 1, number)], layer)

    def _copy(self, node: fx.Node, layer: int | None) -> fx.Node:
        """A node in the new graph, in this layer of the whole."""
        place = self.layers.place.get(node)
        shift = None if place is None or layer is None else layer - place.layer
        made = self.graph.node_copy(node, lambda each: self.new[self._key(each, shift)])
        self.new[self._key(node, shift)] = made
        if layer is None or shift is None:
            layer, shift = 0, None
        is_new = 1 < layer < self.count - 2
        moves = False
        for j, tensor in enumerate(tensors_of(node.meta.get("val"))):
            home = self._homes.setdefault(storage_id(tensor), (node, j))
            key = (self._key(home[0], shift), home[1])
            if key not in self._storages:
                self._storages[key] = _bytes_like(tensor) if is_new else tensor.untyped_storage()
            moves = moves or storage_number(self._storages[key]) != storage_id(tensor)
        if moves:
            # What a kept layer shows of its neighbour is that of another one now.
            made.meta["val"] = self._moved_val(node.meta["val"], shift)
            made.meta.pop("tensor_meta", None)
        if is_new:
            names = self.short.row.names
            moved(made, names[1], names[layer])
        forward = self._forwards.get(node.meta.get("seq_nr"))
        if forward is not None:
            made.meta["seq_nr"] = self._key(forward, shift)
        return made

    def _key(self, node: fx.Node, shift: int | None) -> Hashable:
        """shift: of who asks, from its layer among the four to that in the whole; None: it is in none."""
        place = self.layers.place.get(node)
        if place is None:
            return node
        return place.at(self._index(place.layer) if shift is None else place.layer + shift)

    def _moved_val(self, val: Any, shift: int | None) -> Any:
        def made(item: Any) -> Any:
            if not isinstance(item, torch.Tensor):
                return item
            home, j = self._homes[storage_id(item)]
            storage = self._storages[self._key(home, shift), j]
            meta = torch.empty(0, dtype=item.dtype, device="meta")
            meta = meta.set_(storage, item.storage_offset(), item.shape, item.stride())
            fake: Any = item
            return fake_like(fake.fake_mode, meta, item.device)

        return tree_map(made, val)

    def _end(self, last: fx.Node, template: Sequence[tuple[fx.Node, int | None]], known: int) -> None:
        """The output: what the forward returns, then a gradient for each argument."""
        results: Any = last.args[0]
        outs, gradients = results[: len(results) - known], results[len(results) - known :]
        notes = last.meta.get("desc")
        if notes is None or len(notes) != len(results):
            raise _DiffersError("outputs are not described")
        inner = {1, 2}
        place_of = self.layers.place
        for each in outs:
            if isinstance(each, fx.Node) and place_of.get(each, _NOWHERE).layer in inner:
                raise _DiffersError(f"{each} is returned")
        primals = self.joint.graph.find_nodes(op="placeholder")[:known]
        by_input = dict(zip(primals, zip(gradients, notes[len(outs) :], strict=True), strict=True))
        self._check_gradients(by_input)
        values = [self._result(each, None) for each in outs]
        said = list(notes[: len(outs)])
        for index, (node, layer) in enumerate(template):
            gradient, note = by_input[node]
            shift = None if layer is None else layer - place_of[node].layer
            values.append(self._result(gradient, shift))
            said.append(self._regraded(note, index))
        made = self.graph.output(tuple(values))
        made.meta = {**last.meta, "desc": said}

    def _check_gradients(self, by_input: Mapping[fx.Node, Any]) -> None:
        for node, (gradient, _) in by_input.items():
            place = self.layers.place.get(node)
            at = self.layers.place.get(gradient) if isinstance(gradient, fx.Node) else None
            if place is None:
                if at is not None and at.layer in (1, 2):
                    raise _DiffersError(f"{gradient} is a gradient of what is common")
                continue
            if at is not None and abs(at.layer - place.layer) > 1:
                raise _DiffersError(f"{gradient} is of another layer")
            if place.layer == 1:
                twin = by_input[self.layers.node[place.at(2)]][0]
                mine = gradient if at is None else at.at(at.layer - 1)
                other = self.layers.place.get(twin) if isinstance(twin, fx.Node) else None
                if mine != (twin if other is None else other.at(other.layer - 2)):
                    raise _DiffersError(f"{gradient} is not {twin}")

    def _result(self, each: Any, shift: int | None) -> Any:
        if not isinstance(each, fx.Node):
            return each
        return self.new[self._key(each, shift)]

    def _regraded(self, note: Any, index: int) -> Any:
        of = getattr(note, "grad_of", None)
        return note if of is None else replace(note, grad_of=self._numbered(of, index))

    def _extended(
        self, metadata: Any, template: Sequence[tuple[fx.Node, int | None]], inputs: Sequence[fx.Node]
    ) -> Any:
        """What AOTAutograd knows of arguments, for those of the whole."""
        number = {node: i for i, node in enumerate(inputs)}
        of = [number[node] for node, _ in template]
        if len(metadata.subclass_inp_meta) not in (0, len(self.short.args)):
            raise _DiffersError("arguments are described otherwise")
        plain = [metadata.subclass_inp_meta[i] for i in of] if metadata.subclass_inp_meta else []
        if any(not hasattr(each, "unwrapped_idx") for each in plain):
            raise _DiffersError("arguments are more than plain tensors")
        changed: dict[str, Any] = {
            "input_info": [metadata.input_info[i] for i in of],
            "subclass_inp_meta": [replace(each, unwrapped_idx=i) for i, each in enumerate(plain)],
        }
        for name in ("static_input_indices", "act_input_indices"):
            chosen = getattr(metadata, name, None)
            if chosen:
                changed[name] = [i for i, each in enumerate(of) if each in chosen]
        return apart(metadata, **changed)


_NOWHERE = _Place("", -1, -1)


def _bytes_like(tensor: torch.Tensor) -> Any:
    size = tensor.untyped_storage().nbytes()
    return torch.empty(size, dtype=torch.uint8, device="meta").untyped_storage()
