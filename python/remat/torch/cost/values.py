"""Real values of ops' arguments in a step, for ops whose costs depend on them.

Synthetic tensors hold meaningless numbers: an op that takes pivots, lengths or a positive definite matrix
refuses them, and one that follows offsets or counts a mask has another duration and memory. The arguments of
such an op are made by running its ancestors, each once, in the order of the trace, and dropping results after
their last use.
"""

from __future__ import annotations

import operator
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map

from ..base.devices import device_of_tensors, runtime_of
from ..base.errors import UnsupportedModelError, log
from ..base.nodes import ancestors, may_run_twice, returns_alias, storage_bytes, tensors_of
from ..base.private import OpOverload, storage_id
from ..base.storages import has_data
from ..trace.gradients import takes_gradient
from ..trace.kernels import kernel_of
from .standins import indices, stand_in

# Limit on the memory of an op's ancestors: this many times the bytes that the op reads, plus a constant.
_TIMES, _BYTES = 2, 1 << 20
# Share of the free memory for a real run.
_SHARE = 0.5

_Use = Callable[[fx.Node, Mapping[fx.Node, Any]], None]


class RealValues:
    """Real values of one step. inputs: the tensors of its placeholders, as far as known.

    room: bytes that making values may take; None: half of what is free on the device.
    """

    def __init__(
        self, gm: fx.GraphModule | None, inputs: Mapping[fx.Node, Any], room: int | None = None
    ) -> None:
        self._gm, self._inputs, self._room = gm, inputs, room
        self._place = {} if gm is None else {node: i for i, node in enumerate(gm.graph.nodes)}

    @classmethod
    def none(cls) -> RealValues:
        """For a step without a call."""
        return cls(None, {})

    @classmethod
    def of(cls, gm: fx.GraphModule, args: Sequence[Any], room: int | None = None) -> RealValues:
        """args: arguments of Dynamo's graph, which the placeholders of the joint graph name."""
        inputs = {}
        for node in gm.graph.find_nodes(op="placeholder"):
            index = getattr(node.meta.get("desc"), "idx", None)
            given = args[index] if index is not None and index < len(args) else None
            if not _is_tangent(node) and _is_like(given, node.meta.get("val")):
                inputs[node] = given.detach() if isinstance(given, torch.Tensor) else given
        return cls(gm, inputs, room)

    def numbers_read(self, node: fx.Node) -> dict[fx.Node, Any]:
        """Integers that an op reads, if they are cheap to compute and are not row indices."""
        if not _reads_numbers(node):
            return {}
        rows = {index for index, _ in indices(node)}
        wanted = [n for n in node.all_input_nodes if n not in rows and _is_of_numbers(n.meta.get("val"))]
        made = sum(_bytes(n) for n in ancestors(wanted) if n.op == "call_function")
        if made > _BYTES + _TIMES * sum(map(_bytes, [node, *node.all_input_nodes])):
            return {}
        found: dict[fx.Node, Any] = {}
        self._walk({node: wanted}, lambda _, given: found.update(given))
        return found

    def visit(self, wanted: Collection[fx.Node], use: _Use) -> None:
        """Call `use` with each node and copies of its arguments in a real run, except nodes whose arguments
        cannot be made. UnsupportedModelError of `use` is ignored.
        """
        self._walk({n: n.all_input_nodes for n in wanted if not takes_gradient(n)}, use)

    def _walk(self, wanted: Mapping[fx.Node, Sequence[fx.Node]], use: _Use) -> None:
        """wanted: by node, which of its arguments are."""
        reads = {n: given for n, given in wanted.items() if given and self._can_run(ancestors(given))}
        made = ancestors(n for given in reads.values() for n in given)
        nodes = sorted(made | reads.keys(), key=self._place.__getitem__)
        if not nodes or not self._has_room(nodes, made, reads):
            return
        left = _uses(made, reads)
        env: dict[fx.Node, Any] = {}
        for node in nodes:
            if node in reads:
                with suppress(UnsupportedModelError):
                    use(node, {n: tree_map(_copied, env[n]) for n in reads[node]})
                _drop(env, left, reads[node])
            if node in made:
                try:
                    env[node] = self._value(node, env)
                except Exception as error:  # ops may raise anything about their arguments
                    log.debug("%s cannot be run for its value: %s", node.name, error)
                    return
                _drop(env, left, node.all_input_nodes)

    def _can_run(self, nodes: Collection[fx.Node]) -> bool:
        return self._gm is not None and all(
            node in self._inputs or _is_tangent(node)
            if node.op == "placeholder"
            else node.op == "get_attr" or node.target is operator.getitem or may_run_twice(node)
            for node in nodes
        )

    def _value(self, node: fx.Node, env: Mapping[fx.Node, Any]) -> Any:
        if node.op == "placeholder":
            return self._inputs[node] if node in self._inputs else stand_in(node.meta["val"])
        if node.op == "get_attr":
            return operator.attrgetter(str(node.target))(self._gm)
        args, kwargs = fx.map_arg((node.args, node.kwargs), env.__getitem__)
        return kernel_of(node.target)(*args, **kwargs)

    def _has_room(
        self,
        nodes: Sequence[fx.Node],
        made: Collection[fx.Node],
        reads: Mapping[fx.Node, Sequence[fx.Node]],
    ) -> bool:
        """True if there is memory for all values alive together."""
        left, alive = _uses(made, reads), dict[fx.Node, Any]()
        shown, level, top = Counter[int](), 0, 0
        for node in nodes:
            if node in made and node.op == "call_function":
                alive[node] = None
                level += sum(size for storage, size in _storages(node).items() if not shown[storage])
                shown.update(_storages(node).keys())
                top = max(top, level)
            for read in [*reads.get(node, ()), *(node.all_input_nodes if node in made else ())]:
                if _drop(alive, left, [read]) and read.op == "call_function":
                    shown.subtract(_storages(read).keys())
                    level -= sum(size for storage, size in _storages(read).items() if not shown[storage])
        tensors = [t for node in nodes for t in tensors_of(node.meta.get("val"))]
        room = self._room if self._room is not None else _free(device_of_tensors(tensors))
        return top <= room


def _uses(made: Collection[fx.Node], reads: Mapping[fx.Node, Sequence[fx.Node]]) -> Counter[fx.Node]:
    """Number of reads of each node."""
    found = Counter(read for node in made for read in node.all_input_nodes)
    found.update(read for given in reads.values() for read in given)
    return found


def _drop(env: dict[fx.Node, Any], left: Counter[fx.Node], reads: Sequence[fx.Node]) -> bool:
    """Counts one more read of these and drops finished ones; returns True if the last one is finished."""
    gone = False
    for read in reads:
        left[read] -= 1
        gone = left[read] == 0
        if gone:
            env.pop(read, None)
    return gone


def _free(device: torch.device) -> float:
    memory = None if device.type == "cpu" else runtime_of(device).memory()
    if memory is not None:
        return _SHARE * memory.free
    return _SHARE * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _is_tangent(node: fx.Node) -> bool:
    return node.name.startswith("tangents") and isinstance(node.meta.get("val"), torch.Tensor)


def _is_like(given: Any, val: Any) -> bool:
    if not isinstance(val, torch.Tensor):
        return isinstance(given, (int, float))
    return (
        isinstance(given, torch.Tensor)
        and has_data(given)
        and (given.shape, given.dtype, given.device) == (val.shape, val.dtype, val.device)
    )


def _reads_numbers(node: fx.Node) -> bool:
    target = node.target
    return (
        isinstance(target, OpOverload)
        and torch.Tag.pointwise not in target.tags
        and not returns_alias(node)
        and any(_is_of_numbers(n.meta.get("val")) for n in node.all_input_nodes)
    )


def _is_of_numbers(val: Any) -> bool:
    return isinstance(val, torch.Tensor) and val.dtype in (torch.int32, torch.int64)


def _copied(item: Any) -> Any:
    """A copy with the same values in the same layout."""
    if not isinstance(item, torch.Tensor):
        return item
    copy = stand_in(item)
    whole = item.is_conj() or item.is_neg() or 0 in item.stride()
    return item if whole else copy.copy_(item)


def _bytes(node: fx.Node) -> int:
    """Bytes that a node makes."""
    if node.op != "call_function" or node.target is operator.getitem or returns_alias(node):
        return 0
    return sum(_storages(node).values())


def _storages(node: fx.Node) -> dict[int, int]:
    return {storage_id(t): storage_bytes(t) for t in tensors_of(node.meta.get("val"))}
