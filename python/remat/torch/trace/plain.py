"""Converts graphs of ATen ops traced by users to the form that `capture_step` takes.

The copy has one flat tuple of results, knows the shapes and storages of all its tensors by a run on fake
tensors, and writes only to its inputs.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import fx
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta
from torch.utils._pytree import tree_leaves

import remat

from ..base.errors import UnsupportedModelError
from ..base.nodes import (
    arguments,
    geometry,
    is_mutable,
    is_number,
    is_random,
    is_write_to_input,
    module_of,
    output_node,
    outputs_of,
    storages_of,
    tensors_of,
)
from ..base.private import (
    BREAKING_ERRORS,
    FUNCTIONAL_BATCH_NORM,
    WRITING_BATCH_NORMS,
    FakeTensor,
    FakeTensorMode,
    HigherOrderOperator,
    OpOverload,
    _disable_current_modes,
    detect_fake_mode,
    schema,
    storage_id,
)

aten = torch.ops.aten

# By node of a step: the original node, whose metadata its copies get.
ORIGIN = "remat_origin"

_BATCH_NORMS = {aten.native_batch_norm.default, *WRITING_BATCH_NORMS}


def flat_inputs(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> list[Any]:
    """The inputs of the placeholders. Raises UsageError if their number or shapes differ."""
    if not isinstance(example_inputs, (tuple, list)):
        raise remat.UsageError(
            f"the example inputs are a tuple of the arguments, not {type(example_inputs).__name__}"
        )
    flat = list(gm.graph.process_inputs(*example_inputs))
    placeholders = gm.graph.find_nodes(op="placeholder")
    names = [node.name for node in placeholders]
    if len(flat) != len(names):
        raise remat.UsageError(
            f"the graph has {len(names)} inputs ({', '.join(names[:8])}{', ...' * (len(names) > 8)}), "
            f"the example inputs are {len(flat)}"
        )
    for node, given in zip(placeholders, flat, strict=True):
        traced, shape = getattr(node.meta.get("val"), "shape", None), getattr(given, "shape", None)
        if traced is not None and not any(map(is_number, traced)) and traced != shape:
            here = "no tensor" if shape is None else f"{tuple(shape)} in the example inputs"
            raise remat.UsageError(f"input {node.name} was traced as {tuple(traced)}, and is {here}")
    return flat


@dataclass(frozen=True)
class Plain:
    """A graph for `capture_step`, all of whose ops belong to the forward half.

    gm: writes only with `copy_` to whole inputs. It returns the results, then the new contents of inputs to
    overwrite at the end. late: those inputs, by the number of the placeholder. returned: by position of a
    result, the one of those that it is.
    """

    gm: fx.GraphModule
    late: Sequence[int]
    returned: Mapping[int, int]


def as_plain(gm: fx.GraphModule, inputs: Sequence[Any], late: bool = False) -> Plain:
    """A copy that runs on tensors like these.

    inputs: by placeholder, see `flat_inputs`. late: they are overwritten after all else. Raises
    UnsupportedModelError for nodes that are no ATen ops, for shapes that depend on data, and for writes other
    than to inputs.
    """
    for node in gm.graph.nodes:
        _check(node)
    fake = _Fakes(inputs)
    fakes = [fake.of(given) for given in inputs]
    step = _copied(gm, gm)
    _show_statistics(step)
    with torch.no_grad(), fake.mode:
        _run_on_fakes(step, fakes, fake)
        shown = [_input_shown(fakes, result) for result in outputs_of(step)]
        if _writes_early(step):
            _draw_in_memory_order(step)
            step = _copied(_functional(step, fakes), gm)
            _run_on_fakes(step, fakes, fake)
            if (node := _writes_early(step)) is not None:
                raise UnsupportedModelError(
                    f"node {node.name}: {node.target} writes to more than an input as a whole"
                )
    _check_apart(step)
    _return_inputs(step, shown)
    return _with_late_writes(step) if late else Plain(step, (), {})


def _check(node: fx.Node) -> None:
    if node.op in ("call_module", "call_method"):
        raise UnsupportedModelError(
            f"node {node.name}: {node.op} {node.target} hides its ops; trace with make_fx or torch.export"
        )
    if is_number(node.meta.get("val")):
        raise UnsupportedModelError(_not_static(node))
    if node.op != "call_function" or node.target is operator.getitem:
        return
    if not isinstance(node.target, (OpOverload, HigherOrderOperator)):
        name = getattr(node.target, "__name__", str(node.target))
        raise UnsupportedModelError(
            f"node {node.name}: {name} is no ATen op; trace with make_fx or torch.export"
        )


def _not_static(node: fx.Node) -> str:
    return (
        f"node {node.name}: {node.target} makes a size, or one that depends on data; plans need static shapes"
    )


def _check_dense(what: str, tensor: torch.Tensor) -> None:
    if tensor.layout is not torch.strided:
        kind = str(tensor.layout).removeprefix("torch.")
        raise UnsupportedModelError(
            f"{what} is a {kind} tensor, whose bytes depend on data; plans need dense ones"
        )


class _Fakes:
    """Fake tensors in place of others; shared storages stay shared.

    mode: of PyTorch, in which they are. storages: those of the others, by which it knows them.
    """

    def __init__(self, given: Sequence[Any]) -> None:
        self.mode: Any = detect_fake_mode(given) or FakeTensorMode(allow_non_fake_inputs=True)
        self.storages: list[torch.UntypedStorage] = []

    def of(self, given: Any) -> Any:
        if not isinstance(given, torch.Tensor):
            return given
        _check_dense("an input", given)
        with _disable_current_modes():
            if isinstance(given, FakeTensor):
                return given.detach()
            self.storages.append(given.untyped_storage())
            return self.mode.from_tensor(given.detach(), static_shapes=True)


def _copied(gm: fx.GraphModule, named: fx.GraphModule) -> fx.GraphModule:
    """A copy with a flat tuple of results, its inputs named as in another one."""
    graph, new = fx.Graph(), dict[fx.Node, fx.Node]()
    names = iter(named.graph.find_nodes(op="placeholder"))
    for node in gm.graph.nodes:
        if node.op == "output":
            graph.output(tuple(tree_leaves(fx.map_arg(node.args[0], new.__getitem__))))
        elif node.op == "placeholder":
            origin = next(names)
            # PyTorch and cost/values.py know gradients of outputs by their names.
            name = origin.name.replace("tangents", "input")
            new[node] = graph.create_node("placeholder", f"input_{len(new)}", name=name)
            new[node].meta = {**origin.meta, ORIGIN: origin}
        else:
            new[node] = graph.node_copy(node, new.__getitem__)
            new[node].meta[ORIGIN] = node
    return module_of(gm, graph)


def _run_on_fakes(gm: fx.GraphModule, fakes: Sequence[Any], fake: _Fakes) -> None:
    """Records the result of each node."""
    given, made = iter(fakes), dict[fx.Node, Any]()
    for node in gm.graph.nodes:
        if node.op == "output":
            return
        if node.op == "placeholder":
            made[node] = next(given)
        elif node.op == "get_attr":
            made[node] = fake.of(operator.attrgetter(str(node.target))(gm))
        else:
            made[node] = _result(node, made)
        if node.op != "get_attr" or isinstance(made[node], torch.Tensor):
            node.meta["val"] = made[node]


def _result(node: fx.Node, made: Mapping[fx.Node, Any]) -> Any:
    args, kwargs = fx.map_arg((node.args, node.kwargs), made.__getitem__)
    target: Any = node.target
    try:
        result = target(*args, **kwargs)
    except BREAKING_ERRORS[:2]:
        raise UnsupportedModelError(f"node {node.name}: what {target} makes depends on data") from None
    except Exception as error:  # ops may raise anything about their arguments
        reason = " ".join(str(error).split())[:200]
        raise UnsupportedModelError(
            f"node {node.name}: {target} does not take the example inputs: {reason}"
        ) from None
    for tensor in tensors_of(result):
        _check_dense(f"node {node.name} ({target})", tensor)
    sizes = [size for tensor in tensors_of(result) for size in tensor.shape]
    if any(map(is_number, sizes)) or isinstance(result, (int, float)) or is_number(result):
        raise UnsupportedModelError(_not_static(node))
    return result


def _writes_early(gm: fx.GraphModule) -> fx.Node | None:
    """A node that writes to anything but a whole input, or that reads an input after such a write."""
    written: set[int] = set()
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        if not written.isdisjoint(s for each in node.all_input_nodes for s in storages_of(each)):
            return cast(fx.Node, node)
        if is_write_to_input(node):
            written.update(storages_of(arguments(node)[0]))
        elif is_mutable(node):
            return cast(fx.Node, node)
    return None


def _show_statistics(gm: fx.GraphModule) -> None:
    """Batch norms in training write to their running statistics, which their schema does not mark: here they
    return the new ones, and `copy_` writes.
    """
    for node in list(gm.graph.nodes):
        if node.target not in _BATCH_NORMS:
            continue
        given = _by_name(node)
        if not given["training"] or given["running_mean"] is None:
            continue
        if node.target is not aten.native_batch_norm.default:
            _check_statistics(node, [given["running_mean"], given["running_var"]])
            continue
        node.target = FUNCTIONAL_BATCH_NORM
        after = max([node, *node.users], key=list(gm.graph.nodes).index)
        for position, name in ((3, "running_mean"), (4, "running_var")):
            with gm.graph.inserting_after(after):
                new = gm.graph.call_function(operator.getitem, (node, position))
            with gm.graph.inserting_after(new):
                after = gm.graph.call_function(aten.copy_.default, (given[name], new))
            for each in (new, after):
                each.meta[ORIGIN] = node.meta[ORIGIN]


def _by_name(node: fx.Node) -> dict[str, Any]:
    named = {each.name: None for each in schema(node.target).arguments}
    return {**named, **dict(zip(named, node.args, strict=False)), **node.kwargs}


def _check_statistics(node: fx.Node, statistics: Sequence[fx.Node]) -> None:
    """Checks an op without another form: it runs once, and readers of its statistics might run after it."""
    if any(set(each.users) != {node} for each in statistics):
        raise UnsupportedModelError(
            f"node {node.name}: {node.target} overwrites running statistics that other nodes read"
        )


def _draw_in_memory_order(gm: fx.GraphModule) -> None:
    """Numbers drawn in place fill a tensor as it lies in memory. `bernoulli` always makes a contiguous one:
    it gets a view that is contiguous.
    """
    for node in list(gm.graph.nodes):
        if not (is_random(node) and is_mutable(node)):
            continue
        into = arguments(node)[0]
        val = into.meta["val"]
        if not aten.is_non_overlapping_and_dense(val):
            raise UnsupportedModelError(
                f"node {node.name}: {node.target} draws numbers for a part of a tensor"
            )
        if node.target is aten.bernoulli_.float and not val.is_contiguous():
            order = sorted(range(val.dim()), key=lambda dim: -val.stride(dim))
            with gm.graph.inserting_before(node):
                node.update_arg(0, gm.graph.call_function(aten.permute.default, (into, order)))
            node.replace_all_uses_with(into)


def _functional(gm: fx.GraphModule, fakes: Sequence[Any]) -> fx.GraphModule:
    """The same ops without writes in place: inputs get their new contents at the end."""

    def run(*given: Any) -> Any:
        return fx.Interpreter(gm).run(*given)

    with preserve_node_meta():
        traced: fx.GraphModule = make_fx(functionalize(run))(*fakes)
    return traced


def _input_shown(fakes: Sequence[Any], result: Any) -> int | None:
    """The input that a result is, if it is a whole input."""
    val = result.meta.get("val") if isinstance(result, fx.Node) else None
    if not isinstance(val, torch.Tensor):
        return None
    for index, fake in enumerate(fakes):
        if isinstance(fake, torch.Tensor) and storage_id(fake) == storage_id(val):
            return index if geometry(fake) == geometry(val) else None
    return None


def _writes(gm: fx.GraphModule) -> dict[int, fx.Node]:
    """What writes to inputs, by the number of the placeholder."""
    numbers = {node: i for i, node in enumerate(gm.graph.find_nodes(op="placeholder"))}
    return {numbers[arguments(node)[0]]: node for node in gm.graph.nodes if is_write_to_input(node)}


def _check_apart(gm: fx.GraphModule) -> None:
    """Checks that overwritten inputs do not share memory."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    shown = Counter(storage for node in placeholders for storage in storages_of(node))
    for index in _writes(gm):
        if any(shown[storage] > 1 for storage in storages_of(placeholders[index])):
            raise UnsupportedModelError(
                f"input {placeholders[index].name} is overwritten, and another input shows the same memory"
            )


def _return_inputs(gm: fx.GraphModule, shown: Sequence[int | None]) -> None:
    """Results that are overwritten inputs are the inputs themselves again; no copy is made."""
    writes = _writes(gm)
    given = {s for node in gm.graph.find_nodes(op="placeholder") for s in storages_of(node)}
    for node in writes.values():
        source = arguments(node)[1]
        if source.target is aten.copy.default and given.isdisjoint(storages_of(source.args[1])):
            node.update_arg(1, source.args[1])  # `copy_` converts it as `copy` does
    results = outputs_of(gm)
    results = [r if i is None else writes.get(i, r) for r, i in zip(results, shown, strict=True)]
    output_node(gm).args = (tuple(results),)


def _with_late_writes(gm: fx.GraphModule) -> Plain:
    writes, results = _writes(gm), outputs_of(gm)
    returned = {i: at for at, write in writes.items() for i, result in enumerate(results) if result is write}
    results = [arguments(each)[0] if i in returned else each for i, each in enumerate(results)]
    output_node(gm).args = (tuple(results + [arguments(write)[1] for write in writes.values()]),)
    for write in writes.values():
        gm.graph.erase_node(write)
    return Plain(gm, list(writes), returned)
