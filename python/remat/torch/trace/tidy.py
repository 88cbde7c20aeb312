"""Removes memory overhead of tracing before a step is captured.

Eager mode writes a slice of a tensor; in a graph without mutation this becomes copies of the slice and of the
whole. It changes running statistics; in the graph new ones are made, which the backward of a norm would hold.
The values are the same bit for bit, and so is the number of generator draws.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ..base.nodes import (
    BUILTIN_NAMESPACES,
    dense_bytes,
    is_mutable,
    outputs_of,
    storage_bytes,
    storages_of,
)
from ..base.private import OpOverload, detect_fake_mode, storage_id

aten = torch.ops.aten
_SCATTERS = (aten.slice_scatter.default, aten.select_scatter.default)
_ZEROS = (aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)
_EMPTY = (aten.empty.memory_format, aten.empty_strided.default, aten.new_empty_strided.default)


def tidy(gm: fx.GraphModule) -> None:
    """Simplify a joint graph."""
    returned = {n for n in outputs_of(gm) if isinstance(n, fx.Node)}
    storages = {storage for n in returned for storage in storages_of(n)}
    for node in list(gm.graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in _SCATTERS:
            _scatter_the_source(node)
        elif node.target is aten.copy.default:
            _leave_out_copy(node, storages)
        elif node.target is aten.native_batch_norm_backward.default:
            _leave_out_running_statistics(node)
    for node in gm.graph.find_nodes(op="call_function", target=aten.slice_scatter.default):
        _pad(gm.graph, node)
    for target in _SCATTERS:
        for node in gm.graph.find_nodes(op="call_function", target=target):
            _write_to_a_copy(gm.graph, node)
    for node in reversed(list(gm.graph.nodes)):
        # Their inputs may be superfluous as well; ops with side effects stay.
        if node.op == "call_function" and not node.users and node not in returned and _is_pure(node):
            gm.graph.erase_node(node)


def _is_pure(node: fx.Node) -> bool:
    target = node.target
    return target in (*_SCATTERS, *_ZEROS, *_EMPTY, aten.copy.default, aten.slice.Tensor, aten.select.int)


def _like(a: Any, b: Any) -> bool:
    return bool(
        isinstance(a, torch.Tensor)
        and isinstance(b, torch.Tensor)
        and (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)
    )


def _leave_out_running_statistics(node: fx.Node) -> None:
    """The backward of a batch norm that trains reads none. On CUDA their type chooses the kernel, so where it
    is not that of the input they stay.
    """
    inputs, mean, training = node.args[1], node.args[3], node.args[7]
    if not training or not isinstance(inputs, fx.Node) or not isinstance(mean, fx.Node):
        return
    if mean.meta["val"].dtype == inputs.meta["val"].dtype:
        node.update_arg(3, None)
        node.update_arg(4, None)


def _scatter_the_source(node: fx.Node) -> None:
    """scatter(x, copy(slice of x, source)) is scatter(x, source)."""
    copy = node.args[1]
    if isinstance(copy, fx.Node) and copy.target is aten.copy.default:
        slot, source = copy.args[:2]
        assert isinstance(slot, fx.Node)
        assert isinstance(source, fx.Node)
        if _like(slot.meta["val"], source.meta["val"]):
            node.update_arg(1, source)


def _write_to_a_copy(graph: fx.Graph, node: fx.Node) -> None:
    """scatter(x, scatter(part of x, source)): the inner one copies the whole of x, of which only the part is
    read. Here it writes to a copy of the part.
    """
    part = node.args[0]
    if not isinstance(part, fx.Node) or not all(_is_scattered(node, user) for user in node.users):
        return
    val, mode = part.meta["val"], detect_fake_mode(part.meta["val"])
    if mode is None or dense_bytes(val) >= storage_bytes(val):
        return
    with graph.inserting_before(node):
        copy = graph.call_function(aten.clone.default, (part,))
    copy.meta = dict(node.meta)
    with mode:
        copy.meta["val"] = val.clone()
        node.update_arg(0, copy)
        args = fx.map_arg(node.args, lambda n: n.meta["val"])
        node.meta["val"] = node.target(*args, **node.kwargs)


def _is_scattered(node: fx.Node, user: fx.Node) -> bool:
    return user.target in _SCATTERS and user.args[1] is node and user.args[0] is not node


def _leave_out_copy(node: fx.Node, returned: set[int]) -> None:
    """copy(uninitialized memory, source) is its source, if that has the same strides.

    returned: the storages that the graph returns.
    """
    into, source = node.args[:2]
    if not isinstance(into, fx.Node) or not isinstance(source, fx.Node) or into.target not in _EMPTY:
        return
    old, new = node.meta["val"], source.meta["val"]
    if not _like(old, new) or old.stride() != new.stride() or new.is_conj() or new.is_neg():
        return
    # Nothing in the graph writes to the source if an op made it; returned tensors must not share it.
    same_size = old.untyped_storage().nbytes() == new.untyped_storage().nbytes()
    if same_size and storage_id(old) not in returned and _is_fresh(source):
        node.replace_all_uses_with(source)


def _is_fresh(node: fx.Node) -> bool:
    """True if the node's result is new memory, made by an op of PyTorch."""
    target = node.target
    if not isinstance(target, OpOverload) or target.namespace not in BUILTIN_NAMESPACES:
        return False
    mine = storage_id(node.meta["val"])
    return not is_mutable(node) and all(mine not in storages_of(n) for n in node.all_input_nodes)


def _pad(graph: fx.Graph, node: fx.Node) -> None:
    """slice_scatter into new zeros is `slice_backward`, which makes them itself."""
    zeros, source, *where = node.args
    if not isinstance(zeros, fx.Node) or not isinstance(source, fx.Node) or zeros.target not in _ZEROS:
        return
    val = node.meta["val"]
    given = dict(zip(("dim", "start", "end", "step"), where, strict=False)) | node.kwargs
    dim, step = given.get("dim", 0), given.get("step", 1)
    start, end = given.get("start"), given.get("end")
    own = val.is_contiguous() and zeros.meta["val"].is_contiguous()
    if not own or source.meta["val"].dtype != val.dtype:
        return
    size = val.shape[dim]
    start, end = (0 if start is None else start), (size if end is None else min(end, size))
    with graph.inserting_before(node):
        new = graph.call_function(
            aten.slice_backward.default, (source, list(val.shape), dim, start, end, step)
        )
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    graph.erase_node(node)
