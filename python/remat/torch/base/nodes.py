"""Queries on nodes of a traced graph and their tensors."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from .devices import block_bytes
from .private import COPIES, WITH_A_STATE, OpOverload, _LazyGraphModule, schema, storage_id, wait_for

# Outputs of no more bytes, such as a loss, count as held.
SMALL = 1024
# Our own code, which calls models.
_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
BUILTIN_NAMESPACES = {"aten", "prims"}
_COLLECTIVES = {"_c10d_functional", "_c10d_functional_autograd"}
# Types of indices. Kernels keep their own states as bytes.
WHOLE = {torch.int16, torch.int32, torch.int64}
_DECIDING = {
    f"aten::{name}"
    for name in (
        *("topk", "sort", "argsort", "kthvalue", "mode", "argmax", "argmin", "searchsorted", "bucketize"),
        *("nonzero", "nonzero_static", "multinomial", "randperm", "histc", "histogram", "bincount"),
        *("_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"),
    )
}


def output_node(gm: fx.GraphModule) -> fx.Node:
    node: fx.Node
    (node,) = gm.graph.find_nodes(op="output")
    return node


def outputs_of(gm: fx.GraphModule) -> list[Any]:
    outputs: Any = output_node(gm).args[0]
    return list(outputs)


def copied(gm: fx.GraphModule) -> fx.GraphModule:
    """A copy of a graph, which may be changed in place; it shares the metadata objects."""
    graph, node_of = fx.Graph(), dict[fx.Node, fx.Node]()
    results = graph.graph_copy(gm.graph, node_of)
    graph.output(results).meta = dict(output_node(gm).meta)
    return module_of(gm, graph)


def module_of(gm: fx.GraphModule, graph: fx.Graph, final: bool = False) -> fx.GraphModule:
    """A module with the attributes of another one, whose code is generated at its first call.

    final: it will not be changed, so deep copies are the same module.
    """
    made: fx.GraphModule = (_FinalModule if final else _LazyGraphModule)(gm, graph)
    return made


class _FinalModule(_LazyGraphModule):  # type: ignore[misc]
    def __deepcopy__(self, memo: Any) -> Any:
        return self


def is_number(item: Any) -> bool:
    """Is it a symbolic number?"""
    return isinstance(item, (torch.SymInt, torch.SymFloat, torch.SymBool))


def arguments(node: fx.Node) -> tuple[Any, ...]:
    return node.args


def ancestors(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """The nodes and all their ancestors."""
    found: set[fx.Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(node.all_input_nodes)
    return found


def tensors_of(val: Any) -> list[torch.Tensor]:
    """The tensors in a node's value: itself, or those of the tuple or list it is."""
    if isinstance(val, torch.Tensor):
        return [val]
    if isinstance(val, (tuple, list)):
        return [t for t in val if isinstance(t, torch.Tensor)]
    return []


def storages_of(node: fx.Node) -> list[int]:
    """Numbers of the storages that a node's value shows."""
    return [storage_id(t) for t in tensors_of(node.meta.get("val"))]


def geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    """How it shows its memory: equal for tensors that show the same elements of one storage."""
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()


def storage_bytes(tensor: torch.Tensor) -> int:
    return _in_blocks(tensor.untyped_storage().nbytes(), tensor.device)


def _in_blocks(size: int, device: torch.device) -> int:
    block = block_bytes(device.type)
    return -(-size // block) * block


def dense_bytes(tensor: torch.Tensor) -> int:
    """Bytes of a tensor like this one with its own storage."""
    return _in_blocks(tensor.numel() * tensor.element_size(), tensor.device)


def body_of(node: fx.Node) -> fx.GraphModule | None:
    """The graph that a node names, as ops of higher order (`cond`) read it."""
    owner = node.graph.owning_module
    if node.op != "get_attr" or owner is None:
        return None
    found = operator.attrgetter(str(node.target))(owner)
    return found if isinstance(found, fx.GraphModule) else None


def is_random(node: fx.Node) -> bool:
    """Does running the node draw random numbers?"""
    if not isinstance(node.target, OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    # Attention kernels carry the tag even where they drop nothing.
    for position, argument in enumerate(schema(node.target).arguments):
        if argument.name == "dropout_p":
            given = node.args[position] if position < len(node.args) else node.kwargs.get("dropout_p", 0.0)
            return bool(given != 0.0)
    return True


def decides(op: Any) -> bool:
    """True for ops that compare numbers to decide where, which or how many."""
    return isinstance(op, OpOverload) and schema(op).name in _DECIDING


def indices_of(node: fx.Node) -> list[fx.Node]:
    """The op or its elements, where they are whole numbers that it makes from others."""
    if node.op != "call_function" or node.target is operator.getitem:
        return []
    if not any(_depends_on_rounding(read) for read in node.all_input_nodes):
        return []
    elements = [user for user in node.users if user.target is operator.getitem]
    return [each for each in (elements or [node]) if _kinds_of(each) & WHOLE]


def is_inexact(kind: torch.dtype) -> bool:
    return kind.is_floating_point or kind.is_complex


def _depends_on_rounding(node: fx.Node) -> bool:
    """True if it depends on rounding: it is no integer, or a comparison of such numbers."""
    found: dict[fx.Node, bool] = {}
    stack = [node]
    while stack:
        each = stack.pop()
        if each in found:
            continue
        kinds = _kinds_of(each)
        found[each] = any(map(is_inexact, kinds))
        if torch.bool in kinds:
            stack.extend(each.all_input_nodes)
    return any(found.values())


def _kinds_of(node: fx.Node) -> set[torch.dtype]:
    return {tensor.dtype for tensor in tensors_of(node.meta.get("val"))}


def is_mutable(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and schema(node.target).is_mutable


def is_write_to_input(node: fx.Node) -> bool:
    return (
        node.op == "call_function"
        and node.target is torch.ops.aten.copy_.default
        and isinstance(node.args[0], fx.Node)
        and node.args[0].op == "placeholder"
    )


def may_run_twice(node: fx.Node) -> bool:
    """True if the op can be recomputed without side effects. False for unknown (custom) ops and collectives,
    for recurrent layers of cuDNN, whose dropout has its own state, and for copies from another device, whose
    source the program may overwrite meanwhile.
    """
    if isinstance(node.target, OpOverload):
        if node.target in WITH_A_STATE or _is_from_another_device(node):
            return False
        return node.target.namespace in BUILTIN_NAMESPACES and not is_mutable(node)
    return False


def finished(node: fx.Node, result: Any) -> Any:
    """Waits for the result of the node's op: threads of a collective work on after it has returned, with the
    state of a profiler that may be stopped by then.
    """
    if isinstance(node.target, OpOverload) and node.target.namespace in _COLLECTIVES:
        for tensor in tensors_of(result):
            wait_for(tensor)
    return result


def _is_from_another_device(node: fx.Node) -> bool:
    if node.target not in COPIES:
        return False
    source = [t.device for n in node.all_input_nodes for t in tensors_of(n.meta.get("val"))]
    made = [t.device for t in tensors_of(node.meta.get("val"))]
    return bool(source and made) and source[0] != made[0]


def returns_alias(node: fx.Node) -> bool:
    target = node.target
    if not isinstance(target, OpOverload):
        return False
    returns = schema(target).returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def source_of(node: fx.Node) -> tuple[str, str, str] | None:
    """File, line and function of the program that made the node: the innermost outside PyTorch, if any."""
    trace = str(node.meta.get("stack_trace") or "")
    found = [
        place
        for place in re.findall(r'File "([^"]+)", line (\d+), in (\S+)', trace)
        if not place[0].startswith(_OURS)
    ]
    own = [place for place in found if f"{os.sep}torch{os.sep}" not in place[0]] or found
    return own[-1] if own else None


def source_line(node: fx.Node) -> str:
    """The program line that made the node, as "model.py:42": the innermost one outside PyTorch, with its path
    relative to the working directory or the installed package. "" if unknown.
    """
    place = source_of(node)
    if place is None:
        return ""
    file, line, _ = place
    for root in (os.getcwd() + os.sep, f"{os.sep}site-packages{os.sep}"):
        file = file.rpartition(root)[2]
    return f"{file}:{line}"


def module_path(node: fx.Node) -> str:
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return ""
    path = str(list(stack.values())[-1][0])
    path = re.sub(r"^L\['\w+'\](\.__self__)?\.?", "", path)
    path = re.sub(
        r"_modules\['([^']+)'\]|\['([^']+)'\]|\[(\d+)\]",
        lambda m: "." + next(g for g in m.groups() if g),
        path,
    )
    return re.sub(r"\.+", ".", path).strip(".")
